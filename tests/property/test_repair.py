"""Distances after one arc changed: the same to the last bit as computed from nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from chappe.linkstate.arcs import HOP, Arcs
from chappe.linkstate.repair import repaired

NODES = 9
WEIGHTS = st.one_of(st.integers(1, 5).map(float), st.floats(0.01, 100.0))


@dataclass
class Vertex:
    index: int
    level: int = 0


@dataclass
class Edge:
    a: Vertex
    b: Vertex


class Map:
    """As much of a view as arcs are made of."""

    def __init__(self, pairs: set[tuple[int, int]]) -> None:
        self.vertices = [Vertex(number) for number in range(NODES)]
        self.edges = [Edge(self.vertices[a], self.vertices[b]) for a, b in sorted(pairs)]


@given(st.data())
def test_repaired_distances_are_those_of_the_library(data: st.DataObject) -> None:
    ends = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)).filter(lambda pair: pair[0] < pair[1])
    pairs = data.draw(st.sets(ends, min_size=1, max_size=20))
    arcs = Arcs(Map(pairs))  # type: ignore[arg-type]
    weights = np.array(data.draw(st.lists(WEIGHTS, min_size=arcs.count, max_size=arcs.count))) + HOP
    distance = arcs.distances(weights, 0)
    for arc, weight in data.draw(st.lists(st.tuples(st.integers(0, arcs.count - 1), WEIGHTS), max_size=12)):
        old = weights.item(arc)
        weights[arc] = weight + HOP
        found = repaired(arcs, weights, distance, arc, old)
        assert found is not None
        distance[list(found)] = list(found.values())
        np.testing.assert_array_equal(distance, arcs.distances(weights.copy(), 0))
