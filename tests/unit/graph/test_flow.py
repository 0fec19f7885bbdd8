"""The maximum flow and its paths, in numbers that SciPy alone does not take."""

from __future__ import annotations

import pytest

from chappe.graph.flow import FlowGraph, FlowPath, flow_paths

EXAMPLE = {
    ("s", "a"): 300.0, ("s", "b"): 200.0, ("s", "t"): 280.0, ("a", "t"): 250.0, ("a", "b"): 100.0, ("b", "t"): 260.0,
    ("b", "a"): 50.0,
}  # fmt: skip


@pytest.mark.spec("BF-21", "BF-22")
def test_the_example_of_the_specification() -> None:
    flow = FlowGraph(EXAMPLE).maximum_flow("s", "t")
    assert flow.value == 780
    paths = flow_paths(flow, "s", "t", 4)
    assert sorted(paths) == [
        FlowPath(("s", "a", "b", "t"), 50.0), FlowPath(("s", "a", "t"), 250.0), FlowPath(("s", "b", "t"), 200.0),
        FlowPath(("s", "t"), 280.0),
    ]  # fmt: skip
    assert [len(path.vertices) for path in paths] == [2, 3, 3, 4]


@pytest.mark.spec("BF-22")
@pytest.mark.parametrize(("most", "lengths"), [(0, []), (1, [2]), (3, [2, 3, 3]), (9, [2, 3, 3, 4])])
def test_no_more_paths_than_wanted_and_short_ones_first(most: int, lengths: list[int]) -> None:
    paths = flow_paths(FlowGraph(EXAMPLE).maximum_flow("s", "t"), "s", "t", most)
    assert [len(path.vertices) for path in paths] == lengths


@pytest.mark.spec("BF-21")
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6, 1e12])
def test_capacities_of_any_size(scale: float) -> None:
    flow = FlowGraph({arc: capacity * scale for arc, capacity in EXAMPLE.items()}).maximum_flow("s", "t")
    assert flow.value == pytest.approx(780 * scale, rel=1e-6)


def test_a_huge_capacity_leaves_the_others_exact() -> None:
    arcs = {("s", "a"): 1e12, ("a", "b"): 3.0, ("b", "t"): 1e12, ("s", "t"): 2.0, ("a", "t"): 5.0}
    assert FlowGraph(arcs).maximum_flow("s", "t").value == pytest.approx(10.0, rel=1e-6)


def test_arcs_in_both_directions_at_the_upper_end() -> None:
    arcs = {(a, b): 1e12 for a in "sabt" for b in "sabt" if a != b}
    assert FlowGraph(arcs).maximum_flow("s", "t").value == pytest.approx(3e12, rel=1e-6)


def test_what_is_slow_is_still_a_way() -> None:
    flow = FlowGraph({("s", "a"): 1e12, ("a", "t"): 1e12, ("s", "b"): 1.0, ("b", "t"): 1.0}).maximum_flow("s", "t")
    assert ("s", "b") in flow.arcs


@pytest.mark.parametrize(
    "arcs",
    [
        {}, {("s", "a"): 1.0}, {("a", "t"): 1.0}, {("t", "s"): 1.0}, {("s", "t"): 0.0}, {("s", "t"): -1.0},
        {("s", "a"): 1.0, ("b", "t"): 1.0},
    ],
)  # fmt: skip
def test_where_there_is_no_way_nothing_flows(arcs: dict[tuple[str, str], float]) -> None:
    flow = FlowGraph(arcs).maximum_flow("s", "t")
    assert flow.value == 0
    assert flow_paths(flow, "s", "t", 8) == []


def test_from_a_vertex_to_itself_nothing_flows() -> None:
    assert FlowGraph({("s", "s"): 1.0, ("s", "t"): 1.0, ("t", "s"): 1.0}).maximum_flow("s", "s").value == 0
