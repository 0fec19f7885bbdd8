"""Disjoint paths on the IEEE 118-bus grid: one router a bus, a channel along each branch."""

from __future__ import annotations

import random

import networkx
import pandapower.networks
import pytest

from chappe.graph.disjoint import disjoint, within
from chappe.graph.graph import Graph


@pytest.fixture(scope="module")
def grid() -> networkx.Graph:
    case = pandapower.networks.case118()
    graph = networkx.Graph()
    graph.add_edges_from((f"b{a}", f"b{b}") for a, b in zip(case.line.from_bus, case.line.to_bus, strict=True))
    graph.add_edges_from((f"b{a}", f"b{b}") for a, b in zip(case.trafo.hv_bus, case.trafo.lv_bus, strict=True))
    chance = random.Random(118)
    for _, _, channel in graph.edges(data=True):
        channel["latency"] = chance.randrange(200_000, 3_000_000)
    return graph


@pytest.fixture(scope="module")
def arcs(grid: networkx.Graph) -> Graph:
    return Graph({hop: weight for a, b, weight in grid.edges(data="latency") for hop in ((a, b), (b, a))})


@pytest.mark.spec("GS-085")
def test_two_disjoint_paths_are_found_wherever_the_grid_has_them(grid: networkx.Graph, arcs: Graph) -> None:
    chance = random.Random(5)
    found = 0
    for _ in range(400):
        source, target = chance.sample(sorted(grid), 2)
        paths = disjoint(arcs, source, target, 2)
        assert (len(paths) == 2) == (networkx.node_connectivity(grid, source, target) >= 2)
        assert len(paths) >= 1
        for path in paths:
            assert networkx.is_path(grid, path)
            assert (path[0], path[-1]) == (source, target)
        if len(paths) == 2:
            found += 1
            assert not set(paths[0][1:-1]) & set(paths[1][1:-1])
    assert 200 < found < 400


@pytest.mark.spec("GS-085")
def test_each_path_is_within_the_bound_that_can_just_be_reached(grid: networkx.Graph, arcs: Graph) -> None:
    chance = random.Random(6)
    for _ in range(30):
        source, target = chance.sample(sorted(grid), 2)
        paths = disjoint(arcs, source, target, 2)
        if len(paths) < 2:
            continue
        longest = arcs.weight(paths[-1])
        shortest = networkx.shortest_path_length(grid, source, target, weight="latency")
        assert within(arcs, source, target, 2, longest) is not None
        assert within(arcs, source, target, 2, shortest - 1) is None
        tighter = within(arcs, source, target, 2, longest - 1)
        if tighter is not None:
            assert max(map(arcs.weight, tighter)) < longest
            assert not set(tighter[0][1:-1]) & set(tighter[1][1:-1])
