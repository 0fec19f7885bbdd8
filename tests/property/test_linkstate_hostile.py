"""A neighbour that says anything at all: nothing breaks, state stays bounded, and ways that do not touch it stay."""

from __future__ import annotations

from functools import partial

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chappe.linkstate.changes import Notice
from chappe.linkstate.settings import SECOND, Settings
from chappe.linkstate.units import VertexId
from chappe.machine import Send
from chappe.wire import control
from chappe.wire.base import Message
from chappe.wire.mesh import Digest, InterestAdvert, LinkAdvert, LinkFact, Statement, StatementRequest
from chappe.wire.patterns import Pattern
from tests.support.linkstates import LinkStates
from tests.support.statements import stated

FAST = partial(settings, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
SETTINGS = Settings(max_adverts=40, max_originators=3)

names = st.sampled_from(("a", "b", "c", "d", "e", "liar", "x", "y", "z", "x/1", "", "x@a", "#", "a\n")) | st.text(
    max_size=4
)
levels = st.integers(-2, 4)
numbers = st.sampled_from((0, 1, 2, 1 << 20, (1 << 20) + 5, 1 << 60, 1 << 61, 1 << 62, -1))
floats = st.none() | st.floats() | st.sampled_from((0.0, 1.0, 5.0))
links = st.integers(0, 11)  # places in the list of real links, and some that do not exist
patterns = st.builds(Pattern, st.sampled_from(("s", "i", "z")), st.sampled_from(("a", "a/#", "", "#/a", "+")), names)


@st.composite
def facts(draw: st.DrawFn) -> tuple[int, dict[str, object]]:
    return draw(links), {
        "far": draw(names), "level": draw(levels), "suspect": draw(st.booleans()), "latency_ms": draw(floats),
        "jitter": draw(floats), "loss": draw(floats), "bandwidth": draw(floats),
    }  # fmt: skip


adverts = st.fixed_dictionaries({
    "origin": names, "level": levels, "scope": st.sampled_from(("x", "", "y")), "originator": names,
    "sequence": numbers, "age_ms": st.sampled_from((0, 0, 0, 100_000, 1 << 60, -1)),
})  # fmt: skip
messages = st.one_of(
    st.tuples(st.just("links"), adverts, st.lists(facts(), max_size=4)),
    st.tuples(st.just("interest"), adverts, st.lists(patterns, max_size=3)),
    st.tuples(st.just("digest"), st.lists(st.tuples(st.tuples(names, levels, names, names), numbers), max_size=5)),
    st.tuples(st.just("wanted"), st.lists(st.tuples(names, levels, names, names), max_size=5)),
)


def message(kind: str, ids: list[bytes], *parts: object) -> Message:
    if kind == "digest":
        return Digest(adverts=tuple(parts[0]))  # type: ignore[arg-type]
    if kind == "wanted":
        return StatementRequest(keys=tuple(parts[0]))  # type: ignore[arg-type]
    fields: dict[str, object] = dict(parts[0])  # type: ignore[call-overload]
    age_ms = int(str(fields.pop("age_ms")))
    if kind == "interest":
        return stated(InterestAdvert(**fields, patterns=tuple(parts[1])), age_ms=age_ms)  # type: ignore[arg-type]
    told = [(ids[place] if place < len(ids) else b"?" * place, fact) for place, fact in parts[1]]  # type: ignore[attr-defined]
    links = tuple(LinkFact(id=link, **fact) for link, fact in told)
    return stated(LinkAdvert(**fields, links=links), age_ms=age_ms)  # type: ignore[arg-type]


@given(st.lists(messages, max_size=40))
@FAST(max_examples=150)
def test_whatever_a_neighbour_says_nothing_breaks(script: list[tuple[object, ...]]) -> None:
    """The liar is a neighbour of a; a, b and c are a triangle, and the way from a to b and c is one link."""
    mesh = LinkStates({"a": "x", "b": "x", "c": "x", "liar": "x", "d": "y", "e": "z"}, SETTINGS)
    ids = [mesh.connect(*pair) for pair in ("ab", "bc", "ac", "cd", "de")]
    for link in ids:
        mesh.measure(link, 5.0)
    ids.append(mesh.connect("a", "liar"))
    mesh.settle()
    mesh.use()
    del mesh.nodes["liar"]
    direct = {(one, two): mesh.nodes[one].routes.route("default", vertex_id) for one, two, vertex_id in pairs(mesh)}
    for kind, *parts in script:
        said = control.decode(control.encode(message(str(kind), ids, *parts)))
        outputs = mesh.nodes["a"].receive("liar", said, mesh.now_ns)
        assert all(output.message is said or isinstance(output.message, StatementRequest | Statement)
                   for output in outputs if isinstance(output, Send))  # fmt: skip
        assert sum(isinstance(output, Notice) for output in outputs) <= 1
        mesh.put("a", outputs)
        mesh.run(SECOND // 10)
    mesh.run(2 * SECOND)
    for one, two, vertex_id in pairs(mesh):
        route = mesh.nodes[one].routes.route("default", vertex_id)
        assert route is not None
        if not any(named(parts, two) or named(parts, one) for _, *parts in script):
            assert route == direct[one, two]
    for state in mesh.nodes.values():
        assert len(state.database) <= SETTINGS.max_adverts + 8
        assert state.next_ns() >= 0
        state.map_rows()
        state.wanting("s", b"a/b")


def pairs(mesh: LinkStates) -> list[tuple[str, str, VertexId]]:
    return [(one, two, VertexId(0, two)) for one, two in ("ab", "ac", "bc", "cb")]


def named(parts: list[object], node: str) -> bool:
    """Whether the liar spoke in the name of a node, which nothing but signatures prevents."""
    return isinstance(parts[0], dict) and parts[0]["origin"] == node
