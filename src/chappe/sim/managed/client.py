"""What a client does with variables: it registers and publishes some, watches others, and measures what it gets.

Like the real one it asks again for everything when its router is back, and for what was withdrawn.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from chappe.sim.client import Client
from chappe.wire import control, management
from chappe.wire.base import Failed, Grant, Message, Qos

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


class StatusClient:
    """What a program does with a client of one router."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.router = client.node.name
        self.publications: list[Publication] = []
        self.streams: list[Stream] = []
        self.withdrawn = 0
        self.on_hole: Callable[[StatusClient, Stream, Hole], None] | None = None
        self.on_late: Callable[[StatusClient, Stream, int], None] | None = None  # with the time it was published
        self.published = 0
        self._clock = client.node.clock
        self._asked: dict[int, Publication | Stream] = {}
        self._by_id: dict[int, Stream] = {}
        self._value = 0
        client.on_attach, client.on_answer, client.on_records = self._attached, self._heard, self._records

    def _attached(self, client: Client) -> None:
        """The router runs: ask for everything."""
        self._asked = {}
        for publication in self.publications:
            self._register(publication)
        for stream in self.streams:
            stream.last_ns = 0
            self._watch(stream)

    def leave(self) -> None:
        """Say goodbye: everything it has is over."""
        self.client.leave()

    # --- what it has

    def register(self, publisher: str, variable: str, interval_ns: int, priority: int = 3) -> Publication:
        publication = Publication(publisher, variable, interval_ns, priority)
        self.publications.append(publication)
        if self.client.attached:
            self._register(publication)
        return publication

    def watch(self, publisher: str, variable: str, *qos: Qos) -> Stream:
        stream = Stream(publisher, variable, qos)
        self.streams.append(stream)
        if self.client.attached:
            self._watch(stream)
        return stream

    def publish(self) -> None:
        """One event of every variable, now."""
        if not self.client.attached:
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
            self.client.publish_records(b"".join(records))

    # --- requests

    def _register(self, publication: Publication) -> None:
        publication.variable_id = publication.since_ns = 0
        number = self.client.request(
            control.Register, publisher=publication.publisher, variable=publication.variable, type="int", rate_num=1,
            rate_den=publication.interval_ns, priority=publication.priority,
        )  # fmt: skip
        self._asked[number] = publication

    def _watch(self, stream: Stream) -> None:
        stream.state = "asked"
        number = self.client.request(
            control.Watch, publisher=stream.publisher, variable=stream.variable, wait_ns=WAIT_NS, qos=stream.qos
        )
        self._asked[number] = stream

    def _again(self, about: Publication | Stream) -> None:
        if not self.client.attached:
            return
        if isinstance(about, Publication):
            if not about.variable_id:
                self._register(about)
        elif about.state == "refused":
            self._watch(about)

    # --- what comes back

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

    def _heard(self, client: Client, message: Message) -> None:
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
