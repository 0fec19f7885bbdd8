"""Cells in virtual time: engines joined by pipes with a rate and a delay, and the two clients of a flow."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from chappe.engine._engine import Engine
from chappe.engine.routes import ParcelRoute
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.parcels import MAX_RANGES, AckFlag, Acknowledgement, CellParcel, ParcelFlag
from chappe.wire.payloads import PARCEL_VERSION

MS = 1_000_000
STEP_NS = 2 * MS
RTO_NS = 1_000 * MS
ROOM_BYTES = 8 << 20
ACK_BYTES = 65_536

Routes = dict[bytes, list[ParcelRoute]]


def cell_id(name: str) -> bytes:
    return name.encode().ljust(8, b"-")[:8]


def parcel_frame(parcel: CellParcel) -> bytes:
    return encode_frame(Kind.PARCEL, bytes((PARCEL_VERSION,)) + parcel.encode())


def parcels_in(data: bytes) -> list[CellParcel]:
    frames = FrameReader(1 << 24).feed(data)
    return [CellParcel.decode(frame.payload[1:]) for frame in frames if frame.kind is Kind.PARCEL]


def written(engine: Engine, port: int) -> bytes:
    """All that the port has to write."""
    found = b""
    while piece := bytes(engine.peek(port)):
        found += piece
        engine.consumed(port, len(piece))
    return found


class Cell:
    """An engine that is a cell, and its ports to others by their names."""

    def __init__(self, name: str, seed: int = 1, **options: object) -> None:
        self.name, self.routes = name, Routes()
        self.asked: list[bytes] = []
        self.engine = Engine(parcel_routes=self._routes, seed=seed, **options)  # type: ignore[arg-type]
        self.engine.clock(1, 1)
        self.engine.be_cell(cell_id(name))
        self.ports: dict[str, int] = {}
        self._clients = 0

    def _routes(self, destination: bytes) -> list[ParcelRoute]:
        self.asked.append(destination)
        return self.routes.get(destination, [])

    def route(self, destination: bytes, *paths: tuple[float, str]) -> None:
        """Paths as (share, "a b c")."""
        self.routes[destination] = [
            ParcelRoute(share, tuple(cell_id(hop) for hop in hops.split())) for share, hops in paths
        ]
        self.engine.parcels_changed(destination)

    def link(self, other: str, queue_bytes: int = 8 << 20) -> int:
        port = self.ports[other] = self.engine.open_port(peer=True, queue_bytes=queue_bytes)
        self.engine.set_cell(cell_id(other), port)
        return port

    def client(self, *names: bytes, queue_bytes: int = 4 << 20) -> int:
        self._clients += 1
        port = self.engine.open_port(issuer=bytes((self._clients,)) * 16, queue_bytes=queue_bytes)
        for name in names:
            self.engine.own_name(name, port)
        return port

    def counts(self, *names: str) -> tuple[int, ...]:
        counters = self.engine.counters()
        return tuple(counters[name] for name in names)


@dataclass
class Pipe:
    """One direction of a link; `swallows` takes bytes and brings none."""

    source: Engine
    source_port: int
    target: Engine
    target_port: int
    bytes_s: float
    delay_ns: int
    swallows: bool = False
    carried: int = 0
    _under_way: deque[tuple[int, bytes]] = field(default_factory=deque)
    _allowed: float = 0.0

    def run(self, now: int) -> None:
        self._allowed = min(self._allowed + self.bytes_s * STEP_NS / 1e9, max(2 * self.bytes_s * STEP_NS / 1e9, 65_536))
        while self._allowed >= 1:
            piece = bytes(self.source.peek(self.source_port)[: int(self._allowed)])
            if not piece:
                self._allowed = min(self._allowed, self.bytes_s * STEP_NS / 1e9)
                break
            self.source.consumed(self.source_port, len(piece))
            self._allowed -= len(piece)
            self.carried += len(piece)
            if not self.swallows:
                self._under_way.append((now + self.delay_ns, piece))
        while self._under_way and self._under_way[0][0] <= now:
            self.target.feed(self.target_port, self._under_way.popleft()[1])


class Sender:
    """A client that always has something to send, in parcels of one size, and sends again what is not acknowledged."""

    def __init__(self, engine: Engine, port: int, source: str, target: str, flow: int, size: int = 8_000) -> None:
        self.engine, self.port, self.flow, self.size = engine, port, flow, size
        self.source, self.target = source, target
        self.credit, self.sent_bytes, self.room = 256 * 1024, 0, ROOM_BYTES
        self.next = self.expected = self.again = 0
        self.outstanding: dict[int, int] = {}
        self.most = 1 << 62  # parcels
        self.answers: list[Acknowledgement] = []
        self._reader = FrameReader(1 << 24)

    def run(self, now: int) -> None:
        for frame in self._reader.feed(written(self.engine, self.port)):
            if frame.kind is Kind.PARCEL_CREDIT:
                self.credit = int.from_bytes(frame.payload[8:], "big")
            elif frame.kind is Kind.PARCEL:
                self._acknowledged(Acknowledgement.decode(CellParcel.decode(frame.payload[1:]).body))
        for sequence, at in list(islice(self.outstanding.items(), 100)):
            if now - at < RTO_NS or not self._send(sequence):
                break
            self.again += 1
            del self.outstanding[sequence]
            self.outstanding[sequence] = now
        while self.next < self.most and self.next * self.size < self.room and len(self.outstanding) < 60_000:
            if not self._send(self.next):
                break
            self.outstanding[self.next] = now
            self.next += 1

    def _acknowledged(self, ack: Acknowledgement) -> None:
        if ack.flags:
            self.answers.append(ack)
            return
        while self.expected < ack.expected:
            self.outstanding.pop(self.expected, None)
            self.expected += 1
        for start, end in ack.ranges:
            for sequence in range(start, end):
                self.outstanding.pop(sequence, None)
        self.room = max(self.room, ack.room)

    def _send(self, sequence: int) -> bool:
        frame = parcel_frame(CellParcel(self.flow, sequence, self.target, self.source, bytes(self.size)))
        if self.sent_bytes + len(frame) > self.credit:
            return False
        self.sent_bytes += len(frame)
        self.engine.feed(self.port, frame)
        return True


class Receiver:
    """A client that acknowledges every 64 KiB, or 5 ms after the first that it did not acknowledge."""

    def __init__(self, engine: Engine, port: int, offset_ns: int = 0) -> None:
        self.engine, self.port, self.offset_ns = engine, port, offset_ns
        self.have: set[int] = set()
        self.expected = self.newest = self.repeats = 0
        self.arrival_ns = self.bytes = 0
        self.seen_from: CellParcel | None = None
        self._unacknowledged = 0
        self._since = 0
        self._reader = FrameReader(1 << 24)
        self.taken: list[CellParcel] = []

    def run(self, now: int) -> None:
        for frame in self._reader.feed(written(self.engine, self.port)):
            if frame.kind is Kind.PARCEL:
                self._take(CellParcel.decode(frame.payload[1:]), now)
        if self._unacknowledged >= ACK_BYTES or (self._unacknowledged and now - self._since >= 5 * MS):
            self._acknowledge()

    def _take(self, parcel: CellParcel, now: int) -> None:
        if not self._unacknowledged:
            self._since = now
        self._unacknowledged += max(1, len(parcel.body))
        self.seen_from, self.newest, self.arrival_ns = parcel, parcel.sequence, now + self.offset_ns
        if parcel.sequence < self.expected or parcel.sequence in self.have:
            self.repeats += 1
            return
        self.have.add(parcel.sequence)
        self.bytes += len(parcel.body)
        while self.expected in self.have:
            self.have.remove(self.expected)
            self.expected += 1

    def _acknowledge(self) -> None:
        assert self.seen_from is not None
        self._unacknowledged = 0
        ranges: list[tuple[int, int]] = []
        for sequence in sorted(self.have)[:2000]:
            if ranges and ranges[-1][1] == sequence:
                ranges[-1] = (ranges[-1][0], sequence + 1)
            elif len(ranges) < MAX_RANGES:
                ranges.append((sequence, sequence + 1))
            else:
                break
        body = Acknowledgement(
            self.expected, self.bytes + ROOM_BYTES, self.newest, self.arrival_ns % (1 << 64), tuple(ranges)
        ).encode()
        back = CellParcel(self.seen_from.flow, 0, self.seen_from.source, self.seen_from.destination, body,
                          ParcelFlag.ACK)  # fmt: skip
        self.engine.feed(self.port, parcel_frame(back))


class Net:
    """Cells, pipes and clients that a clock moves on."""

    def __init__(self, *names: str, **options: object) -> None:
        self.cells = {name: Cell(name, seed + 1, **options) for seed, name in enumerate(names)}
        self.pipes: dict[tuple[str, str], Pipe] = {}
        self.clients: list[Sender | Receiver] = []
        self.now = 1_000 * MS
        self._order = random.Random(1)  # else the last link of all would bring the newest parcel each time
        self.most_queued: dict[tuple[str, str], int] = {}

    def join(self, one: str, other: str, bytes_s: float, delay_ns: int = 10 * MS) -> None:
        first, second = self.cells[one], self.cells[other]
        ports = first.link(other), second.link(one)
        self.pipes[one, other] = Pipe(first.engine, ports[0], second.engine, ports[1], bytes_s, delay_ns)
        self.pipes[other, one] = Pipe(second.engine, ports[1], first.engine, ports[0], bytes_s, delay_ns)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = self.now + round(seconds * 1e9)
        while self.now < end and not until():
            self.now += STEP_NS
            for cell in self.cells.values():
                cell.engine.clock(self.now, self.now)
                if cell.engine.parcels_next() == 0:
                    cell.engine.parcels_tick()
            for client in self.clients:
                client.run(self.now)
            for ends, pipe in self._order.sample(list(self.pipes.items()), len(self.pipes)):
                pipe.run(self.now)
                queued = pipe.source.pending(pipe.source_port)
                self.most_queued[ends] = max(self.most_queued.get(ends, 0), queued)


def refusals(sender: Sender) -> list[AckFlag]:
    return [answer.flags for answer in sender.answers]
