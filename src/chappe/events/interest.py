"""The interest of the clients of a node, counted, and as the few patterns that are advertised (MR-134).

The algebra of patterns is in `chappe.wire.patterns`, below all that talks about interest; its names are here, too.
"""

from __future__ import annotations

from typing import NamedTuple

from chappe.engine._topics import TopicTable, check_pattern
from chappe.errors import RefusedError
from chappe.wire.patterns import (
    ALL,
    Cover,
    Pattern,
    Slices,
    canonical,
    covers,
    exact,
    matches,
    sliced,
    summarise,
    summarising,
    topic_text,
    widest,
)

__all__ = [
    "ALL", "Cover", "Pattern", "Subscriptions", "Wanted", "covers", "matches", "summarise", "topic_text"
]  # fmt: skip

TOLD = 1024  # patterns that a node tells of itself; more are widened
MAX_GROUPS = 1024  # queue groups of one node: they cannot be summarised, so they are bounded
SLICES = 3  # of a summary that are made at once, 0.1 ms each
FEW = 64  # patterns that are summarised at once
SPARE = 64  # patterns above twice the limit, which one level alone is left of
STALE = 8  # the summary is made anew when one in so many patterns was taken back under a wider one


class Wanted(NamedTuple):
    """Who wants an event at one place: plain subscribers, and which queue groups have members."""

    plain: bool
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.plain or bool(self.groups)


NOBODY = Wanted(False)


class Subscriptions:
    """The interest of one node: each client's subscription counted, advertised as at most `limit` patterns.

    What is new is advertised as it is, so a subscription costs the same however many there are. Too many patterns are
    widened, and what was covered by one that is taken back is looked for, by `work`, in slices; until then more is
    advertised.
    """

    def __init__(self, limit: int = TOLD, max_groups: int = MAX_GROUPS) -> None:
        self.limit = limit
        self.max_groups = max_groups
        self.stamp = 0  # changes whenever an answer of `wants` may have changed
        self._counts: dict[Pattern, int] = {}
        self._texts: dict[tuple[str, str, str], int] = {}  # the table knows no filters
        self._groups: dict[str, int] = {}
        self._table = TopicTable()
        self._advertised: dict[tuple[str, str, str], Pattern] = {}  # by their canonical form
        self._cover = Cover()
        self._taken_back = 0
        self._excess = False  # more is advertised than should be
        self._outdated = False  # perhaps more is advertised than is subscribed to
        self._making: Slices[None] | None = None
        self._slices = 0  # made at once
        self._added: list[Pattern] = []  # advertised since it was begun

    def add(self, kind: str, text: str, group: str = "", filters: tuple[str, ...] = ()) -> bool:
        """Count a subscription; True if what is advertised changes. TopicError and RefusedError leave all as it was."""
        check_pattern(text, kind)
        pattern = Pattern(kind, text, group, tuple(sorted(set(filters))))
        if group and group not in self._groups and len(self._groups) >= self.max_groups:
            raise RefusedError(
                f"queue group {group!r}: this node has {self.max_groups} groups already, which is its limit; "
                "subscribe without a group, or at another node",
                "limit",
            )
        count = self._counts.get(pattern, 0)
        if not count:
            self._put(pattern)
        self._counts[pattern] = count + 1
        if count or self._cover.covers(pattern):
            return False
        key = canonical(pattern)
        before = self._advertised.get(key)
        if before == pattern:
            return False
        if before is not None:  # with other filters: both together
            self._outdated = True
            pattern = Pattern(*key)
        elif len(self._advertised) >= 2 * self.limit:  # widened one by one, before `work` finds better families
            pattern = widest(pattern, 1 if len(self._advertised) < 2 * self.limit + SPARE else 0)
        self._tell(pattern)
        self._excess = self._excess or len(self._advertised) > self.limit
        if self._making is not None:
            self._added.append(pattern)
        return True

    def remove(self, kind: str, text: str, group: str = "", filters: tuple[str, ...] = ()) -> bool:
        """Take back one of them; True if what is advertised changes. KeyError if there is none."""
        pattern = Pattern(kind, text, group, tuple(sorted(set(filters))))
        count = self._counts[pattern]
        if count > 1:
            self._counts[pattern] = count - 1
            return False
        del self._counts[pattern]
        self._drop(pattern)
        self._taken_back += 1
        key = canonical(pattern)
        if key not in self._advertised:
            self._outdated = self._outdated or self._taken_back * STALE > len(self._counts)
        elif exact(pattern) and pattern[:3] not in self._texts and self._making is None:
            self._cover.remove(self._advertised.pop(key))
            return True
        else:
            self._outdated = True
        return self.due

    @property
    def due(self) -> bool:
        """Whether there is something to `work` on."""
        return self._excess or self._outdated or self._making is not None

    def patterns(self) -> tuple[Pattern, ...]:
        """What to tell the mesh: everything wanted here and perhaps more, never less. `work` makes it shorter."""
        return tuple(sorted(self._advertised.values()))

    def work(self) -> bool:
        """Go on for some hundred microseconds; True if `patterns` are others now."""
        if self._making is None:
            source = list(self._counts if self._outdated else self._advertised.values())
            self._making = self._summary(source, self.limit if self._outdated else max(1, self.limit * 3 // 4))
            self._excess = self._outdated = False
            self._slices = SLICES if len(source) > FEW else 1 << 30
        for _ in range(self._slices):
            try:
                next(self._making)
            except StopIteration:
                self._making = None
                return True
        return False

    def _summary(self, patterns: list[Pattern], limit: int) -> Slices[None]:
        self._added.clear()
        taken_back = self._taken_back
        summary = yield from summarising(patterns, limit)
        advertised: dict[tuple[str, str, str], Pattern] = {}
        cover = Cover()
        for part in sliced(summary):
            for pattern in part:
                advertised[canonical(pattern)] = pattern
                cover.add(pattern)
            yield
        self._advertised, self._cover = advertised, cover
        self._taken_back -= taken_back
        for pattern in self._added:
            if not cover.covers(pattern) and canonical(pattern) not in advertised:
                self._tell(pattern)

    def _tell(self, pattern: Pattern) -> None:
        self._advertised[canonical(pattern)] = pattern
        self._cover.add(pattern)

    def wants(self, kind: str, topic: bytes) -> Wanted:
        """Who of this node gets an event of this topic."""
        if not self._counts:
            return NOBODY
        ports, groups = self._table.match(topic_text(kind, topic) if kind == "s" else _number(topic), kind)
        return Wanted(bool(ports), tuple(groups))

    def __len__(self) -> int:
        return len(self._counts)

    def _put(self, pattern: Pattern) -> None:
        key = pattern[:3]
        count = self._texts.get(key, 0)
        if not count:
            self._table.subscribe(0, pattern.text, pattern.kind, pattern.group)
            self.stamp += 1
            if pattern.group:
                self._groups[pattern.group] = self._groups.get(pattern.group, 0) + 1
        self._texts[key] = count + 1

    def _drop(self, pattern: Pattern) -> None:
        key = pattern[:3]
        self._texts[key] -= 1
        if self._texts[key]:
            return
        del self._texts[key]
        self._table.unsubscribe(0, pattern.text, pattern.kind, pattern.group)
        self.stamp += 1
        if pattern.group:
            self._groups[pattern.group] -= 1
            if not self._groups[pattern.group]:
                del self._groups[pattern.group]


def _number(topic: bytes) -> int:
    return int.from_bytes(topic, "big", signed=True)
