"""Parcels in the engine: what each cell does with one, and what it makes of bytes that no cell would send."""

from __future__ import annotations

import pytest

from chappe.engine._engine import Engine
from chappe.errors import ChappeError, RefusedError
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.parcels import MAX_HOPS, AckFlag, Acknowledgement, CellParcel, ParcelFlag
from tests.support.parcelnet import Cell, cell_id, parcel_frame, parcels_in, written

MS = 1_000_000
SECOND = 1000 * MS
A, B, C, D = (cell_id(name) for name in "abcd")
DATA = CellParcel(7, 0, "to", "from", b"body", ParcelFlag.FIRST | ParcelFlag.LAST)


def moved(parcel: CellParcel, **changes: object) -> CellParcel:
    fields = {name: getattr(parcel, name) for name in parcel.__dataclass_fields__}
    return CellParcel(**{**fields, **changes})


def ack(parcel: CellParcel, acknowledgement: Acknowledgement, **changes: object) -> CellParcel:
    """From the receiver of a parcel back to its sender."""
    back = CellParcel(parcel.flow, 0, parcel.source, parcel.destination, acknowledgement.encode(), ParcelFlag.ACK)
    return moved(back, **changes)


def middle() -> Cell:
    """Cell b with neighbours a and c."""
    cell = Cell("b")
    cell.link("a")
    cell.link("c")
    return cell


def origin(*paths: tuple[float, str]) -> tuple[Cell, int]:
    """Cell a with neighbours b and c and a client that has the name `from`."""
    cell = Cell("a")
    cell.link("b")
    cell.link("c")
    cell.route(b"to", *(paths or ((1.0, "b d"),)))
    port = cell.client(b"from")
    return cell, port


def drops(engine: Engine, port: int) -> dict[str, int]:
    counters = engine.port_counters(port)
    return {name.removeprefix("drop_"): count for name, count in counters.items() if name.startswith("drop_") and count}


# --- cells on the way


def test_a_cell_in_the_middle_of_the_list_changes_two_bytes_and_asks_nobody() -> None:
    cell = middle()
    came = moved(DATA, hops=(A, B, C), position=1, hops_left=9)
    cell.engine.feed(cell.ports["a"], parcel_frame(came))
    assert written(cell.engine, cell.ports["c"]) == parcel_frame(moved(came, position=2, hops_left=8))
    assert cell.asked == []
    assert cell.counts("parcels_in", "parcels_out", "parcel_questions") == (1, 1, 0)


def test_parcels_that_a_cell_passes_on_take_no_memory_but_the_queue_s() -> None:
    cell = middle()
    frames = parcel_frame(moved(DATA, hops=(A, B, C), position=1, body=bytes(25_000))) * 10
    for _ in range(5):
        cell.engine.feed(cell.ports["a"], frames)
        written(cell.engine, cell.ports["c"])
    before = cell.engine.allocations
    for _ in range(20):
        cell.engine.feed(cell.ports["a"], frames)
        written(cell.engine, cell.ports["c"])
    assert cell.engine.allocations == before


def test_a_parcel_whose_list_ends_here_goes_to_the_client_without_its_list() -> None:
    cell = middle()
    port = cell.client(b"to")
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, C, B), position=2)))
    assert written(cell.engine, port) == parcel_frame(DATA)


def test_a_main_cell_on_the_way_writes_the_next_list_and_asks_once() -> None:
    cell = middle()
    cell.route(b"to", (1.0, "c d"))
    for sequence in range(3):
        cell.engine.feed(
            cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1, hops_left=9, sequence=sequence))
        )
    out = parcels_in(written(cell.engine, cell.ports["c"]))
    assert out == [moved(DATA, sequence=each, hops=(B, C, D), position=1, hops_left=8) for each in range(3)]
    assert cell.asked == [b"to"]
    cell.engine.parcels_changed()
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1)))
    assert cell.asked == [b"to", b"to"]


