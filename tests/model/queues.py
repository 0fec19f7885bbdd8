"""Frames, queues and ports of the slow engine; the compiled one has its own of everything here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

STATUS, EVENT, TOPIC, ISSUER, PARCEL, PROBE, ECHO, CONTROL, LOSS, CREDIT, ROUTE, TRAIN, TRAINED, DENIAL = (
    0x01, 0x02, 0x12, 0x22, 0x03, 0x04, 0x14, 0x05, 0x15, 0x25, 0x32, 0x24, 0x34, 0x35,
)  # fmt: skip
KINDS = {STATUS, EVENT, TOPIC, ISSUER, PARCEL, PROBE, ECHO, CONTROL, LOSS, CREDIT, ROUTE, TRAIN, TRAINED, DENIAL}
CLASS = [0, 1, 1, 2, 2, 3, 3]
WINDOW = 4096


Key = tuple[int, bytes, str | bytes]  # type, topic, and its group or its source route


class Bad(Exception):
    """A bad frame."""


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(3, "big") + payload


def records(payload: bytes) -> list[bytes]:
    """The records of a STATUS payload; Bad if it is not a whole number of them, or none."""
    found = []
    while payload:
        if len(payload) < 24 or len(payload) < 24 * (1 + payload[12]):
            raise Bad
        size = 24 * (1 + payload[12])
        found.append(payload[:size])
        payload = payload[size:]
    if not found:
        raise Bad
    return found


@dataclass
class Waiting:
    """A frame in a queue; a STATUS frame may grow until it is gathered."""

    data: bytes
    grows: bool = False
    key: Key | None = None  # what its topic number stands for
    start: int = 0  # position in its queue

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class Queue:
    frames: list[Waiting] = field(default_factory=list)  # not yet written completely
    kept: list[Waiting] = field(default_factory=list)  # written, not yet confirmed
    written: int = 0  # bytes of the first frame already written
    planned: int = 0  # bytes listed by the last peek
    enqueued: int = 0  # positions: bytes ever appended,
    sent: int = 0  # written,
    released: int = 0  # and given back
    keep: int = 0  # end of the last event, which must be confirmed
    token: int = 0  # probe under source_route, and what it confirms
    probed: int = 0

    def size(self) -> int:
        return self.enqueued - self.released

    def append(self, item: Waiting) -> None:
        item.start = self.enqueued
        self.enqueued += len(item.data)
        self.frames.append(item)

    def wrote(self, count: int, retain: bool) -> None:
        self.sent += count
        self.written += count
        while self.frames and self.written >= len(self.frames[0].data):
            self.written -= len(self.frames[0].data)
            self.kept.append(self.frames.pop(0))
        if not retain or self.keep <= self.released:
            self.release(self.sent)

    def release(self, position: int) -> None:
        self.released = max(self.released, min(position, self.sent))
        self.kept = [item for item in self.kept if item.end > self.released]


@dataclass(eq=False)
class ForwardingEntry:
    """Where events of a topic go that came by a source route, or from clients (b"")."""

    topic: tuple[int, bytes]
    source_route: bytes
    asked: int = 0
    deliver_here: bool = False
    groups: frozenset[str] | None = None
    unusable: int = 0
    next_hops: list[tuple[int, bytes]] = field(default_factory=list)
    hold_until: int = 0
    held: list[tuple[int, int, bytes]] = field(default_factory=list)  # class, issuer, payload


@dataclass
class Port:
    peer: bool
    limit: int
    max_frame: int
    packing: int
    conflate: bool
    credit: int
    issuer: int
    retain: bool = False
    parked: bool = False
    queues: list[Queue] = field(default_factory=lambda: [Queue() for _ in range(4)])
    unread: bytes = b""
    failed: bool = False
    open: bool = True
    starved: bool = False  # a definition found no room
    sticky: tuple[int, int] | None = None  # class and bytes of it that must be written first
    topics_in: dict[int, tuple[int, bytes] | None] = field(default_factory=dict)
    entries: dict[int, ForwardingEntry] = field(default_factory=dict)  # of the numbers that have a source_route
    train_out: list[int] = field(default_factory=list)  # token, bytes, bytes sent
    train_in: list[int] = field(default_factory=list)  # token, bytes, bytes that came, first, half, bytes by then
    issuers_in: dict[int, int] = field(default_factory=dict)
    topics_out: set[Key] = field(default_factory=set)
    issuers_out: set[int] = field(default_factory=set)
    newest: dict[int, bytes] = field(default_factory=dict)
    granted: int = 0
    event_bytes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    lost: list[int] = field(default_factory=lambda: [0, 0])
    told: int = 0
    refused: int = 0  # events to topics that a rule refuses
    refused_told: int = 0
    told_at: int = 0
