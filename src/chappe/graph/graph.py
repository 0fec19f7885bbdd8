"""A directed graph with whole weights, held in the forms that the path searches and their libraries want."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import pairwise

import numpy as np
import rustworkx
from scipy.sparse import csr_array

Node = str
Path = tuple[Node, ...]


class Graph:
    """Arcs between named nodes, each with a weight of 0 or more. It never changes."""

    def __init__(self, arcs: Mapping[tuple[Node, Node], int]) -> None:
        self.arcs = dict(arcs)
        self.nodes: list[Node] = list(dict.fromkeys(name for arc in self.arcs for name in arc))
        self.index = {name: number for number, name in enumerate(self.nodes)}

    def weight(self, path: Path) -> int:
        """Sum of the weights of the arcs of a path."""
        return sum(self.arcs[hop] for hop in pairwise(path))

    def without(self, nodes: frozenset[Node] | set[Node]) -> Graph:
        """The graph without these nodes."""
        return Graph({arc: w for arc, w in self.arcs.items() if arc[0] not in nodes and arc[1] not in nodes})

    @cached_property
    def after(self) -> dict[Node, list[tuple[Node, int]]]:
        """The arcs out of each node."""
        found: dict[Node, list[tuple[Node, int]]] = {name: [] for name in self.nodes}
        for (tail, head), weight in self.arcs.items():
            found[tail].append((head, weight))
        return found

    @cached_property
    def split(self) -> rustworkx.PyDiGraph[None, float]:
        """Node i as 2i (in) and 2i + 1 (out), so that disjoint nodes are disjoint arcs; copy it before changing it."""
        graph: rustworkx.PyDiGraph[None, float] = rustworkx.PyDiGraph()
        graph.add_nodes_from([None] * (2 * len(self.nodes)))
        graph.add_edges_from([(2 * number, 2 * number + 1, 0.0) for number in range(len(self.nodes))])
        index = self.index
        graph.add_edges_from([(2 * index[a] + 1, 2 * index[b], float(w)) for (a, b), w in self.arcs.items()])
        return graph

    @cached_property
    def matrix(self) -> csr_array:
        """The weights for SciPy, which takes 0 for "no arc": they are at least 1 here."""
        rows = np.fromiter((self.index[a] for a, _ in self.arcs), dtype=np.int32, count=len(self.arcs))
        columns = np.fromiter((self.index[b] for _, b in self.arcs), dtype=np.int32, count=len(self.arcs))
        weights = np.fromiter((max(w, 1) for w in self.arcs.values()), dtype=np.float64, count=len(self.arcs))
        return csr_array((weights, (rows, columns)), shape=(len(self.nodes), len(self.nodes)))

    def distances_from(self, source: Node) -> dict[Node, int]:
        """Least weight from a node to every node that can be reached."""
        return self._distances(source, self.split)

    def distances_to(self, target: Node) -> dict[Node, int]:
        """Least weight to a node from every node that reaches it."""
        turned = self.split.copy()
        turned.reverse()
        return self._distances(target, turned)

    def _distances(self, start: Node, graph: rustworkx.PyDiGraph[None, float]) -> dict[Node, int]:
        if start not in self.index:
            return {}
        lengths = rustworkx.digraph_dijkstra_shortest_path_lengths(graph, 2 * self.index[start] + 1, float)
        found = {self.nodes[number >> 1]: int(length) for number, length in lengths.items()}
        found[start] = 0
        return found
