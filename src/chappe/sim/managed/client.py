"""A simulated client of a managed router: it registers and publishes variables, watches others, and measures them.

Like the real one it asks again for everything when its router is back, and for what was withdrawn.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from chappe.sim.clock import Clock
from chappe.wire import control, management
from chappe.wire.base import Failed, Grant, Message, Qos, Request
from chappe.wire.frames import Kind, encode_frame

AGAIN_S = 5.0  # after a refusal that may be over by then
PASSING = frozenset(["unavailable", "stale", "unknown"])
WAIT_NS = 60_000_000_000  # for a variable that nobody publishes yet
_head = struct.Struct(">qIBxxx")
_record = struct.Struct(">qIBxxx8x")


@dataclass(slots=True)
class Publication:
    """A variable of this client."""

    publisher: str
    variable: str
    interval_ns: int
    priority: int = 3
    variable_id: int = 0
    since_ns: int = 0  # when it was first published after the last pause


@dataclass(slots=True, frozen=True)
class Hole:
    """Nothing arrived of what was published between two times, for longer than the granted interval."""

    after_ns: int  # virtual time of the last event before it
    before_ns: int  # and of the first after it


@dataclass(slots=True)
class Stream:
    """A variable that this client watches, and what became of it."""

    publisher: str
    variable: str
    qos: tuple[Qos, ...]
    state: str = "asked"  # granted, refused
    code: str = ""
    reason: str = ""
    grants: tuple[Grant | None, ...] = ()
    variable_id: int = 0
    granted_ns: int = 0
    last_ns: int = 0  # when the newest event was published; 0: nothing yet
    arrivals: int = 0
    limit_ns: int = 0  # longest interval that was granted in any mode
    bound_ns: int = 0  # longest latency; 0: none
    slowest_ns: int = 0
    late: int = 0
    holes: list[Hole] = field(default_factory=list)


class Attachment(Protocol):
    """The router that a client is attached to, as the client knows it."""

    @property
    def name(self) -> str: ...

    def open_client(self, client: StatusClient) -> int:
        """A connection of that client; its port."""

    def close_client(self, port: int) -> None:
        """The connection ends."""

    def feed(self, port: int, piece: bytes) -> None:
        """Bytes that the client sent."""


class StatusClient:
    """A program that stays with one router."""

    def __init__(self, router: Attachment, name: str, clock: Clock) -> None:
        self.router = router
        self.name = name
        self.issuer = hashlib.blake2b(name.encode(), digest_size=16).digest()
        self.port = -1
        self.publications: list[Publication] = []
        self.streams: list[Stream] = []
        self.withdrawn = 0
        self.on_hole: Callable[[StatusClient, Stream, Hole], None] | None = None
        self.on_late: Callable[[StatusClient, Stream, int], None] | None = None  # with the time it was published
        self.published = 0
        self._clock = clock
        self._asked: dict[int, Publication | Stream] = {}
        self._number = 0
        self._by_id: dict[int, Stream] = {}
        self._rest = b""
        self._value = 0

    # --- life

    def attach(self) -> None:
        """The router runs: connect and ask for everything."""
        self._rest, self._asked = b"", {}
        self.port = self.router.open_client(self)
        for publication in self.publications:
            self._register(publication)
        for stream in self.streams:
            self._watch(stream)

    def detach(self) -> None:
        self.port = -1
        for stream in self.streams:
            stream.last_ns = 0

    def leave(self) -> None:
        """Say goodbye: everything it has is over."""
        if self.port >= 0:
            self.router.close_client(self.port)
            self.port = -1

    # --- what it has

    def register(self, publisher: str, variable: str, interval_ns: int, priority: int = 3) -> Publication:
        publication = Publication(publisher, variable, interval_ns, priority)
        self.publications.append(publication)
        if self.port >= 0:
            self._register(publication)
        return publication

    def watch(self, publisher: str, variable: str, *qos: Qos) -> Stream:
        stream = Stream(publisher, variable, qos)
        self.streams.append(stream)
        if self.port >= 0:
            self._watch(stream)
        return stream

    def publish(self) -> None:
        """One event of every variable, now."""
        if self.port < 0:
            return
        self._value += 1
        created, value = self._clock.wall_ns, struct.pack(">q", self._value)
        records = []
        for each in self.publications:
            if each.variable_id:
                each.since_ns = each.since_ns or self._clock.now_ns
                records.append(_head.pack(created, each.variable_id, 0) + value)
        if records:
            self.published += len(records)
            self.router.feed(self.port, encode_frame(Kind.STATUS, b"".join(records)))

    # --- requests

    def _ask(self, request: Request, about: Publication | Stream) -> None:
        self._asked[request.id] = about
        self.router.feed(self.port, encode_frame(Kind.CONTROL, control.encode(request)))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _register(self, publication: Publication) -> None:
        publication.variable_id = publication.since_ns = 0
        self._ask(control.Register(
            id=self._next(), publisher=publication.publisher, variable=publication.variable, rate_num=1,
            rate_den=publication.interval_ns, priority=publication.priority), publication)  # fmt: skip

    def _watch(self, stream: Stream) -> None:
        stream.state = "asked"
        self._ask(control.Watch(id=self._next(), publisher=stream.publisher, variable=stream.variable, wait_ns=WAIT_NS,
                                qos=stream.qos), stream)  # fmt: skip

    def _again(self, about: Publication | Stream) -> None:
        if self.port < 0:
            return
        if isinstance(about, Publication):
            if not about.variable_id:
                self._register(about)
        elif about.state == "refused":
            self._watch(about)

    # --- what comes back

    def take(self, piece: bytes) -> None:
        """Bytes that the router sent."""
        data = self._rest + piece if self._rest else piece
        at, end = 0, len(data)
        while end - at >= 4:
            size = int.from_bytes(data[at + 1 : at + 4], "big")
            if end - at - 4 < size:
                break
            if data[at] == Kind.STATUS:
                self._records(data[at + 4 : at + 4 + size])
            elif data[at] == Kind.CONTROL:
                self._heard(control.decode(data[at + 4 : at + 4 + size]))
            at += 4 + size
        self._rest = data[at:]

    def _records(self, payload: bytes) -> None:
        now_ns, offset_ns = self._clock.now_ns, self._clock.wall_ns - self._clock.now_ns
        for created, variable_id, _ in _record.iter_unpack(payload):
            stream = self._by_id.get(variable_id)
            if stream is None:
                continue
            published_ns = created - offset_ns
            latency_ns = now_ns - published_ns
            stream.arrivals += 1
            if latency_ns > stream.slowest_ns:
                stream.slowest_ns = latency_ns
            if stream.bound_ns and latency_ns > stream.bound_ns:
                stream.late += 1
                if self.on_late is not None:
                    self.on_late(self, stream, published_ns)
            if stream.last_ns and published_ns - stream.last_ns > stream.limit_ns:
                hole = Hole(stream.last_ns, published_ns)
                stream.holes.append(hole)
                if self.on_hole is not None:
                    self.on_hole(self, stream, hole)
            stream.last_ns = published_ns

    def _heard(self, message: Message) -> None:
        match message:
            case management.Withdrawn():
                self.withdrawn += 1
                stream = self._by_id.pop(message.variable_id, None)
                if stream is not None:
                    stream.last_ns = 0
                    self._watch(stream)
            case control.Registered() | control.Watching() | Failed():
                about = self._asked.pop(message.id, None)
                if about is not None:
                    self._answered(about, message)

    def _answered(self, about: Publication | Stream, message: control.Registered | control.Watching | Failed) -> None:
        match message:
            case control.Registered():
                assert isinstance(about, Publication)
                about.variable_id = message.variable_id
            case control.Watching():
                assert isinstance(about, Stream)
                self._granted(about, message)
            case Failed():
                if isinstance(about, Stream):
                    about.state, about.code, about.reason = "refused", message.code, message.reason
                if message.code in PASSING or isinstance(about, Publication):
                    self._clock.after(AGAIN_S, self._again, about)

    def _granted(self, stream: Stream, message: control.Watching) -> None:
        granted = [grant for grant in message.grants if grant is not None]
        stream.state, stream.code, stream.reason = "granted", "", ""
        stream.grants, stream.variable_id = message.grants, message.variable_id
        stream.granted_ns = self._clock.now_ns
        stream.limit_ns = max(grant.interval_ns for grant in granted)
        stream.bound_ns = max(grant.bound_ns or grant.latency_ns for grant in granted)
        self._by_id[message.variable_id] = stream
