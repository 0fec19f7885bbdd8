"""Connections of a node after their handshake: signs of life, limits of time, and their end."""

from __future__ import annotations

import asyncio
import heapq
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import structlog

from chappe.core.session import Session
from chappe.engine._engine import Engine
from chappe.links.heartbeat import Heartbeat
from chappe.links.link import Link, control_frame
from chappe.links.registry import LinkEntry, Notice, Transports
from chappe.wire.control import Message, Refused

log = structlog.get_logger(__name__)

FREED_AT_ONCE = 2_000  # table entries and subscriptions of a closed port removed in one go
BUSY = ("status_in", "events_in", "parcels_in", "control_in", "status_out", "events_out")
OUTBOX_LIMIT = 65_536  # control messages a port may wait to be sent


@dataclass(slots=True, eq=False)
class Connection:
    """What carries a port now."""

    session: Session
    link: Link
    heartbeat: Heartbeat
    opened_ns: int
    dialled: bool = False
    joins: bool = True  # False: of another node, for cells alone
    closing: str = ""  # why we end it
    busy_ns: int = 0  # when it last did anything but show that it lives
    busy_frames: int = 0
    outbox: deque[bytes] = field(default_factory=deque)  # control frames for which the queue had no room
    paused_until_ns: int = 0
    entry: LinkEntry | None = None  # in the list of all links
    due_ns: int = 0  # when it is looked at next
    agreed_ns: int = 0  # interval of heartbeats by the handshake
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def port(self) -> int:
        return self.session.port


Lapsed = Callable[[Connection], str | None]


