"""Meshes of the simulator: connected, in units that hold together, with as many gateways as asked for."""

from __future__ import annotations

import random
from collections import Counter

import networkx as nx
import pytest

from chappe.errors import ConfigError
from chappe.sim.network import Network
from chappe.sim.plan import Plan, build, grown, meshed, thinned, topology, units


def graph(plan: Plan) -> nx.Graph:
    found = nx.Graph()
    found.add_nodes_from(plan.nodes)
    found.add_weighted_edges_from(plan.links)
    return found


def test_a_network_of_topohub_has_latencies_of_its_lengths() -> None:
    plan = topology("topozoo/Abilene")
    assert len(plan.nodes) == 11
    assert len(plan.links) == 14
    longest = max(ms for _, _, ms in plan.links)
    assert longest == pytest.approx(2207.38 / 200)
    assert nx.is_connected(graph(plan))


def test_an_unknown_network_is_said() -> None:
    with pytest.raises(ConfigError, match="no network 'x/y'"):
        topology("x/y")
    with pytest.raises(ConfigError, match="at least 2"):
        grown(1, random.Random(1))


@pytest.mark.parametrize("count", [2, 3, 10, 200])
@pytest.mark.parametrize("dense", [False, True])
def test_a_grown_mesh_is_connected_and_comes_from_its_seed(count: int, dense: bool) -> None:
    plan = grown(count, random.Random(5), dense=dense)
    assert len(plan.nodes) == count
    assert nx.is_connected(graph(plan))
    assert plan == grown(count, random.Random(5), dense=dense)
    assert count < 5 or plan != grown(count, random.Random(6), dense=dense)


def test_a_gabriel_graph_has_no_node_between_two_neighbours() -> None:
    """Of two links in a triangle over the same corner none is longer than both others together, squared."""
    plan = grown(60, random.Random(2))
    length = {frozenset(link[:2]): link[2] for link in plan.links if link[2] > 0.1}
    for a, b, ms in plan.links:
        for other in plan.nodes:
            sides = [length.get(frozenset((end, other))) for end in (a, b)]
            if None not in sides and other not in (a, b):
                assert ms**2 <= sum(side**2 for side in sides if side) * (1 + 1e-9)


def test_units_are_of_about_the_same_size_and_hold_together() -> None:
    plan = grown(300, random.Random(3), dense=True)
    places = units(plan, fan_out=6, depth=2)
    assert set(places) == set(plan.nodes)
    assert {len(path) for path in places.values()} == {2}
    clusters = Counter(places.values())
    assert len(clusters) == 36
    assert max(clusters.values()) <= 2.5 * 300 / 36
    whole = graph(plan)
    for level in (1, 2):
        for path in {places[name][:level] for name in plan.nodes}:
            inside = [name for name in plan.nodes if places[name][:level] == path]
            assert nx.is_connected(whole.subgraph(inside))


def test_thinning_bounds_links_between_units_and_keeps_all_inside() -> None:
    plan = grown(300, random.Random(3), dense=True)
    places = units(plan, fan_out=6, depth=2)
    thin = thinned(plan, places, most=2)
    between: Counter[tuple[tuple[str, ...], ...]] = Counter()
    inside = 0
    for a, b, _ in thin.links:
        level = next((at for at in (0, 1) if places[a][at] != places[b][at]), None)
        if level is None:
            inside += 1
        else:
            between[tuple(sorted((places[a][: level + 1], places[b][: level + 1])))] += 1
    assert inside == sum(places[a] == places[b] for a, b, _ in plan.links)
    assert max(between.values()) == 2
    assert len(thin.links) < len(plan.links)
    assert nx.is_connected(graph(thin))


def test_meshing_gives_each_node_enough_links_inside_its_cluster() -> None:
    plan = grown(100, random.Random(3), dense=True)
    places = units(plan, fan_out=10, depth=1)
    found = meshed(plan, places, least=4)
    inside = graph(
        Plan("inside", found.nodes, tuple(link for link in found.links if places[link[0]] == places[link[1]]))
    )
    sizes = Counter(places.values())
    assert all(degree >= min(4, sizes[places[name]] - 1) for name, degree in inside.degree())
    assert found.links[: len(plan.links)] == plan.links
    assert len({frozenset(link[:2]) for link in found.links}) == len(found.links)
    assert len(found.links) > len(plan.links)


def test_a_plan_is_built_with_its_delays_and_units() -> None:
    plan = topology("sndlib/polska")
    network = Network(1)
    build(network, plan, units(plan, 2, 1), jitter_ms=0.5)
    assert set(network.nodes) == set(plan.nodes)
    a, b, ms = plan.links[0]
    assert network.link(b, a).pipes[1].quality.delay_ms == ms
    assert network.link(a, b).pipes[0].quality.jitter_ms == 0.5
    assert {len(node.address.unit) for node in network.nodes.values()} == {1}
