"""Two ends of a flow with a network between them that loses, doubles, delays and reorders; in virtual time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence

from chappe.cells._arrivals import Incoming, ReceiveFlow
from chappe.cells._flow import SendFlow
from chappe.cells._outgoing import Outgoing
from chappe.wire.parcels import CellParcel

MS = 1_000_000
HEADER = 5  # of the frame, and the version of the parcel


def parcel_of(frame: bytes) -> CellParcel:
    """What is in a PARCEL frame."""
    assert frame[0] == 0x03
    assert int.from_bytes(frame[1:4], "big") == len(frame) - 4
    return CellParcel.decode(frame[HEADER:])


def numbers(seed: int = 1) -> Callable[[], int]:
    """Numbers of flows."""
    rng = random.Random(seed)
    return lambda: rng.getrandbits(64)


class Pipe:
    """A SendFlow, a ReceiveFlow, and what happens to frames between them."""

    def __init__(
        self, seed: int, *, loss: float = 0.0, double: float = 0.0, delays_ms: Sequence[float] = (10.0,),
        limit: int = 8 << 20, parcel_bytes: int = 1000, credit: int = 1 << 40,
    ) -> None:  # fmt: skip
        self.rng = random.Random(seed)
        self.loss, self.double, self.delays_ms = loss, double, delays_ms
        self.limit = limit
        self.credit = credit
        self.sender = SendFlow("a", "b", numbers(seed), parcel_bytes=parcel_bytes, patience_ns=60_000 * MS)
        self.receivers: dict[int, ReceiveFlow] = {}
        self.now_ns = 1_000 * MS
        self.flying: list[tuple[int, int, bool, bytes]] = []
        self.serial = itertools.count()
        self.finished: list[Outgoing] = []
        self.messages: list[Incoming] = []
        self.most_held = 0
        self.parcels = 0

    @property
    def receiver(self) -> ReceiveFlow:
        return self.receivers[self.sender.id]

    def put(self, forth: bool, frame: bytes) -> None:
        for _ in range(1 + (self.rng.random() < self.double)):
            if self.rng.random() >= self.loss:
                late = self.rng.choice(self.delays_ms) * self.rng.uniform(0.8, 1.2) * MS
                heapq.heappush(self.flying, (self.now_ns + round(late), next(self.serial), forth, frame))

    def arrive(self, forth: bool, frame: bytes) -> None:
        parcel = parcel_of(frame)
        if not forth:
            if parcel.flow == self.sender.id:
                self.sender.acknowledge(parcel.body, self.now_ns)
                self.finished += self.sender.take_finished()
            return
        receiver = self.receivers.get(parcel.flow)
        if receiver is None:
            receiver = ReceiveFlow(parcel.flow, parcel.source, parcel.destination, limit=self.limit)
            self.receivers[parcel.flow] = receiver
        self.parcels += 1
        receiver.receive(parcel.sequence, int(parcel.flags), parcel.body, self.now_ns)
        self.messages += receiver.take_messages()[0]
        self.most_held = max(self.most_held, receiver.held)

    def step(self) -> None:
        """Send what may be sent, then go on to whatever is next."""
        self.sender.grant(self.credit)
        for frame in self.sender.take(self.now_ns):
            self.put(True, frame)
        assert self.sender.sent_to <= self.sender.reach
        due = self.now_ns + 5 * MS
        if self.flying:
            due = min(due, self.flying[0][0])
        self.now_ns = max(self.now_ns, due)
        while self.flying and self.flying[0][0] <= self.now_ns:
            _, _, forth, frame = heapq.heappop(self.flying)
            self.arrive(forth, frame)
        for receiver in self.receivers.values():
            frame = receiver.acknowledgement(self.now_ns)
            if frame is not None:
                self.put(False, frame)
        self.sender.tick(self.now_ns)
        self.finished += self.sender.take_finished()

    def run(self, until: Callable[[], bool], steps: int = 100_000) -> None:
        for _ in range(steps):
            if until():
                return
            self.step()
        raise AssertionError(f"not there after {steps} steps, {self.now_ns / 1e9:.1f} s")
