"""What was left is not entered again (MR-020)."""

from __future__ import annotations

import pytest

from chappe.events.source_route import MAX_TRACE
from chappe.events.trace import crossed, related, returns, visited, without_own
from chappe.linkstate.units import Address

ME = Address(("east", "p3", "hall"), "n1")
OWN = {1: "east/p3/hall", 2: "east/p3", 3: "east"}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("east", "east", True),
        ("east", "west", False),
        ("east", "east/p3", True),
        ("east/p3", "east", True),
        ("east/p3", "east/p33", False),
        ("east@n1", "east@n2", False),
        ("east@n1", "east@n1", True),
        ("east@n1", "east", False),
        ("east@n1", "east/p3", False),  # it is in the other part, or nobody would name it
        ("east/p3@n1", "east", True),
    ],
)
def test_names_of_units_are_related(a: str, b: str, same: bool) -> None:
    assert related(a, b) is same
    assert related(b, a) is same


@pytest.mark.spec("MR-020")
def test_an_event_is_known_to_return() -> None:
    assert returns(OWN.values(), ("west", "east/p3")) == "east/p3"
    assert returns(OWN.values(), ("west", "east/p2", "east/p3/hall2")) == ""
    assert returns(["east", "east/p3@n1"], ("east/p3@n7", "east/p3")) == ""
    assert returns(["east", "east/p3@n1"], ("east/p3@n1",)) == "east/p3@n1"


def test_on_leaving_a_unit_all_inside_it_is_one_entry() -> None:
    assert crossed(ME, 1, OWN[1], ("west",)) == ("west", "east/p3/hall")
    assert crossed(ME, 2, OWN[2], ("west", "east/p3/a", "east/p3/b")) == ("west", "east/p3")
    assert crossed(ME, 2, "east/p3@n1", ("east/p33", "east/p3@n7")) == ("east/p33", "east/p3@n7", "east/p3@n1")
    assert crossed(ME, 2, OWN[2], ("east/p3",)) == ("east/p3",)
    assert crossed(ME, 2, OWN[2], tuple(f"u{n}" for n in range(MAX_TRACE))) == ()


def test_what_this_node_is_in_is_not_in_its_way() -> None:
    assert without_own(ME, ("east", "west", "east/p3@n1", "east/p4")) == ("west", "east/p4")
    assert visited("west/a", ("west",))
    assert not visited("west/a", ())