def test_a_parcel_whose_next_cell_is_gone_returns_by_the_cells_before() -> None:
    cell = middle()
    cell.engine.park_port(cell.ports["c"])
    came = moved(DATA, hops=(A, B, C, D), position=1, hops_left=9)
    cell.engine.feed(cell.ports["a"], parcel_frame(came))
    back = moved(came, flags=came.flags | ParcelFlag.RETURNED, position=0, hops_left=8)
    assert written(cell.engine, cell.ports["a"]) == parcel_frame(back)
    assert cell.counts("parcels_returned") == (1,)
    other = middle()  # on its way back
    back = moved(DATA, flags=ParcelFlag.RETURNED, hops=(A, B, C, D), position=1, hops_left=4)
    other.engine.feed(other.ports["c"], parcel_frame(back))
    assert written(other.engine, other.ports["a"]) == parcel_frame(moved(back, position=0, hops_left=3))


def test_a_main_cell_without_a_route_returns_what_came_by_a_list() -> None:
    cell = middle()
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1)))
    (back,) = parcels_in(written(cell.engine, cell.ports["a"]))
    assert back.flags & ParcelFlag.RETURNED
    assert back.flags & ParcelFlag.ABSENT
    assert back.position == 0


def test_a_main_cell_draws_again_for_what_returned_and_leaves_the_path_out() -> None:
    cell = middle()
    cell.link("d")
    cell.route(b"to", (1.0, "c x"), (1e-9, "d x"))
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1)))
    (out,) = parcels_in(written(cell.engine, cell.ports["c"]))
    back = moved(out, flags=out.flags | ParcelFlag.RETURNED, position=0, hops_left=30)
    cell.engine.feed(cell.ports["c"], parcel_frame(back))
    (again,) = parcels_in(written(cell.engine, cell.ports["d"]))
    assert again == moved(out, hops=(B, D, cell_id("x")), hops_left=29)
    assert cell.engine.take_broken() == [(b"to", (C, cell_id("x")))]
    cell.engine.feed(cell.ports["c"], parcel_frame(back))  # excluded already: that is not said, or prolonged, again
    assert cell.engine.take_broken() == []


def test_class_2_is_for_acknowledgements_and_class_3_for_the_rest() -> None:
    cell = middle()
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B, C), position=1)))
    acknowledging = ack(DATA, Acknowledgement(1, 1), hops=(A, B, C), position=1)
    cell.engine.feed(cell.ports["a"], parcel_frame(acknowledging))
    out = parcels_in(written(cell.engine, cell.ports["c"]))
    assert [bool(parcel.flags & ParcelFlag.ACK) for parcel in out] == [True, False]


def test_parcels_use_half_of_a_queue() -> None:
    cell = Cell("b")
    cell.link("a")
    cell.link("c", queue_bytes=100_000)
    frame = parcel_frame(moved(DATA, hops=(A, B, C), position=1, body=bytes(10_000)))
    cell.engine.feed(cell.ports["a"], frame * 9)
    assert cell.engine.pending(cell.ports["c"]) == len(frame) * 4
    assert drops(cell.engine, cell.ports["a"]) == {"queue_full": 5}


# --- hostile bytes


@pytest.mark.parametrize(
    ("parcel", "reason"),
    [
        (moved(DATA, hops=(A, B, C), position=0), "bad_parcel"),
        (moved(DATA, hops=(A, B, C), position=2), "bad_parcel"),
        (moved(DATA, hops=(A, B, C), position=3), "bad_parcel"),
        (moved(DATA), "bad_parcel"),
        (moved(DATA, hops=(A, B, A), position=1), "bad_parcel"),
        (moved(DATA, hops=(A, B, C), position=1, hops_left=0), "hops"),
        (moved(DATA, hops=(A, B), position=1, hops_left=0), "hops"),
        (moved(DATA, hops=(D, B, D), position=1), "no_route"),
        (moved(DATA, flags=ParcelFlag.RETURNED, hops=(B, A), position=0), "no_route"),
        (moved(DATA, flags=ParcelFlag.RETURNED, hops=(B, C), position=0), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.RETURNED, hops=(C, B, C), position=1), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.RETURNED, hops=(B,), position=0), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.RETURNED), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.ABSENT, hops=(A, B, C), position=1), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.ACK, hops=(A, B, C), position=1, body=bytes(1400)), "bad_parcel"),
    ],
)
def test_what_no_cell_would_send_is_dropped_and_counted(parcel: CellParcel, reason: str) -> None:
    cell = middle()
    cell.engine.feed(cell.ports["a"], parcel_frame(parcel))
    assert drops(cell.engine, cell.ports["a"]) == {reason: 1}
    assert written(cell.engine, cell.ports["a"]) == written(cell.engine, cell.ports["c"]) == b""


