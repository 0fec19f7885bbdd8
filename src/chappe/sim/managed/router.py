"""A simulated managed router: the real engine, control protocol, edge, commands and paths, in virtual time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from chappe.core.build import build_node
from chappe.core.sections import BrokerLink, Config, NodeSection, Peer
from chappe.core.session import Session
from chappe.errors import ProtocolError
from chappe.machine import Audit, AuditIntent, AuditWritten, Close, Connected, Disconnected, Effect, FreePort, Log, Send
from chappe.security.identity import dev_identity
from chappe.security.rules import RuleBook
from chappe.sim._pump import dirty, take
from chappe.sim.clock import Clock
from chappe.sim.managed.channel import Channel
from chappe.sim.managed.client import StatusClient
from chappe.sim.managed.links import ManagementLink
from chappe.wire import control, management
from chappe.wire.base import Message
from chappe.wire.frames import Kind, encode_frame

WHOLE = 1 << 30
BROKERS = 1 << 24  # ports of management links begin here: the engine has no part in them
TICK_S = 1.0
SLICES = 10_000  # of work in one instant, at most


class Router:
    """One router (and edge). Between two instants it has nothing left to do."""

    def __init__(self, name: str, role: str, clock: Clock, touched: Callable[[Router], None]) -> None:
        self.name = name
        self.role = role
        self.running = False
        self.lives = 0
        self.down: list[tuple[int, int]] = []  # from, until: when it did not run
        self.links: list[ManagementLink] = []
        self.channels: dict[str, Channel] = {}
        self.clients: list[StatusClient] = []
        self.refused: list[str] = []  # connections and commands that went wrong
        self.installed: dict[tuple[int, int], tuple[management.Path, int]] = {}  # and since when
        self._clock = clock
        self._touched = touched
        self._stopped_ns = clock.now_ns
        self._sent_before: dict[str, int] = {}  # in earlier lives
        self._assemble()

    def _assemble(self) -> None:
        process = hashlib.blake2b(f"{self.name}#{self.lives}".encode(), digest_size=16).digest()
        config = Config(node=NodeSection(name=self.name), broker=BrokerLink(name=self.role, urls=()))
        core = self._core = build_node(
            config, process=process, book=RuleBook.open(), carry_out=self._carry_out, configure=self._configure, seed=1
        )
        self.engine, self.variables, self.paths = core.engine, core.variables, core.paths
        assert core.edge is not None
        self.commands, self.edge, self.control = core.commands, core.edge, core.control
        self._set_clock()
        self._carriers: dict[int, Channel] = {}
        self._attached: dict[int, StatusClient] = {}
        self._managers: dict[int, ManagementLink] = {}
        self._manager_ports: dict[ManagementLink, int] = {}
        self._next_manager = BROKERS
        self.installed = {}
        self._numbers: dict[int, set[int]] = {}  # of the paths of each variable

    def paths_of(self, variable_id: int) -> list[tuple[management.Path, int]]:
        """The paths of one variable in its table, each with the time since when it is there."""
        return [self.installed[variable_id, number] for number in self._numbers.get(variable_id, ())]

    def _set_clock(self) -> None:
        self.engine.clock(self._clock.now_ns, self._clock.wall_ns)

    # --- life

    def start(self) -> None:
        self.running = True
        self.lives += 1
        self.down.append((self._stopped_ns, self._clock.now_ns))
        self._assemble()
        for link in self.links:
            link.dial()
        for client in self.clients:
            client.attach()
        self._clock.after(TICK_S, self._tick, self.lives)
        self._touched(self)

    def stop(self) -> None:
        """The process is gone with everything it held."""
        for peer in self._core.ports.names():
            self._sent_before[peer] = self.sent(peer)
        self.running = False
        self._stopped_ns = self._clock.now_ns
        for client in self.clients:
            client.detach()
        for link in self.links:
            link.end()
        for channel in self.channels.values():
            channel.lose()

    def was_down(self, from_ns: int, until_ns: int) -> bool:
        """Whether it did not run at any time between these."""
        if not self.running and self._stopped_ns <= until_ns:
            return True
        return any(start < until_ns and end > from_ns for start, end in self.down)

    # --- channels

    def _configure(self, channels: Sequence[management.Channel]) -> str:
        for channel in channels:
            if self._core.ports.get(channel.peer) is None:
                self._core.ports.open(Peer(name=channel.peer, level=channel.level))
                if channel.peer in self.channels:
                    self.channels[channel.peer].dial()
        return ""

    def expects(self, peer: str) -> bool:
        return self._core.ports.get(peer) is not None

    def attach(self, channel: Channel, peer: str) -> int:
        port = self._core.ports.get(peer)
        assert port is not None
        self._set_clock()
        self.engine.resume_port(port)
        self._carriers[port] = channel
        self._open(Session(port, peer, "node", dev_identity(peer, "node")))
        return port

    def detach(self, peer: str) -> None:
        port = self._core.ports.get(peer)
        if port is not None and self._carriers.pop(port, None) is not None:
            self._set_clock()
            self.engine.park_port(port)
            self._carry_out(self._core.receive(port, Disconnected(), self._clock.now_ns))
            self._touched(self)

    def sent(self, peer: str) -> int:
        """Status events that went to a peer in all lives of this router."""
        return self._sent_before.get(peer, 0) + self._sent_now(peer)

    def _sent_now(self, peer: str) -> int:
        port = self._core.ports.get(peer)
        return self.engine.port_counters(port)["status_out"] if port is not None and self.running else 0

    # --- brokers

    def linked(self, link: ManagementLink, peer: str, dialled: bool) -> None:
        port = self._next_manager
        self._next_manager += 1
        self._managers[port], self._manager_ports[link] = link, port
        self._open(Session(port, peer, "node", dev_identity(peer, "node"), manager=True))

    def unlinked(self, link: ManagementLink) -> None:
        port = self._manager_ports.pop(link, None)
        if port is not None:
            del self._managers[port]
            self._carry_out(self._core.receive(port, Disconnected(), self._clock.now_ns))
            self._touched(self)

    def heard(self, link: ManagementLink, message: Message) -> None:
        port = self._manager_ports.get(link)
        if port is not None:
            self._set_clock()
            self._carry_out(self._core.receive(port, message, self._clock.now_ns))
            self._observe(message)
            self._touched(self)

    def _observe(self, message: Message) -> None:
        """Remember since when each path is in the table."""
        match message:
            case management.Setup():
                for path in message.paths:
                    key = (path.variable.variable_id, path.path)
                    known = self.installed.get(key)
                    if known is None or known[0] != path:
                        self.installed[key] = (path, self._clock.now_ns)
                        self._numbers.setdefault(key[0], set()).add(key[1])
            case management.Teardown():
                for key in message.paths:
                    if self.installed.pop(key, None) is not None:
                        self._numbers[key[0]].discard(key[1])
            case management.Reset():
                self.installed, self._numbers = {}, {}

    def _open(self, session: Session) -> None:
        self._core.sessions.open(session)
        self._carry_out(self._core.receive(session.port, Connected(session.name), self._clock.now_ns))
        self._touched(self)

    # --- clients

    def client(self, name: str) -> StatusClient:
        """A new client of this edge."""
        client = StatusClient(self, name, self._clock)
        self.clients.append(client)
        if self.running:
            client.attach()
        return client

    def open_client(self, client: StatusClient) -> int:
        self._set_clock()
        port = self.engine.open_port(issuer=client.issuer)
        self._attached[port] = client
        identity = dev_identity(client.name, "client")
        self._open(Session(port, client.name, "client", identity, client.issuer,
                           usage=self._core.sessions.usage(client.name)))  # fmt: skip
        return port

    def close_client(self, port: int) -> None:
        """It says goodbye."""
        del self._attached[port]
        session = self._core.sessions.get(port)
        assert session is not None
        session.leaves = True
        self.engine.close_port(port)
        self._carry_out(self._core.receive(port, Disconnected(), self._clock.now_ns))
        self._touched(self)

    # --- bytes

    def feed(self, port: int, piece: bytes) -> None:
        if not self.running:
            return
        self._set_clock()
        try:
            self.engine.feed(port, piece)
        except ProtocolError as error:
            self.refused.append(f"{self.name}: {error}")
        self._touched(self)

    def settle(self) -> None:
        """Do what this instant asks for, then hand on every queued byte."""
        if not self.running:
            return
        now_ns, engine, node = self._clock.now_ns, self.engine, self._core
        self._set_clock()
        if engine.attention:
            for port, payload in engine.take_control():
                self._carry_out(node.receive(port, control.decode(payload), now_ns))
        for _ in range(SLICES):
            if not node.busy:
                break
            self._carry_out(node.work())
        self._carry_out(self.control.flush())
        if engine.held_ns() == 0:
            engine.release_held()
        self._flush()
        held_ns = engine.held_ns()
        if held_ns > 0:
            self._clock.at(now_ns + held_ns, self._touched, self)

    def _flush(self) -> None:
        engine = self.engine
        while ports := dirty(engine):
            for port in ports:
                channel = self._carriers.get(port)
                if channel is not None:
                    channel.drain(self, port)
                    continue
                client = self._attached.get(port)
                if client is not None:
                    while piece := take(engine, port, WHOLE):
                        client.take(piece)

    def _tick(self, life: int) -> None:
        if life == self.lives and self.running:
            self._set_clock()
            self._carry_out(self._core.tick(self._clock.now_ns))
            self._touched(self)
            self._clock.after(TICK_S, self._tick, life)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(int() as port, message):
                    self._send(port, message)
                case Audit(answer=Send(int() as port, message)):
                    self._send(port, message)
                case AuditIntent(source=int() as port):
                    written = AuditWritten(effect.number)
                    self._carry_out(self._core.receive(port, written, self._clock.now_ns))
                case Close(int() as port, reason):
                    self.refused.append(f"{self.name}: {reason}")
                    if port in self._managers:
                        self._managers[port].end()
                case FreePort(port):
                    while not self.engine.free_port(port):
                        pass
                case Log():
                    pass

    def _send(self, port: int, message: Message) -> None:
        link = self._managers.get(port)
        if link is not None:
            link.send(self, message)
        else:
            self.engine.send(port, encode_frame(Kind.CONTROL, control.encode(message)))
