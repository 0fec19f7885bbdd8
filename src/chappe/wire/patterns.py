"""What a subscription's pattern takes in, and how a long list of them becomes a short one (MR-134).

Text patterns follow the rules of `wire/topics.py`. Integer and long topics are typed and have no wildcards, except `#`
in a summary, which stands for all topics of that type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

from chappe.wire.addresses import TEXTS
from chappe.wire.topics import REST, Levels, levels_cover, levels_of, levels_overlap

ALL = REST
MAX_GROUPED = 1024  # patterns of queue groups in one summary
MAX_TEXT = 256 * 1024  # characters of a summary's plain patterns, and of those of its groups
MAX_FILTERS = 8  # a longer disjunction is given up: the summary then covers everything under its pattern

SLICE = 32  # patterns that are looked at before others have their turn: 0.1 ms

T = TypeVar("T")
Slices: TypeAlias = Generator[None, None, T]  # work that others may interrupt
_Parent = tuple[str, str, Levels]  # kind, group, levels


class Pattern(NamedTuple):
    """A pattern of topics: kind `s`, `i` or `l`, text, queue group (empty: none) and filters on the content.

    `filters` is the place for content filters: an event matches if any of them holds, always if there is none. They
    are carried and joined here, nobody evaluates them yet.
    """

    kind: str
    text: str
    group: str = ""
    filters: tuple[str, ...] = ()


def topic_text(kind: str, topic: bytes) -> str:
    """Text of a topic as it stands in frames; numbers as decimal text."""
    return topic.decode() if kind in TEXTS else str(int.from_bytes(topic, "big", signed=True))


def matches(pattern: Pattern, kind: str, topic: bytes) -> bool:
    """Whether an event of this topic matches the pattern, its filters left aside."""
    if pattern.kind != kind:
        return False
    text = topic_text(kind, topic)
    if kind != "s":
        return pattern.text in (ALL, text)
    return levels_cover(_levels(pattern), levels_of(text))


def covers(a: Pattern, b: Pattern) -> bool:
    """Whether `a` matches every event that `b` matches, for the same group: `b` need not be advertised beside `a`."""
    if a.kind != b.kind or a.group != b.group or (a.filters and not (b.filters and set(b.filters) <= set(a.filters))):
        return False
    if a.kind != "s":
        return a.text in (ALL, b.text)
    return levels_cover(_levels(a), _levels(b))


def overlaps(a: Pattern, b: Pattern) -> bool:
    """Whether there is a topic that both match, whatever their groups and filters."""
    if a.kind != b.kind:
        return False
    if a.kind != "s":
        return ALL in (a.text, b.text) or a.text == b.text
    return levels_overlap(_levels(a), _levels(b))


def summarise(patterns: Iterable[Pattern], limit: int) -> tuple[Pattern, ...]:
    """At most `limit` plain patterns that cover all that these cover, in order; it may be more, never less.

    Patterns covered by another one are left out. If too many are left, the largest families of the deepest level are
    widened to their parent's `#`, then those of the level above, until they fit; each type of topic keeps one.
    Queue groups are never joined and have a limit of their own: an event for a group goes to one place only, which must
    not be one that matches it by mistake. Up to that limit they are exact.
    """
    return run_slices(summarising(patterns, limit))


def summarising(patterns: Iterable[Pattern], limit: int) -> Slices[tuple[Pattern, ...]]:
    """The same in slices of some hundred microseconds."""
    joined = yield from _joined(patterns)
    kept = yield from _uncovered(joined)
    plain = yield from _fitted([pattern for pattern in kept if not pattern.group], limit)
    grouped = yield from _fitted([pattern for pattern in kept if pattern.group], MAX_GROUPED)
    return tuple(sorted(plain + grouped))


def run_slices(work: Slices[T]) -> T:
    """What comes of work, all its slices at once."""
    while True:
        try:
            next(work)
        except StopIteration as over:
            result: T = over.value
            return result


def widest(pattern: Pattern, levels: int) -> Pattern:
    """One that matches all below the first so many levels, whatever its filters."""
    if pattern.kind != "s" or not levels:
        return Pattern(pattern.kind, ALL, pattern.group)
    return Pattern("s", "/".join((*_levels(pattern)[:levels], ALL)), pattern.group)


def exact(pattern: Pattern) -> bool:
    """Whether it matches one topic alone."""
    return pattern.text != ALL and (pattern.kind != "s" or not {"+", ALL} & set(_levels(pattern)))


def canonical(pattern: Pattern) -> tuple[str, str, str]:
    """Kind, text and group; patterns that match the same topics for the same group have the same."""
    return pattern.kind, "/".join(_levels(pattern)), pattern.group


class Cover:
    """Patterns by their levels: whether one of them covers another is found without looking at all of them."""

    def __init__(self, patterns: Iterable[Pattern] = ()) -> None:
        self._roots: dict[tuple[str, str], _Level] = {}
        for pattern in patterns:
            self.add(pattern)

    def add(self, pattern: Pattern) -> None:
        """Put a pattern in; of two with the same text and group the later one stays."""
        level = self._roots.setdefault((pattern.kind, pattern.group), _Level())
        for name in _levels(pattern):
            level = level.below.setdefault(name, _Level())
        level.pattern = pattern

    def remove(self, pattern: Pattern) -> None:
        """Take out what is in here with its text and group."""
        names = _levels(pattern)
        visited = [self._roots[pattern.kind, pattern.group]]
        for name in names:
            visited.append(visited[-1].below[name])
        visited[-1].pattern = None
        for above, name, level in zip(reversed(visited[:-1]), reversed(names), reversed(visited[1:]), strict=True):
            if level.below or level.pattern is not None:
                break
            del above.below[name]

    def covers(self, pattern: Pattern) -> bool:
        """Whether a pattern in here, other than this very one, covers it."""
        levels = _levels(pattern)
        root = self._roots.get((pattern.kind, pattern.group))
        waiting = [] if root is None else [(root, 0)]
        while waiting:
            level, at = waiting.pop()
            rest = level.below.get(ALL)
            for other in (rest.pattern if rest is not None else None, level.pattern if at == len(levels) else None):
                if other is not None and other is not pattern and covers(other, pattern):
                    return True
            if at < len(levels) and levels[at] != ALL:
                for name in {levels[at], "+"}:
                    child = level.below.get(name)
                    if child is not None:
                        waiting.append((child, at + 1))
        return False


# --- how


def _levels(pattern: Pattern) -> Levels:
    return levels_of(pattern.text) if pattern.kind == "s" else (pattern.text,)


def sliced(patterns: Iterable[Pattern]) -> Iterator[list[Pattern]]:
    """Some at a time."""
    whole = iter(patterns)
    while part := list(islice(whole, SLICE)):
        yield part


def _joined(patterns: Iterable[Pattern]) -> Slices[list[Pattern]]:
    """One pattern for each text: the filters of several are a disjunction."""
    joined: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for part in sliced(patterns):
        _join(joined, part)
        yield
    found: list[Pattern] = []
    whole = iter(joined.items())
    while len(found) < len(joined):
        found += [Pattern(*key, filters) for key, filters in islice(whole, SLICE)]
        yield
    return found


def _join(joined: dict[tuple[str, str, str], tuple[str, ...]], patterns: list[Pattern]) -> None:
    for pattern in patterns:
        key = canonical(pattern)
        filters = tuple(sorted(set(pattern.filters)))
        if key in joined:
            old = joined[key]
            filters = tuple(sorted({*old, *filters})) if old and filters else ()
        joined[key] = filters if len(filters) <= MAX_FILTERS else ()


class _Level:
    __slots__ = ("below", "pattern")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.pattern: Pattern | None = None


def _uncovered(patterns: list[Pattern]) -> Slices[list[Pattern]]:
    cover = Cover()
    for part in sliced(patterns):
        for pattern in part:
            cover.add(pattern)
        yield
    kept: list[Pattern] = []
    for part in sliced(patterns):
        kept += [pattern for pattern in part if not cover.covers(pattern)]
        yield
    return kept


def _fitted(patterns: list[Pattern], limit: int) -> Slices[list[Pattern]]:
    """Patterns widened until they are few enough, and short enough for one message."""
    while True:
        size, deepest = yield from _extent(patterns)
        if len(patterns) <= limit and size <= MAX_TEXT:
            break
        before = len(patterns)
        if before <= limit:
            limit = before // 2
        for depth in range(deepest - 1, -1, -1):
            patterns = yield from _widened(patterns, depth, limit)
            if len(patterns) <= limit:
                break
        if len(patterns) == before:
            break  # one for each type and group: nothing is left to widen
    return patterns


def _extent(patterns: list[Pattern]) -> Slices[tuple[int, int]]:
    """How many characters they have together, and how many levels the deepest."""
    size = deepest = 0
    for part in sliced(patterns):
        size += sum(len(p.text) + len(p.group) + sum(map(len, p.filters)) for p in part)
        deepest = max(deepest, *(len(_levels(pattern)) for pattern in part))
        yield
    return size, deepest


def _widened(patterns: list[Pattern], depth: int, limit: int) -> Slices[list[Pattern]]:
    """The largest families with a common parent at this depth, each made one pattern, until all fit the limit."""
    families: Counter[_Parent] = Counter()
    for part in sliced(patterns):
        families.update(_parent(pattern, depth) for pattern in part if len(_levels(pattern)) > depth)
        yield
    chosen = set()
    excess = len(patterns) - limit
    several = [family for family in families.items() if family[1] > 1]
    for parent, count in sorted(several, key=lambda item: (-item[1], item[0])):
        if excess <= 0:
            break
        chosen.add(parent)
        excess -= count - 1
    wide: list[Pattern] = []
    for part in sliced(patterns):
        for pattern in part:
            parent = _parent(pattern, depth)
            text = "/".join((*parent[2], ALL))
            wide.append(Pattern(parent[0], text, parent[1], pattern.filters) if parent in chosen else pattern)
        yield
    joined = yield from _joined(wide)
    return (yield from _uncovered(joined))


def _parent(pattern: Pattern, depth: int) -> _Parent:
    return pattern.kind, pattern.group, _levels(pattern)[:depth]