@pytest.mark.parametrize("size", [0, 1, 19, 20, 24])
def test_a_parcel_that_is_cut_is_dropped_and_ends_nothing(size: int) -> None:
    cell = middle()
    whole = parcel_frame(moved(DATA, hops=(A, B, C), position=1))
    cell.engine.feed(cell.ports["a"], encode_frame(Kind.PARCEL, whole[4 : 4 + size]) + whole)
    assert drops(cell.engine, cell.ports["a"]) == {"bad_parcel": 1}
    assert cell.counts("parcels_out") == (1,)


def test_a_list_that_goes_round_ends_with_its_hops() -> None:
    cell = middle()
    hops = (A, B, C) * 21
    for position in range(1, len(hops), 3):
        cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=hops, position=position, hops_left=1)))
    assert cell.counts("parcels_out") == (21,)
    assert all(parcel.hops_left == 0 for parcel in parcels_in(written(cell.engine, cell.ports["c"])))


def test_a_node_that_is_no_cell_and_a_link_to_none_only_count_parcels() -> None:
    engine = Engine()
    port = engine.open_port(peer=True)
    engine.feed(port, parcel_frame(DATA))
    assert engine.port_counters(port)["unrouted"] == 1
    with pytest.raises(ChappeError, match="no cell"):
        engine.be_cell(A)
    cell = middle()
    stranger = cell.engine.open_port(peer=True)
    cell.engine.feed(stranger, parcel_frame(moved(DATA, hops=(A, B, C), position=1)))
    assert cell.engine.port_counters(stranger)["unrouted"] == 1


def test_strangers_cannot_make_a_cell_ask_without_end() -> None:
    cell = middle()
    for name in range(2_000):
        cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1, destination=f"name{name}")))
    assert len(cell.asked) <= 256
    assert drops(cell.engine, cell.ports["a"])["no_room"] == 2_000 - len(cell.asked)


def test_destinations_are_bounded() -> None:
    cell = middle()
    for name in range(6_000):
        cell.engine.clock((1 + name) * SECOND, 1)
        cell.route(f"name{name}".encode(), (1.0, "c"))
        cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B), position=1, destination=f"name{name}")))
        written(cell.engine, cell.ports["c"])
    assert cell.counts("parcels_out") == (6_000,)
    assert len(cell.engine.parcel_rows()) == 4_096


# --- names


def test_names_belong_to_one_client_each() -> None:
    cell = middle()
    first, second = cell.client(b"one"), cell.client()
    cell.engine.own_name(b"one", first)
    with pytest.raises(RefusedError, match="another client"):
        cell.engine.own_name(b"one", second)
    cell.engine.disown_name(b"one", second)
    with pytest.raises(RefusedError, match="another client"):
        cell.engine.own_name(b"one", second)
    cell.engine.disown_name(b"one", first)
    cell.engine.own_name(b"one", second)
    cell.engine.close_port(second)
    cell.engine.own_name(b"one", first)
    for number in range(1_023):
        cell.engine.own_name(f"n{number}".encode(), first)
    with pytest.raises(RefusedError, match="at most 1024"):
        cell.engine.own_name(b"more", first)
    for name, port in ((b"", first), (b"x" * 256, first), (b"x", cell.ports["a"])):
        with pytest.raises(ChappeError, match="cannot have a name"):
            cell.engine.own_name(name, port)
    for id, port in ((b"short", cell.ports["a"]), (B, cell.ports["a"]), (A, first)):
        with pytest.raises(ChappeError, match="cell"):
            cell.engine.set_cell(id, port)


