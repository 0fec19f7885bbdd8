"""Runs the member of a node's mesh in its loop: timers, silent neighbours, switches of links, orders of aggregators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from chappe.core.node import NodeCore
from chappe.core.sections import Config
from chappe.errors import RefusedError
from chappe.events.reports import Reports
from chappe.links._socket import clocks
from chappe.links.heartbeat import LinkStatus
from chappe.links.registry import Notice
from chappe.links.tick import FlushTick
from chappe.machine import Connected, Disconnected, Effect, Suspected
from chappe.runtime.links.connections import Connections
from chappe.runtime.links.peers import Peers
from chappe.runtime.mesh.port import OwnPort
from chappe.runtime.mesh.signing import Verifier
from chappe.security.credentials import Credentials
from chappe.wire.control import List

log = structlog.get_logger(__name__)

TICK_S = 0.05  # between two looks at what is due and what came back: the engine stamps arrivals, not this
LOOK_NS = 100_000_000  # between two looks at who is silent
GATHER_S = 0.005  # changes are applied together
SUMMARY_S = 0.02  # between two slices of a summary: some percent of the time
SHORTEST_S = 0.0005  # before something that is held back leaves
JOIN_S = 2.0  # a node that starts waits so long for its neighbours before it serves clients without them

CarryOut = Callable[[list[Effect]], None]


class MeshDriver:
    """Of a node that measures its links or is in a mesh; `carry_out` gets the effects of its member."""

    def __init__(
        self, core: NodeCore, config: Config, connections: Connections, peers: Peers, carry_out: CarryOut,
        reports: Reports | None, credentials: Credentials, verifier: Verifier | None,
    ) -> None:  # fmt: skip
        assert core.member is not None
        assert core.mesh is not None
        self.member = core.member
        self.config = config
        self._core = core
        self._clients = core.mesh
        self._engine = core.engine
        self._connections = connections
        self._peers = peers
        self._carry_out = carry_out
        self._reports = reports
        self._credentials = credentials
        self._verifier = verifier
        self._certificate = credentials.own
        self._tick: FlushTick | None = None
        self._timer: asyncio.Handle | None = None  # uvloop gives one without `when()` for what is due at once
        self._due_s = 0.0  # when it runs, by the clock of the loop
        self._looked_ns = 0
        self._begun_ns = 0
        # Before it knows what others subscribed to, an event of a client would be confirmed and go nowhere.
        self.joined = asyncio.Event()
        if config.mesh is None or not config.peer:
            self.joined.set()

    # --- beginning and end

    def start(self, tick: FlushTick, own: OwnPort) -> None:
        """The node listens: measure; `own` is the port by which the node itself subscribes."""
        self._tick = tick
        self._begun_ns = self._engine.mono_ns
        self._connections.transports.watch(self._noticed)
        for topic in self._reports.topics if self._reports is not None else ():
            own.subscribe(topic, self._ordered)
            self.member.subscribed("s", topic)
        self._run()

    def stop(self) -> None:
        """Measure no more; events go on by the routes that are known."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reload(self, config: Config) -> None:
        """Other credentials: statements of who is not believed any more go, and own ones get the new certificate.

        Rules and sets of factors may be others, too (MR-055).
        """
        self.config = config
        self.member.replan()
        if self._verifier is not None:
            now_ns = self._engine.mono_ns
            self._perform(self.member.revalidate(self._verifier.believed, now_ns))
            if self._certificate != self._credentials.own:
                self._certificate = self._credentials.own
                self._perform(self.member.restate(now_ns))

    # --- links

    def switch(self, port: int, kind: str, name: str) -> None:
        """Measure a link as the switches of its kind of transport say (MR-045), and its factors (MR-055)."""
        switches, initiator = self._connections.transports.switched(kind), self.member.measurement.initiator
        if port not in initiator:
            return
        if switches is not None:
            initiator.switch(port, switches.monitoring)
            initiator.interval(switches.monitoring_ns or 0, port)
        self._choose_factors(port, kind, name)

    def follow_factors(self) -> None:
        """The file may have other sets of factors for links (MR-055)."""
        for entry in self._connections.transports:
            self._choose_factors(entry.port, entry.kind, entry.peer)

    def _choose_factors(self, port: int, kind: str, name: str) -> None:
        """Those of the peer, of its kind of transport, or of the node."""
        link = self.member.links.by_port.get(port)
        if link is None:
            return
        transport, peer = self.config.transport.get(kind), self._peers.named(name)
        factors = peer.config.factors if peer is not None else None
        if factors is None and transport is not None:
            factors = transport.factors
        self.member.measurement.choose_factors(link, factors)

    def _noticed(self, notice: Notice) -> None:
        entry = notice.entry
        if notice.what == "switched":
            self.switch(entry.port, entry.kind, entry.peer)
        elif entry.kind == "udp" and (entry.role == "node" or self._core.measures_clients):
            # a data link beside a connection is a link of its own: it loses what the stream does not (MR-050)
            now_ns = self._engine.mono_ns
            if notice.what == "rebound":
                self.member.receive(notice.before, Disconnected(), now_ns)
            if notice.what in ("opened", "rebound"):
                beside = Connected(f"{entry.peer} (udp)", "udp", lossy=True, joins=False)
                self.member.receive(entry.port, beside, now_ns)
                self.switch(entry.port, entry.kind, entry.peer)
            elif notice.what == "closed":
                self.member.receive(entry.port, Disconnected(), now_ns)

    # --- to see it

    def page_rows(self, what: str, name: str = "") -> list[dict[str, Any]]:
        """The `links`, the `map`, or the `history` of the link of that name, for pages; empty where there is none."""
        if what == "map" and not self.member.settings.mesh:
            return []
        if what == "publications":
            return list(self._core.control.advertisements.rows())
        request = List(id=0, what="measured" if what == "links" else what, of=name)
        try:
            return self._clients.rows(request, self._engine.mono_ns)
        except RefusedError:
            return []

    # --- time

    def _run(self) -> None:
        assert self._tick is not None
        try:
            clocks(self._engine)
            now_ns = self._engine.mono_ns
            self.member.collect(now_ns)
            effects = self._suspected(now_ns) + self.member.tick(now_ns)
            released = self._engine.held_ns() == 0 and self._engine.release_held()
            effects += self._clients.tick(now_ns)
            if effects:
                self._perform(effects)
            elif released or self.member.reroute.busy:
                self._tick.soon()
            if not self.joined.is_set():
                self._await_neighbours(now_ns)
            clocks(self._engine)
            if self.member.probe(self._engine.mono_ns):
                self._tick.now()
        except Exception:
            log.exception("the mesh", node=self._core.name)
        self._run_in(self._tick.loop, self._pause_s())

    def _run_in(self, loop: asyncio.AbstractEventLoop, pause_s: float) -> None:
        self._due_s = loop.time() + pause_s
        self._timer = loop.call_later(pause_s, self._run)

    def _await_neighbours(self, now_ns: int) -> None:
        listed = [peer.name for peer in self._peers if peer.listed and peer.group is None and not peer.manager]
        if self.member.state.synchronised(listed):
            self.joined.set()
        elif now_ns - self._begun_ns > JOIN_S * 1e9:
            self.joined.set()
            log.warning("not all neighbours answer: clients are served without them", node=self._core.name,
                        after_s=JOIN_S)  # fmt: skip

    def _suspected(self, now_ns: int) -> list[Effect]:
        """Neighbours that are silent for longer than they should, and those that are heard again (MR-021)."""
        found: list[Effect] = []
        if now_ns < self._looked_ns + LOOK_NS:
            return found
        self._looked_ns = now_ns
        by_port, links = self._connections.by_port, self.member.links.by_port
        for port in list(self.member.links.ports.values()):
            connection = by_port.get(port)
            if connection is not None:
                silent = connection.heartbeat.status is LinkStatus.SUSPECT
                if silent is not links[port].suspect:
                    found += self.member.receive(port, Suspected(silent), now_ns)
        return found

    def hasten(self) -> None:
        """Something may have changed: if so look at it soon, together with what else changes until then."""
        if self._timer is None or self._tick is None or self.member.next_tick() > self._engine.mono_ns:
            return
        loop = self._tick.loop
        if self._due_s > loop.time() + GATHER_S:
            self._timer.cancel()
            self._run_in(loop, GATHER_S)

    def _pause_s(self) -> float:
        if self.member.busy:
            return 0.0
        if self.member.summarising:
            return SUMMARY_S
        held_ns = self._engine.held_ns()
        return TICK_S if held_ns < 0 else min(TICK_S, max(SHORTEST_S, held_ns / 1e9))

    def _perform(self, effects: list[Effect]) -> None:
        if effects:
            self._carry_out(effects)
        if self._tick is not None:
            self._tick.soon()

    def _ordered(self, topic: str, body: bytes) -> None:
        """An aggregator says something about links of this node."""
        if self._reports is not None:
            self._perform(self._reports.receive(topic, body, self.member, self._engine.mono_ns))
