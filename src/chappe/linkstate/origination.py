"""What this node itself tells: the newest content of each key, numbered, not too often and not too seldom."""

from __future__ import annotations

import random
from collections.abc import Callable

from chappe.linkstate.choices import NEVER
from chappe.linkstate.database import Advert, Database
from chappe.linkstate.meshclock import MeshClock
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import difference
from chappe.linkstate.units import Address
from chappe.wire.mesh import Gone, InterestAdvert, Key, LinkAdvert, LinkFact, Statement, encode_advert
from chappe.wire.patterns import Cover, Pattern, summarise

PER_US = 1000  # a sequence is at least the time in microseconds, so that a node that restarts goes on above its last

SLOWER = 16  # times as long as the first interval is the longest

Interest = tuple[tuple[Pattern, ...], tuple[Pattern, ...]]
NO_LINKS: tuple[LinkFact, ...] = ()
NO_INTEREST: Interest = ((), ())


class OriginatedState:
    """One key of this node: what is to be told, and what was."""

    __slots__ = (
        "again", "capabilities", "due", "gone", "interest", "links", "members", "news", "pace_ns", "recent",
        "refresh_ns",
        "said_interest", "said_links", "said_nothing", "sequence", "silent", "since_ns", "told_ns", "urgent",
    )  # fmt: skip

    def __init__(self) -> None:
        self.links = self.said_links = NO_LINKS
        self.interest = self.said_interest = NO_INTEREST
        self.recent = NO_INTEREST  # all that was wanted at some time since then
        self.members = 1
        self.capabilities: tuple[str, ...] = ()
        self.gone: tuple[Gone, ...] = ()
        self.sequence = 0
        self.told_ns = -NEVER
        self.refresh_ns = NEVER
        self.due = False
        self.urgent = False  # others would miss something, or send into the void
        self.again = False  # it is told in any case
        self.news = False  # somebody is gone whose words others still believe
        self.since_ns = -NEVER  # when the first change came that is not told yet
        self.pace_ns = 0  # from one telling to the next of what is not urgent
        self.silent = self.said_nothing = True  # nothing is told, or all of it was withdrawn