# --- where a flow begins


def test_a_client_s_parcel_gets_a_list_and_the_client_credit() -> None:
    cell, port = origin()
    cell.engine.feed(port, parcel_frame(DATA))
    assert parcels_in(written(cell.engine, cell.ports["b"])) == [
        moved(DATA, hops=(A, B, D), position=1, hops_left=MAX_HOPS - 1)
    ]
    (frame,) = FrameReader().feed(written(cell.engine, port))
    assert frame.kind is Kind.PARCEL_CREDIT
    assert frame.payload == (7).to_bytes(8, "big") + (len(parcel_frame(DATA)) + (1 << 20)).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("parcel", "reason"),
    [
        (moved(DATA, source="other"), "not_permitted"),
        (moved(DATA, hops=(A,)), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.RETURNED), "bad_parcel"),
        (moved(DATA, hops_left=0), "hops"),
        (moved(DATA, flags=ParcelFlag.ACK), "bad_parcel"),
        (moved(DATA, flags=ParcelFlag.MULTICAST, source="other"), "not_permitted"),
        (moved(DATA, flags=ParcelFlag.ACK, source="other", body=Acknowledgement(1, 1).encode()), "not_permitted"),
    ],
)
def test_clients_send_from_their_names_and_without_lists(parcel: CellParcel, reason: str) -> None:
    cell, port = origin()
    cell.engine.feed(port, parcel_frame(parcel))
    assert drops(cell.engine, port) == {reason: 1}
    assert cell.counts("parcels_out") == (1 if reason == "not_permitted" else 0,)
    if reason == "not_permitted":
        (answer,) = parcels_in(written(cell.engine, port))
        assert Acknowledgement.decode(answer.body).flags == AckFlag.REFUSED
        assert (answer.destination, answer.source, answer.flow) == (parcel.source, parcel.destination, 7)
    assert cell.engine.flow_rows() == []


def test_the_rules_are_asked_once_for_a_client_and_a_destination() -> None:
    asked: list[tuple[int, str, bytes]] = []

    def authorize(port: int, kind: str, name: bytes) -> bool:
        asked.append((port, kind, name))
        return name == b"to"

    cell = Cell("a", authorize=authorize)
    cell.link("b")
    cell.route(b"to", (1.0, "b"))
    port = cell.client(b"from")
    for flow in range(3):
        cell.engine.feed(port, parcel_frame(moved(DATA, flow=flow)) + parcel_frame(moved(DATA, destination="not")))
    assert asked == [(port, "c", b"to"), (port, "c", b"not")]
    assert drops(cell.engine, port) == {"not_permitted": 3}
    cell.engine.close_port(port)
    other = cell.client(b"from")
    cell.engine.feed(other, parcel_frame(DATA))
    assert asked[2:] == [(other, "c", b"to")]


def test_rules_that_change_are_asked_again_and_end_flows() -> None:
    allowed, asked = {b"to", b"more"}, list[bytes]()

    def authorize(port: int, kind: str, name: bytes) -> bool:
        asked.append(name)
        return name in allowed

    cell = Cell("a", authorize=authorize)
    cell.link("b")
    cell.route(b"to", (1.0, "b"))
    port = cell.client(b"from")
    frames = [parcel_frame(moved(DATA, flow=flow, destination=name)) for flow, name in enumerate(("to", "more", "not"))]
    cell.engine.feed(port, b"".join(frames))
    assert [row.destination for row in cell.engine.flow_rows()] == [b"to", b"more"]
    allowed ^= {b"more", b"not"}
    cell.engine.permits_changed()
    asked.clear()
    written(cell.engine, port)
    cell.engine.feed(port, b"".join(frames) * 2)
    assert sorted(asked) == [b"more", b"not", b"to"]
    assert sorted(row.destination for row in cell.engine.flow_rows()) == [b"not", b"to"]
    answers = [parcel for parcel in parcels_in(written(cell.engine, port)) if parcel.flags & ParcelFlag.ACK]
    assert {(each.source, Acknowledgement.decode(each.body).flags) for each in answers} == {("more", AckFlag.REFUSED)}
    assert drops(cell.engine, port)["not_permitted"] == 3


