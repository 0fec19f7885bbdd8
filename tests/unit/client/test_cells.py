"""The flows of clients, and cells upon them, without a node: what one client writes goes to the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from chappe.cells._arrivals import Incoming
from chappe.cells._outgoing import Outgoing
from chappe.client._core import ClientCore
from chappe.client.arrivals import Box, CellMessage
from chappe.client.cells import Cell, Cells
from chappe.errors import LinkError, QueueFullError, RefusedError
from chappe.links._socket import clocks, collect
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.parcels import AckFlag, Acknowledgement, CellParcel, ParcelFlag
from chappe.wire.payloads import Parcel

ALONE = ParcelFlag.FIRST | ParcelFlag.LAST


class End:
    """A core with a list as box for each of its names."""

    def __init__(self, *names: str) -> None:
        self.core = ClientCore()
        self.core.connected()
        self.boxes: dict[str, list[Incoming]] = {}
        for name in names:
            self.boxes[name] = []
            self.core.parcels.open_box(name, self.boxes[name])
        self.finished: list[Outgoing] = []
        self.reader = FrameReader(1 << 24)

    def written(self) -> list[tuple[Kind, bytes]]:
        """What it writes."""
        self.core.send_parcels()
        frames = []
        while piece := collect(self.core, 0, 1 << 20):
            frames += [(frame.kind, frame.payload) for frame in self.reader.feed(piece)]
        return frames

    def parcels(self) -> list[CellParcel]:
        return [CellParcel.decode(payload[1:]) for kind, payload in self.written() if kind == Kind.PARCEL]

    def feed(self, kind: Kind, payload: bytes) -> None:
        clocks(self.core)
        self.core.feed(encode_frame(kind, payload))
        self.look()

    def look(self) -> None:
        arrived, _, finished = self.core.parcels.take()
        for box, incoming in arrived:
            box.append(incoming)
        self.finished += finished

    def parcel(self, **fields: Any) -> None:
        given = {"flow": 7, "sequence": 0, "destination": "b", "source": "a", "flags": ALONE, **fields}
        self.feed(Kind.PARCEL, Parcel(CellParcel(**given).encode()).encode())

    def send(self, source: str, destination: str, body: bytes) -> Outgoing:
        message = Outgoing(body)
        clocks(self.core)
        self.core.parcels.send(source, destination, message, self.core.mono_ns)
        return message


def exchange(one: End, two: End, most: int = 1000) -> None:
    """Carry everything between two clients until nothing moves."""
    for _ in range(most):
        moved = False
        for end, other in ((one, two), (two, one)):
            for kind, payload in end.written():
                if kind == Kind.PARCEL:
                    other.feed(kind, payload)
                    moved = True
        if not moved:
            return
    raise AssertionError("it never ends")


@pytest.mark.spec("BF-27")
def test_messages_go_from_name_to_name() -> None:
    one, two = End("a"), End("b", "c")
    sent = [one.send("a", "b", b"first"), one.send("a", "c", b"other"), one.send("a", "b", bytes(100_000))]
    exchange(one, two)
    assert [b"".join(each.take()) for each in two.boxes["b"]] == [b"first", bytes(100_000)]
    assert [b"".join(each.take()) for each in two.boxes["c"]] == [b"other"]
    assert set(one.finished) == set(sent)
    assert all(each.done for each in sent)
    assert len(one.core.parcels.flows()) == 2


@pytest.mark.spec("BF-02")
def test_who_sends_to_a_name_that_is_not_there_is_refused() -> None:
    one, two = End("a"), End("b")
    sent = one.send("a", "c", b"x")
    exchange(one, two)
    assert isinstance(sent.failure, RefusedError)
    assert "nobody here has the name 'c'" in str(sent.failure)
    assert one.core.parcels.flows() == []


@pytest.mark.spec("BF-41")
def test_parcels_are_written_after_all_else_and_a_bounded_number_at_a_time() -> None:
    end = End("a")
    end.send("a", "b", bytes(4 << 20))
    end.core.publish("topic", b"event")
    end.core.send_control(b"control")
    kinds = [kind for kind, _ in end.written()]
    assert kinds[:3] == [Kind.TOPIC, Kind.CONTROL, Kind.EVENT]
    assert set(kinds[3:]) == {Kind.PARCEL}
    assert 7 <= len(kinds[3:]) <= 8  # 256 KiB, and no more before it hears anything


def test_the_credit_of_a_node_lets_a_flow_go_on() -> None:
    end = End("a")
    end.send("a", "b", bytes(4 << 20))
    first = end.parcels()
    flow = first[0].flow
    end.parcel(flow=flow, source="b", destination="a", flags=ALONE | ParcelFlag.ACK,
               body=Acknowledgement(len(first), 8 << 20, len(first) - 1).encode())  # fmt: skip
    assert end.parcels() == []
    end.feed(Kind.PARCEL_CREDIT, flow.to_bytes(8, "big") + (1 << 20).to_bytes(8, "big"))
    assert len(end.parcels()) == (1 << 20) // 32_794 - len(first)


def test_a_new_connection_goes_on_with_the_same_flow() -> None:
    one, two = End("a"), End("b")
    first = one.send("a", "b", b"first")
    exchange(one, two)
    second = one.send("a", "b", b"second")
    one.written()  # and the connection is lost with it
    one.core.close()
    assert one.written() == []
    one.core.connected(hold=True)
    assert one.parcels() == []  # until its names are registered again
    one.core.release_events()
    exchange(one, two)
    assert [b"".join(each.take()) for each in two.boxes["b"]] == [b"first", b"second"]
    assert first.done
    assert second.done


@pytest.mark.spec("BF-27")
def test_a_flow_of_before_this_client_begins_anew() -> None:
    one, two = End("a"), End("b")
    one.send("a", "b", b"first")
    exchange(one, two)
    again = End("b")  # it was started anew
    second = one.send("a", "b", b"second")
    (parcel,) = one.parcels()
    assert parcel.sequence == 1
    again.parcel(flow=parcel.flow, sequence=1, body=b"second")
    again.core.parcels.tick(again.core.mono_ns + 2_000_000_000)
    answers = again.parcels()
    assert Acknowledgement.decode(answers[-1].body).flags == AckFlag.RESET
    one.parcel(flow=parcel.flow, source="b", destination="a", flags=ALONE | ParcelFlag.ACK, body=answers[-1].body)
    exchange(one, again)
    assert second.done
    assert [b"".join(each.take()) for each in again.boxes["b"]] == [b"second"]
    again.parcel(flow=parcel.flow, sequence=0, body=b"late")  # nothing of the flow that was given up is taken
    assert len(again.boxes["b"]) == 1
    assert Acknowledgement.decode(again.parcels()[-1].body).flags == AckFlag.RESET


def test_a_flow_that_was_forgotten_for_others_goes_on_where_it_was() -> None:
    end = End("b")
    for flow in range(300):
        end.parcel(flow=flow, body=b"1")
        for incoming in end.boxes["b"]:
            end.core.parcels.took(incoming)
        end.boxes["b"].clear()
        end.parcels()
    end.parcel(flow=0, sequence=0, body=b"1")
    assert end.boxes["b"] == []
    assert end.core.counters()["parcels_duplicate"] == 1
    end.parcel(flow=0, sequence=1, body=b"2")
    assert len(end.boxes["b"]) == 1


def test_flows_that_nobody_reads_are_bounded_together() -> None:
    end = End("b")
    for flow in range(300):
        for sequence in range(9):
            end.parcel(flow=flow, sequence=sequence, body=bytes(30_000), source=f"a{flow}")
    held = sum(incoming.size for incoming in end.boxes["b"])
    assert held <= 64 << 20
    assert len({incoming.source for incoming in end.boxes["b"]}) <= 256
    assert end.core.counters()["parcels_crowded"] > 0


def test_only_so_many_flows_are_sent_at_once() -> None:
    end = End("a")
    for number in range(64):
        end.send("a", f"b{number}", b"x")
    with pytest.raises(QueueFullError, match="64 flows"):
        end.send("a", "c", b"x")


@pytest.mark.parametrize("payload", [b"", b"\2", bytes(20), b"\2" + bytes(40), b"\2\0\0\0\377\1\1" + bytes(30)])
def test_a_parcel_that_cannot_be_read_is_counted(payload: bytes) -> None:
    end = End("b")
    end.feed(Kind.PARCEL, payload)
    assert end.core.counters()["parcels_invalid"] == 1
    assert end.core.ready


def test_an_acknowledgement_of_somebody_else_changes_nothing() -> None:
    one = End("a")
    message = one.send("a", "b", b"x")
    (parcel,) = one.parcels()
    body = Acknowledgement(1, 1 << 20).encode()
    one.parcel(flow=parcel.flow, source="c", destination="a", flags=ALONE | ParcelFlag.ACK, body=body)
    one.parcel(flow=parcel.flow + 1, source="b", destination="a", flags=ALONE | ParcelFlag.ACK, body=body)
    one.parcel(flow=parcel.flow, source="b", destination="a", flags=ALONE | ParcelFlag.ACK, body=body[:9])
    assert not message.done
    counters = one.core.counters()
    assert (counters["parcels_unwanted"], counters["parcels_invalid"]) == (2, 1)


@pytest.mark.spec("BF-28")
def test_a_multicast_comes_once_to_each_box_with_a_name_that_begins_so() -> None:
    one, two = End("a"), End("fr.paris", "fr.lyon", "de.bonn")
    two.core.parcels.open_box("fr.nice", two.boxes["fr.paris"])  # another name of the same cell
    assert one.core.parcels.cast("a", "fr.*", b"hello")
    exchange(one, two)
    assert [len(two.boxes[name]) for name in ("fr.paris", "fr.lyon", "de.bonn")] == [1, 1, 0]
    assert two.boxes["fr.lyon"][0].destination == "fr.*"
    assert two.core.parcels.cast("fr.lyon", "fr.*", b"from here")
    exchange(two, two)  # as from a node that sends it to the other names of the client
    assert [len(two.boxes[name]) for name in ("fr.paris", "fr.lyon", "de.bonn")] == [2, 1, 0]
    with pytest.raises(ValueError, match="32768 bytes"):
        one.core.parcels.cast("a", "fr.*", bytes(40_000))
    one.core.close()
    assert not one.core.parcels.cast("a", "fr.*", b"nobody is there")


# --- cells


class Network:
    """Two cells that reach each other, as long as they are connected."""

    def __init__(self) -> None:
        self.ends: list[tuple[ClientCore, Cells]] = []
        self.refused: set[str] = set()
        self.loss = 0.0
        self.rng = random.Random(1)

    def make(self) -> Cells:
        core = ClientCore()
        owner = _Owner()
        cells = Cells(owner, core, None, _Exchange(), None)  # type: ignore[arg-type]
        core.connected()
        core.schedule = lambda: asyncio.get_running_loop().call_soon(self.carry, core)
        self.ends.append((core, cells))
        return cells

    def carry(self, core: ClientCore) -> None:
        core.scheduled = False
        data = b""
        while piece := collect(core, 0, 1 << 20):
            data += piece
        frames = b"".join(frame.encode() for frame in FrameReader(1 << 24).feed(data) if self.rng.random() >= self.loss)
        for other, _ in self.ends:
            if other is not core and frames:
                clocks(other)
                other.feed(frames)
        core.feed(b"".join(
            encode_frame(Kind.PARCEL_CREDIT, int(row["flow"], 16).to_bytes(8, "big") + (1 << 40).to_bytes(8, "big"))
            for row in core.parcels.flows()
        ))  # fmt: skip


class _Owner:
    state = "connected"
    is_cell = True


class _Exchange:
    async def connected(self) -> None:
        pass

    async def ask(self, make: Callable[[int], Any], kind: type, what: str) -> None:
        make(1)


@pytest.fixture
async def two() -> AsyncIterator[tuple[Cell, Cell, Network]]:
    network = Network()
    one, other = network.make(), network.make()
    async with Cell(one, ("fr.paris",)) as paris, Cell(other, ("fr.lyon",)) as lyon:
        yield paris, lyon, network
    for core, cells in network.ends:
        cells.close(LinkError("over"))
        assert core.parcels.flows() == []


@pytest.mark.spec("BF-27")
async def test_a_message_of_bytes_is_there_when_send_returns(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    for body in (b"", b"bytes", bytearray(b"more"), memoryview(b"view")):
        sent = await paris.send("fr.lyon", body)
        message = await lyon.receive()
        assert (message.source, message.destination, message.body) == ("fr.paris", "fr.lyon", bytes(body))
        assert sent.size == len(body) == message.size == len(await message.read())
        assert not message.large
        assert not message.multicast


@pytest.mark.spec("BF-27", "BF-41")
@pytest.mark.parametrize("loss", [0.0, 0.03])
async def test_a_file_becomes_a_file_piece_by_piece(
    two: tuple[Cell, Cell, Network], tmp_path: Path, loss: float
) -> None:
    paris, lyon, network = two
    network.loss = loss
    source = tmp_path / "source"
    source.write_bytes(random.Random(2).randbytes(20_000_001))
    seen: list[int] = []
    sending = asyncio.ensure_future(paris.send("fr.lyon", source, progress=seen.append))
    message = await lyon.receive()
    assert message.large
    with pytest.raises(ValueError, match="save it"):
        _ = message.body
    assert await message.save(tmp_path / "target") == 20_000_001
    assert (await sending).size == 20_000_001
    assert (tmp_path / "target").read_bytes() == source.read_bytes()
    assert seen == sorted(seen)
    assert seen[-1] == 20_000_001
    assert not (tmp_path / "target.part").exists()


async def test_a_stream_comes_as_it_is_made(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(30):
            yield bytes([number]) * 100_000
            await asyncio.sleep(0)

    sending = asyncio.ensure_future(paris.send("fr.lyon", pieces()))
    message = await lyon.receive()
    body = await message.read()
    assert body == b"".join(bytes([number]) * 100_000 for number in range(30))
    assert (await sending).size == len(body)


@pytest.mark.parametrize("body", ["text", 7, None])
async def test_what_is_no_message_is_refused(two: tuple[Cell, Cell, Network], body: Any) -> None:
    with pytest.raises(TypeError, match="bytes"):
        await two[0].send("fr.lyon", body)


async def test_a_stream_that_fails_ends_the_message_and_the_next_one_arrives(
    two: tuple[Cell, Cell, Network],
) -> None:
    paris, lyon, _ = two

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(100_000)
        await asyncio.sleep(0.01)
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError, match="disk"):
        await paris.send("fr.lyon", broken())
    await paris.send("fr.lyon", b"next")
    assert (await lyon.receive()).body == b"next"


async def test_a_call_that_is_cancelled_sends_all_or_nothing(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    sending = asyncio.ensure_future(paris.send("fr.lyon", bytes(30 << 20)))
    message = await lyon.receive()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    reading = asyncio.ensure_future(message.read())
    await paris.send("fr.lyon", b"next")
    with pytest.raises(LinkError, match="gave this message up"):
        await reading
    assert (await lyon.receive()).body == b"next"


@pytest.mark.spec("BF-41")
async def test_a_large_message_that_nobody_wants_does_not_stop_those_behind_it(
    two: tuple[Cell, Cell, Network],
) -> None:
    paris, lyon, _ = two
    sending = asyncio.gather(paris.send("fr.lyon", bytes(30 << 20)), paris.send("fr.lyon", b"next"))
    message = await lyon.receive()
    await asyncio.sleep(0.05)
    assert not sending.done()
    message.close()
    assert (await lyon.receive()).body == b"next"
    await sending


@pytest.mark.spec("BF-04")
async def test_names_come_and_go(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    await lyon.add_name("fr.nice")
    assert lyon.own == ("fr.lyon", "fr.nice")
    await paris.send("fr.nice", b"x")
    message = await lyon.receive()
    assert message.destination == "fr.nice"
    await lyon.send("fr.paris", b"y", source="fr.nice")
    assert (await paris.receive()).source == "fr.nice"
    await lyon.remove_name("fr.lyon")
    with pytest.raises(RefusedError, match="nobody here"):
        await paris.send("fr.lyon", b"x")
    with pytest.raises(ValueError, match="only name"):
        await lyon.remove_name("fr.nice")
    with pytest.raises(ValueError, match="no name of this cell"):
        await lyon.send("fr.paris", b"x", source="fr.lyon")


@pytest.mark.spec("BF-02")
@pytest.mark.parametrize("name", ["", "fr.*", "x" * 256, "*"])
async def test_what_cannot_be_a_name_is_refused_before_anything_is_asked(
    two: tuple[Cell, Cell, Network], name: str
) -> None:
    with pytest.raises(ValueError, match="name"):
        await two[0].send(name, b"x")
    with pytest.raises(ValueError, match="name"):
        await two[0].add_name(name)


async def test_a_cell_waits_for_what_was_sent_when_it_is_closed(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    sending = asyncio.ensure_future(paris.send("fr.lyon", bytes(200_000)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await paris.close()
    assert sending.done()
    assert (await sending).size == 200_000
    with pytest.raises(LinkError, match="closed"):
        await paris.send("fr.lyon", b"x")
    assert [message async for message in paris] == []
    assert (await lyon.receive()).size == 200_000


@pytest.mark.spec("BF-28")
async def test_a_multicast_says_what_it_is(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    paris.multicast("fr.ly*", b"all")
    message = await lyon.receive()
    assert message.multicast
    assert (message.source, message.destination, message.body) == ("fr.paris", "fr.ly*", b"all")
    with pytest.raises(ValueError, match="one name"):
        paris.multicast("fr.lyon", b"x")


async def test_a_reader_that_is_cancelled_takes_nothing_from_another() -> None:
    box = Box()
    first, second = asyncio.ensure_future(box.get()), asyncio.ensure_future(box.get())
    await asyncio.sleep(0)
    incoming = Incoming(None, "a", "b", b"x")
    box.put(incoming)
    first.cancel()
    assert await second is incoming
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_what_is_dropped_without_being_read_makes_room(two: tuple[Cell, Cell, Network]) -> None:
    paris, lyon, _ = two
    sending = asyncio.ensure_future(paris.send("fr.lyon", bytes(30 << 20)))
    message: CellMessage | None = await lyon.receive()
    assert message is not None
    message = None
    assert (await sending).size == 30 << 20
