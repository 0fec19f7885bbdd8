"""Which neighbours an advertisement is passed on to at once, and which are only asked later whether they have it."""

from __future__ import annotations

import pytest

from chappe.linkstate.covering import Covering
from chappe.linkstate.database import Database
from chappe.linkstate.units import VertexId
from chappe.wire.mesh import LinkAdvert, LinkFact
from tests.support.statements import stated

NODES = {"a": "bcd", "b": "ae", "c": "ae", "d": "af", "e": "bc", "f": "d"}
UNIT, OTHER = VertexId(1, "w/2"), VertexId(1, "w/3")


def facts(name: str, near: str, units: tuple[VertexId, ...] = ()) -> LinkAdvert:
    links = [LinkFact(id=bytes(16), far=far, level=0) for far in near]
    links += [LinkFact(id=bytes(16), far=unit.name, level=unit.level) for unit in units]
    return LinkAdvert(origin=name, level=0, scope="w/1", originator=name, sequence=1, links=tuple(links))


def covering(me: str, gateways: dict[str, tuple[VertexId, ...]] | None = None, **other: str) -> Covering:
    database = Database(1)
    for name, near in {**NODES, **other}.items():
        advert = facts(name, near, (gateways or {}).get(name, ()))
        database.store(("l", 0, name, name), advert, stated(advert), 0)
    return Covering(me, database)


def locations(peers: str) -> dict[str, VertexId]:
    return {peer: VertexId(0, peer) for peer in peers}


@pytest.mark.parametrize(
    ("me", "source", "now", "later"),
    [
        ("b", "a", "e", ""),  # of b and c, which both have it from a, the first one tells e
        ("c", "a", "", "e"),
        ("d", "a", "f", ""),
        ("a", "b", "cd", ""),  # e could tell c, too
        ("e", "b", "", "c"),
    ],
)
def test_each_node_of_a_cluster_hears_it_once(me: str, source: str, now: str, later: str) -> None:
    found = covering(me).split(source, 0, NODES[me], locations(NODES[me]))
    assert found == (tuple(now), tuple(later))


def test_links_that_one_end_alone_tells_of_carry_nothing() -> None:
    found = covering("c", b="a").split("a", 0, "ae", locations("ae"))
    assert found == (("e",), ())


def test_who_gets_it_from_outside_tells_all_in_the_cluster() -> None:
    assert covering("a").split("x", 1, "bcdx", {**locations("bcd"), "x": UNIT}) == (("b", "c", "d"), ())


def test_a_unit_is_told_over_one_link_of_the_cluster() -> None:
    around = {**locations("ae"), "x": UNIT, "y": UNIT, "z": OTHER}
    assert covering("b").split("a", 1, "aexyz", around) == (("e", "x", "z"), ("y",))
    assert covering("b", {"a": (UNIT,)}).split("e", 1, "aexyz", around) == (("a", "z"), ("x", "y"))
    assert covering("b").split("x", 1, "aexyz", around) == (("a", "e", "z"), ("y",))


def test_another_map_is_another_answer() -> None:
    known = covering("c")
    assert known.split("a", 0, "ae", locations("ae")) == ((), ("e",))
    known._database.store(("l", 0, "b", "b"), facts("b", "a"), stated(facts("b", "a")), 0)
    known.changed()
    assert known.split("a", 0, "ae", locations("ae")) == (("e",), ())
