"""The links of a map as a directed graph for the libraries that find shortest routes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import rustworkx
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from chappe.linkstate.topology import View

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

HOP = 1e-7  # each hop costs this much more, so that of equal routes the one with fewer hops is the shortest
SMALL = 600  # arcs: up to here rustworkx is faster, which needs no arrays, above SciPy


class Arcs:
    """Directed pairs of vertices with at least one link; never down into a smaller unit."""

    def __init__(self, view: View) -> None:
        self.size = len(view.vertices)
        pairs: dict[tuple[int, int], list[int]] = {}
        for number, edge in enumerate(view.edges):
            a, b = edge.a, edge.b
            pairs.setdefault((a.index, b.index), []).append(number)
            if a.level == b.level:
                pairs.setdefault((b.index, a.index), []).append(number)
        self.pairs = list(pairs)
        self.count = len(pairs)
        self.number = dict(zip(pairs, range(self.count), strict=True))
        self.links = list(pairs.values())  # edges of each arc
        self._filled: Floats | None = None  # the weights that are in the matrix
        order = [edge for links in self.links for edge in links]
        self._order: Integers = np.array(order, dtype=np.intp)
        self._starts: Integers | None = None  # of the links of each arc, where some arc has several
        if len(order) > self.count:
            self._starts = np.cumsum([0, *(len(links) for links in self.links[:-1])])

    def weights(self, costs: Floats) -> Floats:
        """Of each arc the cost of its cheapest link, and the hop."""
        found = costs[self._order]
        if self._starts is not None:
            found = np.minimum.reduceat(found, self._starts)
        found += HOP
        return found

    def weight(self, arc: int, costs: Floats) -> float:
        """Of one arc."""
        return min(float(costs[edge]) for edge in self.links[arc]) + HOP

    def distances(self, weights: Floats, source: int) -> Floats:
        """Least weight from one vertex to all; infinite where no route leads."""
        if self.count > SMALL:
            far: Floats = dijkstra(self.fill(weights), indices=source)
            return far
        lengths = rustworkx.digraph_dijkstra_shortest_path_lengths(self._graph, source, weights.tolist().__getitem__)
        found = np.full(self.size, np.inf)
        found[list(lengths.keys())] = list(lengths.values())
        found[source] = 0.0
        return found

    @cached_property
    def of_edge(self) -> dict[int, list[int]]:
        """The arcs of each link: two, or one that leads out of the unit."""
        found: dict[int, list[int]] = {}
        for arc, links in enumerate(self.links):
            for edge in links:
                found.setdefault(edge, []).append(arc)
        return found

    @cached_property
    def into(self) -> list[list[tuple[int, int]]]:
        """Of each vertex the vertices before it, and the arcs from there."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        for arc, (tail, head) in enumerate(self.pairs):
            found[head].append((tail, arc))
        return found

    @cached_property
    def out(self) -> list[list[tuple[int, int]]]:
        """Of each vertex the vertices after it, and the arcs to there."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        for arc, (tail, head) in enumerate(self.pairs):
            found[tail].append((head, arc))
        return found

    def adjust(self, weights: Floats, arc: int, weight: float) -> None:
        """One of these weights is another."""
        weights[arc] = weight
        if self._filled is weights:
            self.matrix.data[self._place[arc]] = weight

    def fill(self, weights: Floats) -> csr_array:
        """The matrix with these weights; another array in place of its own would be checked anew."""
        if self._filled is not weights:
            self._filled = weights
            self.matrix.data[self._place] = weights
        return self.matrix

    @cached_property
    def _place(self) -> Integers:
        """Where each arc is in the matrix, which has them by tail, then by head."""
        location = {pair: number for number, pair in enumerate(sorted(self.pairs))}
        return np.array([location[pair] for pair in self.pairs], dtype=np.intp)

    @cached_property
    def matrix(self) -> csr_array:
        """As SciPy wants it."""
        ends = np.array(sorted(self.pairs), dtype=np.int32).reshape(-1, 2)
        counts = np.bincount(ends[:, 0], minlength=self.size)
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        return csr_array((np.ones(self.count), ends[:, 1].copy(), starts), shape=(self.size, self.size))

    @cached_property
    def _graph(self) -> rustworkx.PyDiGraph[None, int]:
        """As rustworkx wants it, with the number of each arc in place of a weight."""
        graph: rustworkx.PyDiGraph[None, int] = rustworkx.PyDiGraph()
        graph.add_nodes_from([None] * self.size)
        graph.add_edges_from([(a, b, number) for number, (a, b) in enumerate(self.pairs)])
        return graph
