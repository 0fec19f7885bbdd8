"""Shortest routes from one vertex of a map to all others, by library; equal ones by the smaller names (MR-116)."""

from __future__ import annotations

from itertools import pairwise

from scipy.sparse.csgraph import yen

from chappe.linkstate.arcs import HOP, Arcs, Floats
from chappe.linkstate.repair import repaired

EQUAL = HOP / 100  # sums of the same costs in another order differ by less


class Shortest:
    """Distances and routes from one vertex under given weights of the arcs."""

    def __init__(self, arcs: Arcs, weights: Floats, source: int, distance: Floats | None = None) -> None:
        """`distance`: to each vertex, where that is known already."""
        self.arcs = arcs
        self.weights = weights
        self.source = source
        self.distance = arcs.distances(weights, source) if distance is None else distance
        self._paths: dict[int, tuple[int, ...]] = {source: (source,)}

    def matters(self, arc: int, weight: float) -> bool:
        """Whether an arc with that weight makes a route as short as the shortest one."""
        tail, head = self.arcs.pairs[arc]
        return not self.distance.item(tail) + weight > self.distance.item(head) + EQUAL

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
        """The arcs of the shortest route; of several with as many hops the one through the smaller names first."""
        if target not in self._paths:
            self._find(target)
        number = self.arcs.number
        return tuple(number[pair] for pair in pairwise(self._paths[target]))

    def _find(self, target: int) -> None:
        """Routes to a vertex and to all on routes as short; vertices are numbered in the order of their names."""
        paths, before = self._paths, {}
        into, distance, weight = self.arcs.into, self.distance.item, self.weights.item
        ahead = [target]
        while ahead:
            vertex_id = ahead.pop()
            if vertex_id in paths or vertex_id in before:
                continue
            farthest = distance(vertex_id) + EQUAL  # as `matters` has it
            before[vertex_id] = [a for a, arc in into[vertex_id] if not distance(a) + weight(arc) > farthest]
            ahead += before[vertex_id]
        for vertex_id in sorted(before, key=self.distance.__getitem__):
            paths[vertex_id] = (*min(paths[a] for a in before[vertex_id]), vertex_id)


def next_best(shortest: Shortest, target: int, other: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shortest simple route that is not `other`, as arcs (Yen)."""
    arcs, source = shortest.arcs, shortest.source
    lengths, before = yen(arcs.fill(shortest.weights), source, target, 2, return_predecessors=True)
    for row in before[: len(lengths)].tolist():
        vertex_ids = [target]
        while vertex_ids[-1] != source:
            vertex_ids.append(row[vertex_ids[-1]])
        path = tuple(arcs.number[pair] for pair in pairwise(reversed(vertex_ids)))
        if path != other:
            return path
    return None
