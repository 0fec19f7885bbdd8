"""Controllers that die: what they told goes with them, unless they live on in another part of the unit."""

from __future__ import annotations

import pytest

from chappe.linkstate.claims import Claims
from chappe.linkstate.settings import SECOND
from chappe.linkstate.units import Address, VertexId
from chappe.wire.mesh import LinkAdvert, LinkFact, Withdrawn
from tests.support.linkstates import LinkStates
from tests.support.statements import stated

STEP = SECOND // 20


def _parts(mesh: LinkStates) -> dict[str, list[str]]:
    """Parts of units that somebody sees."""
    found = {
        name: [vertex_id.name for vertex_id in state.vertex_ids() if "@" in vertex_id.name]
        for name, state in mesh.nodes.items()
    }
    return {name: parts for name, parts in found.items() if parts}


def _busy(mesh: LinkStates, a: str, b: str) -> None:
    """A link comes and goes beside another one, until those who tell of it take their time."""
    for _ in range(8):
        link = mesh.connect(a, b)
        mesh.run(SECOND)
        mesh.cut(link)
        mesh.run(SECOND)


@pytest.mark.spec("MR-011")
def test_a_unit_whose_controller_died_is_never_seen_in_parts() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "z"})
    for pair in ("ab", "bc", "ac", "ad", "ce", "de", "ef"):
        mesh.connect(*pair)
    mesh.settle()
    _busy(mesh, "b", "e")
    mesh.kill("a")
    for _ in range(100):
        mesh.run(STEP)
        assert not _parts(mesh)
    assert mesh.nodes["f"].resolve(VertexId(1, "x")) == (VertexId(1, "x"),)
    mesh.settle()
    mesh.check_maps()


def test_it_holds_for_the_units_around() -> None:
    units = {"a": "p/x", "b": "p/x", "c": "p/y", "d": "p/y", "e": "q/z", "f": "q/z", "g": "q/w"}
    mesh = LinkStates(units)
    for pair in ("ab", "cd", "ac", "bd", "ae", "cf", "ef", "fg"):
        mesh.connect(*pair)
    mesh.settle()
    _busy(mesh, "b", "f")
    mesh.kill("a")  # speaks for p/x and for p
    seen = []
    for _ in range(200):
        mesh.run(STEP)
        seen.append(_parts(mesh))
    assert not any(seen[20:]), "a second after the death all is settled"
    assert mesh.nodes["g"].resolve(VertexId(2, "p")) == (VertexId(2, "p"),)
    mesh.settle()
    mesh.check_maps()


def test_a_controller_without_a_link_inside_its_unit_is_not_taken_for_dead() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y", "e": "y"})
    inner = [mesh.connect(*pair) for pair in ("ab", "ac")]
    for pair in ("bc", "ad", "ce", "de"):
        mesh.connect(*pair)
    mesh.settle()
    for link in inner:
        mesh.cut(link)
    mesh.run(2 * SECOND)
    assert mesh.nodes["d"].resolve(VertexId(1, "x")) == (VertexId(1, "x@a"), VertexId(1, "x@b"))
    mesh.run(60 * SECOND)
    told = mesh.delivered
    mesh.run(20 * SECOND)
    assert mesh.delivered - told < 100, "nobody calls it gone again and again"
    assert mesh.nodes["b"].resolve(VertexId(1, "x@a")) == (VertexId(1, "x@a"),)


def test_of_two_who_claim_a_link_the_newer_word_counts_though_it_is_the_same_one() -> None:
    claims = Claims(Address(("x",), "a"))
    link = bytes(16)
    claims.update((0, "a", "a"), (LinkFact(id=link, far="y", level=1),))
    told = (LinkFact(id=link, far="x", level=1),)

    def originators() -> list[str]:
        return [vertex.originator for vertex in claims.view().vertices if vertex.level]

    claims.update((1, "y", "d"), told, 5)
    claims.update((1, "y", "e"), told, 6)
    assert originators() == ["e"]
    reshaped = claims.update((1, "y", "d"), told, 7).reshaped
    assert reshaped == 1
    assert originators() == ["d"]


