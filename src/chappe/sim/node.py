"""A simulated node: the real engine and the real machines, bound to virtual time and modelled links."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from chappe.core.node import NodeCore
from chappe.core.sections import Peer
from chappe.errors import ProtocolError
from chappe.events.member import Member
from chappe.linkstate.units import Address
from chappe.machine import (
    NEVER,
    Audit,
    AuditIntent,
    AuditWritten,
    Close,
    Connected,
    Delegate,
    Dial,
    Disconnected,
    Effect,
    FreePort,
    HangUp,
    Log,
    NodeInput,
    Publish,
    Send,
)
from chappe.sim._pump import dirty, take
from chappe.sim.build import Design, client_session, node_session, number_of
from chappe.sim.client import Client
from chappe.sim.clock import Clock, Streams, Timer
from chappe.sim.codec import Codec
from chappe.wire.addresses import KIND
from chappe.wire.base import Command, Failed, Message, Request
from chappe.wire.management import Channel
from chappe.wire.mesh import MESH, Discover

WHOLE = 1 << 30
MANAGERS = 1 << 24  # ports of management links begin here: the engine has no part in them


class Carrier(Protocol):
    """The link that carries a port of a node."""

    def drain(self, node: Node, port: int) -> None:
        """Take what the port has to send."""

    def end(self) -> None:
        """Close the connection for good: one end does not want the other."""

    @property
    def possible(self) -> bool:
        """Whether a connection could be there."""

    @property
    def joins(self) -> bool:
        """Whether it is one of the mesh; else cells alone want it."""

    def other(self, node: Node) -> Node:
        """Its other end."""

    def rate(self, node: Node) -> float:
        """Bytes a second that it carries from that end."""

    def dial(self, at_once: bool = False) -> None:
        """Try to connect."""

    def reset(self, gone: Node) -> None:
        """The process of an end is gone."""

    def silence(self, gone: Node | None = None) -> None:
        """The machine of an end, or the line, is gone without a word."""


class Manager(Protocol):
    """A management link to a broker: it carries messages, not bytes."""

    def send(self, message: Message) -> None: ...

    def end(self) -> None:
        """Close the connection."""


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
        self, address: Address, clock: Clock, streams: Streams, design: Design, touched: Callable[[Node], None],
        codec: Codec, grain_ns: int = 1, dialling: Callable[[Node, Dial | HangUp], None] | None = None,
    ) -> None:  # fmt: skip
        self.address = address
        self.name = address.node
        self.clock = clock
        self.codec = codec
        self.design = design
        self.running = False
        self.paused = False
        self.skew_ns = 0  # how far its wall clock is ahead of that of the others
        self.since_ns = 0  # of this life
        self.connections: dict[str, Carrier] = {}  # by the name of the other node
        self.clients: list[Client] = []
        self.counts = Counts()
        self.logs: list[tuple[int, Log]] = []
        self.on_effects: Callable[[list[Effect]], None] | None = None  # sees what its machines ask for
        self.core: NodeCore  # of this life, or of the last one
        self._streams = streams
        self._touched = touched
        self._grain_ns = grain_ns
        self._dialling = dialling  # keeps and ends links that cells want
        self._carriers: dict[int, Carrier] = {}
        self._clients: dict[int, Client] = {}
        self._managers: dict[int, Manager] = {}
        self._next_manager = MANAGERS
        self._peer_lives: dict[str, int] = {}  # which life of a neighbour was last connected
        self._waiting: list[tuple[int, bytes, bool]] = []  # what arrived while paused
        self._timer: Timer | None = None
        self._core_ns = NEVER  # when the machines but the member have something to do
        self._own: Client | None = None

    @property
    def member(self) -> Member | None:
        """Its member of the mesh, while it runs."""
        return self.core.member if self.running else None

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    @property
    def location(self) -> str:
        return str(self.address)

    # --- life

    def start(self) -> None:
        """Run with empty tables; clients attach at once, links by their connections."""
        if self.running:
            return
        self.running, self.paused = True, False
        self.since_ns = self.clock.now_ns
        self.counts.lives += 1
        self._carriers, self._clients, self._managers, self._peer_lives, self._waiting = {}, {}, {}, {}, []
        life = self.counts.lives
        process, rng = number_of(f"{self.name}#{life}"), self._streams.of("member", self.name, life)
        self.core = self.design.build(process, rng, self.codec, self.carry_out, self._configure, self._bandwidth)
        self.engine = self.core.engine
        self._core_ns = 0
        self._set_clock()
        for peer in self.design.config.peer:
            self._open(peer)
        if self.design.settings is not None:
            self._own = Client(self, self.name, process)
            self._own.attach()
        for client in self.clients:
            client.attach()
        self._touched(self)

    def stop(self) -> None:
        """The process is gone with everything it held; its connections end by `Connection.reset` or `silence`."""
        self.counts.events_out += self._events_out()
        self.running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for client in self.clients:
            client.detach()

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

    def touch(self) -> None:
        """Something was done to it from outside: it settles before time goes on."""
        self._touched(self)

    def _set_clock(self) -> None:
        self.engine.clock(self.clock.now_ns, self.clock.wall_ns + self.skew_ns)

    # --- links

    @property
    def ports(self) -> dict[str, int]:
        """By name of the neighbour, kept while its connections come and go."""
        return {name: port for name in self.core.ports.names() if (port := self.core.ports.get(name)) is not None}

    def _open(self, peer: Peer) -> int:
        port = self.core.ports.open(peer)
        routes = self.design.config.topic_route
        self.core.ports.route(peer.name, [route.pattern for route in routes if peer.name in route.to])
        return port

    def attach(self, carrier: Carrier, peer: str, life: int = 1, *, manager: bool = False) -> int:
        """A connection to that life of a neighbour is there; the port that carries it. `manager`: it is a broker."""
        self._set_clock()
        port = self.core.ports.get(peer)
        if port is None:
            port = self._open(Peer(name=peer))
        self.engine.resume_port(port)
        self._carriers[port] = carrier
        fresh = self._peer_lives.get(peer) != life
        self._peer_lives[peer] = life
        self.core.sessions.open(node_session(port, peer, manager))
        theirs = carrier.other(self).design.config.capabilities
        words = tuple(word for word in self.design.config.capabilities if word in theirs)
        self._give(port, Connected(peer, joins=carrier.joins, fresh=fresh, capabilities=words))
        self._touched(self)
        return port

    def attach_datagrams(self, carrier: Carrier, peer: str) -> int:
        """A datagram link beside the connection: STATUS and probes travel there."""
        partner = self.core.ports.get(peer)
        assert partner is not None
        port = self.engine.open_port(datagram=True, partner=partner)
        self._carriers[port] = carrier
        return port

    def detach(self, peer: str, datagrams: int = -1) -> None:
        """The connection to a neighbour is gone; its port waits for the next one."""
        if not self.running:
            return
        self._set_clock()
        port = self.core.ports.get(peer)
        assert port is not None
        self._carriers.pop(port, None)
        if datagrams >= 0:
            self._carriers.pop(datagrams, None)
            self._free(datagrams)
        self.engine.park_port(port)
        self._give(port, Disconnected())
        self._touched(self)

    def route_to(self, peer: str, pattern: str) -> None:
        """A static topic route, as `[[topic_route]]` in a node's configuration."""
        port = self.core.ports.get(peer)
        assert port is not None
        self.engine.topics.subscribe(port, pattern)

    def _bandwidth(self, port: int) -> float:
        """What trains would say of a line; NaN of one without a limit, as no train can tell."""
        carrier = self._carriers.get(port)
        rate = carrier.rate(self) if carrier is not None else math.inf
        return rate if rate < math.inf else math.nan

    def _configure(self, channels: Sequence[Channel]) -> str:
        """A broker says which channels the node has; links are what the network has joined."""
        for channel in channels:
            if not self.expects(channel.peer):
                self._open(Peer(name=channel.peer, level=channel.level))
                if channel.peer in self.connections:
                    self.connections[channel.peer].dial()
        return ""

    def expects(self, peer: str) -> bool:
        """Whether it knows of a channel to that peer, by its configuration or its broker."""
        return self.core.ports.get(peer) is not None

    # --- management links

    def open_manager(self, manager: Manager, broker: str) -> int:
        """A management link to a broker is there; the port by which the machines know it."""
        port = self._next_manager
        self._next_manager += 1
        self._managers[port] = manager
        self.core.sessions.open(node_session(port, broker, True))
        self._give(port, Connected(broker))
        self._touched(self)
        return port

    def close_manager(self, port: int) -> None:
        """It has ended."""
        if self._managers.pop(port, None) is not None:
            self._give(port, Disconnected())
            self._touched(self)

    def hear(self, port: int, message: Message) -> None:
        """A message of a broker."""
        self._set_clock()
        self._give(port, message)
        self._touched(self)

    # --- clients

    def client(self, name: str, internal: bool = False) -> Client:
        """A new client of this node, or its worker."""
        client = Client(self, name, number_of(f"{self.name}/{name}"), internal)
        self.clients.append(client)
        if self.running:
            client.attach()
        return client

    def open_client(self, client: Client) -> int:
        """A client is attached, or the node itself."""
        port = self.engine.open_port(issuer=client.issuer)
        self._clients[port] = client
        if client is self._own:
            self.core.access.trust(port)
            return port
        self.core.sessions.open(client_session(self.core, port, client.name, client.issuer, client.internal))
        self._give(port, Connected(client.name))
        return port

    def close_client(self, client: Client, leaves: bool = False) -> None:
        """Its connection ends without a word, or with a goodbye; `client.attach` begins another one."""
        port = client.port
        client.detach()
        session = self.core.sessions.get(port)
        if leaves and session is not None:
            session.leaves = True
        self._clients.pop(port, None)
        self._set_clock()
        self.engine.close_port(port)
        self._give(port, Disconnected())
        self._touched(self)

    def subscribe_address(self, port: int, address: str, on: bool) -> None:
        """What is sent to an address at this node goes to that port, or no more."""
        topics = self.engine.topics
        if on:
            topics.subscribe(port, address, KIND)
        else:
            topics.unsubscribe(port, address, KIND)
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
            self._fault(port, error)

    def _fault(self, port: int, error: ProtocolError) -> None:
        self.counts.faults += 1
        self._note(Log("bad frame", "error", {"port": port, "reason": str(error)}))

    def settle(self) -> None:
        """Do what this instant asks for: messages, echoes, timers that are due, then bytes for links and clients."""
        if not self.running or self.paused:
            return
        now_ns, core, engine = self.clock.now_ns, self.core, self.engine
        self._set_clock()
        while engine.deferred:  # definitions that ask for rights are a few at a time
            for port, error in engine.feed_deferred():
                self._fault(port, error)
        if engine.attention:
            self._control(now_ns)
            core.collect()
            if core.busy:
                self._core_ns = 0
        if self._core_ns <= now_ns:
            self._tick(now_ns)
        next_ns = self._core_ns
        member = core.member
        if member is not None:
            member.collect(now_ns)
            member_ns = member.next_tick()
            if member_ns <= now_ns:
                self.carry_out(member.tick(now_ns))
                member.probe(now_ns)
                member_ns = member.next_tick()
            next_ns = min(next_ns, member_ns)
        if engine.held_ns() == 0:
            engine.release_held()
        self.flush()
        held_ns = engine.held_ns()
        if held_ns >= 0:
            next_ns = min(next_ns, now_ns + held_ns)
        if next_ns < NEVER:
            self._wake_at(next_ns)

    def _tick(self, now_ns: int) -> None:
        """What is due at the machines but the member, and what they do in slices."""
        core = self.core
        self.carry_out(core.tick(now_ns))
        while core.busy:
            self.carry_out(core.work())
        self._core_ns = max(core.next_tick(), now_ns + 1)

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

    def _control(self, now_ns: int) -> None:
        counts = self.counts
        for port, payload in self.engine.take_control():
            counts.control_in += 1
            try:
                message = self.codec.decode(payload)
            except ProtocolError as error:
                counts.faults += 1
                self._note(Log("bad message", "error", {"port": port, "reason": str(error)}))
                continue
            if not isinstance(message, MESH) or isinstance(message, Discover):
                self._core_ns = 0
            self.carry_out(self.core.receive(port, message, now_ns))

    # --- effects

    def _give(self, port: int, message: NodeInput) -> None:
        """Something that the driver tells the machines."""
        self._core_ns = 0
        self.carry_out(self.core.receive(port, message, self.clock.now_ns))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the machines ask for."""
        if self.on_effects is not None:
            self.on_effects(effects)
        for effect in effects:
            if isinstance(effect, Send):
                assert isinstance(effect.to, int)
                self._send(effect.to, effect.message)
                continue
            match effect:
                case Publish(topic, body):
                    if self._own is not None:
                        self._own.publish(topic, body)
                case Log():
                    self._note(effect)
                case Close(int() as port, reason):
                    self._close(port, reason)
                case FreePort(port):
                    self._free(port)
                case Dial() | HangUp() if self._dialling is not None:
                    self._dialling(self, effect)
                case AuditIntent(source, _, _, _, _, number):
                    self._core_ns = 0
                    self.carry_out(self.core.receive(source, AuditWritten(number), self.clock.now_ns))
                case Audit(answer=Send(int() as port, message)):
                    self._send(port, message)
                case Delegate(int() as port, message):
                    self._refuse(port, message)

    def _send(self, port: int, message: Message) -> None:
        if port >= MANAGERS:
            if port in self._managers:
                self._managers[port].send(message)
            return
        frame = self.codec.encode(message)
        self.counts.control_out += 1
        self.counts.control_bytes += len(frame)
        if not self.engine.send(port, frame):
            self.counts.full += 1

    def _refuse(self, port: int, message: Message) -> None:
        """Listings and links beside others are not simulated."""
        if isinstance(message, Request | Command):
            reason = f"{type(message).__name__} is not simulated"
            self._send(port, Failed(id=message.id, code="unsupported", reason=reason))

    def _close(self, port: int, reason: str) -> None:
        self.counts.refused += 1
        self._note(Log("connection closed", "warning", {"port": port, "reason": reason}))
        carrier, client = self._carriers.get(port), self._clients.get(port)
        if port in self._managers:
            self._managers[port].end()
        elif carrier is not None:
            carrier.end()
        elif client is not None:
            self.close_client(client)
            client.attach()

    def _free(self, port: int) -> None:
        while not self.engine.free_port(port):
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

    def forwarded(self) -> int:
        """Events handed to other nodes in all lives."""
        return self.counts.events_out + (self._events_out() if self.running else 0)

    def _events_out(self) -> int:
        return sum(self.engine.port_counters(port)["events_out"] for port in self.ports.values())