def test_a_flow_has_two_names_and_a_client_so_many_flows() -> None:
    cell, port = origin()
    cell.engine.own_name(b"more", port)
    cell.engine.feed(port, parcel_frame(DATA) + parcel_frame(moved(DATA, source="more", sequence=1)))
    assert drops(cell.engine, port) == {"bad_parcel": 1}
    for flow in range(100, 163):
        cell.engine.feed(port, parcel_frame(moved(DATA, flow=flow)))
    cell.engine.feed(port, parcel_frame(moved(DATA, flow=200)))  # all have something under way
    assert drops(cell.engine, port) == {"bad_parcel": 1, "no_room": 1}
    arrival = moved(ack(DATA, Acknowledgement(1, 1)), hops=(D, B, A), position=2)
    cell.engine.feed(cell.ports["b"], parcel_frame(arrival))
    cell.engine.feed(port, parcel_frame(moved(DATA, flow=200)))  # in place of the one that has not
    assert len(cell.engine.flow_rows()) == 64
    assert {row.flow for row in cell.engine.flow_rows()} == {*range(100, 163), 200}


def test_parcels_beyond_the_credit_are_dropped() -> None:
    cell, port = origin()
    cell.routes[b"to"] = []
    cell.engine.parcels_changed()
    frame = parcel_frame(moved(DATA, body=bytes(100_000)))
    for sequence in range(13):
        cell.engine.feed(port, parcel_frame(moved(DATA, body=bytes(100_000), sequence=sequence)))
    (row,) = cell.engine.flow_rows()
    assert row.waiting_bytes == len(frame) * 10
    assert drops(cell.engine, port)["credit"] == 3


def test_what_is_acknowledged_is_not_in_flight_any_more() -> None:
    cell, port = origin()
    for sequence in range(5):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
    size = len(parcel_frame(DATA))
    acknowledged = ack(DATA, Acknowledgement(2, 99, 3, 5, ((3, 4),)), hops=(D, B, A), position=2)
    written(cell.engine, port)
    cell.engine.feed(cell.ports["b"], parcel_frame(acknowledged))
    (row,) = cell.engine.parcel_rows()
    assert (row.sent_bytes, row.acked_bytes, row.in_flight_bytes) == (5 * size, 3 * size, 2 * size)
    assert parcels_in(written(cell.engine, port)) == [moved(acknowledged, hops=(), position=0)]


@pytest.mark.parametrize(
    "changes",
    [{"source": "other"}, {"flow": 8}, {"body": Acknowledgement(1 << 31, 1).encode()},
     {"body": Acknowledgement(6, 1, 1 << 31, 1 << 63).encode()}],
)  # fmt: skip
def test_acknowledgements_of_other_flows_or_of_what_was_not_sent_free_nothing(changes: dict[str, object]) -> None:
    cell, port = origin()
    for sequence in range(5):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
    wrong = moved(ack(DATA, Acknowledgement(5, 1)), hops=(D, B, A), position=2, **changes)
    cell.engine.feed(cell.ports["b"], parcel_frame(wrong))
    assert cell.engine.parcel_rows()[0].acked_bytes == 0


def test_a_parcel_that_returns_takes_another_path_and_the_first_one_is_left_out() -> None:
    cell, port = origin((1.0, "b d"), (1e-9, "c d"))
    for sequence in range(3):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
    out = parcels_in(written(cell.engine, cell.ports["b"]))
    for parcel in out:
        back = moved(parcel, flags=parcel.flags | ParcelFlag.RETURNED, position=0, hops_left=20)
        cell.engine.feed(cell.ports["c"], parcel_frame(back))  # not the first hop of that list
        cell.engine.feed(cell.ports["b"], parcel_frame(back))
        cell.engine.feed(cell.ports["b"], parcel_frame(back))  # it is on another path now
    again = parcels_in(written(cell.engine, cell.ports["c"]))
    assert again == [moved(parcel, hops=(A, C, D), hops_left=19) for parcel in out]
    assert drops(cell.engine, cell.ports["c"]) == drops(cell.engine, cell.ports["b"]) == {"bad_parcel": 3}
    assert cell.engine.take_broken() == [(b"to", (B, D))]
    first, second = cell.engine.parcel_rows()
    assert (first.returned, first.excluded_ns, second.excluded_ns) == (3, 30 * SECOND, 0)


