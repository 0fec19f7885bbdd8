"""Whole meshes of units: controllers, gateways, maps that differ and agree, parts, and those who lie."""

from __future__ import annotations

import msgspec
import pytest

from chappe.linkstate.changes import Notice
from chappe.linkstate.settings import SECOND, Settings
from chappe.linkstate.units import VertexId
from chappe.wire.mesh import LinkAdvert, LinkFact
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates
from tests.support.statements import stated

EXACT = Settings(gain=0.0, gain_ms=0.0, hold_down=0.0)


def figure_13() -> tuple[LinkStates, dict[str, bytes]]:
    """Two super-super-clusters; SC-1 of A has the clusters a, b and c, and broker 5 of c its link to SC-2."""
    mesh = LinkStates({
        "01": "A/SC-1/a", "02": "A/SC-1/a", "03": "A/SC-1/b", "04": "A/SC-1/c", "05": "A/SC-1/c", "06": "A/SC-1/c",
        "07": "A/SC-2/k", "08": "A/SC-2/k", "09": "A/SC-3/g", "10": "B/SC-4/m",
    })  # fmt: skip
    pairs = ("01-02", "04-05", "05-06", "04-06", "07-08", "01-03", "03-04", "05-07", "08-09", "09-10", "02-10", "01-04")
    links = {pair: mesh.connect(*pair.split("-")) for pair in pairs}
    mesh.settle()
    return mesh, links


def ends(mesh: LinkStates, name: str) -> set[str]:
    return {f"{row['a']} - {row['b']}" for row in mesh.nodes[name].map_rows()}


@pytest.mark.spec("MR-010")
@pytest.mark.spec("MR-014")
@pytest.mark.spec("MR-015")
@pytest.mark.spec("MR-016")
def test_every_map_is_another_and_none_contradicts() -> None:
    mesh, _ = figure_13()
    assert ends(mesh, "06") == {
        "04 - 05", "05 - 06", "04 - 06",  # its cluster
        "04 - A/SC-1/a", "04 - A/SC-1/b", "A/SC-1/a - A/SC-1/b",  # clusters of its super-cluster
        "05 - A/SC-2", "A/SC-2 - A/SC-3",  # super-clusters of its super-super-cluster
        "A/SC-1/a - B", "A/SC-3 - B",
    }  # fmt: skip
    assert ends(mesh, "03") == {
        "03 - A/SC-1/a", "03 - A/SC-1/c", "A/SC-1/a - A/SC-1/c", "A/SC-1/c - A/SC-2", "A/SC-2 - A/SC-3",
        "A/SC-1/a - B", "A/SC-3 - B",
    }  # fmt: skip
    assert ends(mesh, "10") == {"10 - A"}
    mesh.check_maps()


@pytest.mark.spec("MR-077")
def test_a_link_has_the_same_id_of_128_bits_in_every_map() -> None:
    mesh, links = figure_13()
    seen = {
        name: f"{row['a']} - {row['b']}"
        for name, state in mesh.nodes.items()
        for row in state.map_rows()
        if row["link"] == links["05-07"].hex()
    }
    inside = dict.fromkeys(("04", "05", "06"), "05 - A/SC-2") | dict.fromkeys(("01", "02", "03"), "A/SC-1/c - A/SC-2")
    assert seen == inside | dict.fromkeys(("07", "08"), "07 - A/SC-1") | {"09": "A/SC-1 - A/SC-2"}
    assert len(links["05-07"]) == 16
    assert len(set(links.values())) == len(links)


@pytest.mark.spec("MR-011")
def test_every_unit_has_one_controller_that_all_in_it_agree_on() -> None:
    mesh, _ = figure_13()
    assert {name: [state.controller(level) for level in (1, 2, 3)] for name, state in mesh.nodes.items()} == {
        "01": ["01", "01", "01"], "02": ["01", "01", "01"], "03": ["03", "01", "01"],
        "04": ["04", "01", "01"], "05": ["04", "01", "01"], "06": ["04", "01", "01"],
        "07": ["07", "07", "01"], "08": ["07", "07", "01"], "09": ["09", "09", "01"], "10": ["10", "10", "10"],
    }  # fmt: skip
    mesh.kill("01")
    mesh.settle()
    assert [mesh.nodes["05"].controller(level) for level in (1, 2, 3)] == ["04", "03", "03"]
    mesh.check_maps()


@pytest.mark.spec("MR-012")
def test_another_link_between_units_is_taken_when_one_fails() -> None:
    mesh, links = figure_13()
    route = mesh.nodes["06"].routes.route("default", VertexId(3, "B"))
    assert route is not None
    assert [vertex_id.name for vertex_id in route.vertex_ids] == ["04", "A/SC-1/a", "B"]
    mesh.cut(links["02-10"])
    mesh.settle()
    route = mesh.nodes["06"].routes.route("default", VertexId(3, "B"))
    assert route is not None
    assert [vertex_id.name for vertex_id in route.vertex_ids] == ["05", "A/SC-2", "A/SC-3", "B"]
    mesh.cut(links["05-07"])
    mesh.settle()
    assert mesh.nodes["06"].routes.route("default", VertexId(3, "B")) is None


