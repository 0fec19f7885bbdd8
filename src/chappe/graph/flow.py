"""A maximum flow between two vertices, and the paths that carry it (BF-21, BF-22)."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from math import ceil, log2
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow as scipy_maximum_flow

Vertex = TypeVar("Vertex")

_LARGEST = 2**30 - 1  # SciPy works with 32 bits, and holds capacity minus flow of arcs in both directions
_FINEST = 2.0**-40  # no unit is finer than this
_MUCH = 1000  # a flow that is so many times smaller than its bound is computed again


class Flow(NamedTuple, Generic[Vertex]):
    """How much goes from a source to a sink, and how much of it by each arc; arcs that carry nothing are left out."""

    value: float
    arcs: dict[tuple[Vertex, Vertex], float]


class FlowPath(NamedTuple, Generic[Vertex]):
    """One path of a flow."""

    vertices: tuple[Vertex, ...]  # source and sink are the first and the last
    capacity: float


class FlowGraph(Generic[Vertex]):
    """Arcs with capacities, held as SciPy wants them for many questions; those of 0 or less are no arcs."""

    def __init__(self, arcs: Mapping[tuple[Vertex, Vertex], float]) -> None:
        self.arcs = dict(arcs)
        usable = [(tail, head) for (tail, head), capacity in self.arcs.items() if capacity > 0 and tail != head]
        self._vertices = list(dict.fromkeys(vertex for arc in usable for vertex in arc))
        self._index = {vertex: number for number, vertex in enumerate(self._vertices)}
        numbers = np.array([(self._index[tail], self._index[head]) for tail, head in usable], dtype=np.int32)
        numbers = numbers.reshape(-1, 2)
        order = np.lexsort((numbers[:, 1], numbers[:, 0]))
        self._tails, self._heads = numbers[order].T
        self._capacities = np.array([self.arcs[arc] for arc in usable], dtype=np.float64)[order]
        self._starts = np.searchsorted(self._tails, np.arange(len(self._vertices) + 1)).astype(np.int32)

    def maximum_flow(self, source: Vertex, sink: Vertex) -> Flow[Vertex]:
        """The maximum flow by Edmonds and Karp.

        SciPy wants whole numbers of 32 bits. No arc can carry more than leaves the source or enters the sink:
        capacities are clipped to that and counted in a unit of about a billionth of it, a power of two, so that small
        whole ones stay exact. If the flow turns out to be much smaller than that bound, it is computed once more in
        finer units.
        """
        if source == sink or source not in self._index or sink not in self._index:
            return Flow(0.0, {})
        start, end = self._index[source], self._index[sink]
        leaving, entering = self._capacities[self._tails == start], self._capacities[self._heads == end]
        bound = min(float(leaving.sum()), float(entering.sum()))
        while bound > 0:
            unit = _unit(bound)
            flow = self._in_units(start, end, unit)
            most = flow.value + len(self._capacities) * unit
            if flow.value == 0 or most * _MUCH > bound or unit == _FINEST:
                return flow
            bound = most
        return Flow(0.0, {})

    def _in_units(self, start: int, end: int, unit: float) -> Flow[Vertex]:
        # at least one unit: what is slow beside others is still a way
        units = np.clip(self._capacities / unit, 1, _LARGEST).astype(np.int32)
        count = len(self._vertices)
        matrix = csr_array((units, self._heads, self._starts), shape=(count, count))
        found = scipy_maximum_flow(matrix, start, end, method="edmonds_karp")
        carried = found.flow
        places = np.flatnonzero(carried.data > 0)
        tails = np.searchsorted(carried.indptr, places, side="right") - 1
        used = zip(tails.tolist(), carried.indices[places].tolist(), carried.data[places].tolist(), strict=True)
        names = self._vertices
        return Flow(float(found.flow_value) * unit, {(names[a], names[b]): n * unit for a, b, n in used})


def _unit(bound: float) -> float:
    """The smallest power of two of which the bound is not too many."""
    return max(_FINEST, 2.0 ** ceil(log2(bound / _LARGEST)))


def flow_paths(flow: Flow[Vertex], source: Vertex, sink: Vertex, most: int) -> list[FlowPath[Vertex]]:
    """Up to `most` paths that carry a flow: again and again the shortest one over what is left of it."""
    left: dict[Vertex, dict[Vertex, float]] = {}
    for (tail, head), carried in flow.arcs.items():
        left.setdefault(tail, {})[head] = carried
    paths: list[FlowPath[Vertex]] = []
    while len(paths) < most and (vertices := _shortest(left, source, sink)) is not None:
        hops = list(pairwise(vertices))
        capacity = min(left[tail][head] for tail, head in hops)
        for tail, head in hops:
            left[tail][head] -= capacity
            if left[tail][head] <= 0:
                del left[tail][head]
        paths.append(FlowPath(vertices, capacity))
    return paths


def _shortest(left: Mapping[Vertex, Mapping[Vertex, float]], source: Vertex, sink: Vertex) -> tuple[Vertex, ...] | None:
    before: dict[Vertex, Vertex] = {source: source}
    waiting = deque([source])
    while waiting and sink not in before:
        tail = waiting.popleft()
        for head in left.get(tail, ()):
            if head not in before:
                before[head] = tail
                waiting.append(head)
    if sink not in before or source == sink:
        return None
    path = [sink]
    while path[-1] != source:
        path.append(before[path[-1]])
    return tuple(reversed(path))
