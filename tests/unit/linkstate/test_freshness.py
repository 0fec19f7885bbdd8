"""Statements that are replayed are not believed, and no clock that is wrong drops a node from a map."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.linkstate.settings import SECOND, Settings
from chappe.linkstate.units import VertexId
from chappe.wire.mesh import Key, LinkAdvert, LinkFact, Statement
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates
from tests.support.statements import read, stated
from tests.unit.linkstate.test_network_map import refusals

HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR
JUMPS = [5 * HOUR, -5 * HOUR, 2 * YEAR, -50 * YEAR]
LINE = ("ab", "bc", "cd")


def line(units: str = "") -> tuple[LinkStates, dict[str, bytes]]:
    """a - b - c - d, each with a subscriber of its own topic."""
    mesh = LinkStates(dict.fromkeys("abcd", units))
    links = {pair: mesh.connect(*pair) for pair in LINE}
    for name, state in mesh.nodes.items():
        mesh.put(name, state.want([Pattern("s", f"t/{name}")], [], mesh.now_ns))
    mesh.run(5 * SECOND)
    return mesh, links


def kept(mesh: LinkStates, name: str) -> dict[Key, Statement]:
    """What anybody on the way could have recorded of a node."""
    return {key: e.statement for key, e in mesh.nodes["b"].database.entries.items() if key[3] == name}


def replay(mesh: LinkStates, links: dict[str, bytes], old: dict[Key, Statement], at: str) -> list[str]:
    """c, whose own key is good, claims its link to d again and plays what d had stated; why it is refused."""
    state = mesh.nodes[at]
    own = read(state.database.entries["l", 0, "c", "c"].statement)
    assert isinstance(own, LinkAdvert)
    facts = tuple(sorted((*own.links, LinkFact(id=links["cd"], far="d", level=0)), key=lambda fact: fact.id))
    claim = msgspec.structs.replace(own, sequence=own.sequence + 1, links=facts)
    told = [stated(claim), *(msgspec.structs.replace(each, age_ms=0) for each in old.values())]
    outputs = [output for each in told for output in state.receive("c", each, mesh.mono_ns(at))]
    mesh.put(at, outputs)
    mesh.run(SECOND)
    return refusals(outputs)


@pytest.mark.parametrize("later_s", [200, 2000, 6000, 100_000])
def test_what_a_failed_node_stated_is_refused_when_it_is_replayed(later_s: int) -> None:
    mesh, links = line()
    old = kept(mesh, "d")
    assert len(old) == 2
    mesh.kill("d")
    mesh.run(later_s * SECOND)
    assert "d" not in mesh.nodes["b"].members()
    assert replay(mesh, links, old, "b")
    for name in "ab":
        assert mesh.nodes[name].members() == ["a", "b", "c"]
        assert not mesh.nodes[name].wanting("s", b"t/d")
    assert mesh.nodes["b"].stale["d"] == 2


def test_a_node_that_remembers_nothing_refuses_what_is_older_than_clocks_may_differ() -> None:
    mesh, links = line()
    old = kept(mesh, "d")
    mesh.kill("d")
    mesh.run(2 * HOUR)
    mesh.kill("b")
    mesh.start("b")
    for pair in ("ab", "bc"):
        mesh.connect(*pair)
    mesh.run(5 * SECOND)
    assert any("replayed, or clocks differ" in reason for reason in replay(mesh, links, old, "b"))
    assert mesh.nodes["b"].members() == mesh.nodes["a"].members() == ["a", "b", "c"]


def test_statements_of_the_future_are_refused() -> None:
    mesh, _ = line()
    state = mesh.nodes["a"]
    ahead = read(state.database.entries["l", 0, "d", "d"].statement)
    ahead.sequence, ahead.time_ns = ahead.sequence + 1, ahead.time_ns + 3 * HOUR
    (reason,) = refusals(state.receive("b", stated(ahead), mesh.now_ns))
    assert "10800 s in the future" in reason or "s in the future" in reason
    assert state.members() == ["a", "b", "c", "d"], "what it stated before holds"


@pytest.mark.parametrize("jump_ns", JUMPS)
@pytest.mark.parametrize("name", "abcd")
def test_a_clock_that_is_set_while_a_node_runs_changes_nothing(name: str, jump_ns: int) -> None:
    mesh, _ = line()
    mesh.skew_ns[name] = jump_ns
    for _ in range(100):
        mesh.run(4 * SECOND)
        mesh.check_maps()
    assert not any(state.stale for state in mesh.nodes.values())


@pytest.mark.parametrize("jump_ns", JUMPS)
@pytest.mark.parametrize("name", "abcd")
def test_a_node_that_starts_with_a_wrong_clock_takes_the_time_of_its_neighbours(name: str, jump_ns: int) -> None:
    mesh, _ = line()
    near = [pair for pair in LINE if name in pair]
    mesh.kill(name)
    mesh.skew_ns[name] = jump_ns
    mesh.run(400 * SECOND)
    mesh.start(name)
    for pair in near:
        mesh.connect(*pair)
    mesh.run(15 * SECOND)
    mesh.check_maps()
    mesh.run(400 * SECOND)
    mesh.check_maps()


@pytest.mark.parametrize("jump_ns", JUMPS)
def test_a_node_that_restarts_at_once_with_another_clock_is_heard(jump_ns: int) -> None:
    mesh, _ = line()
    mesh.kill("d")
    mesh.skew_ns["d"] = jump_ns
    mesh.start("d")
    mesh.connect("c", "d")
    mesh.run(15 * SECOND)
    mesh.check_maps()
    assert read(mesh.nodes["a"].database.entries["l", 0, "d", "d"].statement).links  # type: ignore[union-attr]


def test_two_nodes_whose_clocks_differ_believe_each_other() -> None:
    for jump_ns in JUMPS:
        mesh = LinkStates({"a": "", "b": ""})
        mesh.kill("b")
        mesh.skew_ns["b"] = jump_ns
        mesh.start("b")
        mesh.connect("a", "b")
        mesh.run(400 * SECOND)
        mesh.check_maps()


@pytest.mark.parametrize("name", "abcd")
def test_a_machine_that_was_suspended_is_back_in_all_maps(name: str) -> None:
    mesh, _ = line()
    mesh.sleep(name, 5 * HOUR)
    mesh.run(15 * SECOND)
    mesh.check_maps()
    mesh.run(400 * SECOND)
    mesh.check_maps()


def test_a_speaker_of_a_unit_with_a_wrong_clock_is_believed_outside() -> None:
    mesh = LinkStates({"a": "x", "b": "x", "c": "y", "d": "y"})
    for pair in ("ab", "bc", "cd"):
        mesh.connect(*pair)
    mesh.kill("c")
    mesh.skew_ns["c"] = -5 * HOUR
    mesh.start("c")
    mesh.connect("b", "c")
    mesh.connect("c", "d")
    mesh.settle()
    mesh.check_maps()
    assert VertexId(1, "y") in mesh.nodes["a"].vertex_ids()


def test_a_forgotten_number_is_answered_to_who_used_it() -> None:
    mesh, _ = line()
    before = mesh.nodes["c"].database.sequence(("l", 0, "d", "d"))
    mesh.kill("d")
    mesh.run(300 * SECOND)
    mesh.skew_ns["d"] = -600 * SECOND  # within what is tolerated: its numbers begin below those it used
    mesh.start("d")
    mesh.connect("c", "d")
    mesh.run(5 * SECOND)
    mesh.check_maps()
    assert mesh.nodes["a"].database.sequence(("l", 0, "d", "d")) > before


def test_what_is_remembered_is_bounded() -> None:
    mesh = LinkStates({"a": "", "b": ""}, Settings(max_adverts=20))
    mesh.connect("a", "b")
    mesh.run(SECOND)
    state = mesh.nodes["a"]
    for number in range(100):
        name = f"n{number}"
        advert = LinkAdvert(origin=name, level=0, scope="", originator=name, sequence=9, time_ns=mesh.wall_ns("a"))
        state.receive("b", stated(advert), mesh.now_ns)
        old = msgspec.structs.replace(advert, time_ns=0, origin=f"o{number}", originator=f"o{number}")
        state.receive("b", stated(old), mesh.now_ns)
        if number % 10 == 9:
            mesh.run(300 * SECOND)
    assert len(state.database.retired) <= 20
    assert len(state.stale) == 21
    assert state.stale.total() == 100
    assert len(state._acceptance._doubted) <= 20
    mesh.run(HOUR)
    assert not state._acceptance._doubted


@given(
    st.integers(0, 7), st.sampled_from([-60 * YEAR, -30 * HOUR, -90 * 60 * SECOND, 90 * 60 * SECOND, 30 * HOUR]),
    st.integers(0, 10**6), st.booleans(),
)  # fmt: skip
def test_one_wrong_clock_anywhere_drops_nobody(at: int, skew_ns: int, seed: int, running: bool) -> None:
    """A ring of clusters with chords: the clock of one node is set while it runs, or wrong when it starts again."""
    names = [f"n{number}" for number in range(8)]
    mesh = LinkStates({name: f"u{int(name[1]) // 3}" for name in names}, seed=seed)
    pairs = [(names[number], names[(number + 1) % 8]) for number in range(8)] + [("n0", "n4"), ("n2", "n6")]
    for pair in pairs:
        mesh.connect(*pair)
    mesh.settle()
    name = names[at]
    mesh.skew_ns[name] = skew_ns
    if not running:
        mesh.kill(name)
        mesh.run(SECOND)
        mesh.start(name)
        for pair in pairs:
            if name in pair:
                mesh.connect(*pair)
    mesh.settle()
    mesh.check_maps()
    mesh.run(200 * SECOND)
    mesh.check_maps()