def test_a_name_that_is_not_at_the_end_of_a_path_costs_the_path_a_moment() -> None:
    cell, port = origin()
    absent = ParcelFlag.RETURNED | ParcelFlag.ABSENT
    for sequence, length_ms in enumerate([250, 500, 1_000, 2_000]):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
        (out,) = parcels_in(written(cell.engine, cell.ports["b"]))
        cell.engine.feed(cell.ports["b"], parcel_frame(moved(out, flags=out.flags | absent, position=0)))
        (row,) = cell.engine.parcel_rows()
        assert row.excluded_ns == length_ms * MS
        assert cell.engine.take_broken() == ([(b"to", (B, D))] if length_ms == 2_000 else [])
        if length_ms < 2_000:
            cell.engine.clock(cell.engine.mono_ns + row.excluded_ns, 1)
    assert cell.asked == [b"to"] * 4
    cell.engine.name_placed(b"to")
    cell.engine.feed(port, parcel_frame(moved(DATA, sequence=4)))
    assert [each.sequence for each in parcels_in(written(cell.engine, cell.ports["b"]))] == [4]
    assert cell.engine.parcel_rows()[0].excluded_ns == 0


def test_without_a_route_a_flow_waits_four_seconds_and_hears_that_there_is_none() -> None:
    cell, port = origin()
    cell.route(b"to")
    cell.engine.feed(port, parcel_frame(DATA))
    written(cell.engine, port)
    assert cell.engine.flow_rows()[0].waiting_bytes == len(parcel_frame(DATA))
    assert cell.engine.parcels_next() >= 0
    cell.engine.clock(3 * SECOND, 1)
    cell.engine.parcels_tick()
    assert parcels_in(written(cell.engine, port)) == []
    cell.engine.clock(5 * SECOND, 1)
    cell.engine.parcels_tick()
    (answer,) = parcels_in(written(cell.engine, port))
    assert Acknowledgement.decode(answer.body).flags == AckFlag.UNREACHABLE
    assert drops(cell.engine, port) == {"waited": 1}
    cell.engine.feed(port, parcel_frame(DATA))  # a route comes in time
    cell.route(b"to", (1.0, "b d"))
    cell.engine.parcels_tick()
    assert len(parcels_in(written(cell.engine, cell.ports["b"]))) == 1


def test_a_client_of_the_same_node_is_reached_without_asking() -> None:
    cell, port = origin()
    there = cell.client(b"near")
    near = moved(DATA, destination="near")
    cell.engine.feed(port, parcel_frame(near))
    assert parcels_in(written(cell.engine, there)) == [moved(near, hops_left=MAX_HOPS - 1)]
    cell.engine.feed(there, parcel_frame(ack(near, Acknowledgement(1, 1))))
    (row,) = cell.engine.parcel_rows()
    assert (row.hops, row.in_flight_bytes, row.acked_bytes) == ((), 0, len(parcel_frame(near)))
    assert cell.asked == []


@pytest.mark.parametrize("end", ["park_port", "close_port"])
def test_a_port_that_is_gone_has_no_flows_names_and_cells(end: str) -> None:
    cell, port = origin()
    cell.route(b"to")
    cell.engine.feed(port, parcel_frame(DATA))
    getattr(cell.engine, end)(port)
    assert cell.engine.flow_rows() == []
    assert cell.engine.parcels_next() == -1
    assert drops(cell.engine, port) == {"closed": 1}
    other = cell.client(b"from")
    cell.route(b"to", (1.0, "b d"), (1e-9, "c d"))
    getattr(cell.engine, end)(cell.ports["b"])
    cell.engine.feed(other, parcel_frame(DATA))
    assert len(parcels_in(written(cell.engine, cell.ports["c"]))) == 1