class Connections:
    """All connections by port; `gone(connection, reason)` is called for each that ended, however it did."""

    def __init__(self, engine: Engine, gone: Callable[[Connection, str], None], hurry: Callable[[], None]) -> None:
        self.by_port: dict[int, Connection] = {}
        self.transports = Transports(uuid.uuid4)
        self.transports.watch(self._noticed)
        self.fan_out: dict[int, Mapping[int, object]] = {}  # port of a group -> the ports of its members
        self._engine = engine
        self._gone = gone
        self.hurry = hurry  # asks for a tick soon
        self._due: list[tuple[int, int, Connection]] = []
        self._order = 0
        self._freeing: deque[int] = deque()
        self._stuffed: dict[int, Connection] = {}  # with something in their outbox
        self._clients: dict[bytes, Connection] = {}  # by issuer
        self.shortest_ns = 1 << 62  # interval of heartbeats that any connection had so far

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self.by_port.values()))

    def __len__(self) -> int:
        return len(self.by_port)

    def add(self, connection: Connection, now_ns: int) -> None:
        """Watch over it from now on."""
        self.by_port[connection.port] = connection
        if connection.session.role == "client":
            self._clients[connection.session.issuer] = connection
        connection.heartbeat.connected(now_ns)
        connection.agreed_ns = connection.heartbeat.interval_ns
        connection.busy_ns = now_ns
        self.shortest_ns = min(self.shortest_ns, connection.agreed_ns)
        self._detected(connection)
        self._list(connection)
        self._schedule(connection, now_ns + connection.heartbeat.interval_ns)

    def _list(self, connection: Connection) -> None:
        link, session = connection.link, connection.session
        connection.entry = self.transports.opened(
            uri=str(link.peer), kind=link.kind, peer=session.name, role=session.role, port=session.port,
            local=link.local, remote=str(link.peer), security=link.security, wall_ns=time.time_ns(),
        )  # fmt: skip

    def _detected(self, connection: Connection) -> bool:
        """Whether it is given up when it is silent; its interval is what the switches of its kind say (MR-045)."""
        switches, heartbeat = self.transports.switched(connection.link.kind), connection.heartbeat
        if switches is None or connection.session.role != "node":
            return True
        heartbeat.interval_ns = switches.detection_ns or connection.agreed_ns
        heartbeat.send_ns = min(heartbeat.interval_ns, connection.agreed_ns)
        self.shortest_ns = min(self.shortest_ns, heartbeat.interval_ns)
        return switches.detection

    def _noticed(self, notice: Notice) -> None:
        connection = self.by_port.get(notice.entry.port)
        if notice.what == "switched" and connection is not None and connection.entry is notice.entry:
            self._schedule(connection, self._engine.mono_ns)
            self.hurry()

    def client(self, issuer: bytes) -> Connection | None:
        """The connection of the client that publishes as that issuer."""
        return self._clients.get(issuer)

    def send(self, port: int, message: Message) -> None:
        """Queue a control message; one that finds no room waits for it."""
        connection = self.by_port.get(port)
        if connection is None:
            for member in list(self.fan_out.get(port, ())):
                self.send(member, message)
            return
        frame = control_frame(message)
        if connection.outbox or not self._engine.send(port, frame, 0):
            connection.outbox.append(frame)
            self._stuffed[port] = connection
            self.hurry()
            if len(connection.outbox) > OUTBOX_LIMIT:
                self.close(connection, "it does not read its answers", "limit")

    def close(
        self, connection: Connection, reason: str, code: str = "protocol", message: Message | None = None
    ) -> None:
        """End it after what is queued and a word why."""
        connection.closing = reason
        connection.link.close(control_frame(message or Refused(reason=reason, code=code)))
        self._remove(connection, reason)

    def abort(self, connection: Connection, reason: str) -> None:
        """End it now."""
        connection.closing = reason
        connection.link.abort()
        self._remove(connection, reason)

    def ended(self, connection: Connection, error: Exception | None) -> None:
        """Its link was lost; a late word about a connection that was removed already changes nothing."""
        self._remove(connection, str(error) if error else "closed by the other side")

    def free(self, port: int) -> None:
        """Take a port out of the tables, bit by bit."""
        self._engine.close_port(port)
        self._freeing.append(port)
        self.hurry()

    def tick(self, now_ns: int, wall_ns: int, idle_ns: int, lapsed: Lapsed) -> None:
        """Heartbeats, dead links, idle clients, identities that are no longer believed, ports to free."""
        while self._due and self._due[0][0] <= now_ns:
            at_ns, _, connection = heapq.heappop(self._due)
            if self.by_port.get(connection.port) is connection and at_ns == connection.due_ns:
                self._check(connection, now_ns, wall_ns, idle_ns, lapsed)
        if self._stuffed:
            for port, connection in list(self._stuffed.items()):
                self._unpack(port, connection)
        if self._freeing and self._engine.free_port(self._freeing[0], FREED_AT_ONCE):
            self._freeing.popleft()
            while self._freeing and self._engine.free_port(self._freeing[0], 100):
                self._freeing.popleft()

    @property
    def freeing(self) -> bool:
        """Whether there are ports to free."""
        return bool(self._freeing)

    @property
    def restless(self) -> bool:
        """Whether messages wait for room, or ports for being freed."""
        return bool(self._stuffed or self._freeing)

    def _check(self, connection: Connection, now_ns: int, wall_ns: int, idle_ns: int, lapsed: Lapsed) -> None:
        port, expires_ns = connection.port, connection.session.identity.expires_ns
        if expires_ns is not None and wall_ns >= expires_ns:
            why = lapsed(connection)
            if why:
                self.close(connection, why, "identity")
                return
        if connection.paused_until_ns:  # we do not read it: its silence is ours
            connection.heartbeat.connected(now_ns)
        if not self._detected(connection):
            connection.heartbeat.excuse(now_ns)
        verdict = connection.heartbeat.check(now_ns, self._engine.last_heard(port))
        if verdict.dead:
            silent_s = connection.heartbeat.interval_ns * connection.heartbeat.misses / 1e9
            self.abort(connection, f"silent for {silent_s:g} s")
            return
        if verdict.send:
            self._engine.heartbeat(port)
        if idle_ns and connection.session.role == "client" and self._idle(connection, now_ns, idle_ns):
            self.close(connection, f"idle for {idle_ns / 1e9:g} s (limits.idle_s)", "limit")
            return
        self._schedule(connection, verdict.next_ns)

    def _idle(self, connection: Connection, now_ns: int, idle_ns: int) -> bool:
        counters = self._engine.port_counters(connection.port)
        frames = sum(counters[name] for name in BUSY)
        if frames != connection.busy_frames:
            connection.busy_frames, connection.busy_ns = frames, now_ns
        return now_ns - connection.busy_ns >= idle_ns

    def _schedule(self, connection: Connection, at_ns: int) -> None:
        self._order += 1
        connection.due_ns = at_ns
        heapq.heappush(self._due, (at_ns, self._order, connection))

    def _unpack(self, port: int, connection: Connection) -> None:
        while connection.outbox and self._engine.send(port, connection.outbox[0], 0):
            connection.outbox.popleft()
        if not connection.outbox:
            del self._stuffed[port]

    def _remove(self, connection: Connection, reason: str) -> None:
        if self.by_port.get(connection.port) is connection:
            del self.by_port[connection.port]
            self._stuffed.pop(connection.port, None)
            if self._clients.get(connection.session.issuer) is connection:
                del self._clients[connection.session.issuer]
            connection.outbox.clear()
            if connection.entry is not None:
                self.transports.closed(connection.entry, reason)
            connection.lost.set()
            self._gone(connection, reason)