def test_several_links_between_two_units_cost_what_the_cheapest_does() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "y", "d": "y"}, EXACT)
    links = [mesh.connect(*pair) for pair in ("ab", "cd", "ac", "bd", "ac")]
    for link, cost in zip(links, (1.0, 1.0, 30.0, 20.0, 10.0), strict=True):
        mesh.measure(link, cost)
    mesh.settle()
    route = mesh.nodes["b"].routes.route("default", VertexId(1, "y"))
    assert route is not None
    assert (route.cost, route.links) == (11.0, (links[0], links[4]))


@pytest.mark.spec("MR-013")
def test_a_unit_that_falls_apart_is_told_of_and_told_whole_again() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"})
    links = {pair: mesh.connect(*pair) for pair in ("ab", "bc", "ad", "ce", "de")}
    mesh.put("c", mesh.nodes["c"].want([Pattern("s", "only-c")], [], mesh.now_ns))
    mesh.settle()
    assert list(mesh.nodes["d"].wanting("s", b"only-c")) == [VertexId(1, "x")]
    mesh.cut(links["bc"])
    mesh.settle()
    mesh.check_maps()
    assert mesh.nodes["d"].vertex_ids() == [VertexId(0, "e"), VertexId(1, "x@a"), VertexId(1, "x@c")]
    mesh.run(mesh.settings.originate_most_ns)  # what a unit wants no more is told late
    assert list(mesh.nodes["d"].wanting("s", b"only-c")) == [VertexId(1, "x@c")]
    assert list(mesh.nodes["a"].wanting("s", b"only-c")) == [VertexId(1, "x@c")], "over the other cluster"
    assert mesh.nodes["d"].resolve(VertexId(1, "x")) == (VertexId(1, "x@a"), VertexId(1, "x@c"))
    assert {name for name, notice in mesh.notices if notice.kind == "parted"} == set("abcde")
    assert VertexId(1, "x@c") in mesh.nodes["a"].parted
    mesh.connect("b", "c")
    mesh.settle()
    mesh.check_maps()
    assert {name for name, notice in mesh.notices if notice.kind == "merged"} == set("abcde")
    assert mesh.nodes["d"].parted == ()
    assert mesh.nodes["d"].resolve(VertexId(1, "x@c")) == (VertexId(1, "x"),)
    assert list(mesh.nodes["d"].wanting("s", b"only-c")) == [VertexId(1, "x")]


@pytest.mark.spec("MR-013")
def test_a_mesh_cut_in_two_is_noticed_on_both_sides() -> None:
    mesh = LinkStates(dict.fromkeys("abcd", ""))
    links = {pair: mesh.connect(*pair) for pair in ("ab", "bc", "cd")}
    mesh.settle()
    mesh.cut(links["bc"])
    mesh.settle()
    reasons = {name: notice.reason for name, notice in mesh.notices if notice.kind == "parted"}
    assert reasons["a"] == reasons["b"] == "the mesh has fallen apart; 2 of it cannot be reached: c, d"
    assert reasons["c"] == reasons["d"] == "the mesh has fallen apart; 2 of it cannot be reached: a, b"
    assert mesh.nodes["a"].parted == (VertexId(0, "c"), VertexId(0, "d"))
    mesh.kill("d")
    mesh.settle()
    left = [notice.vertex_id for name, notice in mesh.notices if name == "c" and notice.kind == "left"]
    assert left[-1] == VertexId(0, "d")
    assert sum(notice.kind == "parted" for _, notice in mesh.notices) == 4, "one dead node is no partition"


def test_a_controller_that_dies_leaves_no_gap() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y"})
    for pair in ("ab", "bc", "ac", "cd"):
        mesh.connect(*pair)
    mesh.put("b", mesh.nodes["b"].want([Pattern("s", "t")], [], mesh.now_ns))
    mesh.settle()
    mesh.kill("a")
    for _ in range(20):
        mesh.run(SECOND // 20)
        assert list(mesh.nodes["d"].wanting("s", b"t")) == [VertexId(1, "x")]
    mesh.settle()
    assert mesh.nodes["b"].controller(1) == "b"
    mesh.start("a")
    mesh.connect("a", "b")
    for _ in range(20):
        mesh.run(SECOND // 20)
        assert list(mesh.nodes["d"].wanting("s", b"t")) == [VertexId(1, "x")]
    mesh.settle()
    mesh.check_maps()
    assert not [notice for _, notice in mesh.notices if notice.kind == "parted"]


# --- those who lie


def routes(mesh: LinkStates, *names: str) -> dict[str, object]:
    return {
        name: [mesh.nodes[name].routes.route("default", vertex_id) for vertex_id in mesh.nodes[name].vertex_ids()]
        for name in names
    }


def square() -> tuple[LinkStates, dict[str, bytes]]:
    """A cluster a-b-c-d-a with all links at 10 ms, each node another cluster's neighbour."""
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "x", "p": "y", "q": "z"}, EXACT)
    links = {pair: mesh.connect(*pair) for pair in ("ab", "bc", "cd", "ad", "cp", "pq")}
    for link in links.values():
        mesh.measure(link, 10.0)
    mesh.settle()
    return mesh, links


