"""What vanished from a map is wanted for a moment, unless it cannot be anywhere else; units are never silent."""

from __future__ import annotations

from chappe.netmap.settings import MS
from chappe.netmap.units import Thing
from chappe.wire.mesh import LinkAdvert
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates

TOPIC = Pattern("s", "t")


def wanting(mesh: LinkStates, name: str) -> set[str]:
    return {thing.name for thing in mesh.nodes[name].wanting("s", b"t")}


def broken_cluster() -> LinkStates:
    """The cluster x is a chain of three; both its ends have a link to y. All of it wants the topic."""
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"})
    for pair in ("ab", "bc", "ad", "ce", "de"):
        mesh.connect(*pair)
    for name in "abc":
        mesh.put(name, mesh.nodes[name].want([TOPIC], [], mesh.now_ns))
    mesh.settle()
    assert wanting(mesh, "a") == {"b", "c"}
    mesh.kill("b")
    mesh.run(100 * MS)
    return mesh


def test_the_other_part_of_a_cluster_is_wanted_before_anybody_speaks_for_it() -> None:
    mesh = broken_cluster()
    assert "x@c" not in [thing.name for thing in mesh.nodes["a"].things()]
    assert wanting(mesh, "a") == {"b", "c"}, "which of them is dead, nobody in this part knows"


def test_who_has_no_link_but_to_those_that_lost_it_is_dead() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"})
    for pair in ("ab", "ac", "bc", "bd", "de"):
        mesh.connect(*pair)
    mesh.put("c", mesh.nodes["c"].want([TOPIC], [], mesh.now_ns))
    mesh.settle()
    assert wanting(mesh, "a") == {"c"}
    mesh.kill("c")
    mesh.run(100 * MS)
    assert wanting(mesh, "a") == set()


def test_it_is_missed_until_there_was_time_to_speak_for_it() -> None:
    mesh = broken_cluster()
    mesh.run(mesh.settings.missed_ns)
    assert wanting(mesh, "a") == {"x@c"}


def test_who_is_back_is_not_missed_any_more() -> None:
    mesh = broken_cluster()
    mesh.connect("a", "c")
    mesh.run(100 * MS)
    mesh.put("c", mesh.nodes["c"].want([], [], mesh.now_ns))
    mesh.run(300 * MS)
    assert wanting(mesh, "a") == {"b"}


def test_in_one_cluster_alone_who_is_gone_is_gone() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "x"})
    for pair in ("ab", "bc", "cd"):
        mesh.connect(*pair)
    for name in "bcd":
        mesh.put(name, mesh.nodes[name].want([TOPIC], [], mesh.now_ns))
    mesh.settle()
    mesh.kill("b")
    mesh.run(100 * MS)
    assert wanting(mesh, "a") == set()


def test_groups_are_served_by_those_who_can_be_reached() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"})
    for pair in ("ab", "bc", "ad", "ce", "de"):
        mesh.connect(*pair)
    mesh.put("c", mesh.nodes["c"].want([Pattern("s", "t", "workers")], [], mesh.now_ns))
    mesh.settle()
    assert wanting(mesh, "a") == {"c"}
    mesh.kill("b")
    mesh.run(100 * MS)
    assert wanting(mesh, "a") == set()


def test_a_unit_is_in_every_map_though_something_joins_all_the_time() -> None:
    """The first speaker of p comes back, and never finds a quiet moment to begin; its stand-in goes on till it does."""
    mesh = LinkStates({"a": "p/x", "b": "p/x", "c": "p/x", "d": "p/y", "e": "q/z", "f": "q/z"})
    for pair in ("ab", "bc", "bd", "be", "df", "ef"):
        mesh.connect(*pair)
    for name in "abcd":
        mesh.put(name, mesh.nodes[name].want([TOPIC], [], mesh.now_ns))
    mesh.settle()
    mesh.kill("a")
    mesh.settle()
    mesh.start("a")
    mesh.connect("a", "b")
    for _ in range(60):
        mesh.kill("c")
        mesh.run(75 * MS)
        mesh.start("c")
        mesh.connect("c", "b")
        mesh.run(75 * MS)
        assert Thing(2, "p") in mesh.nodes["f"].things()
        assert wanting(mesh, "f") == {"p"}
    spoken = mesh.nodes["f"].database.speakers("l", 2, "p")["a"].advert
    assert isinstance(spoken, LinkAdvert)
    assert spoken.links, "a has begun to speak"
