"""How often things are told, passed on, asked for and computed while a mesh is not quiet."""

from __future__ import annotations

import random

import pytest

from chappe.linkstate.flooding import Flooding
from chappe.linkstate.interests import Index
from chappe.linkstate.pacing import Pacing
from chappe.linkstate.resync import Resync
from chappe.linkstate.settings import MS, SECOND, Settings
from chappe.linkstate.units import VertexId
from chappe.machine import Send
from chappe.wire.mesh import Digest, InterestAdvert, Key, LinkAdvert
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates

NEAR: Key = ("l", 0, "b", "b")
FAR: Key = ("l", 1, "w/2", "x")
START = 100 * SECOND


def test_the_first_news_of_a_cluster_go_at_once_and_the_next_in_one_piece() -> None:
    flooding = Flooding(Settings(), random.Random(1))
    flooding.add(NEAR, 1, ["c", "d"], START)
    assert flooding.take(START) == [("c", NEAR), ("d", NEAR)]
    other: Key = ("l", 0, "e", "e")
    flooding.add(NEAR, 2, ["c"], START + MS)
    flooding.add(other, 7, ["c"], START + 2 * MS)
    assert flooding.take(START + 2 * MS) == []
    assert START + 5 * MS <= flooding.next_ns <= START + 10 * MS
    assert flooding.take(START + 10 * MS) == [("c", NEAR), ("c", other)]
    assert flooding.take(START + SECOND) == []


def test_nobody_is_told_what_it_told_in_between() -> None:
    flooding = Flooding(Settings(), random.Random(1))
    flooding.add(FAR, 5, ["c", "d", "e"], START)
    flooding.has("c", FAR, 5)
    flooding.has("d", FAR, 4)  # an older one
    flooding.lost("e")
    assert flooding.take(START + 20 * MS) == [("d", FAR)]


def test_what_all_neighbours_have_is_asked_for_once_and_again_where_nobody_answers() -> None:
    lacking = Resync(Settings())
    assert lacking.offer("b", [(NEAR, 3), (FAR, 4)], START) == [NEAR, FAR]
    assert lacking.offer("c", [(NEAR, 3), (FAR, 4)], START) == []
    assert lacking.offer("d", [(NEAR, 9)], START) == [NEAR], "a newer one"
    lacking.has(NEAR, 9)
    assert lacking.late(START + 999 * MS) == {}
    assert lacking.late(START + SECOND) == {"c": [FAR]}
    assert lacking.late(START + 2 * SECOND) == {}, "nobody else has it"
    assert lacking.offer("b", [(FAR, 4)], START + 3 * SECOND) == [FAR]


def test_a_neighbour_that_is_lost_is_replaced_by_another_that_has_the_same() -> None:
    lacking = Resync(Settings())
    lacking.offer("b", [(FAR, 4)], START)
    lacking.offer("c", [(FAR, 4)], START)
    assert lacking.lost("b", START) == {"c": [FAR]}
    assert lacking.lost("c", START) == {}


def test_what_liars_offer_is_bounded() -> None:
    lacking = Resync(Settings(max_adverts=10))
    offered: list[tuple[Key, int]] = [(("l", 0, f"n{number}", "x"), 1) for number in range(50)]
    assert len(lacking.offer("b", offered, START)) == 10


def test_far_changes_are_computed_at_growing_intervals_and_at_once_after_a_pause() -> None:
    settings = Settings()
    pacing = Pacing(settings)
    assert pacing.due_ns(START, 1) == START + 4 * settings.gather_ns
    now_ns, waits = START, []
    for _ in range(12):
        due_ns = pacing.due_ns(now_ns, 1)
        waits.append(due_ns - now_ns)
        pacing.done(due_ns, now_ns, 1)
        now_ns = due_ns
    assert waits == sorted(waits)
    assert waits[-1] == settings.recompute_most_ns
    assert pacing.due_ns(now_ns, 0) == now_ns + settings.recompute_ns, "the own cluster does not wait for that"
    later_ns = now_ns + settings.recompute_most_ns
    assert pacing.due_ns(later_ns, 1) == later_ns + 4 * settings.gather_ns


def units() -> LinkStates:
    """Two clusters with three links between them, and c in another one behind the second."""
    mesh = LinkStates({"a": "x", "b": "x", "c": "z", "d": "y", "e": "y"})
    for pair in ("ab", "de", "ad", "be", "ae", "ce"):
        mesh.connect(*pair)
    mesh.settle()
    mesh.run(60 * SECOND)
    return mesh


def told(mesh: LinkStates, name: str, kind: type) -> int:
    """How often the unit x was advertised, as far as a node knows of its speakers."""
    keys = [key for key, entry in mesh.nodes[name].database.entries.items() if isinstance(entry.advert, kind)]
    return sum(len(mesh.stated[key]) for key in keys if key[1:3] == (1, "x"))


