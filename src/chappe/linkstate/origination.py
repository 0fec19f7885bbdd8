"""Origination of this node's advertisements: the newest content of each key, numbered and paced."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from chappe.linkstate.choices import NEVER
from chappe.linkstate.database import Advert, Database
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import difference
from chappe.linkstate.units import Address
from chappe.wire.mesh import InterestAdvert, Key, LinkAdvert, LinkFact, Statement, Withdrawn, encode_advert
from chappe.wire.patterns import Cover, Pattern, summarise

PER_US = 1000  # a sequence is at least the time in microseconds, so that a node that restarts goes on above its last

SLOWER = 16  # times as long as the first interval is the longest

Sign = Callable[[bytes], bytes]  # the signature of this node under the body of a statement
NO_LINKS: tuple[LinkFact, ...] = ()


class Interest(NamedTuple):
    """What is wanted and what is published at a node or in a unit; `variables`: patterns over publisher/variable."""

    wanted: tuple[Pattern, ...] = ()
    published: tuple[Pattern, ...] = ()
    variables: tuple[Pattern, ...] = ()


NOTHING = Interest()


class OriginatedState:
    """One key of this node: what is to be advertised, and what was."""

    __slots__ = (
        "advertised_interest", "advertised_links", "advertised_nothing", "capabilities", "due", "empty", "forced",
        "interest", "interval_ns", "links", "members", "originated_ns", "purges_changed", "recent", "refresh_ns",
        "sequence", "since_ns", "urgent", "withdrawn",
    )  # fmt: skip

    def __init__(self) -> None:
        self.links = self.advertised_links = NO_LINKS
        self.interest = self.advertised_interest = NOTHING
        self.recent = NOTHING  # all that was of interest at some time since then
        self.members = 1
        self.capabilities: tuple[str, ...] = ()
        self.withdrawn: tuple[Withdrawn, ...] = ()
        self.sequence = 0
        self.originated_ns = -NEVER
        self.refresh_ns = NEVER
        self.due = False
        self.urgent = False  # others would miss something, or send to nobody
        self.forced = False  # it is advertised in any case
        self.purges_changed = False  # an originator has failed whose advertisements others still believe
        self.since_ns = -NEVER  # when the first change came that is not advertised yet
        self.interval_ns = 0  # from one advertisement to the next of what is not urgent
        self.empty = self.advertised_nothing = True  # nothing is advertised, or all of it was withdrawn


class Originator:
    """The advertisements of one node."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, clock: MeshClock, rng: random.Random,
        sign: Sign | None,
    ) -> None:  # fmt: skip
        self.me = me
        self.settings = settings
        self.database = database
        self._clock = clock
        self._rng = rng
        self._sign = sign
        self._states: dict[Key, OriginatedState] = {}
        self._paths = [me.path(level) for level in range(me.depth + 1)]
        self._next_ns: int | None = NEVER  # None: it is to be found anew

    def links(
        self, level: int, links: tuple[LinkFact, ...], members: int, now_ns: int, withdrawn: tuple[Withdrawn, ...] = (),
        capabilities: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Advertise these links of the node itself, or of its unit of a level; none withdraws what was advertised.

        `withdrawn`: who originated for the unit before and does no more.
        """
        state = self._state_at(("l", level, self._paths[level], self.me.node), bool(links))
        if state is None:
            return
        state.members = members  # advertised with the next change: who is in a unit matters to nobody outside it
        more = not set(withdrawn) <= set(state.withdrawn)
        state.withdrawn = withdrawn
        other = state.capabilities != capabilities
        state.capabilities = capabilities
        if more or other or difference(state.links, links):
            state.links = links
            turned = self._toggle(state, not links)
            state.purges_changed |= more or other
            urgent = turned or state.purges_changed or self._breaks_reachability(state.advertised_links, links)
            self._schedule(
                state, turned or state.purges_changed or difference(state.advertised_links, links) > 0, urgent, now_ns
            )

    def _breaks_reachability(self, said: tuple[LinkFact, ...], links: tuple[LinkFact, ...]) -> bool:
        """Whether others miss something: a unit is lost, or the last link to it that was advertised is."""
        up = {fact.id for fact in links if not fact.suspect}
        still = leads_to(tuple(fact for fact in said if fact.id in up))
        return leads_to(links) != still or leads_to(said) != still

    def interest(self, level: int, interest: Interest, now_ns: int, originates: bool = False) -> None:
        """Advertise what is of interest and published there; for a unit that `originates` also that it is nothing.

        New interest of a unit is advertised at once, and that it has ended when that was so for a while without a
        break: often a node comes back with the same interest, or a cluster had lost its controller.
        """
        empty = not (originates or any(interest))
        state = self._state_at(("i", level, self._paths[level], self.me.node), not empty)
        if state is not None and (state.interest != interest or state.empty is not empty):
            state.interest = interest
            state.recent = both(_plain(state.recent), interest) if level and state.due else interest
            turned = self._toggle(state, empty)
            gained = bool(level) and not within(interest, state.advertised_interest)
            self._schedule(state, turned or state.advertised_interest != interest, turned or gained, now_ns)

    def _toggle(self, state: OriginatedState, empty: bool) -> bool:
        """Note whether there is anything; whether something is advertised where nothing was, or the reverse."""
        if state.empty:
            state.originated_ns = -NEVER
        state.empty = empty
        return state.advertised_nothing is not empty

    def _schedule(self, state: OriginatedState, changed: bool, urgent: bool, now_ns: int) -> None:
        """Advertise it when it may be, if it differs from what was advertised last."""
        if changed and not state.due:
            state.since_ns = now_ns
        state.due, state.urgent = changed or state.forced, urgent or state.forced
        self._next_ns = None

    def renumber(self, key: Key, sequence: int, now_ns: int) -> None:
        """A neighbour has a higher sequence of this node: go on above it, with what is true now.

        A controller that restarted does not know yet that it is one. Until it does, what it advertised stands: to
        withdraw it would cut the unit off.
        """
        self._next_ns = None
        state = self._states.setdefault(key, OriginatedState())
        state.since_ns = now_ns
        state.sequence = max(state.sequence, sequence)
        state.due = state.urgent = state.forced = True
        state.originated_ns = now_ns + 2 * key[1] * self.settings.settle_ns if key[1] and state.empty else -NEVER

    def restate(self, now_ns: int) -> None:
        """Advertise all of it again, at once: signed by another certificate, or with another time."""
        self._next_ns = None
        for state in self._states.values():
            if not (state.empty and state.advertised_nothing):
                state.since_ns = now_ns
                state.due = state.urgent = state.forced = True

    def originates(self, kind: str, level: int) -> bool:
        """Whether something is advertised at a level."""
        state = self._states.get((kind, level, self._paths[level], self.me.node))
        return state is not None and not state.empty

    def keys(self) -> set[Key]:
        """Keys that are kept up."""
        return {key for key, state in self._states.items() if not state.empty}

    def refreshes(self, now_ns: int) -> bool:
        """Whether the node's own links are advertised again now, changed or not."""
        state = self._states.get(("l", 0, self.me.node, self.me.node))
        return state is not None and now_ns >= state.refresh_ns

    def flush(self, now_ns: int) -> list[tuple[int, Statement]]:
        """Statements that are to be sent now, each kept in the database, and the level at which they are made."""
        found: list[tuple[int, Statement]] = []
        if now_ns < self.next_ns():
            return found
        self._next_ns = None
        for key, state in self._states.items():
            due = state.due and now_ns >= self._earliest_ns(key, state)
            if (due and not self._wanted_again(key, state, now_ns)) or now_ns >= state.refresh_ns:
                found.append((key[1], self._originate(key, state, now_ns)))
        return found

    def _wanted_again(self, key: Key, state: OriginatedState, now_ns: int) -> bool:
        """Whether interest that was to be withdrawn came back in between: then nothing is advertised for a while."""
        if key[0] == "l" or not key[1] or state.urgent or state.empty or state.advertised_nothing:
            return False
        if self._summary(state.recent) != state.advertised_interest:
            return False
        state.since_ns, state.recent = now_ns, state.interest
        return True

    def next_ns(self) -> int:
        """When there is something to send."""
        if self._next_ns is None:
            self._next_ns = min(
                (
                    min(state.refresh_ns, self._earliest_ns(key, state) if state.due else NEVER)
                    for key, state in self._states.items()
                ),
                default=NEVER,
            )
        return self._next_ns

    def _earliest_ns(self, key: Key, state: OriginatedState) -> int:
        """When a key may be advertised again: less often if many hear it, at long intervals if nobody misses it."""
        kind, level = key[:2]
        if state.urgent or not level:
            return state.originated_ns + (self.settings.originate_ns << level)
        if kind == "i":
            return max(
                state.originated_ns + (self.settings.originate_ns << level), state.since_ns + self._longest_ns(level)
            )
        return state.originated_ns + max(state.interval_ns, self.settings.originate_ns << level)

    def _longest_ns(self, level: int) -> int:
        return self.settings.originate_most_ns << (level - 1)

    def _slow_down(self, level: int, state: OriginatedState) -> None:
        """Twice as long as the last time unless there was a pause, after which it begins anew."""
        slowest_ns = self._longest_ns(level)
        paused = state.since_ns - state.originated_ns >= slowest_ns
        state.interval_ns = slowest_ns // SLOWER if paused else min(2 * state.interval_ns, slowest_ns)

    def _state_at(self, key: Key, wanted: bool) -> OriginatedState | None:
        """The state of a key; None if nothing was ever advertised and there is nothing to advertise."""
        state = self._states.get(key)
        if state is None and wanted:
            state = self._states[key] = OriginatedState()
        return state

    def _interest_to_advertise(self, key: Key, state: OriginatedState, now_ns: int) -> Interest:
        """The interest to advertise for a unit: not less than before, unless that was too much for long enough."""
        kind, level, origin, originator = key
        if kind == "l" or not level or state.empty:
            return state.interest
        if state.advertised_nothing:
            words = state.interest
            for other, entry in self.database.originators("i", level, origin).items():
                if other != originator:  # it may know more, by now
                    words = both(words, _plain(content(entry.advert)))
            state.since_ns, state.recent = now_ns, state.interest
        elif state.due and now_ns >= state.since_ns + self._longest_ns(level):
            words = state.recent
            state.since_ns, state.recent = now_ns, state.interest
        else:
            words = both(_plain(state.advertised_interest), state.interest)
        return words if words == state.interest else self._summary(words)

    def _summary(self, interest: Interest) -> Interest:
        return Interest(*(summarise(patterns, self.settings.summary) for patterns in interest))

    def _originate(self, key: Key, state: OriginatedState, now_ns: int) -> Statement:
        kind, level, origin, originator = key
        # Originators of a unit outnumber one another, so that the one that took over is believed.
        others = (entry.advert.sequence for entry in self.database.originators(kind, level, origin).values())
        time_ns = self._clock.time_ns(now_ns)
        state.sequence = max(state.sequence + 1, *(other + 1 for other in others), time_ns // PER_US)
        if state.due and level:
            self._slow_down(level, state)
        state.advertised_links, state.advertised_interest = state.links, self._interest_to_advertise(key, state, now_ns)
        state.urgent = state.forced = state.purges_changed = False
        state.due = state.advertised_interest != state.interest  # there is more to withdraw, later
        state.advertised_nothing = state.empty
        state.originated_ns = now_ns
        early = 1.0 - 0.1 * self._rng.random()  # so that refreshes of a mesh started at once spread out
        state.refresh_ns = NEVER if state.empty else now_ns + int(self.settings.refresh_ns * early)
        scope, number = self.me.scope(level), state.sequence
        advert: Advert
        if kind == "l":
            advert = LinkAdvert(
                origin=origin, level=level, scope=scope, originator=originator, sequence=number, time_ns=time_ns,
                capabilities=state.capabilities, links=state.links, members=state.members, withdrawn=state.withdrawn,
            )  # fmt: skip
        else:
            wanted, published, variables = state.advertised_interest
            links = self._states.get(("l", *key[1:]))
            advert = InterestAdvert(
                origin=origin, level=level, scope=scope, originator=originator, sequence=number, time_ns=time_ns,
                capabilities=() if links is None else links.capabilities, patterns=wanted, publications=published,
                variables=tuple(pattern.text for pattern in variables),
            )  # fmt: skip
        body = encode_advert(advert)
        statement = Statement(body=body, signature=b"" if self._sign is None else self._sign(body))
        self.database.store(key, advert, statement, now_ns)
        return statement


def _plain(interest: Interest) -> Interest:
    """Without queue groups: an event for a group goes to one node, which must really have a member."""
    return Interest(*(tuple(pattern for pattern in patterns if not pattern.group) for patterns in interest))


def content(advert: Advert) -> Interest:
    """What one advertisement says of it."""
    if not isinstance(advert, InterestAdvert):
        return NOTHING
    return Interest(advert.patterns, advert.publications, tuple(Pattern("s", text) for text in advert.variables))


def both(a: Interest, b: Interest) -> Interest:
    """All that is in one of them."""
    return Interest(*(tuple(sorted({*old, *new})) for old, new in zip(a, b, strict=True)))


def within(new: Interest, old: Interest) -> bool:
    """Whether nothing is wanted or published that was not, by another pattern maybe."""
    for after, before in zip(new, old, strict=True):
        more = set(after).difference(before)
        if more and not all(map(Cover(before).covers, more)):
            return False
    return True


def leads_to(links: tuple[LinkFact, ...]) -> set[str]:
    """The units that these links lead to."""
    return {fact.far for fact in links if not fact.suspect}
