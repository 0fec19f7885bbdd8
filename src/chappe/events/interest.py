"""What the clients of a node want, counted, and as the few patterns that the mesh is told (MR-134).

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
    matches,
    sliced,
    summarise,
    summarising,
    topic_text,
)

__all__ = [
    "ALL", "Cover", "Pattern", "Subscriptions", "Wanted", "covers", "matches", "summarise", "topic_text"
]  # fmt: skip

TOLD = 4096  # patterns that a node tells of itself; more are widened
MAX_GROUPS = 1024  # queue groups of one node: they cannot be summarised, so they are bounded
SLICES = 8  # of a summary that are made at once, 0.1 ms each
STALE = 8  # the summary is made anew when one in so many patterns was taken back under a wider one


class Wanted(NamedTuple):
    """Who wants an event at one place: plain subscribers, and which queue groups have members."""

    plain: bool
    groups: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.plain or bool(self.groups)


NOBODY = Wanted(False)


class Subscriptions:
    """The interest of one node: each client's subscription counted, told as at most `limit` patterns."""

    def __init__(self, limit: int = TOLD, max_groups: int = MAX_GROUPS) -> None:
        self.limit = limit
        self.max_groups = max_groups
        self.stamp = 0  # changes whenever an answer of `wants` may have changed
        self._counts: dict[Pattern, int] = {}
        self._texts: dict[tuple[str, str, str], int] = {}  # the table knows no filters
        self._groups: dict[str, int] = {}
        self._table = TopicTable()
        self._told: tuple[Pattern, ...] | None = ()
        self._told_keys: set[tuple[str, str, str]] = set()
        self._cover = Cover()
        self._taken_back = 0
        self._making: Slices[None] | None = None  # the summary that is being made
        self._added: list[Pattern] = []  # since it was begun

    def add(self, kind: str, text: str, group: str = "", filters: tuple[str, ...] = ()) -> bool:
        """Count a subscription; True if the mesh must be told. TopicError and RefusedError leave all as it was."""
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
        if self._making is not None and not count:
            self._added.append(pattern)
        if count or (self._told is not None and self._cover.covers(pattern)):
            return False
        self._told = None
        return True

    def remove(self, kind: str, text: str, group: str = "", filters: tuple[str, ...] = ()) -> bool:
        """Take back one of them; True if the mesh must be told. KeyError if there is none."""
        pattern = Pattern(kind, text, group, tuple(sorted(set(filters))))
        count = self._counts[pattern]
        if count > 1:
            self._counts[pattern] = count - 1
            return False
        del self._counts[pattern]
        self._drop(pattern)
        self._taken_back += 1
        if self._told is None:
            return True
        if canonical(pattern) in self._told_keys or self._taken_back * STALE > len(self._counts):
            self._told = None
            return True
        return False

    def patterns(self) -> tuple[Pattern, ...]:
        """What to tell the mesh: everything wanted here and perhaps more, never less."""
        while not self.work():
            pass
        assert self._told is not None
        return self._told

    def work(self) -> bool:
        """Go on with the summary for about a millisecond; True if `patterns` has it at once.

        A long list takes many of these, and what is told stays as it is meanwhile.
        """
        if self._told is not None:
            return True
        if self._making is None:
            self._added.clear()
            self._making = self._summary(list(self._counts))
        for _ in range(SLICES):
            try:
                next(self._making)
            except StopIteration:
                self._making = None
                break
        return self._told is not None

    def _summary(self, patterns: list[Pattern]) -> Slices[None]:
        told = yield from summarising(patterns, self.limit)
        keys: set[tuple[str, str, str]] = set()
        cover = Cover()
        for part in sliced(told):
            keys.update(map(canonical, part))
            for pattern in part:
                cover.add(pattern)
            yield
        self._told_keys, self._cover, self._taken_back = keys, cover, 0
        if all(pattern not in self._counts or cover.covers(pattern) for pattern in self._added):
            self._told = told

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