def test_it_holds_for_other_parts_of_the_own_unit() -> None:
    claims = Claims(Address(("x",), "a"))
    near, far = bytes(16), bytes([1]) * 16
    claims.update((0, "a", "a"), (LinkFact(id=near, far="y", level=1),))
    claims.update((1, "y", "d"), (LinkFact(id=near, far="x", level=1), LinkFact(id=far, far="x", level=1)), 1)
    told = (LinkFact(id=far, far="y", level=1),)

    def parts() -> list[str]:
        return [vertex.originator for vertex in claims.view().vertices if vertex.origin == "x"]

    claims.update((1, "x", "b"), told, 5)
    claims.update((1, "x", "c"), told, 6)
    assert parts() == ["c"]
    reshaped = claims.update((1, "x", "b"), told, 7).reshaped
    assert reshaped == 1
    assert parts() == ["b"]


def test_a_controller_that_comes_back_speaks_again() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "d": "y"})
    for pair in ("ab", "bc", "ac", "cd"):
        mesh.connect(*pair)
    mesh.settle()
    for _ in range(3):
        mesh.kill("a")
        mesh.run(2 * SECOND)
        entry = mesh.nodes["d"].database.entries["l", 1, "x", "b"]
        assert isinstance(entry.advert, LinkAdvert)
        assert [name for name, _ in entry.advert.withdrawn] == ["a"]
        mesh.start("a")
        mesh.connect("a", "b")
        mesh.connect("a", "c")
        for _ in range(40):
            mesh.run(STEP)
            assert mesh.nodes["d"].resolve(VertexId(1, "x")) == (VertexId(1, "x"),)
    mesh.settle()
    mesh.check_maps()
    entry = mesh.nodes["d"].database.entries["l", 1, "x", "a"]
    assert isinstance(entry.advert, LinkAdvert)
    assert entry.advert.withdrawn == ()
    assert entry.advert.links


@pytest.mark.parametrize(
    ("withdrawn", "level", "wrong"),
    [
        ((("b", 1),), 1, "cannot have spoken"),
        ((("a/c", 1),), 1, "cannot have spoken"),
        ((("c", 1 << 60),), 1, "cannot have spoken"),
        ((("c", -1),), 1, "cannot have spoken"),
        (tuple((f"n{number}", 1) for number in range(17)), 1, "17 nodes"),
        ((("c", 1),), 0, "1 nodes"),
    ],
)
def test_names_that_cannot_be_gone_are_refused(withdrawn: tuple[Withdrawn, ...], level: int, wrong: str) -> None:
    mesh = LinkStates({"a": "x", "b": "x"})
    mesh.connect("a", "b")
    mesh.settle()
    before = mesh.nodes["a"].map_rows()
    advert = LinkAdvert(
        origin="x" if level else "b",
        level=level,
        scope="" if level else "x",
        originator="b",
        sequence=1 << 60,
        withdrawn=withdrawn,
    )
    mesh.put("a", mesh.nodes["a"].receive("b", stated(advert), mesh.now_ns))
    reasons = [notice.reason for name, notice in mesh.notices if name == "a" and notice.kind == "refused"]
    assert len(reasons) == 1
    assert wrong in reasons[0]
    assert mesh.nodes["a"].map_rows() == before


def test_who_is_called_gone_in_a_unit_of_others_says_nothing_of_it() -> None:
    mesh = LinkStates({"a": "x", "b": "y", "c": "y"})
    for pair in ("ab", "bc"):
        mesh.connect(*pair)
    mesh.settle()
    state = mesh.nodes["a"]
    sequence = state.database.sequence(("l", 1, "y", "b")) + 1
    links = state.database.entries["l", 1, "y", "b"].advert.links  # type: ignore[union-attr]
    advert = LinkAdvert(
        origin="y", level=1, scope="", originator="b", sequence=sequence, links=links, withdrawn=(("a", 3),)
    )  # fmt: skip
    mesh.put("a", state.receive("b", stated(advert), mesh.now_ns))
    mesh.run(SECOND)
    assert ("l", 1, "y", "a") not in state.database.entries
    assert not [notice for _, notice in mesh.notices if notice.kind == "refused"]
