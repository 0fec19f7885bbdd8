"""Connections between their handshake and their end: which port carries them, and which machines know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from chappe.core.neighbours import address_of
from chappe.core.node import NodeCore
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.links._socket import clocks
from chappe.links.heartbeat import Heartbeat
from chappe.links.link import Raw
from chappe.links.tick import FlushTick
from chappe.machine import Connected, Disconnected
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.links.peers import Agreement, PeerLink, Peers
from chappe.runtime.shell import Shell
from chappe.security.identity import Identity
from chappe.wire.control import Hello, Welcome
from chappe.wire.management import Entity

log = structlog.get_logger(__name__)

REFUSING = 16  # ports whose refused events are counted in one tick


class Carrier:
    """Attaches connections to ports of the engine and tells the machines of the node that they came or went.

    `linked(port, kind, peer)` is called after a link to another node was attached.
    """

    def __init__(
        self, core: NodeCore, connections: Connections, peers: Peers, datagrams: Datagrams, shell: Shell,
        limits: Limits, linked: Callable[[int, str, str], None],
    ) -> None:  # fmt: skip
        self.limits = limits
        self._core = core
        self._engine = core.engine
        self._connections = connections
        self._peers = peers
        self._datagrams = datagrams
        self._shell = shell
        self._linked = linked
        self._tick: FlushTick

    def begin(self, tick: FlushTick) -> None:
        """The loop runs: `tick` writes what is queued."""
        self._tick = tick

    # --- clients

    def open_client(self, raw: Raw, hello: Hello, welcome: Welcome, identity: Identity, internal: bool) -> Connection:
        """Attach a client; `internal`: a worker of this node."""
        limits = self.limits
        before = self._connections.client(welcome.issuer)
        if before is not None:
            self._connections.abort(before, "its client has connected again")
        clocks(self._engine)
        port = self._engine.open_port(
            queue_bytes=limits.queue_bytes, max_frame=limits.payload, conflate=hello.conflate,
            level=1 if hello.flooded else 0, credit=welcome.credit if "credit" in welcome.capabilities else 0,
            loss="loss" in welcome.capabilities, max_topics=limits.topics, issuer=welcome.issuer,
            epoch=hello.epoch, account="" if internal else str(identity),
        )  # fmt: skip
        if not internal:
            self.limit_rate(port)
        session = Session(
            port, identity.known_as(hello.name), "client", identity, welcome.issuer, internal=internal,
            usage=self._core.sessions.usage(identity.name),
        )  # fmt: skip
        return self._attach(raw, session, welcome.heartbeat_ns, dialled=False)

    def limit_rate(self, port: int) -> None:
        """What a client may send in a second."""
        limits = self.limits
        self._engine.limit_rate(port, limits.rate, limits.burst or max(1, round(limits.rate)))

    def restarted(self, hello: Hello, identity: Identity, issuer: bytes) -> bool:
        """Whether a client was known to this edge by another issuer."""
        entity = Entity(identity.known_as(hello.name), issuer)
        return self._core.edge is not None and self._core.edge.entities.restarted(entity)

    # --- other nodes

    def carry_peer(self, peer: PeerLink, raw: Raw, identity: Identity, agreement: Agreement) -> Connection:
        """A connection carries the port of a peer from now on."""
        if peer.connection is not None:
            self._connections.abort(peer.connection, "connected anew")
        fresh = agreement.process != peer.process
        clocks(self._engine)
        self._engine.resume_port(peer.port)
        session = Session(peer.port, peer.name, "node", identity, manager=peer.manager)
        peer.process = agreement.process
        connection = peer.connection = self._attach(
            raw, session, agreement.heartbeat_ns, agreement.dialled, fresh, agreement.capabilities, agreement.joins
        )
        if connection.lost.is_set() or peer.manager:
            self._tick.soon()
            return connection
        self._linked(peer.port, connection.link.kind, peer.name)
        if agreement.dialled and self._peers.by_datagrams(peer, raw):
            self._datagrams.ask(peer.port)
        elif peer.config.data == "multicast":
            self._datagrams.listen_to(peer.port, peer.config.interface)
        self._tick.soon()
        log.info("peer connected", node=self._core.name, peer=peer.name, address=str(raw.peer), fresh=fresh)
        return connection

    def remove_peer(self, peer: PeerLink, reason: str) -> None:
        """Nobody will connect it again: its port is freed."""
        if peer.connection is not None:
            self._connections.close(peer.connection, reason, "address")
        self._peers.remove(peer)
        self._datagrams.groups.close(peer.port)
        self._shell.perform(self._core.receive(peer.port, Disconnected(final=True), self._engine.mono_ns))

    def remove_absent(self, away_ns: int) -> None:
        """Forget peers that came by themselves and have not come back."""
        now_ns = self._engine.mono_ns
        for peer in self._peers:
            if (
                not peer.listed
                and peer.dialler is None
                and peer.connection is None
                and now_ns - peer.parked_ns > away_ns
            ):
                self.remove_peer(peer, "away")

    # --- both

    def _attach(
        self, raw: Raw, session: Session, heartbeat_ns: int, dialled: bool, fresh: bool = True,
        capabilities: tuple[str, ...] = (), joins: bool = True,
    ) -> Connection:  # fmt: skip
        self._core.sessions.open(session)
        early: list[Exception | None] = []
        holder: list[Connection] = []

        def lost(error: Exception | None) -> None:
            if holder:
                self._connections.ended(holder[0], error)
            else:
                early.append(error)

        link = raw.attach(self._engine, session.port, self._tick, lost)
        session.security = 2 if link.security.secure else 0
        connection = Connection(
            session, link, Heartbeat(heartbeat_ns), self._engine.mono_ns, dialled=dialled, joins=joins
        )
        holder.append(connection)
        self._connections.add(connection, self._engine.mono_ns)
        self._shell.welcome(connection.port)
        if early:
            self._connections.ended(connection, early[0])
        else:
            id = b"" if connection.entry is None else connection.entry.id.bytes
            connected = Connected(session.name, link.kind, link=id, joins=joins, fresh=fresh, capabilities=capabilities)
            self._shell.perform(self._core.receive(session.port, connected, self._engine.mono_ns))
        return connection

    def ended(self, connection: Connection, reason: str) -> None:
        """A connection is over, however that came about."""
        session = connection.session
        log.info("connection ended", node=self._core.name, role=session.role, name=session.name, reason=reason)
        if session.role == "client":
            self._shell.hear_out(session.port)
            self.count_refusals((session.port,))
        self._shell.forget(session)
        self._datagrams.gone(session.port)
        if session.role == "client":
            self._engine.close_port(session.port)
        else:
            self._engine.park_port(session.port)
        self._shell.perform(self._core.receive(session.port, Disconnected(), self._engine.mono_ns))
        if session.role == "client":
            self._tick.soon()
            return
        peer = self._peers.named(session.name)
        if peer is not None and peer.connection is connection:
            peer.connection = None
            peer.parked_ns = self._engine.mono_ns

    def count_refusals(self, ports: Iterable[int] | None = None) -> None:
        """Take from the engine how many events of clients rules refused; without ports, of some that have any."""
        for port in self._engine.refusing()[:REFUSING] if ports is None else ports:
            session = self._core.sessions.get(port)
            taken = self._engine.take_refusals(port)
            if session is not None:
                named = [(address_of(kind, topic) if kind else "", count) for kind, topic, count in taken]
                self._core.access.refusals.count(session.identity, named)
