"""Searches for paths against brute force and against networkx."""

from __future__ import annotations

from itertools import combinations, pairwise

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.graph.cheapest import cheapest
from chappe.graph.disjoint import disjoint, least_bound, shortest, within
from chappe.graph.graph import Graph, Path

Arcs = dict[tuple[str, str], int]


@st.composite
def nets(draw: st.DrawFn, most: int = 7) -> Arcs:
    """Arcs between up to `most` nodes; A and B are the ends."""
    names = "ABCDEFGHIJ"[: draw(st.integers(3, most))]
    pairs = [(a, b) for a in names for b in names if a != b]
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=len(pairs), unique=True))
    return {pair: draw(st.integers(0, 9)) for pair in chosen}


def all_paths(arcs: Arcs) -> list[Path]:
    graph = networkx.DiGraph(list(arcs))
    if "A" not in graph or "B" not in graph:
        return []
    return [tuple(path) for path in networkx.all_simple_paths(graph, "A", "B")]


def weight(arcs: Arcs, path: Path) -> int:
    return sum(arcs[hop] for hop in pairwise(path))


def are_disjoint(paths: list[Path] | tuple[Path, ...]) -> bool:
    return all(one != two and not set(one[1:-1]) & set(two[1:-1]) for one, two in combinations(paths, 2))


def disjoint_sets(arcs: Arcs, count: int) -> list[tuple[Path, ...]]:
    return [paths for paths in combinations(all_paths(arcs), count) if are_disjoint(paths)]


def check(arcs: Arcs, paths: list[Path]) -> None:
    for path in paths:
        assert path[0] == "A"
        assert path[-1] == "B"
        assert len(set(path)) == len(path)
        assert all(hop in arcs for hop in pairwise(path))
    assert are_disjoint(paths)


@pytest.mark.spec("GS-085")
@settings(deadline=None)
@given(nets(), st.integers(1, 3))
def test_disjoint_paths_are_as_many_and_as_short_as_brute_force_finds(arcs: Arcs, count: int) -> None:
    paths = disjoint(Graph(arcs), "A", "B", count)
    check(arcs, paths)
    options = disjoint_sets(arcs, count)
    assert (len(paths) == count) == bool(options)
    if options:
        least = min(sum(weight(arcs, path) for path in option) for option in options)
        assert sum(weight(arcs, path) for path in paths) == least


@settings(deadline=None)
@given(nets(10), st.integers(1, 4))
def test_disjoint_paths_agree_with_the_flow_of_networkx(arcs: Arcs, count: int) -> None:
    paths = disjoint(Graph(arcs), "A", "B", count)
    split = networkx.DiGraph()
    for name in {name for arc in arcs for name in arc} | {"A", "B"}:
        split.add_edge((name, 0), (name, 1), capacity=count if name in "AB" else 1, weight=0)
    for (a, b), cost in arcs.items():
        split.add_edge((a, 1), (b, 0), capacity=1, weight=cost)
    most, _ = networkx.maximum_flow(split, ("A", 0), ("B", 1))
    assert len(paths) == min(most, count)
    if paths:
        split.add_edge("start", ("A", 0), capacity=len(paths), weight=0)
        flow = networkx.max_flow_min_cost(split, "start", ("B", 1))
        assert sum(weight(arcs, path) for path in paths) == networkx.cost_of_flow(split, flow)


@pytest.mark.spec("GS-085")
@settings(deadline=None)
@given(nets(), st.integers(1, 3), st.integers(0, 30))
def test_paths_each_within_a_bound_are_found_if_there_are_any(arcs: Arcs, count: int, bound: int) -> None:
    options = disjoint_sets(arcs, count)
    possible = any(all(weight(arcs, path) <= bound for path in option) for option in options)
    paths = within(Graph(arcs), "A", "B", count, bound)
    assert (paths is not None) == possible
    if paths is not None:
        check(arcs, paths)
        assert len(paths) == count
        assert all(weight(arcs, path) <= bound for path in paths)


@settings(deadline=None)
@given(nets(), st.integers(1, 3))
def test_the_least_bound_is_reached_and_never_too_low(arcs: Arcs, count: int) -> None:
    options = disjoint_sets(arcs, count)
    least = min((max(weight(arcs, path) for path in option) for option in options), default=None)
    assert least_bound(Graph(arcs), "A", "B", count) == least


@settings(deadline=None)
@given(nets(), st.integers(1, 20))
def test_shortest_simple_paths_come_in_the_order_of_networkx(arcs: Arcs, count: int) -> None:
    arcs = {hop: length + 1 for hop, length in arcs.items()}
    wanted = sorted(weight(arcs, path) for path in all_paths(arcs))[:count]
    paths = shortest(Graph(arcs), "A", "B", count)
    assert [weight(arcs, path) for path in paths] == wanted
    assert len(set(paths)) == len(paths)


@settings(deadline=None)
@given(nets(), st.integers(0, 30), st.data())
def test_the_cheapest_path_within_a_bound_is_what_brute_force_finds(
    arcs: Arcs, bound: int, data: st.DataObject
) -> None:
    costs = {hop: data.draw(st.integers(0, 9)) for hop in arcs}
    options = [path for path in all_paths(arcs) if weight(arcs, path) <= bound]
    least = min(((weight(costs, path), weight(arcs, path)) for path in options), default=None)
    path = cheapest(Graph(arcs), costs, "A", "B", bound)
    assert (None if path is None else (weight(costs, path), weight(arcs, path))) == least