def test_links_beside_others_are_told_ever_less_often_and_the_last_one_at_once() -> None:
    mesh = units()
    spare = next(link for link, ends in mesh.links.items() if ends == ("a", "e"))
    before = told(mesh, "c", LinkAdvert)
    for _ in range(40):  # one link comes and goes each second, the others stay
        mesh.cut(spare)
        mesh.run(SECOND // 2)
        spare = mesh.connect("a", "e")
        mesh.run(SECOND // 2)
    assert 2 <= told(mesh, "c", LinkAdvert) - before <= 14, "80 changes"
    for link in [link for link, ends in mesh.links.items() if ends in (("a", "d"), ("b", "e"), ("a", "e"))]:
        mesh.cut(link)
    mesh.run(SECOND)
    assert VertexId(1, "x") not in mesh.nodes["c"].vertex_ids()


def test_a_link_that_replaces_the_last_told_one_is_told_at_once() -> None:
    mesh = units()
    for link in [link for link, ends in mesh.links.items() if ends in (("b", "e"), ("a", "e"))]:
        mesh.cut(link)
    mesh.run(60 * SECOND)
    for _ in range(40):  # until what comes beside others is told at long intervals
        spare = mesh.connect("a", "e")
        mesh.run(SECOND // 2)
        mesh.cut(spare)
        mesh.run(SECOND // 2)
    new = mesh.connect("b", "d")
    mesh.run(SECOND // 2)
    mesh.cut(next(link for link, ends in mesh.links.items() if ends == ("a", "d")))
    mesh.run(SECOND)
    for unit in "xy":  # or one of them might withdraw the old one before the other has told the new one
        (entry,) = mesh.nodes["c"].database.originators("l", 1, unit).values()
        assert new in [fact.id for fact in entry.advert.links]  # type: ignore[union-attr]


@pytest.mark.parametrize("wanted", ["t", "u/v"])
def test_new_interest_is_told_at_once_and_lost_interest_late(wanted: str) -> None:
    mesh = units()
    mesh.put("b", mesh.nodes["b"].want([Pattern("s", wanted)], [], mesh.now_ns))
    mesh.run(SECOND)
    assert list(mesh.nodes["c"].wanting("s", wanted.encode())) == [VertexId(1, "x")]
    before = told(mesh, "c", InterestAdvert)
    mesh.put("b", mesh.nodes["b"].want([], [], mesh.now_ns))
    mesh.run(SECOND)
    mesh.put("b", mesh.nodes["b"].want([Pattern("s", wanted)], [], mesh.now_ns))
    mesh.run(SECOND)
    assert list(mesh.nodes["c"].wanting("s", wanted.encode())) == [VertexId(1, "x")]
    mesh.put("b", mesh.nodes["b"].want([], [], mesh.now_ns))
    mesh.run(2 * mesh.settings.originate_most_ns)
    assert list(mesh.nodes["c"].wanting("s", wanted.encode())) == []
    assert told(mesh, "c", InterestAdvert) - before <= 2


def test_a_node_that_starts_gets_its_map_from_one_neighbour() -> None:
    names = [f"n{number}" for number in range(8)]
    mesh = LinkStates(dict.fromkeys(names, "x"))
    for at, a in enumerate(names[:7]):
        for b in names[at + 1 : 7]:
            mesh.connect(a, b)
    mesh.settle()
    state, originated_ns = mesh.nodes["n7"], mesh.now_ns
    digest = Digest(adverts=mesh.nodes["n0"].database.digest(0, "n7"))  # all have the same
    asked: list[Key] = []
    for name in names[:7]:
        mesh.connect("n7", name)
        asked += [key for output in state.receive(name, digest, originated_ns) for key in output.message.keys]  # type: ignore[union-attr]
    assert len(asked) == len(set(asked)) >= 7
    mesh.settle()
    assert set(state.members()) == set(names)


def test_an_index_that_is_changed_finds_what_one_built_anew_does() -> None:
    rng = random.Random(3)
    patterns = [Pattern("s", f"a/{number}", group) for number in range(9) for group in ("", "g")]
    patterns += [Pattern("s", "a/#"), Pattern("s", "+/3"), Pattern("i", "7")]
    index = Index()
    for _ in range(300):
        wanted = {VertexId(0, f"n{n}"): tuple(sorted(set(rng.choices(patterns, k=3)))) for n in range(rng.randrange(7))}
        index.replace(wanted.items())
        fresh = Index(wanted.items())
        for topic in (b"a/3", b"a/8", b"b/3"):
            assert index.find("s", topic) == fresh.find("s", topic)


def test_a_quiet_mesh_says_nothing() -> None:
    mesh = units()
    out = mesh.nodes["a"].tick(mesh.now_ns)
    assert not [output for output in out if isinstance(output, Send)]
