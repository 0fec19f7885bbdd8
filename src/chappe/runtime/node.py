"""A node: engine, links, control protocol and security put together."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from chappe.core.commands import Commands
from chappe.core.control import Control
from chappe.core.edge import Edge
from chappe.core.neighbours import NeighbourRules, address_of
from chappe.core.paths import PathTable
from chappe.core.roles import Role
from chappe.core.sections import Config, Limits, Listen, Peer
from chappe.core.session import Session
from chappe.core.variables import Variables, static_routes
from chappe.engine._engine import Engine
from chappe.errors import ConfigError
from chappe.links._socket import Flusher, clocks
from chappe.links._turns import LoopTurns
from chappe.links.address import Address, parse
from chappe.links.heartbeat import Heartbeat
from chappe.links.kinds import encrypts
from chappe.links.link import Raw
from chappe.links.listen import Listener, listen
from chappe.links.options import LinkOptions
from chappe.links.tick import FlushTick
from chappe.runtime.background import Pacer, in_slices
from chappe.runtime.config.checks import problems
from chappe.runtime.drain import drain as drained
from chappe.runtime.feeds import Telling
from chappe.runtime.functions import Functions
from chappe.runtime.gate import Gate
from chappe.runtime.links.alternates import Alternates
from chappe.runtime.links.connections import Connection, Connections
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.links.groups import Groups
from chappe.runtime.links.management import ManagementLinks
from chappe.runtime.links.peers import PeerLink, Peers
from chappe.runtime.metrics import Snapshot, TurnSample
from chappe.runtime.reception import Admit, Reception
from chappe.runtime.renewal import Renewal
from chappe.runtime.rows import Facts
from chappe.runtime.shell import BROKER_BUDGET_NS, BUDGET_NS, Shell
from chappe.runtime.snapshot import take
from chappe.runtime.ticker import TICK_S, Ticker, rest_s
from chappe.security.audit import AuditLog
from chappe.security.credentials import Credentials
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook
from chappe.wire.control import Goodbye, Hello, Welcome
from chappe.wire.management import Channel, Entity

if TYPE_CHECKING:
    from chappe.runtime.mesh.binding import NodeMesh

log = structlog.get_logger(__name__)

REFUSING = 16  # ports whose refused events are counted in one tick


class Node:
    """One node of the mesh; several may run in one process. `dev`: no authentication, loopback only."""

    def __init__(self, config: Config, *, dev: bool = False) -> None:
        found = problems(config, dev=dev)
        if found:
            raise ConfigError("\n".join(f"configuration: {problem}" for problem in found))
        self.config = config
        self.dev = dev
        self.process = secrets.token_bytes(16)
        self.ready = False
        self.turns: LoopTurns | None = None  # of the loop, while it runs
        self.credentials = Credentials(config.tls, config.tokens)
        own = self.credentials.own
        if own is not None and (own.role, own.name) != ("node", config.node.name):
            raise ConfigError(f"tls.cert: the certificate is for {own}; node.name is {config.node.name!r}")
        self._audit = AuditLog(config.audit) if config.audit else None
        self._book = RuleBook.open() if dev else RuleBook.of(config.rule)
        self._assemble()
        self._listeners: list[Listener] = []

    def _assemble(self) -> None:
        config, name = self.config, self.config.node.name
        self.engine = Engine(
            layout=config.node.layout, authorize=self._authorize, **_engine_limits(config.limits), **self._ways(),
        )  # fmt: skip
        self.engine.topics.place(config.address)
        clocks(self.engine)
        self.engine.status.slot = config.node.mode
        self.connections = Connections(self.engine, self._gone)
        self._ticker = Ticker(name, self._on_tick)
        self.connections.hurry = self._ticker.hurry
        self.peers = Peers(
            name, self.process, self.engine, self._carry_peer, lambda: self.credentials.client,
            config.node.capabilities,
        )  # fmt: skip
        self.peers.certificates = config.tls is not None
        self.peers.offered = lambda: tuple(str(address) for address in self.addresses)
        self.variables = Variables(
            self.engine, config.leaf, static_routes(config), self.peers.port, round(config.node.away_s * 1e9)
        )
        self.rules = NeighbourRules(self._book)
        self.variables.may_send = self.rules.watches
        self.paths = PathTable(
            self.engine, self.variables, self.peers.port, self.rules, lambda: [peer.name for peer in self.peers]
        )
        self.commands = Commands(self.engine, self.paths, self._configure)
        self.edge = self._edge()
        facts = self._facts = Facts(
            name, self.engine, self.variables, self.connections, self.peers, self.paths, self.edge
        )
        self.control = facts.control = Control(
            name, config.address, self.engine, self.variables, self.commands, self._book, config.limits, facts.rows,
            edge=self.edge, neighbours=self.rules,
        )  # fmt: skip
        self.control.security = self.connections.security
        self.datagrams = Datagrams(self.engine, self.connections, self.connections.send)
        self.groups = self.datagrams.groups = Groups(
            self.engine, self.connections, self.connections.send,
            lambda port: self.variables.peer_up(port, False, self.engine.mono_ns),
        )  # fmt: skip
        self.alternates = Alternates(self.engine, self.peers, self.datagrams, self.connections.transports)
        self.shell = Shell(
            self.engine, self.control, self.connections, self._audit, self.datagrams,
            BROKER_BUDGET_NS if config.manages else BUDGET_NS,
        )  # fmt: skip
        self.gate = Gate(self.shell.accounts, Pacer(self.shell.data_bytes))
        self.reception = Reception(
            node=name, address=config.address, process=self.process, connections=self.connections, peers=self.peers,
            gate=self.gate, credentials=None if self.dev else self.credentials,
            limits=config.limits, mode=lambda: self.commands.modes.mode, open_client=self._open_client,
            restarted=self._restarted, capabilities=config.node.capabilities, stamps=config.mesh is not None,
            connected=self.control.connections,
        )  # fmt: skip
        self.functions = self.commands.functions = Functions(name, self._accept_worker)
        facts.functions = self.functions.rows
        self._channels: tuple[Channel, ...] = ()  # that a broker gave this node
        self.renewal = Renewal(name, self.peers, self.connections)
        self.peers.configure(config.peer, config.topic_route)
        self.management = ManagementLinks(self.peers, self._broker_objection)
        self.role = self.control.role = role_of(config, self)
        self.mesh = self._mesh()
        self.telling = Telling(self)
        if self.mesh is not None:
            self.control.mesh, facts.mesh, self.shell.echoes = self.mesh, self.mesh.rows, False
            self.reception.ready = self.mesh.joined
            self.shell.disbelieved = self.mesh.disbelieved

    @property
    def name(self) -> str:
        return self.config.node.name

    @property
    def addresses(self) -> list[Address]:
        """Where it listens, with the real port numbers."""
        return [listener.address for listener in self._listeners] + self.datagrams.addresses

    @property
    def url(self) -> str:
        """The first address it listens on."""
        return str(self.addresses[0])

    async def start(self) -> None:
        """Listen and dial; LinkError or ConfigError if an address cannot be had, and nothing is left open."""
        loop = asyncio.get_running_loop()
        self._measure_turns(loop)
        self.tick = self.shell.tick = FlushTick(loop, Flusher(self.engine), self.shell.arrived)
        self.shell.limit_rates(self.config.limits.rate > 0)
        try:
            if self.role is not None:
                await self.role.open()
            for entry in self.config.listen:
                await self._listen(entry)
            self.groups.follow(self.peers, self.tick)
        except BaseException:
            await self._close_listeners()
            await self.datagrams.close()
            if self.role is not None:
                await self.role.stop()
            self._close_turns()
            raise
        self.reception.datagrams = bool(self.datagrams.addresses)
        self._ticker.start()
        self.telling.start(self.tick)
        self.peers.start()
        if self.config.broker is not None:
            self.management.follow(self.config.broker.urls)
        if self.role is not None:
            await self._start_role(self.role)
        self.ready = True
        await self._administered("start")
        log.info("listening", node=self.name, addresses=[str(address) for address in self.addresses], dev=self.dev)

    async def _start_role(self, role: Role) -> None:
        try:
            await role.start()
        except BaseException:
            await self.stop(drain=False)
            raise

    async def stop(self, drain: bool = True) -> None:
        """End it; `drain`: after everything it accepted was delivered, within node.drain_timeout_s."""
        self.ready = False
        self.reception.draining = True
        await self._close_listeners()
        await self.functions.close()
        if self.role is not None:
            await self.role.stop()
        if drain:
            timeout_s = self.config.node.drain_timeout_s
            await drained(self.engine, self.connections, self.peers, self.tick, timeout_s)
        await self.renewal.stop()
        self.shell.background.stop()
        self.gate.stop()
        await self.management.stop()
        self.telling.stop()
        await self.peers.stop()
        await self.alternates.stop()
        await self.shell.recorded()
        links = [connection.link for connection in self.connections]
        for connection in self.connections:
            farewell = Goodbye(reason=f"{self.name} is going away")
            self.connections.close(connection, "node stopped", message=farewell)
        await asyncio.gather(*(link.wait_closed() for link in links))
        self._ticker.stop()
        self._close_turns()
        await self.datagrams.close()
        if self._audit is not None:
            await self._administered("stop")
            self._audit.close()
        log.info("stopped", node=self.name)

    async def reload(self, config: Config) -> None:
        """Use other limits, rules, certificates, peers and paths. ConfigError leaves everything as it was."""
        found = problems(config, dev=self.dev)
        fixed = ("name", "leaf", "layout")
        found += [f"node.{key}: cannot change while the node runs; restart it" for key in fixed
                  if getattr(config.node, key) != getattr(self.config.node, key)]  # fmt: skip
        if config.listen != self.config.listen:
            found.append("listen: cannot change while the node runs; restart it")
        if (config.tls, config.tokens) != (self.config.tls, self.config.tokens):
            found.append("tls, tokens: names of files cannot change while the node runs; their content may")
        if (config.broker and config.broker.name, config.manages) != (
            self.config.broker and self.config.broker.name, self.config.manages,
        ):  # fmt: skip
            found.append("broker, manages: cannot change while the node runs; restart it")
        for key in ("mesh", "measure", "report", "counters"):
            if getattr(config, key) != getattr(self.config, key):
                found.append(f"{key}: cannot change while the node runs; restart it")
        if found:
            raise ConfigError("\n".join(found))
        book = RuleBook.open() if self.dev else RuleBook.of(config.rule)
        shown = self.credentials.own
        await asyncio.to_thread(self.credentials.reload)
        self.config = config
        self._follow_rules(book)
        if self.mesh is not None:
            self.mesh.reloaded()
        if self.credentials.own != shown:
            self.renewal.begin()
        self.control.limits = self.reception.limits = config.limits
        self.shell.limit_rates(config.limits.rate > 0)
        self.engine.set_limits(**_engine_limits(config.limits))
        for peer in self.peers.configure(self._all_peers(self._channels), config.topic_route):
            self._remove_peer(peer, "no longer in the configuration")
        self.groups.follow(self.peers, self.tick)
        self.peers.start()
        if config.broker is not None:
            for peer in self.management.follow(config.broker.urls):
                self._remove_peer(peer, "no longer in the configuration")
        await in_slices(self.variables.reroute(static_routes(config)), self.shell.data_bytes)
        await in_slices(self._recheck_all(), self.shell.data_bytes)
        self.shell.perform(self.control.flush())
        self.tick.soon()
        log.info("configuration reloaded", node=self.name)
        await self._administered("reload")

    def _follow_rules(self, book: RuleBook) -> None:
        """Use other rules; a neighbour for which they are others connects again, and defines everything anew."""
        now_ns = self.engine.mono_ns
        for session in self.control.changed_rules(book, now_ns):
            connection = self.connections.by_port.get(session.port)
            if connection is not None:
                farewell = Goodbye(reason=f"{self.name} has other rules for {session.name}; connect again")
                self.connections.close(connection, "rules have changed", message=farewell)
        for reason in self.paths.recheck(now_ns)[:10]:
            log.error("a path is over: a rule denies it now", node=self.name, reason=reason)
        if self.mesh is not None:
            self.mesh.other_rules()

    async def _administered(self, what: str) -> None:
        """Write down what somebody at this machine did to the node."""
        if self._audit is not None:
            await asyncio.to_thread(self._audit.record, None, "admin", f"{self.name}/{what}", "done")

    def _measure_turns(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self.turns = self._facts.turns = LoopTurns(loop)
        except RuntimeError:
            log.info("the turns of the loop are not measured: it is no uvloop", node=self.name)

    def _close_turns(self) -> None:
        if self.turns is not None:
            self.turns.close()
            self.turns = self._facts.turns = None

    async def snapshot(self, scrape: bool = False) -> Snapshot:
        """The counters for /metrics, taken in slices so that forwarding does not wait.

        `scrape`: the longest turn of the loop is counted anew from now on.
        """
        listeners = {str(listener.address): listener.counters() for listener in self._listeners}
        listeners |= self.datagrams.socket_counters()
        snapshot = await take(
            self.name, self.engine, self.connections, self.peers, self.variables, self.reception, self.datagrams,
            listeners,
        )  # fmt: skip
        snapshot.paused = self.shell.paused
        snapshot.shares = self.shell.accounts.shown()
        if self.turns is not None:
            recent_ns = self.turns.take_recent() if scrape else self.turns.recent_longest_ns
            snapshot.turns = TurnSample(
                self.turns.counts(), self.turns.busy_ns / 1e9, self.turns.longest_ns / 1e9, recent_ns / 1e9
            )
        snapshot.neighbours = {(name, action): value for (name, action), value in self.rules.refused.items()}
        if self.role is not None:
            snapshot.gauges.update(self.role.gauges())
        if self.mesh is not None:
            snapshot.links, snapshot.stale = self.mesh.samples(), self.mesh.stale()
        return snapshot

    # --- connections

    async def _listen(self, entry: Listen) -> None:
        address = parse(entry.url)
        options = LinkOptions(
            send_buffer=entry.send_buffer, receive_buffer=entry.receive_buffer, backlog=entry.backlog,
            handshake_timeout_s=self.config.limits.handshake_s, gate=self.gate,
        )  # fmt: skip
        if address.scheme == "udp":
            await self.datagrams.listen(address, options, self.tick)
            return
        tls = self.credentials.server if encrypts(address) else None

        async def accepted(raw: Raw) -> None:
            await self.reception.accept(raw, entry)

        self._listeners.append(await listen(address, accepted, tls=tls, options=options))

    async def _accept_worker(self, raw: Raw, admit: Admit) -> None:
        await self.reception.accept(raw, Listen(url=str(raw.peer), roles=("client",)), admit)

    async def _close_listeners(self) -> None:
        for listener in self._listeners:
            await listener.close()

    def _open_client(self, raw: Raw, hello: Hello, welcome: Welcome, identity: Identity, internal: bool) -> Connection:
        limits = self.config.limits
        before = self.connections.client(welcome.issuer)
        if before is not None:
            self.connections.abort(before, "its client has connected again")
        clocks(self.engine)
        port = self.engine.open_port(
            queue_bytes=limits.queue_bytes, max_frame=limits.payload, conflate=hello.conflate,
            level=1 if hello.flooded else 0, credit=welcome.credit if "credit" in welcome.capabilities else 0,
            loss="loss" in welcome.capabilities, max_topics=limits.topics, issuer=welcome.issuer,
            epoch=hello.epoch, account="" if internal else str(identity),
        )  # fmt: skip
        if not internal:
            self._limit_rate(port)
        session = Session(
            port, identity.known_as(hello.name), "client", identity, welcome.issuer, internal=internal,
            usage=self.control.usage(identity.name),
        )  # fmt: skip
        connection = self._attach(raw, session, welcome.heartbeat_ns, False)
        if self.mesh is not None and not internal and not connection.lost.is_set():
            self.mesh.client_up(connection)
        return connection

    def _carry_peer(
        self, peer: PeerLink, raw: Raw, identity: Identity, process: bytes, heartbeat_ns: int, dialled: bool
    ) -> Connection:
        if peer.connection is not None:
            self.connections.abort(peer.connection, "connected anew")
        fresh = process != peer.process
        clocks(self.engine)
        self.engine.resume_port(peer.port)
        session = Session(peer.port, peer.name, "node", identity, manager=peer.manager)
        peer.process = process
        connection = peer.connection = self._attach(raw, session, heartbeat_ns, dialled)
        if connection.lost.is_set() or peer.manager:
            self.tick.soon()
            return connection
        self.variables.peer_up(peer.port, fresh, self.engine.mono_ns)
        if self.mesh is not None:
            self.mesh.peer_up(peer.port, connection)
        self.shell.perform(self.control.flush())
        if dialled and self.peers.by_datagrams(peer, raw):
            self.datagrams.ask(peer.port)
        elif peer.config.data == "multicast":
            self.datagrams.listen_to(peer.port, peer.config.interface)
        self.tick.soon()
        log.info("peer connected", node=self.name, peer=peer.name, address=str(raw.peer), fresh=fresh)
        return connection

    def _attach(self, raw: Raw, session: Session, heartbeat_ns: int, dialled: bool) -> Connection:
        self.control.open(session)
        early: list[Exception | None] = []
        holder: list[Connection] = []

        def lost(error: Exception | None) -> None:
            if holder:
                self.connections.ended(holder[0], error)
            else:
                early.append(error)

        link = raw.attach(self.engine, session.port, self.tick, lost)
        connection = Connection(session, link, Heartbeat(heartbeat_ns), self.engine.mono_ns, dialled=dialled)
        holder.append(connection)
        self.connections.add(connection, self.engine.mono_ns)
        self.shell.welcome(connection.port)
        if early:
            self.connections.ended(connection, early[0])
        else:
            self.shell.perform(self.control.opened(session, self.engine.mono_ns))
        return connection

    def _gone(self, connection: Connection, reason: str) -> None:
        session = connection.session
        log.info("connection ended", node=self.name, role=session.role, name=session.name, reason=reason)
        if session.role == "client":
            self.shell.hear_out(session.port)
            self._count_refusals((session.port,))
        self.shell.forget(session)
        self.datagrams.gone(session.port)
        if self.mesh is not None:
            self.mesh.gone(session)
        if session.role == "client":
            self.engine.close_port(session.port)
            self.shell.perform(self.control.close(session.port, self.engine.mono_ns))
            self.tick.soon()
            return
        self.shell.perform(self.control.close(session.port, self.engine.mono_ns))
        self.variables.peer_down(session.port)
        self.engine.park_port(session.port)
        if self.mesh is not None and not session.manager:
            self.mesh.peer_down(session.port)
        peer = self.peers.named(session.name)
        if peer is not None and peer.connection is connection:
            peer.connection = None
            peer.parked_ns = self.engine.mono_ns

    def _remove_peer(self, peer: PeerLink, reason: str) -> None:
        if peer.connection is not None:
            self.connections.close(peer.connection, reason, "address")
        self.peers.remove(peer)
        if self.mesh is not None:
            self.mesh.peer_removed(peer.port)
        self.groups.close(peer.port)
        self.paths.port_gone(peer.port, self.engine.mono_ns)
        self.variables.peer_gone(peer.port, self.engine.mono_ns)
        self.connections.free(peer.port)

    # --- what brokers say

    def _edge(self) -> Edge | None:
        broker, node = self.config.broker, self.config.node
        if broker is None:
            return None
        away_ns = round(node.away_s * 1e9)
        return Edge(node.name, self.process, broker.name, away_ns, self.commands.fence, self.peers.channels)

    def _restarted(self, hello: Hello, identity: Identity, issuer: bytes) -> bool:
        entity = Entity(identity.known_as(hello.name), issuer)
        return self.edge is not None and self.edge.entities.restarted(entity)

    def _broker_objection(self, identity: Identity) -> str | None:
        decision = self.control.book.allows(identity, "control", f"{self.name}/Lead")
        return None if decision else decision.reason

    def _all_peers(self, channels: Sequence[Channel]) -> tuple[Peer, ...]:
        """Those of the file and those of the broker; what the broker says of a peer in the file is taken over."""
        peers = {peer.name: peer for peer in self.config.peer}
        for channel in channels:
            known = peers.get(channel.peer, Peer(name=channel.peer))
            url, level, data = channel.url or known.url, channel.level, channel.data
            fields = {**msgspec.structs.asdict(known), "url": url, "level": level, "data": data}
            peers[channel.peer] = msgspec.convert(fields, Peer)
        return tuple(peers.values())

    def _configure(self, channels: Sequence[Channel]) -> str:
        """Have these channels and no others (GS-012); the answer says what is wrong with them, or is empty."""
        try:
            peers = self._all_peers(channels)
        except msgspec.ValidationError as error:
            return f"channels: {error}"
        found = problems(msgspec.structs.replace(self.config, peer=peers), dev=self.dev)
        if found:
            return "; ".join(found)
        self._channels = tuple(channels)
        over = self.peers.configure(peers, self.config.topic_route)
        over += [peer for peer in self.peers if not peer.listed]
        for peer in over:
            self._remove_peer(peer, "the broker knows of no such channel")
        self.peers.start()
        return ""

    def _recheck_all(self) -> Iterator[None]:
        """After a reload: rules were asked once per connection and address, so whoever has asked must ask again."""
        for connection in self.connections:
            if connection.lost.is_set() or connection.session.internal:
                continue
            if connection.session.role == "client":
                self._limit_rate(connection.port)
            why = self._lapsed(connection)
            if why:
                self.connections.close(connection, why, "identity")
                continue
            yield
            if connection.session.role == "node":
                continue  # decided by `_follow_rules`
            for problem in self.control.recheck(connection.session):
                if problem:
                    self._end_for_rules(connection, problem)
                    break
                yield
        for port, problem in self.control.recheck_variables():
            connection_there = self.connections.by_port.get(port)
            if connection_there is not None:
                self._end_for_rules(connection_there, problem)
            yield

    def _end_for_rules(self, connection: Connection, problem: str) -> None:
        if not connection.lost.is_set():
            self.connections.close(connection, f"rules have changed: {problem}", "identity")

    def _lapsed(self, connection: Connection) -> str | None:
        return None if self.dev else self.credentials.lapsed(connection.session.identity)

    def _limit_rate(self, port: int) -> None:
        limits = self.config.limits
        self.engine.limit_rate(port, limits.rate, limits.burst or max(1, round(limits.rate)))

    def _ways(self) -> dict[str, Any]:
        if self.config.mesh is None and self.config.measure is None:
            return {}
        from chappe.runtime.mesh.binding import ways_of  # a node that does not measure needs no NumPy

        return ways_of(self)

    def _mesh(self) -> NodeMesh | None:
        if self.config.mesh is None and self.config.measure is None:
            return None
        from chappe.runtime.mesh.binding import NodeMesh

        return NodeMesh(self, self.config.mesh, self.config.measure)

    def _authorize(self, port: int, kind: str, topic: bytes) -> bool:
        if self.telling.is_own(port):
            return True
        allowed = self.control.authorize(port, kind, topic)
        if not allowed:
            self.shell.perform(self.control.denials())
        return allowed

    def _count_refusals(self, ports: Iterable[int]) -> None:
        """Take from the engine how many events of clients rules refused."""
        for port in ports:
            session = self.control.sessions.get(port)
            taken = self.engine.take_refusals(port)
            if session is not None:
                named = [(address_of(kind, topic) if kind else "", count) for kind, topic, count in taken]
                self.control.refusals.count(session.identity, named)

    # --- time

    def _on_tick(self) -> float:
        """Whatever is due; how long the next tick has time."""
        clocks(self.engine)
        now_ns = self.engine.mono_ns
        self.connections.tick(now_ns, time.time_ns(), round(self.config.limits.idle_s * 1e9), self._lapsed)
        self.datagrams.tick(now_ns)
        self.alternates.tick(now_ns)
        self.shell.sweep()
        self._count_refusals(self.engine.refusing()[:REFUSING])
        self.shell.write_down(self.control.refusals.due(now_ns))
        self.shell.write_down(self.control.neighbour_refusals.due(now_ns))
        self.shell.perform(self.control.tick(now_ns))
        away_ns = round(self.config.node.away_s * 1e9)
        for peer in self.peers:
            if not peer.listed and peer.connection is None and now_ns - peer.parked_ns > away_ns:
                self._remove_peer(peer, "away")
        if self.control.busy:
            self.tick.soon()
        else:
            self.tick.now()
        if self.connections.freeing:
            return 0
        waits = self.role is not None or self.connections.restless or self.datagrams.busy or self.control.behind
        return TICK_S if waits else rest_s(self.connections.shortest_ns)


def _engine_limits(limits: Limits) -> dict[str, Any]:
    """What the engine is told of `[limits]` for all ports together."""
    return {
        "memory_bytes": limits.memory_bytes or _memory_budget(), "max_ways": limits.forwarding_entries,
        "account_topics": limits.identity_topics, "account_bytes": limits.identity_queue_bytes,
    }  # fmt: skip


def _memory_budget() -> int:
    """What the engine of a node may hold unless it is told: half of the machine's memory, 1 GiB at most."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2, 1 << 30)


def role_of(config: Config, node: Node) -> Role | None:
    """The role that its configuration gives a node."""
    if config.manages is None:
        return None
    from chappe.runtime.broker.role import BrokerRole  # a router needs no store and no planning

    return BrokerRole(node, config.manages)
