"""What must hold in a managed deployment, computed from the tables of its routers alone, without asking a broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from chappe.wire.constants import MODES
from chappe.wire.management import Path

RECORD = 24  # bytes of an event

Table = Mapping[tuple[int, int], Path]
"""The paths of one router by (variable id, path)."""


@dataclass(frozen=True, slots=True)
class Overload:
    """A direction of a channel that carries more than it has."""

    source: str
    target: str
    mode: int
    bytes_per_s: float
    capacity: float


def loads(tables: Mapping[str, Table]) -> dict[tuple[str, str], list[float]]:
    """Bytes a second by direction and mode: of each variable the fastest path that leaves by that channel."""
    fastest: dict[tuple[str, str, int], tuple[float, ...]] = {}
    for router, table in tables.items():
        for path in table.values():
            if path.target:
                variable = path.variable
                rates = _rates(path.intervals_ns, path.modes, variable.rate_den / variable.rate_num)
                direction = (router, path.target, variable.variable_id)
                known = fastest.setdefault(direction, rates)
                if known != rates:
                    fastest[direction] = tuple(map(max, known, rates))
    found: dict[tuple[str, str], list[float]] = {}
    for (source, target, _), rates in fastest.items():
        total = found.setdefault((source, target), [0.0] * MODES)
        for mode, rate in enumerate(rates):
            total[mode] += rate * RECORD
    return found


@lru_cache(1 << 16)
def _rates(intervals_ns: tuple[int, ...], modes: int, publishing_ns: float) -> tuple[float, ...]:
    """Events a second in each mode, none outside of the modes of a path."""
    every = intervals_ns if len(intervals_ns) == MODES else intervals_ns * MODES
    return tuple(1e9 / max(every[mode], publishing_ns) if modes >> mode & 1 else 0.0 for mode in range(MODES))


def overloads(tables: Mapping[str, Table], capacity: Callable[[str, str], float]) -> list[Overload]:
    """Every direction of a channel whose paths need more than it has in some mode."""
    found = []
    for (source, target), total in loads(tables).items():
        limit = capacity(source, target)
        mode = max(range(MODES), key=total.__getitem__)
        if total[mode] > limit * (1 + 1e-9):
            found.append(Overload(source, target, mode, total[mode], limit))
    return found


def hops(tables: Mapping[str, Table]) -> dict[int, dict[str, set[str]]]:
    """By variable: where each router sends it."""
    found: dict[int, dict[str, set[str]]] = {}
    for router, table in tables.items():
        for (variable_id, _), path in table.items():
            onward = found.setdefault(variable_id, {}).setdefault(router, set())
            if path.target:
                onward.add(path.target)
    return found


def disjoint(onward: Mapping[str, Iterable[str]], source: str, target: str) -> bool:
    """Whether two paths lead from source to target that share no router in between and no channel."""
    direct = target in set(onward.get(source, ()))
    if direct:
        return _reaches(onward, source, target, "", skip_direct=True)
    if not _reaches(onward, source, target, ""):
        return False
    return all(_reaches(onward, source, target, cut) for cut in _between(onward, source, target))


def _between(onward: Mapping[str, Iterable[str]], source: str, target: str) -> Iterator[str]:
    """The routers of one path, without its ends: whoever separates the ends is among them."""
    before: dict[str, str] = {source: ""}
    left = deque([source])
    while left and target not in before:
        at = left.popleft()
        for name in onward.get(at, ()):
            if name not in before:
                before[name] = at
                left.append(name)
    at = before[target]
    while at != source:
        yield at
        at = before[at]


def _reaches(
    onward: Mapping[str, Iterable[str]], source: str, target: str, without: str, skip_direct: bool = False
) -> bool:
    seen = {source, without}
    left = [source]
    while left:
        at = left.pop()
        for name in onward.get(at, ()):
            if name == target and not (skip_direct and at == source):
                return True
            if name not in seen and name != target:
                seen.add(name)
                left.append(name)
    return False


Installed = tuple[Path, int]
"""A path in a router's table, and since when it is there."""


class ModeHistory:
    """Which modes were in force when: while one gives way to the next, from the request to its answer, both."""

    def __init__(self) -> None:
        self._begun: list[tuple[int, int]] = [(0, 0)]  # mode and since when
        self._ended: list[int] = []  # of all but the last

    def requested(self, mode: int, now_ns: int) -> None:
        self._begun.append((mode, now_ns))

    def answered(self, now_ns: int) -> None:
        """The earliest change that was not answered is over."""
        self._ended.append(now_ns)

    def in_force(self, from_ns: int, until_ns: int) -> int:
        """The mask of all modes in force at any time between these."""
        found = 0
        for at, (mode, since_ns) in enumerate(self._begun):
            if since_ns <= until_ns and (at >= len(self._ended) or self._ended[at] >= from_ns):
                found |= 1 << mode
        return found


class Reachability:
    """Whether an event that was published at a time had a path to its subscriber that nothing had failed on.

    `paths(router, variable)` are those in its table; `router_down` and `channel_down` say whether one failed between
    two times, and `modes` is the mask of the modes in force between them: a path carries events in its own modes only.
    """

    def __init__(
        self,
        paths: Callable[[str, int], Iterable[Installed]],
        router_down: Callable[[str, int, int], bool],
        channel_down: Callable[[str, str, int, int], bool],
        modes: Callable[[int, int], int],
    ) -> None:
        self._paths = paths
        self._router_down = router_down
        self._channel_down = channel_down
        self._modes = modes

    def intact(self, variable_id: int, edge: str, interval_ns: int, at_ns: int, window_ns: int) -> bool:
        """Routers had a whole path for that interval from then on, for as long as an event may take.

        Routers forward what arrives to everybody behind them, so a path may be made of pieces of several
        subscriptions, as long as each piece carries events often enough.
        """
        modes = self._modes(at_ns, at_ns + window_ns)
        seen: set[tuple[str, str]] = set()
        left = [(edge, "")]
        while left:
            router, target = left.pop()
            if (router, target) in seen or self._router_down(router, at_ns, at_ns + window_ns):
                continue
            seen.add((router, target))
            for path, since_ns in self._paths(router, variable_id):
                if path.target != target or since_ns > at_ns:
                    continue
                if max(path.intervals_ns) > interval_ns or modes & ~path.modes:
                    continue
                if not path.source:
                    return True
                if not self._channel_down(path.source, router, at_ns, at_ns + window_ns):
                    left.append((path.source, router))
        return False
