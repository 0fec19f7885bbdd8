"""What vanished from a map is wanted for a moment, unless it cannot be anywhere else; units are never silent."""

from __future__ import annotations

import pytest

from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.units import VertexId
from chappe.wire.mesh import InterestAdvert, LinkAdvert
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates
from tests.support.statements import stated

TOPIC = Pattern("s", "t")


def wanting(mesh: LinkStates, name: str) -> set[str]:
    return {vertex_id.name for vertex_id in mesh.nodes[name].wanting("s", b"t")}


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
    assert "x@c" not in [vertex_id.name for vertex_id in mesh.nodes["a"].vertex_ids()]
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


@pytest.mark.parametrize("seed", range(8))
def test_a_unit_that_becomes_one_again_wants_what_its_parts_did(seed: int) -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"}, seed=seed)
    for pair in ("ab", "bc", "ad", "ce", "de"):
        mesh.connect(*pair)
    mesh.put("c", mesh.nodes["c"].want([TOPIC], [], mesh.now_ns))
    mesh.put("a", mesh.nodes["a"].want([Pattern("s", "u")], [], mesh.now_ns))
    mesh.settle()
    mesh.kill("b")
    mesh.settle()
    assert wanting(mesh, "d") == wanting(mesh, "e") == {"x@c"}
    mesh.start("b")
    mesh.connect("a", "b")
    mesh.connect("b", "c")
    for _ in range(200):
        for _ in range(3):
            mesh.step()
        mesh.now_ns += MS
        for name in "abcde":
            if mesh.nodes[name].next_ns() <= mesh.now_ns:
                mesh.put(name, mesh.nodes[name].tick(mesh.now_ns))
        assert wanting(mesh, "d")
        assert wanting(mesh, "e")


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
        assert VertexId(2, "p") in mesh.nodes["f"].vertex_ids()
        assert wanting(mesh, "f") == {"p"}
    spoken = mesh.nodes["f"].database.originators("l", 2, "p")["a"].advert
    assert isinstance(spoken, LinkAdvert)
    assert spoken.links, "a has begun to speak"


def told(mesh: LinkStates, name: str, topic: str) -> set[str]:
    return {vertex_id.name for vertex_id in mesh.nodes[name].wanting("s", topic.encode())}


def test_a_summary_that_becomes_exact_takes_nothing_away_at_once() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y"}, Settings(summary=2))
    for pair in ("ab", "bc", "ac", "ad"):
        mesh.connect(*pair)
    for name in "abc":
        mesh.put(name, mesh.nodes[name].want([Pattern("s", f"t/{name}")], [], mesh.now_ns))
    mesh.settle()
    mesh.kill("c")
    for _ in range(20):
        mesh.run(mesh.settings.originate_most_ns // 25)
        assert told(mesh, "d", "t/c") == {"x"}, "c may be back soon"
    mesh.settle()
    assert told(mesh, "d", "t/c") == set()
    assert told(mesh, "d", "t/b") == {"x"}


def test_what_was_wanted_in_between_is_not_withdrawn() -> None:
    """b and c are away by turns, never both for as long as a unit waits before it says so."""
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y"})
    for pair in ("ab", "bc", "ac", "ad"):
        mesh.connect(*pair)
    for name in "abc":
        mesh.put(name, mesh.nodes[name].want([Pattern("s", f"t/{name}")], [], mesh.now_ns))
    mesh.settle()
    for turn in range(8):
        away = "bc"[turn % 2]
        mesh.kill(away)
        for _ in range(10):
            mesh.run(mesh.settings.originate_most_ns * 4 // 50)
            assert told(mesh, "d", "t/b") == told(mesh, "d", "t/c") == {"x"}
        mesh.start(away)
        mesh.put(away, mesh.nodes[away].want([Pattern("s", f"t/{away}")], [], mesh.now_ns))
        for pair in ("ab" if away == "b" else "ac", "bc"):
            mesh.connect(*pair)
        mesh.run(SECOND)


def test_a_successor_wants_at_first_what_its_unit_was_told_to_want() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y"})
    for pair in ("ab", "bc", "ac", "ad", "bd"):
        mesh.connect(*pair)
    mesh.put("a", mesh.nodes["a"].want([TOPIC], [], mesh.now_ns))
    mesh.settle()
    assert wanting(mesh, "d") == {"x"}
    mesh.kill("a")
    mesh.run(3 * SECOND)
    assert mesh.nodes["d"].database.originators("i", 1, "x")["b"]
    assert wanting(mesh, "d") == {"x"}, "whoever wanted it may be in a part that b does not see yet"
    mesh.settle()
    assert wanting(mesh, "d") == set()


def test_what_is_missed_is_bounded() -> None:
    mesh = LinkStates({"a": "x", "b": "y"}, Settings(max_patterns=100))
    mesh.connect("a", "b")
    mesh.settle()
    state, key = mesh.nodes["a"], ("i", 1, "y", "b")
    for turn in range(40):
        patterns = tuple(Pattern("s", f"t/{turn}/{number}") for number in range(30 * (turn % 2)))
        sequence = state.database.sequence(key) + 1
        advert = InterestAdvert(origin="y", level=1, scope="", originator="b", sequence=sequence, patterns=patterns)
        mesh.put("a", state.receive("b", stated(advert), mesh.now_ns))
    assert 0 < sum(len(told(mesh, "a", f"t/{turn}/0")) for turn in range(40)) <= 4


def test_another_part_of_the_own_unit_is_missed_by_its_name() -> None:
    mesh = broken_cluster()
    mesh.settle()
    assert wanting(mesh, "a") == {"x@c"}
    mesh.cut(next(link for link, ends in mesh.links.items() if ends == ("c", "e")))
    mesh.run(300 * MS)
    assert VertexId(1, "x@c") not in mesh.nodes["a"].vertex_ids()
    assert wanting(mesh, "a") == {"x@c"}


def test_groups_are_withdrawn_with_the_next_word() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "d": "y"})
    for pair in ("ab", "ad"):
        mesh.connect(*pair)
    mesh.put("b", mesh.nodes["b"].want([Pattern("s", "t", "workers")], [], mesh.now_ns))
    mesh.settle()
    assert wanting(mesh, "d") == {"x"}
    mesh.put("b", mesh.nodes["b"].want([Pattern("s", "u")], [], mesh.now_ns))
    mesh.run(SECOND)
    assert told(mesh, "d", "u") == {"x"}
    assert wanting(mesh, "d") == set()
