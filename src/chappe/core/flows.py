"""What goes to which port of each variable, what peers state that they want, and what is asked of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from chappe.core.announcements import Announcements
from chappe.core.demand import EVERYTHING, Demand, Terms, combined, problem_of
from chappe.core.directory import PATHS, Directory, Entry
from chappe.engine._engine import Engine
from chappe.engine._status import UnknownVariableError
from chappe.events.asked import Asked
from chappe.machine import NEVER
from chappe.security.patterns import variable_address
from chappe.wire.control import Demanded, DemandTerm

log = structlog.get_logger(__name__)

Asks = Callable[[int, str, str], Asked]  # whether (address, origin) is looked for by the link of a port
MaySend = Callable[[str, str, str], object]  # whether rules let a peer have (publisher, variable)
SLICE = 100  # variables handled in one turn of the loop
HANDOVER_NS = (
    100_000_000  # after a neighbour is asked for a variable it surely comes from there, and another one is not
)


class Flows:
    """Of all variables. A peer gets what it may have as far as it wants it, or all of it if it cannot state that.

    What is stated to those that announce a variable is what is wanted here and behind this node: a link carries that.
    """

    def __init__(
        self, engine: Engine, directory: Directory, announcements: Announcements, may_send: MaySend, asks: Asks
    ) -> None:
        self._engine = engine
        self._directory = directory
        self._announcements = announcements
        self._may_send = may_send
        self._asks = asks
        self._routed: dict[int, dict[int, Entry]] = {}  # port -> what is forwarded to it, by id
        self._stating: set[int] = set()  # ports of peers that state what they want
        self._outdated: dict[int, dict[int, bool]] = {}  # port -> ids to look at; True: what was stated is forgotten
        self._taken_over: deque[tuple[int, int, int]] = deque()  # (when, id, port): values come from there by then
        self._taking_over: list[tuple[int, int]] = []  # (id, port) of those for which the time begins now

    # --- peers

    def peer_up(self, port: int, fresh: bool, states: bool) -> None:
        """A link carries this port (again): announce everything; `fresh`: what it stated before is forgotten."""
        if fresh or states != (port in self._stating):
            self._outdated[port] = dict.fromkeys(self._routed.get(port, ()), fresh)
        (self._stating.add if states else self._stating.discard)(port)
        self._announcements.open(port, self._routed.get(port, {}))

    def peer_gone(self, port: int) -> None:
        """The port of that peer is about to be freed."""
        self._outdated.pop(port, None)
        self._stating.discard(port)
        for entry in self._routed.pop(port, {}).values():
            entry.routes = {key: term for key, term in entry.routes.items() if key[1] != port}
            self._forget_served(entry, port)

    def demanded(self, port: int, wanted: Iterable[Demanded]) -> list[str]:
        """A peer states what it wants of variables; the answer says what was refused and why.

        What was retracted while this was on its way is passed over.
        """
        refused = []
        routed, outdated = self._routed.get(port, {}), self._outdated.get(port, {})
        for number, terms in wanted:
            entry = self._directory.numbered(number)
            if entry is None or number not in routed or port not in self._stating:
                continue
            outdated.pop(number, None)
            problem = problem_of(terms)
            if not problem:
                before = entry.demand.stated.get(port, ()) if entry.demand is not None else ()
                problem = self._state(entry, port, terms)
                if problem:
                    self._state(entry, port, before)
            if problem:
                refused.append(f"{'/'.join(entry.name)}: {problem}")
        return refused

    # --- what may go where

    def may(self, entry: Entry, peer: str) -> bool:
        """Whether rules let a peer have it."""
        return bool(self._may_send(peer, *entry.name))

    def offer(self, entry: Entry, key: str, name: str, port: int, term: DemandTerm) -> None:
        """A peer may have a variable, on these terms."""
        if (key, port) in entry.routes or entry.only_from(port) or not self.may(entry, name):
            return
        number = entry.variable.variable_id
        entry.routes[key, port] = term
        if number not in self._routed.setdefault(port, {}):
            self._routed[port][number] = entry
            self._announcements.announce(port, entry)
        problem = self._forward(entry, port)
        if port in entry.inputs:
            self.demand(entry)
        if problem:
            log.error("a path cannot be used", peer=name, variable="/".join(entry.name), reason=problem)

    def withdraw(self, entry: Entry, keys: Sequence[tuple[str, int]]) -> None:
        """A peer may not have it any more, as far as these go."""
        for key in keys:
            del entry.routes[key]
        left = entry.targets()
        for port in {port for _, port in keys}:
            if port in left:
                self._forward(entry, port)
                continue
            self._forget_served(entry, port, terminate=True)
            self._routed.get(port, {}).pop(entry.variable.variable_id, None)
            self._announcements.retract(port, entry.variable.variable_id)
            if port in entry.inputs:
                self.demand(entry)

    def serve(self, entry: Entry, port: int, paths: Mapping[DemandTerm, int]) -> None:
        """That is what a port gets now: peers that bring the variable hear of it if it is more or less than before."""
        if entry.demand is None:
            if not paths:
                return
            entry.demand = Demand()
        if entry.demand.serve(port, paths) or (
            entry.inputs and not entry.demand.served.keys().isdisjoint(entry.inputs)
        ):
            self.demand(entry)

    def demand(self, entry: Entry, again: int = -1) -> None:
        """State to the peers that announce it what is wanted here and behind this node; `again`: to that port anyway.

        Whose publisher is here wants it from nobody else. A neighbour in the mesh that is served, too, as while routes
        change, is not asked for what it alone wants. Nodes in a ring of static paths, where more than two may lie,
        cannot know the demand of one from the echo of the other's: between two of them everything goes.
        """
        demand = entry.demand
        if demand is None or not entry.inputs:
            return
        terms = demand.wanted(entry.variable) if entry.owner < 0 else ()
        targets = entry.targets()
        asked_before = any(demand.asked.values())
        chosen = self._chosen_inputs(entry)
        for port in entry.inputs:
            if port not in self._stating or not self._announcements.reaches(port):
                continue
            if port not in chosen:
                wanted: Terms = ()
            elif port in targets and entry.owner < 0:
                wanted = demand.wanted(entry.variable, port) if entry.origin else EVERYTHING
            else:
                wanted = terms
            if port == again or wanted != demand.asked.get(port, ()):
                if wanted and asked_before and not demand.asked.get(port):
                    demand.recent.add(port)
                    self._taking_over.append((entry.variable.variable_id, port))
                elif not wanted:
                    demand.recent.discard(port)
                demand.asked[port] = wanted
                self._announcements.demand(port, entry.variable.variable_id, wanted)
        turned = asked_before is not any(demand.asked.values())
        if turned and not entry.sources and self._stating.issuperset(entry.inputs):
            # It begins: the first value is the present one for everybody. Or it ends: what is kept will grow old.
            self._engine.status.await_value(entry.variable.variable_id)

    # --- time

    def tick(self, now_ns: int) -> None:
        """End the old routes of what comes by the new ones by now."""
        self._taken_over += [(now_ns + HANDOVER_NS, *each) for each in self._taking_over]
        self._taking_over.clear()
        for _ in range(SLICE):
            if not self._taken_over or now_ns < self._taken_over[0][0]:
                return
            _, number, port = self._taken_over.popleft()
            entry = self._directory.numbered(number)
            if entry is not None and entry.demand is not None and port in entry.demand.recent:
                entry.demand.recent.discard(port)
                self.demand(entry)

    def next_tick(self) -> int:
        """When an old route is to be ended."""
        if self._taking_over:
            return 0
        return self._taken_over[0][0] if self._taken_over else NEVER

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._outdated)

    def work(self) -> None:
        """A slice of what peers stated before they restarted."""
        for port in list(self._outdated)[:1]:
            self._look_again(port)

    # --- how it is done

    def _state(self, entry: Entry, port: int, terms: Terms) -> str:
        if entry.demand is None:
            entry.demand = Demand()
        if terms:
            entry.demand.stated[port] = terms
        else:
            entry.demand.stated.pop(port, None)
        return self._forward(entry, port)

    def _forward(self, entry: Entry, port: int) -> str:
        """Let the engine forward to a peer what its paths allow and it wants; why that cannot be, if it cannot."""
        allowed = [term for (_, to), term in entry.routes.items() if to == port]
        demand = entry.demand or Demand()
        terms = set(allowed) if port not in self._stating else combined(allowed, demand.stated.get(port, ()))
        served, number = demand.served.get(port, {}), entry.variable.variable_id
        paths = {term: path for term, path in served.items() if term in terms}
        for term in sorted(terms - paths.keys()):
            path = entry.path()
            terms_of_path = [term.interval_ns], [term.priority], term.modes
            try:
                in_mode = term.modes >> self._engine.status.slot & 1
                if served or paths or port not in self._stating or not in_mode or self._has_path(entry, port):
                    self._engine.status.setup_path(number, port, path, *terms_of_path)
                else:  # it has nothing yet: the present value goes there at once, as it goes to a client
                    self._engine.watch(port, number, path, *terms_of_path)
            except ValueError as error:
                for added in paths.keys() - served.keys():
                    self._engine.status.terminate_path(number, paths[added])
                return str(error)
            paths[term] = path
        for term in served.keys() - terms:
            with suppress(UnknownVariableError):
                self._engine.status.terminate_path(number, served[term])
        self.serve(entry, port, paths)
        return ""

    def _has_path(self, entry: Entry, port: int) -> bool:
        """Whether a path of a broker brings it to that port, and so has brought its present value."""
        if not entry.held & PATHS:
            return False
        return port in self._engine.status.describe(entry.variable.variable_id)["paths"].values()

    def _forget_served(self, entry: Entry, port: int, terminate: bool = False) -> None:
        """Nothing goes to that peer any more. `terminate`: its port stays."""
        if entry.demand is None:
            return
        entry.demand.stated.pop(port, None)
        for path in entry.demand.served.get(port, {}).values() if terminate else ():
            with suppress(UnknownVariableError):
                self._engine.status.terminate_path(entry.variable.variable_id, path)
        self.serve(entry, port, {})

    def _chosen_inputs(self, entry: Entry) -> tuple[int, ...]:
        """Where a variable is asked for: of what was discovered, at those who were asked to look for it.

        Others announce it because they were asked for more than is wanted. One that is to be asked no more is until
        values surely come from another.
        """
        demand = entry.demand
        if len(entry.inputs) < 2 or not entry.origin:
            return entry.inputs
        text = variable_address(*entry.name)
        asks = {port: self._asks(port, text, entry.origin) for port in entry.inputs}
        now = tuple(port for port in entry.inputs if asks[port] is Asked.YES)
        if demand is not None and any(
            demand.asked.get(port) and port not in demand.recent and self._announcements.reaches(port) for port in now
        ):
            return now
        return tuple(port for port in entry.inputs if asks[port]) or entry.inputs

    def _look_again(self, port: int) -> None:
        """A slice of what a peer stated before it restarted, or goes there for it states nothing, or now does."""
        outdated = self._outdated[port]
        for number in list(outdated)[:SLICE]:
            forget = outdated.pop(number)
            entry = self._directory.numbered(number)
            if entry is None or number not in self._routed.get(port, {}):
                continue
            if forget and entry.demand is not None:
                entry.demand.stated.pop(port, None)
            self._forward(entry, port)
        if not outdated:
            del self._outdated[port]
