"""Ways as bytes: what goes in comes out, and what cannot be a way is refused with its reason."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.errors import ProtocolError
from chappe.events.source_route import MAX_BYTES, MAX_REROUTES, SourceRoute, Step, Unit, branches, decode, encode


def raw(source_route: object) -> bytes:
    return msgspec.msgpack.encode(source_route)


@st.composite
def trees(draw: st.DrawFn, names: str) -> tuple[list[str], list[int]]:
    """Distinct names, and how many of the following are below each, as a tree."""
    count = draw(st.integers(1, 8))
    parents = [-1] + [draw(st.integers(0, at - 1)) for at in range(1, count)]
    children: dict[int, list[int]] = {}
    for at, parent in enumerate(parents):
        children.setdefault(parent, []).append(at)
    order: list[int] = []
    below: list[int] = []

    def walk(at: int) -> int:
        place = len(order)
        order.append(at)
        below.append(0)
        below[place] = sum(1 + walk(child) for child in children.get(at, []))
        return below[place]

    walk(0)
    return [f"{names}{at}" for at in order], below


@st.composite
def forwarding(draw: st.DrawFn) -> SourceRoute:
    groups = st.lists(st.sampled_from(["g", "h", "ü"]), max_size=2, unique=True).map(tuple)
    trace = tuple(draw(st.lists(st.sampled_from(["x", "x/y", "z@n1"]), max_size=3)))
    names, below = draw(trees("u"))
    units = tuple(Unit(1, n, b, draw(st.booleans()), draw(groups)) for n, b in zip(names, below, strict=True))
    if draw(st.booleans()):
        return SourceRoute((), units, trace, "media", draw(st.integers(0, MAX_REROUTES)))
    nodes, counts = draw(trees("n"))
    gate = draw(st.integers(0, len(nodes) - 1))
    steps = tuple(
        Step(n, b, draw(st.booleans()), draw(groups), units if at == gate else ())
        for at, (n, b) in enumerate(zip(nodes, counts, strict=True))
    )
    return SourceRoute(steps, (), trace)


@given(forwarding())
def test_a_way_survives_the_wire(source_route: SourceRoute) -> None:
    assert decode(encode(source_route)) == source_route


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A way with a byte replaced by a few others."""
    whole, at = encode(draw(forwarding())), draw(st.integers(0, 400))
    return whole[:at] + draw(st.binary(max_size=3)) + whole[at + 1 :]


@settings(max_examples=300)
@given(st.binary(max_size=200) | damaged())
def test_bytes_from_strangers_are_a_route_or_an_error(data: bytes) -> None:
    try:
        source_route = decode(data)
    except ProtocolError as error:
        reason = str(error)
    else:
        assert decode(encode(source_route)) == source_route
        reason = "route"
    assert reason.startswith("route")


@given(forwarding())
def test_a_branch_of_a_route_is_a_route(source_route: SourceRoute) -> None:
    parts: list[tuple[Step, ...] | tuple[Unit, ...]] = [
        tuple(part) for part in branches(source_route.tree[1:] or source_route.units[1:])
    ]
    assert sum(map(len, parts)) == len(source_route.tree or source_route.units) - 1
    for part in parts:
        smaller = SourceRoute(part, ()) if source_route.tree else SourceRoute((), part)  # type: ignore[arg-type]
        assert decode(encode(smaller)) == smaller


N, U = Step, Unit
BAD = {
    "nothing at all": ((), "never both or none"),
    "both forms": (((N("a"),), (U(1, "u"),)), "never both or none"),
    "a node twice": (((N("a", 1), N("a")),), "a node stands twice"),
    "a unit twice": (((), (U(1, "u", 1), U(1, "u"))), "a unit stands twice"),
    "a unit at two nodes": (((N("a", 1, leaves=(U(1, "u"),)), N("b", leaves=(U(1, "u"),))),), "a unit stands twice"),
    "two roots": (((N("a"), N("b")),), "more than one root"),
    "more below than there is": (((N("a", 2), N("b")),), "claims 2 below"),
    "more below than its parent has": (((N("a", 2), N("b", 1), N("c", 1)),), "claims 1 below"),
    "less than nothing below": (((N("a", -1),),), "claims -1 below"),
    "a forest that overlaps": (((N("a", leaves=(U(1, "u", 2), U(1, "v"))),),), "claims 2 below"),
    "down into a smaller unit": (((), (U(2, "u", 1), U(1, "v"))), "cannot be below"),
    "level 0 as a unit": (((), (U(0, "u"),)), "levels are 1 to"),
    "a level without end": (((), (U(99, "u"),)), "levels are 1 to"),
    "a node without a name": (((N(""),),), "name of a node"),
    "a name without end": (((N("x" * 2000),),), "name of a node"),
    "a group without a name": (((N("a", groups=("",)),),), "queue group's name"),
    "a group with a long name": (((N("a", groups=("ü" * 128,)),),), "queue group's name"),
    "a long trace": (((N("a"),), (), ("u",) * 65), "through 65 units"),
    "no profile": (((N("a"),), (), (), ""), "name of a profile"),
    "rerouted for ever": (((N("a"),), (), (), "default", MAX_REROUTES + 1), "rerouted 9 times"),
    "too many nodes": (((N("a", 4096), *(N(f"n{i}") for i in range(4096))),), "route of 4097 nodes"),
    "too many units": (((), (U(1, "u", 4096), *(U(1, f"{i}") for i in range(4096)))), "route to 4097 units"),
    "too many groups": (((N("a", groups=tuple(map(str, range(1025)))),),), "1025 queue groups"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_way_says_why(name: str) -> None:
    fields, reason = BAD[name]
    with pytest.raises(ProtocolError, match=reason):
        decode(raw(SourceRoute(*fields)))


def test_what_is_too_long_is_not_read() -> None:
    with pytest.raises(ProtocolError, match=f"at most {MAX_BYTES}"):
        decode(bytes(MAX_BYTES + 1))


def test_a_way_too_long_for_a_frame_says_what_to_do() -> None:
    steps = tuple(Step(f"{'n' * 200}{at}", 399 - at) for at in range(400))
    with pytest.raises(ProtocolError, match=r"to 400 places.*divide the cluster"):
        encode(SourceRoute(steps))


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        raw([1]),
        raw([[["a", 0, True, [], []]], [], [], 7]),
        raw({}),
        raw("a"),
        b"\x92\x90\x91\x92\x00\xa2\x00\x80",
        b"\x96" + b"\x91" * 60_000,
    ],
)
def test_other_values_are_no_way(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="route: "):
        decode(data)


def test_a_long_chain_is_checked_in_time_that_grows_with_its_length() -> None:
    """Neither recursion nor a look at all pairs: a hostile way of the greatest length is read in a moment."""
    units = tuple(Unit(1 + (at > 2000), str(at), 3999 - at) for at in range(4000))
    assert decode(encode(SourceRoute((), units))).units == units