def lie(mesh: LinkStates, name: str, *links: LinkFact) -> None:
    """A node says nothing more than this, besides what it said of its other links."""
    said = mesh.nodes.pop(name).database.entries["l", 0, name, name].advert
    assert isinstance(said, LinkAdvert)
    kept = [fact for fact in said.links if fact.id not in {link.id for link in links}]
    false = msgspec.structs.replace(said, sequence=said.sequence + 1, links=in_order(*kept, *links))
    for source, peer in mesh.queues:
        if source == name and peer in mesh.nodes:
            mesh.put(peer, mesh.nodes[peer].receive(name, stated(false), mesh.now_ns))
    mesh.run(SECOND // 2)


def in_order(*links: LinkFact) -> tuple[LinkFact, ...]:
    return tuple(sorted(links, key=lambda fact: fact.id))


def test_a_liar_can_make_its_own_links_dearer_but_not_cheaper() -> None:
    mesh, links = square()
    before = routes(mesh, "c", "b")
    cheap = LinkFact(links["ad"], "d", 0, "tcp", False, 0.001, 0.0, 0.0, 1e12)
    lie(mesh, "a", cheap)
    assert routes(mesh, "c", "b") == before
    assert mesh.nodes["c"].routes.costs("default")[links["ad"]] == 10.0


def test_dearer_links_of_a_liar_are_its_own() -> None:
    mesh, links = square()
    lie(mesh, "a", LinkFact(links["ad"], "d", 0, "tcp", False, 500.0, 0.0, 0.0))
    costs = mesh.nodes["c"].routes.costs("default")
    assert costs[links["ad"]] == 500.0
    assert {link: cost for link, cost in costs.items() if link != links["ad"]} == {
        links[pair]: 10.0 for pair in ("ab", "bc", "cd", "cp", "pq")
    }


def test_a_link_that_only_one_end_tells_of_is_not_in_the_map() -> None:
    mesh, _ = square()
    before = routes(mesh, "b", "c", "d")
    lie(mesh, "a", LinkFact(bytes(16), "c", 0, "tcp", False, 0.1, 0.0, 0.0))
    assert routes(mesh, "b", "c", "d") == before


@pytest.mark.parametrize(("pair", "far", "level"), [("bc", "c", 0), ("cp", "y", 1)])
def test_nobody_takes_over_the_link_of_another(pair: str, far: str, level: int) -> None:
    """a tells of a link between others, and of one out of the cluster that c had before."""
    mesh, links = square()
    before = routes(mesh, "b", "c", "d")
    lie(mesh, "a", LinkFact(links[pair], far, level, "tcp", False, 0.1, 0.0, 0.0))
    assert routes(mesh, "b", "c", "d") == before
    route = mesh.nodes["b"].routes.route("default", VertexId(1, "y"))
    assert route is not None
    assert [vertex_id.name for vertex_id in route.vertex_ids] == ["c", "y"]


def test_a_unit_cannot_claim_the_links_of_its_neighbour() -> None:
    """q's cluster says that the link from c to y ends at itself; y still has it."""
    mesh, links = square()
    before = routes(mesh, "a", "b", "c", "d")
    taken = LinkFact(links["cp"], "x", 1, "tcp", False, 0.1)
    kept = LinkFact(links["pq"], "y", 1, "tcp", False, 10.0, 0.0, 0.0)
    false = LinkAdvert(origin="z", level=1, scope="", originator="q", sequence=1 << 60, links=in_order(taken, kept))
    mesh.put("p", mesh.nodes["p"].receive("q", stated(false), mesh.now_ns))
    mesh.run(SECOND // 2)
    assert routes(mesh, "a", "b", "c", "d") == before


@pytest.mark.parametrize(
    ("at", "sender", "originator", "origin", "reason"),
    [
        ("c", "p", "q", "y", "'q' speaks for 'z'"),
        ("p", "q", "q", "y", "'q' speaks for 'z'"),
        ("p", "q", "c", "z", "'c' is a neighbour and lies in 'x'"),
        ("c", "p", "d", "y", "'d' is a neighbour and lies in 'x'"),
        ("d", "c", "b", "y", "'b' is a node of this cluster"),
    ],
)
def test_a_node_does_not_speak_for_a_unit_in_which_it_is_not(
    at: str, sender: str, originator: str, origin: str, reason: str
) -> None:
    mesh, links = square()
    before = routes(mesh, *mesh.nodes)
    taken = (LinkFact(links["cp"], "x", 1, "tcp", False, 0.1),)
    false = LinkAdvert(origin=origin, level=1, scope="", originator=originator, sequence=1 << 60, links=taken)
    outputs = mesh.nodes[at].receive(sender, stated(false), mesh.now_ns)
    assert [output.reason.partition(": ")[2] for output in outputs if isinstance(output, Notice)] == [reason]
    mesh.put(at, outputs)
    mesh.run(SECOND // 2)
    assert routes(mesh, *mesh.nodes) == before