def test_parcels_in_the_queue_of_a_port_that_is_parked_are_dropped_and_counted() -> None:
    cell = Cell("b")
    cell.link("a")
    port = cell.ports["c"] = cell.engine.open_port(peer=True, retain=True)
    cell.engine.set_cell(C, port)
    cell.engine.feed(cell.ports["a"], parcel_frame(moved(DATA, hops=(A, B, C), position=1)))
    cell.engine.park_port(port)
    cell.engine.resume_port(port)
    assert cell.engine.pending(port) == 0
    assert drops(cell.engine, port) == {"closed": 1}


def test_parcels_to_a_prefix_are_for_python_code() -> None:
    cell, port = origin()
    to_all = moved(DATA, flags=ParcelFlag.MULTICAST, destination="fr.*")
    cell.engine.feed(port, parcel_frame(to_all))
    listed = moved(to_all, hops=(B, A), position=1)
    cell.engine.feed(cell.ports["b"], parcel_frame(listed))
    assert cell.engine.attention
    assert [(arrival, CellParcel.decode(payload[1:])) for arrival, payload in cell.engine.take_parcels()] == [
        (port, to_all), (cell.ports["b"], listed),
    ]  # fmt: skip
    assert cell.engine.take_parcels() == []


def test_paths_with_the_same_hops_keep_what_was_learned() -> None:
    cell, port = origin((1.0, "b d"), (1.0, "c d"))
    for sequence in range(4):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
    before = {row.hops: row for row in cell.engine.parcel_rows()}
    cell.route(b"to", (3.0, "b d"), (1.0, "b c d"))
    cell.engine.feed(port, parcel_frame(moved(DATA, sequence=4)))
    after = {row.hops: row for row in cell.engine.parcel_rows()}
    assert after[B, D].sent_bytes >= before[B, D].sent_bytes
    assert (after[B, D].base_share, after[B, C, D].base_share) == (0.75, 0.25)
    assert (C, D) not in after
    everything = moved(ack(DATA, Acknowledgement(5, 1)), hops=(D, B, A), position=2)
    cell.engine.feed(cell.ports["b"], parcel_frame(everything))
    assert cell.engine.flow_rows()[0].in_flight_bytes == 0


@pytest.mark.parametrize(
    "answer", [[(0.0, (B,))], [(1.0, ())], [(1.0, (b"short",))], [(float("nan"), (B,))], [(1.0, (B,) * 64)],
               [(1.0, (B,))] * 65, None, [7]],
)  # fmt: skip
def test_an_answer_that_cannot_be_is_counted_and_is_no_route(answer: object) -> None:
    engine = Engine(parcel_routes=lambda name: answer)  # type: ignore[arg-type,return-value]
    engine.clock(1, 1)
    engine.be_cell(A)
    engine.set_cell(B, engine.open_port(peer=True))
    port = engine.open_port(issuer=bytes(16))
    engine.own_name(b"from", port)
    engine.feed(port, parcel_frame(DATA) * 2)
    assert engine.counters()["route_errors"] == 1
    assert engine.route_error is not None
    assert engine.parcel_rows() == []


@pytest.mark.parametrize("failing", range(1, 25))
def test_without_memory_a_parcel_is_dropped_and_the_next_one_goes(failing: int) -> None:
    cell, port = origin()
    cell.engine.memory.fail(failing)
    cell.engine.feed(port, parcel_frame(DATA))
    cell.engine.memory.fail(0)
    written(cell.engine, cell.ports["b"])
    cell.engine.parcels_changed()
    for sequence in range(3):
        cell.engine.feed(port, parcel_frame(moved(DATA, sequence=sequence)))
    cell.engine.parcels_tick()
    assert {parcel.sequence for parcel in parcels_in(written(cell.engine, cell.ports["b"]))} >= {1, 2}
    for each in (port, *cell.ports.values()):
        cell.engine.close_port(each)
        while not cell.engine.free_port(each):
            pass
    assert cell.engine.flow_rows() == []
