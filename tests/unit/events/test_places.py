"""Which nodes may lie in which unit: a list of the administrator, because certificates name no units."""

from __future__ import annotations

import pytest

from chappe.events.member_links import misplaced
from chappe.machine import Log
from chappe.wire.mesh import InterestAdvert, LinkAdvert, LinkFact
from tests.support.members import Members
from tests.support.statements import stated

PLACES = (("east/hall", ("n1", "edge-*")), ("west", ("w*",)))


@pytest.mark.parametrize(
    ("name", "unit", "allowed"),
    [
        ("n1", "east/hall", True),
        ("edge-7", "east/hall", True),
        ("n2", "east/hall", False),
        ("n1", "east/yard", False),
        ("n1", "east", True),  # to speak for it
        ("n1", "eas", False),
        ("w3", "west/anywhere", True),
        ("w3", "west", True),
        ("w3", "westfield", False),
        ("w3", "east", False),
    ],
)
def test_a_unit_stands_for_all_inside_it(name: str, unit: str, allowed: bool) -> None:
    wrong = misplaced(PLACES, name, unit)
    assert not wrong if allowed else f"{name!r} has no place in unit {unit!r}" in wrong
    assert misplaced((), name, unit) == ""


def test_the_empty_unit_stands_for_the_mesh() -> None:
    assert misplaced((("", ("n*",)),), "n1", "east") == ""
    assert misplaced((("", ("n*",)),), "m1", "east")


def strict() -> Members:
    """a and b, which know who may lie in x; m is not one of them."""
    mesh = Members()
    places = (("x", ("a", "b", "c")),)
    mesh.node("a", "x", places=places)
    mesh.node("b", "x", places=places)
    mesh.link("a", "b", 1)
    mesh.run(1)
    return mesh


def test_a_neighbour_that_is_not_listed_is_refused() -> None:
    mesh = strict()
    mesh.node("m", "x")
    mesh.link("a", "m", 1)
    mesh.run(1)
    member = mesh.places["a"].member
    assert member.refused > 0  # its MeshJoin, and what it said all the same
    assert [str(vertex_id) for vertex_id in member.state.vertex_ids()] == ["b"]
    mesh.node("c", "x")
    mesh.link("b", "c", 1)
    mesh.run(1)
    assert sorted(str(vertex_id) for vertex_id in member.state.vertex_ids()) == ["b", "c"]


@pytest.mark.parametrize(
    "forged",
    [
        LinkAdvert(origin="m", level=0, scope="x", originator="m", sequence=1, links=(LinkFact(bytes(16), "a", 0),)),
        InterestAdvert(origin="m", level=0, scope="x", originator="m", sequence=1),
        LinkAdvert(origin="x", level=1, scope="", originator="m", sequence=1),
    ],
)
def test_what_it_says_is_not_believed_whoever_passes_it_on(forged: LinkAdvert | InterestAdvert) -> None:
    mesh = strict()
    place = mesh.places["a"]
    before = place.member.state.map_rows()
    (told,) = place.member.receive(place.ports["b"], stated(forged), mesh.now_ns)
    assert isinstance(told, Log)
    assert "'m' has no place in unit 'x'" in told.fields["reason"]
    assert place.member.state.map_rows() == before
