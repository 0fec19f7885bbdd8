"""A simulated node: the real engine and the real member of the mesh, bound to virtual time and modelled links."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chappe.engine._engine import Engine
from chappe.engine.rescue import RawOutputs
from chappe.errors import ProtocolError
from chappe.events.member import Log, Measured, Member, MemberSettings, Output, Publish, Refuse, Send
from chappe.sim._pump import dirty, take
from chappe.sim.client import Client
from chappe.sim.clock import Clock, Streams, Timer
from chappe.sim.codec import Codec
from chappe.wire.addresses import KIND, neighbour_pattern

if TYPE_CHECKING:
    from chappe.linkstate.units import Address
    from chappe.sim.connection import Connection

MAX_FRAME = 0xFF_FFFF
WHOLE = 1 << 30


@dataclass(slots=True)
class Counts:
    """What went through a node in all its lives."""

    control_in: int = 0
    control_out: int = 0
    control_bytes: int = 0
    refused: int = 0
    faults: int = 0
    full: int = 0  # control messages for which a queue had no room
    events_out: int = 0  # to other nodes
    lives: int = 0


class Node:
    """One node. Between two instants it has nothing left to do: all it was fed is processed and handed on."""

    def __init__(
        self, address: Address, clock: Clock, streams: Streams, settings: MemberSettings | None,
        touched: Callable[[Node], None], codec: Codec, grain_ns: int = 1,
    ) -> None:  # fmt: skip
        self.address = address
        self.name = address.node
        self.clock = clock
        self.running = False
        self.paused = False
        self.skew_ns = 0  # how far its wall clock is ahead of that of the others
        self.since_ns = 0  # of this life
        self.connections: dict[str, Connection] = {}
        self.clients: list[Client] = []
        self.counts = Counts()
        self.logs: list[tuple[int, Log]] = []
        self.engine: Engine = Engine()
        self.member: Member | None = None
        self.ports: dict[str, int] = {}  # by name of the neighbour, kept while its connections come and go
        self._streams = streams
        self._settings = settings
        self._touched = touched
        self._codec = codec
        self._grain_ns = grain_ns
        self._carriers: dict[int, Connection] = {}
        self._clients: dict[int, Client] = {}
        self._waiting: list[tuple[int, bytes, bool]] = []  # what arrived while paused
        self._timer: Timer | None = None
        self._own: Client | None = None

    # --- life

    def start(self) -> None:
        """Run with empty tables; clients attach at once, links by their connections."""
        if self.running:
            return
        self.running, self.paused = True, False
        self.since_ns = self.clock.now_ns
        self.counts.lives += 1
        self.ports, self._carriers, self._clients, self._waiting = {}, {}, {}, []
        life = self.counts.lives
        self.engine = (
            Engine(publish_way=self._publish_way, forward_way=self._forward_way) if self._settings else Engine()
        )
        self._set_clock()
        self.engine.topics.place(str(self.address))
        if self._settings is not None:
            self.member = Member(
                self.address, self.engine, self._settings, self._streams.of("member", self.name, life),
                decode=self._codec.advert,
            )  # fmt: skip
            issuer = hashlib.blake2b(f"{self.name}#{life}".encode(), digest_size=16).digest()
            self._own = Client(self, self.name, issuer)
            self._own.attach()
        for client in self.clients:
            client.attach()
        self._touched(self)

    def stop(self) -> None:
        """The process is gone with everything it held; its connections end by `Connection.broken`."""
        self.running = False
        self.counts.events_out += self._events_out()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in self.clients:
            client.detach()
        self.member = None

    def pause(self) -> None:
        """Nothing is processed: the process is stopped, its connections stay."""
        self.paused = True

    def resume(self) -> None:
        """Everything that arrived meanwhile is processed now."""
        if not self.paused:
            return
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for port, piece, datagram in waiting:
            self._feed(port, piece, datagram)
        self._touched(self)

    def _set_clock(self) -> None:
        self.engine.clock(self.clock.now_ns, self.clock.wall_ns + self.skew_ns)

    # --- links

    def attach(self, connection: Connection, peer: str) -> int:
        """A connection to a neighbour is there; the port that carries it."""
        self._set_clock()
        port = self.ports.get(peer)
        if port is None:
            port = self.ports[peer] = self.engine.open_port(
                peer=True, retain=True, max_frame=MAX_FRAME, loss=False, max_topics=1 << 24
            )
            self.engine.topics.subscribe(port, neighbour_pattern(peer), KIND)
        else:
            self.engine.resume_port(port)
        self._carriers[port] = connection
        if self.member is not None:
            self._obey(self.member.up(port, peer, self.clock.now_ns))
        self._touched(self)
        return port

    def attach_datagrams(self, connection: Connection, peer: str) -> int:
        """A datagram link beside the connection: STATUS and probes travel there."""
        port = self.engine.open_port(datagram=True, partner=self.ports[peer])
        self._carriers[port] = connection
        return port

    def detach(self, peer: str, datagrams: int = -1) -> None:
        """The connection to a neighbour is gone; its port waits for the next one."""
        if not self.running:
            return
        self._set_clock()
        port = self.ports[peer]
        self._carriers.pop(port, None)
        if datagrams >= 0:
            self._carriers.pop(datagrams, None)
            while not self.engine.free_port(datagrams):
                pass
        self.engine.park_port(port)
        if self.member is not None:
            self._obey(self.member.down(port, self.clock.now_ns))
        self._touched(self)

    def route_to(self, peer: str, pattern: str) -> None:
        """A static topic route, as `[[topic_route]]` in a node's configuration."""
        self.engine.topics.subscribe(self.ports[peer], pattern)

    # --- clients

    def client(self, name: str) -> Client:
        """A new client of this node."""
        issuer = hashlib.blake2b(f"{self.name}/{name}".encode(), digest_size=16).digest()
        client = Client(self, name, issuer)
        self.clients.append(client)
        if self.running:
            client.attach()
        return client

    def open_client(self, client: Client) -> int:
        port = self.engine.open_port(issuer=client.issuer)
        self._clients[port] = client
        return port

    def subscribe(self, port: int, pattern: str, kind: str, group: str) -> None:
        self.engine.topics.subscribe(port, pattern, kind, group)
        if self.member is not None and kind != KIND:
            self.member.subscribed(kind, pattern, group)
        self._touched(self)

    def unsubscribe(self, port: int, pattern: str, kind: str, group: str) -> None:
        self.engine.topics.unsubscribe(port, pattern, kind, group)
        if self.member is not None and kind != KIND:
            self.member.unsubscribed(kind, pattern, group)
        self._touched(self)

    # --- bytes

    def feed(self, port: int, piece: bytes, datagram: bool = False) -> None:
        """Bytes that arrived on a port."""
        if not self.running:
            return
        if self.paused:
            self._waiting.append((port, piece, datagram))
            return
        self._feed(port, piece, datagram)
        self._touched(self)

    def _feed(self, port: int, piece: bytes, datagram: bool) -> None:
        engine = self.engine
        self._set_clock()
        try:
            if datagram:
                engine.feed_datagram(port, piece)
            else:
                engine.feed(port, piece)
        except ProtocolError as error:
            self.counts.faults += 1
            self._note(Log("bad frame", "error", {"port": port, "reason": str(error)}))

    def settle(self) -> None:
        """Do what this instant asks for: messages, echoes, timers that are due, then bytes for links and clients."""
        if not self.running or self.paused:
            return
        now_ns = self.clock.now_ns
        self._set_clock()
        member = self.member
        if member is None:
            self.flush()
            return
        if self.engine.attention:
            self._control(member, now_ns)
        self._obey(member.arrived(now_ns))
        next_ns = member.next_ns()
        if next_ns <= now_ns:
            self._obey(member.tick(now_ns))
            member.probe(now_ns)
            next_ns = member.next_ns()
        held_ns = self.engine.held_ns()
        if held_ns == 0:
            self.engine.release_held()
        self.flush()
        held_ns = self.engine.held_ns()
        self._wake_at(next_ns if held_ns < 0 else min(next_ns, now_ns + held_ns))

    def flush(self) -> None:
        """Hand every queued byte to the link or client that carries its port, as far as there is room."""
        engine = self.engine
        while ports := dirty(engine):
            for port in ports:
                carrier = self._carriers.get(port)
                if carrier is not None:
                    carrier.drain(self, port)
                    continue
                client = self._clients.get(port)
                if client is not None:
                    while piece := take(engine, port, WHOLE):
                        client.take(piece)

    def _control(self, member: Member, now_ns: int) -> None:
        counts = self.counts
        for port, payload in self.engine.take_control():
            counts.control_in += 1
            try:
                message = self._codec.decode(payload)
            except ProtocolError as error:
                counts.faults += 1
                self._note(Log("bad message", "error", {"port": port, "reason": str(error)}))
                continue
            if port in self._carriers and member.takes(message):
                self._obey(member.receive(port, message, now_ns))

    def _obey(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case Send(port, message):
                    frame = self._codec.encode(message)
                    self.counts.control_out += 1
                    self.counts.control_bytes += len(frame)
                    if not self.engine.send(port, frame):
                        self.counts.full += 1
                case Publish(topic, body):
                    if self._own is not None:
                        self._own.publish(topic, body)
                case Refuse(port, reason):
                    self.counts.refused += 1
                    self._note(Log("neighbour refused", "warning", {"port": port, "reason": reason}))
                    carrier = self._carriers.get(port)
                    if carrier is not None:
                        carrier.end()
                case Log():
                    self._note(output)
                case Measured():
                    pass

    def _note(self, log: Log) -> None:
        self.logs.append((self.clock.now_ns, log))
        if len(self.logs) > 1000:
            del self.logs[:500]

    def _wake_at(self, when_ns: int) -> None:
        """A timer at that time or before; one that is early costs a look. Like arrivals it waits for the next grain."""
        grain_ns = self._grain_ns
        when_ns = -(-max(when_ns, self.clock.now_ns + 1) // grain_ns) * grain_ns
        timer = self._timer
        if timer is not None and timer.waits:
            if timer.when_ns <= when_ns:
                return
            timer.cancel()
        self._timer = self.clock.at(when_ns, self._touched, self)

    def _publish_way(self, kind: str, topic: bytes) -> RawOutputs:
        return self.member.publish_way(kind, topic) if self.member is not None else (True, [], 0, None)

    def _forward_way(self, port: int, way: bytes, kind: str, topic: bytes) -> RawOutputs:
        return self.member.forward_way(port, way, kind, topic) if self.member is not None else (False, [], 0, None)

    def forwarded(self) -> int:
        """Events handed to other nodes in all lives."""
        return self.counts.events_out + (self._events_out() if self.running else 0)

    def _events_out(self) -> int:
        return sum(self.engine.port_counters(port)["events_out"] for port in self.ports.values())
