"""A measured network: loads as another library counts them, and what more or fewer links change."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import network
from chappe.pipeline.network import Network

SQUARE = [("a", "b", 1.0), ("b", "c", 1.0), ("c", "d", 1.0), ("d", "a", 10.0), ("d", "e", 2.0)]


def _uniform(size: int) -> np.ndarray:
    return network.demand(tuple(map(str, range(size))), {}, {})


@st.composite
def _networks(draw: st.DrawFn) -> Network:
    size = draw(st.integers(3, 9))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    pairs = [(a, b) for a in range(size) for b in range(a) if random.random() < 0.5 or b == a - 1]
    return Network.of((str(a), str(b), float(random.uniform(0.5, 20))) for a, b in pairs)


def _graph(of: Network) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(of.names)))
    graph.add_weighted_edges_from((a, b, of.cost[a, b]) for a, b in of.links)
    return graph


@pytest.mark.spec("SJ-05")
@given(_networks())
def test_loads_are_weighted_betweenness(of: Network) -> None:
    found = network.ways(of)
    wanted = _uniform(len(of.names))
    load, pairs = network.loads(found, wanted)
    expected = nx.edge_betweenness_centrality(_graph(of), weight="weight")
    for (a, b), share in expected.items():
        assert load[a, b] + load[b, a] == pytest.approx(share)
        assert pairs[a, b] + pairs[b, a] == pytest.approx(share * len(of.names) * (len(of.names) - 1))
    assert load.sum() >= 1.0 - 1e-9  # each pair uses one arc or more


@given(_networks())
def test_weak_points_as_another_library_finds_them(of: Network) -> None:
    nodes, bridges = network.weak_points(of)
    assert set(nodes) == set(nx.articulation_points(_graph(of)))
    assert {frozenset(pair) for pair in bridges} == {frozenset(pair) for pair in nx.bridges(_graph(of))}


@given(_networks())
def test_what_a_link_saves_is_what_the_network_with_it_costs_less(of: Network) -> None:
    found = network.ways(of)
    wanted = _uniform(len(of.names))
    for each in network.gains(found, wanted, network.candidates(of, found, 3, 0.5)):
        cost = of.cost.copy()
        cost[each.a, each.b] = cost[each.b, each.a] = each.estimate
        with_it = network.total(network.ways(Network(of.names, cost)), wanted)
        assert each.gain == pytest.approx(network.total(found, wanted) - with_it, abs=1e-5)
        assert each.gain >= 0
        assert each.estimate <= each.now + 1e-9


def test_links_without_load_can_go_and_bridges_cannot() -> None:
    of = Network.of(SQUARE)
    assert of.names == ("a", "b", "c", "d", "e")
    found, wanted = network.ways(of), _uniform(5)
    load, _ = network.loads(found, wanted)
    assert load[0, 3] == load[3, 0] == 0.0
    assert network.loss(of, found, wanted, (0, 3)) == (pytest.approx(0.0), False)
    dearer, cut = network.loss(of, found, wanted, (1, 2))
    assert dearer > 0
    assert not cut
    assert network.loss(of, found, wanted, (3, 4))[1]
    assert network.weak_points(of) == ([3], [(3, 4)])


def test_traffic_follows_those_who_send_and_receive() -> None:
    wanted = network.demand(("a", "b", "c"), {"a": 10.0}, {"b": 1.0, "c": 3.0})
    assert wanted.tolist() == [[0, 0.25, 0.75], [0, 0, 0], [0, 0, 0]]
    assert network.demand(("a", "b"), {}, {"b": 5.0}).tolist() == [[0, 0.5], [0.5, 0]]
    load, _ = network.loads(network.ways(Network.of([("a", "b", 1.0), ("b", "c", 1.0)])), wanted)
    assert load[0, 1] == 1.0
    assert load[1, 2] == 0.75


def test_the_second_way_shares_nothing_with_the_first() -> None:
    found = {(a, b): each for a, b, each in network.alternates(Network.of(SQUARE), [(0, 3), (0, 1), (3, 4)])}
    assert found[0, 3].way == ("a", "b", "c", "d")
    assert (found[0, 3].cost, found[0, 3].second, found[0, 3].second_cost) == (3.0, ("a", "d"), 10.0)
    assert (found[0, 1].second, found[0, 1].second_cost) == (("a", "d", "c", "b"), 12.0)
    assert (found[3, 4].second, found[3, 4].second_cost) == ((), float("inf"))


def test_arcs_of_one_end_count_for_both_and_nonsense_for_none() -> None:
    of = Network.of([("a", "b", 1.0), ("b", "a", 3.0), ("b", "c", 2.0), ("b", "c", 1.5), ("c", "c", 1.0),
                     ("a", "c", float("nan")), ("a", "c", -1.0)])  # fmt: skip
    assert of.cost[0, 1] == 1.0
    assert of.cost[1, 0] == 3.0
    assert of.cost[1, 2] == of.cost[2, 1] == 1.5
    assert not np.isfinite(of.cost[0, 2])
    nothing = Network.of([])
    assert network.total(network.ways(nothing), _uniform(0)) == 0.0
    assert network.weak_points(nothing) == ([], [])
    assert network.candidates(nothing, network.ways(nothing), 5, 0.5) == []
