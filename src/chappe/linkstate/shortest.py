"""Shortest ways from one thing of a map to all others, by library; equal ones by the smaller names (MR-116)."""

from __future__ import annotations

from itertools import pairwise

from scipy.sparse.csgraph import yen

from chappe.linkstate.arcs import HOP, Arcs, Floats
from chappe.linkstate.repair import repaired

EQUAL = HOP / 100  # sums of the same costs in another order differ by less


class Shortest:
    """Distances and ways from one thing under given weights of the arcs."""

    def __init__(self, arcs: Arcs, weights: Floats, source: int, distance: Floats | None = None) -> None:
        """`distance`: to each thing, where that is known already."""
        self.arcs = arcs
        self.weights = weights
        self.source = source
        self.distance = arcs.distances(weights, source) if distance is None else distance
        self._ways: dict[int, tuple[int, ...]] = {source: (source,)}

    def matters(self, arc: int, weight: float) -> bool:
        """Whether an arc with that weight makes a way as short as the shortest one."""
        tail, head = self.arcs.pairs[arc]
        return not self.distance[tail] + weight > self.distance[head] + EQUAL

    def repaired(self, arc: int, old: float) -> Shortest | None:
        """The same after one arc got another weight than `old`; None if that changes so much that it is found anew."""
        found = repaired(self.arcs, self.weights, self.distance, arc, old)
        if found is None:
            return None
        distance = self.distance
        if found:
            distance = distance.copy()
            distance[list(found)] = list(found.values())
        return Shortest(self.arcs, self.weights, self.source, distance)

    def path(self, target: int) -> tuple[int, ...]:
        """The arcs of the shortest way; of several with as many hops the one through the smaller names first."""
        if target not in self._ways:
            self._find(target)
        number = self.arcs.number
        return tuple(number[pair] for pair in pairwise(self._ways[target]))

    def _find(self, target: int) -> None:
        """Ways to a thing and to all that lie on ways as short; things are numbered in the order of their names."""
        ways, before = self._ways, {}
        ahead = [target]
        while ahead:
            thing = ahead.pop()
            if thing in ways or thing in before:
                continue
            before[thing] = [a for a, arc in self.arcs.into[thing] if self.matters(arc, float(self.weights[arc]))]
            ahead.extend(before[thing])
        for thing in sorted(before, key=self.distance.__getitem__):
            ways[thing] = (*min(ways[a] for a in before[thing]), thing)


def next_best(shortest: Shortest, target: int, other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shortest simple way that is not `other`, as arcs (Yen)."""
    arcs, source = shortest.arcs, shortest.source
    lengths, before = yen(arcs.fill(shortest.weights), source, target, 2, return_predecessors=True)
    for row in before[: len(lengths)].tolist():
        things = [target]
        while things[-1] != source:
            things.append(row[things[-1]])
        path = tuple(arcs.number[pair] for pair in pairwise(reversed(things)))
        if path != other:
            return path
    return None
