"""Shortest ways from one thing of a map to all others, by library; equal ones by the smaller names (MR-116)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra, yen

from chappe.netmap.costs import HOP, Arcs, Floats, Integers

EQUAL = HOP / 100  # sums of the same costs in another order differ by less


class Shortest:
    """Distances and ways from one thing under given weights of the arcs."""

    def __init__(self, arcs: Arcs, weights: Floats, source: int) -> None:
        self.arcs = arcs
        self.weights = weights
        self.source = source
        arcs.matrix.data = weights
        self.distance: Floats
        self._before: Integers
        self.distance, self._before = dijkstra(arcs.matrix, indices=source, return_predecessors=True)
        self._paths: dict[int, tuple[int, ...]] | None = None
        self._looked = False

    def path(self, target: int) -> tuple[int, ...]:
        """The arcs of the shortest way; of several with as many hops the one through the smaller names first."""
        if not self._looked:
            self._looked = True
            self._paths = self._equal_ways()
        if self._paths is not None:
            return _arcs(self.arcs, self._paths[target])
        things, before = [target], self._before
        while things[-1] != self.source:
            things.append(int(before[things[-1]]))
        return _arcs(self.arcs, tuple(reversed(things)))

    def _equal_ways(self) -> dict[int, tuple[int, ...]] | None:
        """All ways by things, if some thing has two equally short ones; things are numbered in the order of names."""
        distance, tail, head = self.distance, self.arcs.tail, self.arcs.head
        with np.errstate(invalid="ignore"):
            tight = distance[tail] + self.weights - distance[head] <= EQUAL
        heads = head[tight]
        if len(heads) == len(np.unique(heads)):
            return None
        before: dict[int, list[int]] = {}
        for a, b in zip(tail[tight].tolist(), heads.tolist(), strict=True):
            before.setdefault(b, []).append(a)
        paths: dict[int, tuple[int, ...]] = {self.source: (self.source,)}
        for thing in np.argsort(distance, kind="stable").tolist():
            if thing != self.source and thing in before:
                paths[thing] = (*min(paths[a] for a in before[thing]), thing)
        return paths


def next_best(arcs: Arcs, weights: Floats, source: int, target: int, other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shortest simple way that is not `other`, as arcs (Yen)."""
    usable = np.isfinite(weights)
    ends = arcs.tail[usable].astype(np.int32), arcs.head[usable].astype(np.int32)
    matrix = csr_array((weights[usable], ends), shape=(arcs.size, arcs.size))
    lengths, before = yen(matrix, source, target, 2, return_predecessors=True)
    for row in before[: len(lengths)]:
        things = [target]
        while things[-1] != source:
            things.append(int(row[things[-1]]))
        path = _arcs(arcs, tuple(reversed(things)))
        if path != other:
            return path
    return None


def _arcs(arcs: Arcs, things: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(arcs.number[pair] for pair in pairwise(things))
