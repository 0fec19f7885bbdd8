"""The maximum flow and its decomposition on random graphs; networkx is the second opinion."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chappe.graph.flow import FlowGraph, flow_paths

vertices = st.integers(0, 9)
sizes = st.one_of(st.integers(0, 1000).map(float), st.floats(1e-3, 1e12), st.just(1e12))
graphs = st.dictionaries(st.tuples(vertices, vertices), sizes, max_size=60)


@pytest.mark.spec("BF-21", "BF-22")
@given(graphs)
@example({(0, 2): 1e12, (2, 3): 1e-3, (3, 9): 1e12})
def test_as_much_flows_as_networkx_says_and_paths_carry_it(arcs: dict[tuple[int, int], float]) -> None:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(10))
    graph.add_edges_from((a, b, {"capacity": value}) for (a, b), value in arcs.items() if a != b and value > 0)
    flow = FlowGraph(arcs).maximum_flow(0, 9)
    assert flow.value == pytest.approx(nx.maximum_flow_value(graph, 0, 9), rel=1e-3, abs=1e-3)
    balance: Counter[int] = Counter()
    for (a, b), carried in flow.arcs.items():
        assert 0 < carried <= arcs[a, b] + max(1e-3, flow.value / 1e3)
        balance[a] -= carried  # type: ignore[assignment]
        balance[b] += carried  # type: ignore[assignment]
    for vertex in range(1, 9):
        assert balance[vertex] == pytest.approx(0, abs=max(1e-6, flow.value * 1e-9))
    paths = flow_paths(flow, 0, 9, 100)
    assert sum(path.capacity for path in paths) == pytest.approx(flow.value, rel=1e-9)
    used: Counter[tuple[int, int]] = Counter()
    for path in paths:
        assert (path.vertices[0], path.vertices[-1]) == (0, 9)
        assert len(set(path.vertices)) == len(path.vertices)
        for hop in pairwise(path.vertices):
            used[hop] += path.capacity  # type: ignore[assignment]
    for hop, carried in used.items():
        assert carried <= flow.arcs[hop] * (1 + 1e-9)
    assert [len(path.vertices) for path in paths] == sorted(len(path.vertices) for path in paths)
