"""Whatever comes in whatever order: neighbours are asked for what is wanted, and get what they asked for."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chappe.core.demand import Terms, combined, minimal
from chappe.wire import control
from chappe.wire.control import Announce, Demand, DemandTerm, Retract, Variable, Watching
from tests.unit.core.control_table import Table

SECOND = 1_000_000_000
PERIOD = SECOND // 10
SOURCES = ("west", "north")
SINKS = ("east", "south")
IDS = (5, 6, 7)
STATES = ("demand",)

ids = st.sampled_from(IDS)
terms = st.lists(
    st.builds(DemandTerm, st.sampled_from((0, 2, 3, 10)).map(lambda every: every * PERIOD), st.integers(0, 6),
              st.sampled_from((0xFFFF, 1, 2, 0xFF))),
    max_size=3, unique=True,
).map(tuple)  # fmt: skip


def variable(number: int) -> Variable:
    return Variable(number, "p", f"v{number}", "float", 1, PERIOD, 3, 0)


class Router(RuleBasedStateMachine):
    """A node between two that announce variables and two that want some; a client watches at it."""

    @initialize()
    def start(self) -> None:
        self.table = Table((*SOURCES, *SINKS), {"#": SINKS}, capabilities=STATES)
        self.table.client("reader")
        self.up = dict.fromkeys((*SOURCES, *SINKS), True)
        self.announced: dict[str, set[int]] = {name: set() for name in SOURCES}
        self.asked: dict[str, dict[int, Terms]] = {name: {} for name in SOURCES}  # as these neighbours know it
        self.wanted: dict[str, dict[int, Terms]] = {name: {} for name in SINKS}
        self.offered: dict[str, set[int]] = {name: set() for name in SINKS}  # as these know it
        self.held: dict[str, dict[int, Terms]] = {
            name: {} for name in SINKS
        }  # what they said, while it is not forgotten
        self.watched: dict[int, DemandTerm] = {}

    def take(self, sent: list[tuple[str, control.Message]]) -> None:
        """Neighbours read what was sent to them; one that learns of a variable says what it wants."""
        while sent:
            name, message = sent.pop(0)
            if isinstance(message, Demand) and self.up[name]:
                for number, asked in message.wanted:
                    if number in self.announced[name]:
                        self.asked[name][number] = asked
            elif isinstance(message, Announce) and self.up[name]:
                for each in message.variables:
                    self.offered[name].add(each.variable_id)
                    wanted = self.wanted[name].get(each.variable_id)
                    if wanted:
                        sent += self.tell(name, Demand(wanted=((each.variable_id, wanted),)))
            elif isinstance(message, Retract) and self.up[name]:
                for number in message.variable_ids:
                    self.offered[name].discard(number)
                    self.wanted[name].pop(number, None)

    def tell(self, name: str, message: control.Message) -> list[tuple[str, control.Message]]:
        if isinstance(message, Demand):
            self.held[name].update(message.wanted)
        sent = self.table.tell(name, message)
        effects = []
        while self.table.core.busy:
            effects += self.table.core.work()
        return sent + self.table.sent(effects)

    @rule(name=st.sampled_from(SOURCES), number=ids)
    def announce(self, name: str, number: int) -> None:
        if self.up[name]:
            self.announced[name].add(number)
            self.take(self.tell(name, Announce(variables=(variable(number),))))

    @rule(name=st.sampled_from(SOURCES), number=ids)
    def retract(self, name: str, number: int) -> None:
        if self.up[name] and number in self.announced[name]:
            self.announced[name].discard(number)
            self.asked[name].pop(number, None)
            self.take(self.tell(name, Retract(variable_ids=(number,))))

    @rule(name=st.sampled_from(SINKS), number=ids, wanted=terms)
    def demand(self, name: str, number: int, wanted: Terms) -> None:
        if self.up[name] and number in self.offered[name]:
            self.wanted[name][number] = wanted
            self.take(self.tell(name, Demand(wanted=((number, wanted),))))

    @rule(number=ids, every=st.sampled_from((0, 2, 5)))
    def watch(self, number: int, every: int) -> None:
        sent = self.tell(
            "reader", control.Watch(id=1, publisher="p", variable=f"v{number}", interval_ns=every * PERIOD)
        )
        if any(isinstance(message, Watching) for to, message in sent if to == "reader"):
            self.watched[number] = DemandTerm(every * PERIOD)
        self.take([each for each in sent if each[0] != "reader"])

    @rule(number=ids)
    def unwatch(self, number: int) -> None:
        if self.watched.pop(number, None) is not None:
            sent = self.tell("reader", control.Unwatch(id=1, variable_id=number))
            self.take([each for each in sent if each[0] != "reader"])

    @precondition(lambda self: any(self.up.values()))
    @rule(name=st.sampled_from((*SOURCES, *SINKS)))
    def lose(self, name: str) -> None:
        if self.up[name]:
            self.up[name] = False
            self.table.disconnect(name)

    @rule(name=st.sampled_from((*SOURCES, *SINKS)), restarted=st.booleans())
    def come_back(self, name: str, restarted: bool) -> None:
        if self.up[name]:
            return
        self.up[name] = True
        if restarted:
            if name in SOURCES:
                self.asked[name].clear()
            else:
                self.wanted[name].clear()
                self.held[name].clear()
                self.offered[name].clear()
        sent = self.table.connect(name, STATES, fresh=restarted)
        if name in SOURCES and self.announced[name]:
            sent += self.tell(name, Announce(variables=tuple(map(variable, sorted(self.announced[name])))))
        self.take(sent)

    @invariant()
    def neighbours_know_what_is_wanted(self) -> None:
        for number in IDS:
            wanted = [term for name in SINKS for term in self.served(name, number)]
            wanted += [self.watched[number]] if number in self.watched else []
            expected = minimal(variable(number), wanted)
            for name in SOURCES:
                if self.up[name] and number in self.announced[name]:
                    assert self.asked[name].get(number, ()) == expected

    def served(self, name: str, number: int) -> Terms:
        """What a sink gets: what it stated last, until it is retracted, which it may be too far away to hear."""
        entry = self.table.variables.directory.numbered(number)
        if entry is None or self.table.ports[name] not in entry.targets():
            self.held[name].pop(number, None)
        return tuple(combined([DemandTerm()], self.held[name].get(number, ())))

    @invariant()
    def the_engine_forwards_what_was_stated(self) -> None:
        for number in IDS:
            if self.table.variables.directory.numbered(number) is None:
                continue
            modes = self.table.engine.status.describe(number)["modes"]
            for name in SINKS:
                stated = self.served(name, number)
                for mode in range(16):
                    every = sorted({max(1, term.interval_ns // PERIOD) for term in stated if term.modes >> mode & 1})
                    fewest = [one for one in every if not any(one % less == 0 for less in every if less < one)]
                    port = modes.get(mode, {}).get(self.table.ports[name])
                    assert (list(port["intervals"]) if port is not None else []) == fewest


TestRouter = Router.TestCase
TestRouter.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
