"""Laws of parcels: the engine does what the model does, and no bytes break it or go round for ever."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import given, settings

from chappe.engine.routes import ParcelRoute
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.parcels import Acknowledgement, CellParcel, ParcelFlag
from tests.model.parcels import ModelCell, Route
from tests.support.parcelnet import Cell, cell_id, parcel_frame, parcels_in, written

NAMES = ("here", "near", "far", "nowhere")
CELLS = tuple(cell_id(name) for name in ("me", "a", "b", "c", "x", "y"))
ME, A, B, C, X, Y = CELLS
ROUTES = {
    "near": [Route(0.7, (A,)), Route(0.3, (B,))],
    "far": [Route(0.5, (A, X)), Route(0.25, (B, Y)), Route(0.125, (C, X, Y)), Route(0.125, (Y, X))],
}
bodies = st.binary(max_size=20) | st.integers(0, 99).map(lambda number: Acknowledgement(number, 1).encode())


@st.composite
def parcels(draw: st.DrawFn) -> CellParcel:
    """Mostly such as come to the cell `me`, with or without sense."""
    hops = tuple(draw(st.lists(st.sampled_from(CELLS), min_size=1, max_size=5)))
    places = [place for place, hop in enumerate(hops) if hop == ME]
    place = draw(st.sampled_from(places)) if places else draw(st.integers(0, len(hops)))
    flags = draw(st.sampled_from((0, 1, 3, 4, 16, 20, 48, 52)))
    return CellParcel(
        draw(st.integers(0, 3)), draw(st.integers(0, 9)), draw(st.sampled_from(NAMES)), "from", draw(bodies),
        ParcelFlag(flags), draw(st.sampled_from((0, 1, 2, 64))), place, hops,
    )  # fmt: skip


@settings(deadline=None)
@given(st.integers(0, 1 << 63), st.lists(st.tuples(st.integers(0, 2), parcels(), st.integers(0, 40)), max_size=40))
def test_the_engine_does_with_each_parcel_what_the_model_does(
    seed: int, steps: list[tuple[int, CellParcel, int]]
) -> None:
    cell, model = Cell("me", seed), ModelCell(ME, seed)
    for name in ("a", "b", "c"):
        model.cells[cell_id(name)] = cell.link(name)
    model.owned["here"] = cell.client(b"here")
    model.routes = ROUTES
    cell.routes = {name.encode(): [ParcelRoute(*route) for route in routes] for name, routes in ROUTES.items()}
    now = 1_000_000_000
    for number, parcel, seconds in steps:
        now += seconds * 1_000_000_000
        cell.engine.clock(now, now)
        model.now = now
        port = cell.ports["abc"[number]]
        before = cell.engine.port_counters(port)
        cell.engine.feed(port, parcel_frame(parcel))
        after = cell.engine.port_counters(port)
        ports = (*cell.ports.values(), model.owned["here"])
        left: list[object] = [(out, each) for out in ports for each in parcels_in(written(cell.engine, out))]
        left += [name for name in after if name.startswith("drop_") and after[name] > before[name]]
        assert left == [model.take(port, parcel.encode())]
    assert cell.engine.take_broken() == [(name.encode(), hops) for name, hops in model.broken]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(("a", "client")), st.binary(max_size=80) | parcels().map(
    lambda parcel: b"\2" + parcel.encode())), max_size=30), st.data())  # fmt: skip
def test_no_bytes_of_parcels_break_the_engine(steps: list[tuple[str, bytes]], data: st.DataObject) -> None:
    cell = Cell("me")
    for name in ("a", "b"):
        cell.link(name)
    port = cell.client(b"from", b"here")
    cell.routes = {name.encode(): [ParcelRoute(*route) for route in routes] for name, routes in ROUTES.items()}
    for step, (source, content) in enumerate(steps):
        cell.engine.clock(1 + step * 700_000_000, 1)
        if content and data.draw(st.booleans()):
            place = data.draw(st.integers(0, len(content) - 1))
            content = content[:place] + bytes((data.draw(st.integers(0, 255)),)) + content[place + 1 :]
        cell.engine.feed(cell.ports.get(source, port), encode_frame(Kind.PARCEL, content))
        cell.engine.parcels_tick()
    for each in (port, *cell.ports.values()):
        cell.engine.close_port(each)
    assert cell.engine.flow_rows() == []


def test_no_parcel_goes_on_for_ever_whatever_the_routes_are() -> None:
    pick = random.Random(5)
    names = [f"n{each}" for each in range(6)]
    cells = {name: Cell(name, seed) for seed, name in enumerate(names)}
    for name, cell in cells.items():
        for other in names:
            if other != name:
                cell.link(other)
        paths = [pick.sample([each for each in names if each != name], 3) for _ in range(4)]
        cell.route(b"to", *((1.0, " ".join(path)) for path in paths))
    sender = cells["n0"].client(b"from")
    sent = 200
    for sequence in range(sent):
        cells["n0"].engine.feed(sender, parcel_frame(CellParcel(1, sequence, "to", "from", b"body")))
    for _ in range(70):
        for name, cell in cells.items():
            for other, port in cell.ports.items():
                if data := written(cell.engine, port):
                    target = cells[other]
                    target.engine.feed(target.ports[name], data)
    assert not any(cell.engine.pending(port) for cell in cells.values() for port in cell.ports.values())
    assert sum(cell.counts("drop_hops")[0] for cell in cells.values()) == sent
