"""The tree of least total cost, against networkx."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.graph.spanning import spanning_tree

pairs = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")).filter(lambda pair: pair[0] < pair[1])


@pytest.mark.spec("MR-132")
@given(st.dictionaries(pairs, st.integers(0, 9).map(float)))
def test_its_total_is_the_least_and_it_reaches_everything(links: dict[tuple[str, str], float]) -> None:
    graph = nx.Graph()
    graph.add_weighted_edges_from((a, b, cost) for (a, b), cost in links.items())
    tree = spanning_tree(links)
    wanted = nx.minimum_spanning_tree(graph).size(weight="weight")
    assert sum(tree.values()) == pytest.approx(wanted)
    reached = nx.Graph(list(tree))
    reached.add_nodes_from(graph)
    assert {frozenset(part) for part in nx.connected_components(reached)} == {
        frozenset(part) for part in nx.connected_components(graph)
    }
    assert len(tree) == len(graph) - nx.number_connected_components(graph)


def test_of_equal_trees_it_is_always_the_same() -> None:
    links = {("b", "c"): 1.0, ("a", "c"): 1.0, ("a", "b"): 1.0}
    assert set(spanning_tree(links)) == {("a", "b"), ("a", "c")}
    assert set(spanning_tree(dict(reversed(links.items())))) == {("a", "b"), ("a", "c")}
