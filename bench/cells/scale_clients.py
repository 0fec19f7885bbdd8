"""Case scale: the client of a simulated cell, with the windows of real flows, and the ledger of what it sends."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from chappe.cells._arrivals import ReceiveFlow
from chappe.cells._flow import NEVER, SendFlow
from chappe.cells._outgoing import Outgoing
from chappe.sim.client import Client
from chappe.sim.clock import Timer
from chappe.sim.node import Node
from chappe.wire.frames import FrameReader, Kind, encode_frame
from chappe.wire.parcels import CellParcel, ParcelFlag
from chappe.wire.payloads import PARCEL_VERSION

PARCEL_BYTES = 4096
MESSAGE_BYTES = 10_000
NUMBER_BYTES = 8
WHOLE = ParcelFlag.FIRST | ParcelFlag.LAST | ParcelFlag.MULTICAST


@dataclass(slots=True)
class Unicast:
    """One message, and the lives of both ends when it was sent."""

    source: Ends
    target: Ends
    lives: tuple[int, int]
    sent_ns: int
    arrived: int = 0
    took_ns: int = 0
    failure: str = ""

    @property
    def due(self) -> bool:
        """Whether both ends have lived since."""
        ends = (self.source.node, self.target.node)
        return all(node.running for node in ends) and self.lives == (ends[0].counts.lives, ends[1].counts.lives)


@dataclass(slots=True)
class Multicast:
    """One message to a prefix, with those that are to get it."""

    prefix: str
    wanted: frozenset[str]
    got: Counter[str] = field(default_factory=Counter)


class Ledger:
    """Every message by its number."""

    def __init__(self) -> None:
        self.unicasts: dict[int, Unicast] = {}
        self.multicasts: dict[int, Multicast] = {}
        self._number = 0

    def next(self) -> int:
        self._number += 1
        return self._number


class Ends:
    """The client of one cell: all names are its; what it sends and gets is of the lives of its node."""

    def __init__(self, node: Node, names: tuple[str, ...], ledger: Ledger, rng: random.Random) -> None:
        self.node = node
        self.names = names
        self._ledger = ledger
        self._rng = rng
        self._frames = FrameReader()
        self._sending: dict[int, tuple[SendFlow, int]] = {}
        self._receiving: dict[int, ReceiveFlow] = {}
        self._timer: Timer | None = None
        self.client = client = node.client("ends")  # of a node that does not run yet
        client.take = self._take  # type: ignore[method-assign]
        client.on_attach = self._attached

    def _attached(self, client: Client) -> None:
        self._frames = FrameReader()
        self._sending.clear()
        self._receiving.clear()
        cells = self.node.core.cells
        assert cells is not None
        cells.add_names(client.port, self.names, client.name)
        self.node.touch()

    # --- out

    def send(self, target: Ends, destination: str) -> None:
        """One message to a name of another cell, by a flow of its own."""
        number = self._ledger.next()
        lives = (self.node.counts.lives, target.node.counts.lives)
        self._ledger.unicasts[number] = Unicast(self, target, lives, self.node.now_ns)
        flow = SendFlow(self.names[0], destination, lambda: self._rng.getrandbits(63), parcel_bytes=PARCEL_BYTES)
        flow.send(Outgoing(number.to_bytes(NUMBER_BYTES, "big") + bytes(MESSAGE_BYTES)))
        self._sending[flow.id] = (flow, number)
        self._pump()

    def cast(self, prefix: str, wanted: Iterable[str]) -> None:
        """One message to all names with that prefix; `wanted`: the cells that should get it."""
        number = self._ledger.next()
        self._ledger.multicasts[number] = Multicast(prefix, frozenset(wanted))
        body = number.to_bytes(NUMBER_BYTES, "big")
        parcel = CellParcel(self._rng.getrandbits(63), 0, prefix + "*", self.names[0], body, WHOLE)
        self._feed([encode_frame(Kind.PARCEL, bytes((PARCEL_VERSION,)) + parcel.encode())])

    # --- in

    def _take(self, piece: bytes) -> None:
        for frame in self._frames.feed(piece):
            if frame.kind is Kind.PARCEL:
                self._parcel(CellParcel.decode(frame.payload[1:]))
            elif frame.kind is Kind.PARCEL_CREDIT:
                number, credit = (int.from_bytes(frame.payload[at : at + 8], "big") for at in (0, 8))
                if number in self._sending:
                    self._sending[number][0].grant(credit)
        if self._timer is None or self._timer.when_ns > self.node.now_ns:
            self._again(self.node.now_ns)

    def _parcel(self, parcel: CellParcel) -> None:
        now_ns = self.node.now_ns
        if parcel.flags & ParcelFlag.ACK:
            if parcel.flow in self._sending:
                self._sending[parcel.flow][0].acknowledge(parcel.body, now_ns)
            return
        if parcel.flags & ParcelFlag.MULTICAST:
            self._ledger.multicasts[int.from_bytes(parcel.body, "big")].got[self.node.name] += 1
            return
        flow = self._receiving.get(parcel.flow)
        if flow is None:
            flow = self._receiving[parcel.flow] = ReceiveFlow(parcel.flow, parcel.source, parcel.destination)
        flow.receive(parcel.sequence, int(parcel.flags), parcel.body, now_ns)
        for message in flow.take_messages()[0]:
            number = int.from_bytes(b"".join(message.take())[:NUMBER_BYTES], "big")
            unicast = self._ledger.unicasts[number]
            unicast.arrived += 1
            unicast.took_ns = now_ns - unicast.sent_ns

    # --- time

    def _again(self, when_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.node.clock.at(when_ns, self._pump)

    def _pump(self) -> None:
        """Whatever may leave now; then when to look again."""
        self._timer = None
        if not self.client.attached:
            return
        now_ns = self.node.now_ns
        self._feed(self._due(now_ns))
        next_ns = min((flow.next_tick(now_ns) for flow, _ in self._sending.values()), default=NEVER)
        next_ns = min(next_ns, min((flow.ack_at_ns for flow in self._receiving.values()), default=NEVER))
        if next_ns < NEVER:
            self._again(max(next_ns, now_ns + 1_000_000))

    def _due(self, now_ns: int) -> Iterator[bytes]:
        for id, (flow, number) in list(self._sending.items()):
            flow.tick(now_ns)
            if flow.id != id:  # begun anew
                self._sending[flow.id] = self._sending.pop(id)
            if flow.failure is not None:
                self._ledger.unicasts[number].failure = str(flow.failure)
                del self._sending[flow.id]
                continue
            yield from flow.take(now_ns)
            if flow.take_finished() and flow.idle:
                del self._sending[flow.id]
        for receiving in self._receiving.values():
            frame = receiving.acknowledgement(now_ns)
            if frame is not None:
                yield frame

    def _feed(self, frames: Iterable[bytes]) -> None:
        found = b"".join(frames)
        if found:
            self.node.feed(self.client.port, found)
