"""Addresses, what is seen from where, and static costs."""

from __future__ import annotations

import pytest

from chappe.errors import ConfigError
from chappe.linkstate.units import Address, VertexId, level_between, static_cost, visible

ME = Address.parse("SSC-A/SC-1/c", "6")


@pytest.mark.spec("MR-010")
@pytest.mark.parametrize(
    ("unit", "node", "vertex_id"),
    [
        ("SSC-A/SC-1/c", "5", VertexId(0, "5")),
        ("SSC-A/SC-1/b", "2", VertexId(1, "SSC-A/SC-1/b")),
        ("SSC-A/SC-2/c", "2", VertexId(2, "SSC-A/SC-2")),
        ("SSC-B/SC-1/c", "2", VertexId(3, "SSC-B")),
    ],
)
def test_the_smallest_thing_that_holds_a_node_is_seen(unit: str, node: str, vertex_id: VertexId) -> None:
    other = Address.parse(unit, node)
    assert visible(ME, other) == vertex_id
    assert level_between(ME, other) == level_between(other, ME) == vertex_id.level


def test_paths_and_scopes_of_the_own_units() -> None:
    assert [ME.path(level) for level in range(4)] == ["6", "SSC-A/SC-1/c", "SSC-A/SC-1", "SSC-A"]
    assert [ME.scope(level) for level in range(4)] == ["SSC-A/SC-1/c", "SSC-A/SC-1", "SSC-A", ""]
    assert str(ME) == "SSC-A/SC-1/c/6"
    alone = Address.parse("", "n")
    assert (alone.depth, alone.scope(0), visible(alone, Address.parse("", "m"))) == (0, "", VertexId(0, "m"))


def test_a_part_of_a_unit_is_known_by_the_path_of_the_unit() -> None:
    assert VertexId(1, "a/b@n1").path == "a/b"
    assert VertexId(0, "n1").path == "n1"


@pytest.mark.spec("MR-017")
def test_the_static_cost_is_the_sum_of_the_levels() -> None:
    known = {(0, 0): 0, (1, 1): 2, (2, 2): 4, (0, 2): 2, (1, 3): 4}
    assert {pair: static_cost(*pair) for pair in known} == known


@pytest.mark.parametrize(
    "unit", ["a//b", "/a", "a/", "a@b/c", "a/+", "#", "a/" + "x" * 256, "/".join("a" * 17), "a/\n"]
)
def test_a_unit_that_cannot_be_is_refused_with_its_name(unit: str) -> None:
    with pytest.raises(ConfigError, match="unit"):
        Address.parse(unit, "n")


def test_a_node_cannot_have_the_name_of_a_path() -> None:
    with pytest.raises(ConfigError, match="node"):
        Address.parse("a", "b/c")