class Originator:
    """The advertisements of one node."""

    def __init__(
        self, me: Address, settings: Settings, database: Database, clock: MeshClock, rng: random.Random,
        sign: Callable[[bytes], bytes] | None,
    ) -> None:  # fmt: skip
        self.me = me
        self.settings = settings
        self.database = database
        self._clock = clock
        self._rng = rng
        self._sign = sign
        self._told: dict[Key, OriginatedState] = {}
        self._next_ns: int | None = NEVER  # None: it is to be found anew

    def links(
        self, level: int, links: tuple[LinkFact, ...], members: int, now_ns: int, gone: tuple[Gone, ...] = (),
        capabilities: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Advertise these links of the node itself, or of its unit of a level; none withdraws what was advertised.

        `gone`: who spoke for the unit before and does no more.
        """
        told = self._at(("l", level, self.me.path(level), self.me.node), bool(links))
        if told is None:
            return
        told.members = members  # told with the next change: who is in a unit is nobody's business outside it
        more = not set(gone) <= set(told.gone)
        told.gone = gone
        other = told.capabilities != capabilities
        told.capabilities = capabilities
        if more or other or difference(told.links, links):
            told.links = links
            turned = self._turned(told, not links)
            told.news |= more or other
            urgent = turned or told.news or self._missing(told.said_links, links)
            self._due(told, turned or told.news or difference(told.said_links, links) > 0, urgent, now_ns)

    def _missing(self, said: tuple[LinkFact, ...], links: tuple[LinkFact, ...]) -> bool:
        """Whether others miss something: a unit is lost, or the last link to it that they were told of is."""
        up = {fact.id for fact in links if not fact.suspect}
        still = leads_to(tuple(fact for fact in said if fact.id in up))
        return leads_to(links) != still or leads_to(said) != still

    def interest(self, level: int, interest: Interest, now_ns: int, speaks: bool = False) -> None:
        """Tell what is wanted and published there. Who speaks for a unit says so, too, if it is nothing at all.

        What a unit wants is told at once, and that it wants something no more when that was so for a while without a
        break: often a node comes back that wants the same, or a cluster had lost its speaker.
        """
        silent = not (speaks or any(interest))
        told = self._at(("i", level, self.me.path(level), self.me.node), not silent)
        if told is not None and (told.interest != interest or told.silent is not silent):
            told.interest = interest
            told.recent = both(_plain(told.recent), interest) if level and told.due else interest
            turned = self._turned(told, silent)
            gained = bool(level) and not within(interest, told.said_interest)
            self._due(told, turned or told.said_interest != interest, turned or gained, now_ns)

    def _turned(self, told: OriginatedState, silent: bool) -> bool:
        """Whether something is told where nothing was, which is done at once, or the other way round."""
        if told.silent:
            told.told_ns = -NEVER
        told.silent = silent
        return told.said_nothing is not silent

    def _due(self, told: OriginatedState, changed: bool, urgent: bool, now_ns: int) -> None:
        """What is to be told now compares like this to what was; what is as it was needs no telling."""
        if changed and not told.due:
            told.since_ns = now_ns
        told.due, told.urgent = changed or told.again, urgent or told.again
        self._next_ns = None

    def repeat(self, key: Key, sequence: int, now_ns: int) -> None:
        """Somebody has a higher number of this node: go on from there, with what is true now.

        A controller that started again does not know yet that it is one. Until it does, what it told before stands: to
        withdraw it would cut the unit off.
        """
        self._next_ns = None
        told = self._told.setdefault(key, OriginatedState())
        told.since_ns = now_ns
        told.sequence = max(told.sequence, sequence)
        told.due = told.urgent = told.again = True
        told.told_ns = now_ns + 2 * key[1] * self.settings.settle_ns if key[1] and told.silent else -NEVER

    def restate(self, now_ns: int) -> None:
        """Advertise all of it again, at once: signed by another certificate, or with another time."""
        self._next_ns = None
        for told in self._told.values():
            if not (told.silent and told.said_nothing):
                told.since_ns = now_ns
                told.due = told.urgent = told.again = True

    def speaks(self, kind: str, level: int) -> bool:
        """Whether something is told at a level."""
        told = self._told.get((kind, level, self.me.path(level), self.me.node))
        return told is not None and not told.silent

    def keys(self) -> set[Key]:
        """Keys that are kept up."""
        return {key for key, told in self._told.items() if not told.silent}

    def refreshes(self, now_ns: int) -> bool:
        """Whether the node's own links are told again now, changed or not."""
        told = self._told.get(("l", 0, self.me.node, self.me.node))
        return told is not None and now_ns >= told.refresh_ns

    def flush(self, now_ns: int) -> list[tuple[int, Statement]]:
        """Statements that are to be sent now, each kept in the database, and the level at which they are made."""
        found: list[tuple[int, Statement]] = []
        if now_ns < self.next_ns():
            return found
        self._next_ns = None
        for key, told in self._told.items():
            due = told.due and now_ns >= self._again_ns(key, told)
            if (due and not self._unchanged(key, told, now_ns)) or now_ns >= told.refresh_ns:
                found.append((key[1], self._state(key, told, now_ns)))
        return found

    def _unchanged(self, key: Key, told: OriginatedState, now_ns: int) -> bool:
        """Whether what was to be withdrawn was wanted again in between: then there is nothing to tell, for a while."""
        if key[0] == "l" or not key[1] or told.urgent or told.silent or told.said_nothing:
            return False
        if self._summary(told.recent) != told.said_interest:
            return False
        told.since_ns, told.recent = now_ns, told.interest
        return True

    def next_ns(self) -> int:
        """When there is something to send."""
        if self._next_ns is None:
            self._next_ns = min(
                (
                    min(told.refresh_ns, self._again_ns(key, told) if told.due else NEVER)
                    for key, told in self._told.items()
                ),
                default=NEVER,
            )
        return self._next_ns

    def _again_ns(self, key: Key, told: OriginatedState) -> int:
        """When a key may be told again: what many hear is told less often, and what nobody misses at long intervals."""
        kind, level = key[:2]
        if told.urgent or not level:
            return told.told_ns + (self.settings.tell_ns << level)
        if kind == "i":
            return max(told.told_ns + (self.settings.tell_ns << level), told.since_ns + self._slowest_ns(level))
        return told.told_ns + max(told.pace_ns, self.settings.tell_ns << level)

    def _slowest_ns(self, level: int) -> int:
        return self.settings.tell_most_ns << (level - 1)

    def _pace(self, level: int, told: OriginatedState) -> None:
        """Twice as long as the last time unless there was a pause, after which it begins anew."""
        slowest_ns = self._slowest_ns(level)
        paused = told.since_ns - told.told_ns >= slowest_ns
        told.pace_ns = slowest_ns // SLOWER if paused else min(2 * told.pace_ns, slowest_ns)

    def _at(self, key: Key, filled: bool) -> OriginatedState | None:
        """The record of a key; None if nothing was ever told and there is nothing to tell."""
        told = self._told.get(key)
        if told is None and filled:
            told = self._told[key] = OriginatedState()
        return told

    def _words(self, key: Key, told: OriginatedState, now_ns: int) -> Interest:
        """What is told of the interest of a unit: not less than before, unless that was too much for long enough."""
        kind, level, origin, speaker = key
        if kind == "l" or not level or told.silent:
            return told.interest
        if told.said_nothing:
            words = told.interest
            for other, entry in self.database.speakers("i", level, origin).items():
                if other != speaker and isinstance(entry.advert, InterestAdvert):  # it may know more, by now
                    words = both(words, _plain((entry.advert.patterns, entry.advert.publications)))
            told.since_ns, told.recent = now_ns, told.interest
        elif told.due and now_ns >= told.since_ns + self._slowest_ns(level):
            words = told.recent
            told.since_ns, told.recent = now_ns, told.interest
        else:
            words = both(_plain(told.said_interest), told.interest)
        return words if words == told.interest else self._summary(words)

    def _summary(self, interest: Interest) -> Interest:
        wanted, published = (summarise(patterns, self.settings.summary) for patterns in interest)
        return wanted, published

    def _state(self, key: Key, told: OriginatedState, now_ns: int) -> Statement:
        kind, level, origin, speaker = key
        # A unit's speakers outnumber one another, so that the one who took over is believed.
        others = (entry.advert.sequence for entry in self.database.speakers(kind, level, origin).values())
        time_ns = self._clock.time_ns(now_ns)
        told.sequence = max(told.sequence + 1, *(other + 1 for other in others), time_ns // PER_US)
        if told.due and level:
            self._pace(level, told)
        told.said_links, told.said_interest = told.links, self._words(key, told, now_ns)
        told.urgent = told.again = told.news = False
        told.due = told.said_interest != told.interest  # there is more to withdraw, later
        told.said_nothing = told.silent
        told.told_ns = now_ns
        early = 1.0 - 0.1 * self._rng.random()  # so that refreshes of a mesh started at once spread out
        told.refresh_ns = NEVER if told.silent else now_ns + int(self.settings.refresh_ns * early)
        scope, number = self.me.scope(level), told.sequence
        advert: Advert
        if kind == "l":
            advert = LinkAdvert(
                origin=origin, level=level, scope=scope, speaker=speaker, sequence=number, time_ns=time_ns,
                capabilities=told.capabilities, links=told.links, members=told.members, gone=told.gone,
            )  # fmt: skip
        else:
            patterns, publications = told.said_interest
            links = self._told.get(("l", *key[1:]))
            advert = InterestAdvert(
                origin=origin, level=level, scope=scope, speaker=speaker, sequence=number, time_ns=time_ns,
                capabilities=() if links is None else links.capabilities, patterns=patterns, publications=publications,
            )  # fmt: skip
        body = encode_advert(advert)
        statement = Statement(body=body, signature=b"" if self._sign is None else self._sign(body))
        self.database.store(key, advert, statement, now_ns)
        return statement


def _plain(interest: Interest) -> Interest:
    """Without queue groups: an event for a group goes to one place, which must really want it."""
    wanted, published = (tuple(pattern for pattern in patterns if not pattern.group) for patterns in interest)
    return wanted, published


def both(a: Interest, b: Interest) -> Interest:
    """All that is in one of them."""
    wanted, published = (tuple(sorted({*old, *new})) for old, new in zip(a, b, strict=True))
    return wanted, published


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
