"""Binds the measuring mesh to a node: its member, its own port, its reports, and the time in between."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import structlog

from chappe.core.outputs import Close, Output
from chappe.core.outputs import Send as NodeSend
from chappe.core.sections import Measure
from chappe.core.sections import Mesh as MeshSection
from chappe.core.session import Session
from chappe.engine._engine import Engine
from chappe.engine.rescue import RawOutputs
from chappe.errors import RefusedError
from chappe.events import notices
from chappe.events.member import Log, Measured, Member, Publish, Refuse, Send
from chappe.events.member import Output as MemberOutput
from chappe.links._socket import clocks
from chappe.links.heartbeat import LinkStatus
from chappe.links.registry import Notice
from chappe.links.tick import FlushTick
from chappe.linkstate.units import Address
from chappe.measure import cost
from chappe.runtime.links.connections import Connection
from chappe.runtime.mesh import rows as mesh_rows
from chappe.runtime.mesh.on_demand import MeasureNow
from chappe.runtime.mesh.port import OwnPort
from chappe.runtime.mesh.reports import Reports
from chappe.runtime.mesh.settings import settings_of
from chappe.runtime.mesh.signing import Signer, Verifier
from chappe.runtime.metrics import LinkSample
from chappe.wire.control import List, Message
from chappe.wire.control import Measure as MeasureRequest
from chappe.wire.mesh import Pace

if TYPE_CHECKING:
    from chappe.runtime.node import Node

log = structlog.get_logger(__name__)

TICK_S = 0.05  # between two looks at what is due and what came back: the engine stamps arrivals, not this
LOOK_NS = 100_000_000  # between two looks at who is silent
GATHER_S = 0.005  # changes are applied together
SUMMARY_S = 0.02  # between two slices of a summary: some percent of the time
SHORTEST_S = 0.0005  # before something that is held back leaves
JOIN_S = 2.0  # a node that starts waits so long for its neighbours before it serves clients without them


def ways_of(node: Node) -> dict[str, Any]:
    """What the engine of a node asks about ways: nothing, where it has no `[mesh]`."""
    if node.config.mesh is None:
        return {}

    def publish_way(kind: str, topic: bytes) -> RawOutputs:
        assert node.mesh is not None
        return node.mesh.member.publish_way(kind, topic)

    def forward_way(port: int, way: bytes, kind: str, topic: bytes) -> RawOutputs:
        assert node.mesh is not None
        return node.mesh.member.forward_way(port, way, kind, topic)

    return {"publish_way": publish_way, "forward_way": forward_way}


class NodeMesh:
    """What the node, its control protocol and its pages know of the mesh."""

    def __init__(self, node: Node, mesh: MeshSection | None, measure: Measure | None) -> None:
        self._node = node
        self._engine: Engine = node.engine
        self._measure = measure or Measure()
        self.own: OwnPort | None = None
        for name, formula in mesh.formula.items() if mesh is not None else ():
            if name not in cost.PROFILES:
                cost.register(name, formula)
        signs = mesh is not None and node.config.tls is not None and not node.dev
        self._verifier = Verifier(node.credentials) if signs else None
        self._certificate = node.credentials.own
        self.member = Member(
            Address.parse(mesh.unit if mesh is not None else "", node.name), node.engine,
            settings_of(mesh, self._measure, node.config.report is not None, node.config.node.capabilities),
            random.Random(), sign=Signer(node.credentials) if signs else None, verify=self._verifier,
        )  # fmt: skip
        self.member.withheld = node.rules.withheld
        self._publications = [("s", pattern) for pattern in mesh.publications] if mesh is not None else []
        if self._publications:
            self.member.advertise(lambda: self._publications)
        self._now = MeasureNow(self.member)
        self.reports = Reports(node.name, node.config.report, self.member)
        self._tick: FlushTick | None = None
        self._timer: asyncio.Handle | None = None  # uvloop gives one without `when()` for what is due at once
        self._due_s = 0.0  # when it runs, by the clock of the loop
        self._looked_ns = 0
        self._begun_ns = 0
        # Before it knows what others subscribed to, an event of a client would be confirmed and go nowhere.
        self.joined = asyncio.Event()
        if mesh is None or not node.config.peer:
            self.joined.set()

    # --- beginning and end

    def start(self, tick: FlushTick, own: OwnPort) -> None:
        """The node listens: measure, and publish what is told by its own port."""
        self._tick, self.own = tick, own
        self._begun_ns = self._engine.mono_ns
        self._node.connections.transports.watch(self._noticed)
        for topic in self.reports.topics:
            self.own.subscribe(topic, self._told)
            self.member.subscribed("s", topic)
        self._run()

    def stop(self) -> None:
        """Measure no more; events go on by the ways that are known."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reloaded(self) -> None:
        """Other credentials: statements of who is not believed any more go, and own ones get the new certificate."""
        if self._verifier is None:
            return
        now_ns = self._engine.mono_ns
        self._perform(self.member.revalidate(self._verifier.believed, now_ns))
        if self._certificate != self._node.credentials.own:
            self._certificate = self._node.credentials.own
            self._perform(self.member.restate(now_ns))

    def other_rules(self) -> None:
        """Who may have what is decided anew."""
        self.member.other_ways()

    # --- links

    def peer_up(self, port: int, connection: Connection) -> None:
        """A link to another node carries bytes."""
        name, kind, entry = connection.session.name, connection.link.kind, connection.entry
        id = b"" if entry is None else entry.id.bytes
        self._perform(self.member.up(port, name, self._engine.mono_ns, kind=kind, id=id))
        self._switch(port, kind)

    def _switch(self, port: int, kind: str) -> None:
        """Measure a link as the switches of its kind of transport say (MR-045)."""
        switches, initiator = self._node.connections.transports.switched(kind), self.member.measurement.initiator
        if switches is not None and port in initiator:
            initiator.switch(port, switches.monitoring)
            if switches.monitoring_ns is not None:
                initiator.interval(switches.monitoring_ns, port)

    def _noticed(self, notice: Notice) -> None:
        entry = notice.entry
        if notice.what == "switched":
            self._switch(entry.port, entry.kind)
        elif entry.kind == "udp" and (entry.role == "node" or self._measure.clients):
            # a data link beside a connection is a link of its own: it loses what the stream does not (MR-050)
            if notice.what == "rebound":
                self.member.leave(notice.before)
            if notice.what in ("opened", "rebound"):
                name = f"{entry.peer} (udp)"
                self.member.attend(entry.port, name, self._engine.mono_ns, kind="udp", lossy=True)
                self._switch(entry.port, entry.kind)
            elif notice.what == "closed":
                self.member.leave(entry.port)

    def peer_down(self, port: int) -> None:
        """It does no more."""
        self._perform(self.member.down(port, self._engine.mono_ns))

    def peer_removed(self, port: int) -> None:
        """Nobody will connect it again: its port is about to be freed."""
        self._perform(self.member.removed(port, self._engine.mono_ns))

    def client_up(self, connection: Connection) -> None:
        """A client is attached; its link is measured if the file says so (MR-002)."""
        if self._measure.clients:
            name, kind = connection.session.name, connection.link.kind
            self.member.attend(connection.port, name, self._engine.mono_ns, kind=kind)

    def gone(self, session: Session) -> None:
        """The connection of a client ended."""
        if session.role == "client":
            self.member.leave(session.port)
            self._now.gone(session.port)

    # --- the control protocol

    def takes(self, message: Message) -> bool:
        """Whether it is a message of the mesh."""
        return self.member.takes(message)

    def receive(self, port: int, message: Message, now_ns: int) -> list[Output]:
        """A message of a neighbour."""
        outputs = self._converted(self.member.receive(port, message, now_ns))
        self._hasten()
        return outputs

    def reserved(self, kind: str, topic: bytes) -> bool:
        """Whether the mesh tells of itself there."""
        return self.member.settings.mesh and notices.reserved(kind, topic)

    def subscribed(self, kind: str, pattern: str, group: str) -> None:
        """A client wants events of that pattern."""
        try:
            self.member.subscribed(kind, pattern, group)
        except RefusedError as error:
            log.warning("a subscription is served at this node only", node=self._node.name, reason=str(error))
        self._hasten()

    def unsubscribed(self, kind: str, pattern: str, group: str) -> None:
        """It does not any more."""
        self.member.unsubscribed(kind, pattern, group)
        self._hasten()

    def advertised(self, patterns: Collection[tuple[str, str]]) -> None:
        """What clients of this node publish, beside what its file says (MR-133)."""
        if self.member.settings.mesh:
            self.member.advertise(lambda: dict.fromkeys([*self._publications, *patterns]))
            self._hasten()

    def publications(self) -> Iterator[dict[str, Any]]:
        """What is advertised, by node or unit."""
        if not self.member.settings.mesh:
            return iter(())
        may = self._node.rules.publishes
        rows = mesh_rows.publications(self.member)
        return (row for row in rows if row["level"] or may(row["at"], row["kind"], row["topic"]))

    def measure(self, port: int, request: MeasureRequest, now_ns: int) -> list[Output]:
        """Measure links now, or as often as it says; RefusedError says why not (MR-072)."""
        outputs = self._now.receive(port, request, now_ns)
        self._hasten()
        return outputs

    def paced(self, port: int, message: Pace) -> None:
        """A client says how often it wants to be probed at most (MR-072)."""
        self._perform(self.member.paced(port, message))

    # --- to see it

    def rows(self, request: List) -> list[dict[str, Any]]:
        """The rows of a listing; RefusedError says why there are none."""
        return mesh_rows.rows(self.member, request, self._engine.mono_ns)

    def page_rows(self, what: str, name: str = "") -> list[dict[str, Any]]:
        """The `links`, the `map`, or the `history` of the link of that name, for pages; empty where there is none."""
        if what == "map" and not self.member.settings.mesh:
            return []
        if what == "publications":
            return list(self._node.control.asked.rows())
        try:
            return self.rows(List(id=0, what="measured" if what == "links" else what, of=name))
        except RefusedError:
            return []

    def disbelieved(self, neighbour: str) -> int:
        """How much that a neighbour said was refused."""
        return self.member.state.refused.get(neighbour, 0)

    def stale(self) -> dict[str, int]:
        """Statements that were refused for their time, by speaker."""
        return dict(self.member.state.stale)

    def samples(self) -> list[LinkSample]:
        """What /metrics shows of links."""
        return mesh_rows.samples(self.member)

    # --- time

    def _run(self) -> None:
        assert self._tick is not None
        try:
            clocks(self._engine)
            now_ns = self._engine.mono_ns
            self.member.arrived(now_ns)
            outputs = self._suspected(now_ns) + self.member.tick(now_ns)
            released = self._engine.held_ns() == 0 and self._engine.release_held()
            answers = self._now.tick(now_ns)
            if answers:
                self._node.shell.perform(answers)
            if outputs or answers:
                self._perform(outputs)
            elif released or self.member.rescue.busy:
                self._tick.soon()
            if not self.joined.is_set():
                self._await_neighbours(now_ns)
            clocks(self._engine)
            if self.member.probe(self._engine.mono_ns):
                self._tick.now()
        except Exception:
            log.exception("the mesh", node=self._node.name)
        self._run_in(self._tick.loop, self._pause_s())

    def _run_in(self, loop: asyncio.AbstractEventLoop, pause_s: float) -> None:
        self._due_s = loop.time() + pause_s
        self._timer = loop.call_later(pause_s, self._run)

    def _await_neighbours(self, now_ns: int) -> None:
        listed = [peer.name for peer in self._node.peers if peer.listed and peer.group is None and not peer.manager]
        if self.member.state.synchronised(listed):
            self.joined.set()
        elif now_ns - self._begun_ns > JOIN_S * 1e9:
            self.joined.set()
            log.warning("not all neighbours answer: clients are served without them", node=self._node.name,
                        after_s=JOIN_S)  # fmt: skip

    def _suspected(self, now_ns: int) -> list[MemberOutput]:
        """Neighbours that are silent for longer than they should, and those that are heard again (MR-021)."""
        found: list[MemberOutput] = []
        if now_ns < self._looked_ns + LOOK_NS:
            return found
        self._looked_ns = now_ns
        by_port, links = self._node.connections.by_port, self.member.links.by_port
        for port in list(self.member.links.ports.values()):
            connection = by_port.get(port)
            if connection is not None:
                silent = connection.heartbeat.status is LinkStatus.SUSPECT
                if silent is not links[port].suspect:
                    found += self.member.suspect(port, silent, now_ns)
        return found

    def _hasten(self) -> None:
        """Something has changed: look at it soon, together with what else changes until then."""
        if self._timer is None or self._tick is None or self.member.next_ns() > self._engine.mono_ns:
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

    def _perform(self, outputs: list[MemberOutput]) -> None:
        if outputs:
            self._node.shell.perform(self._converted(outputs))
        if self._tick is not None:
            self._tick.soon()

    def _converted(self, outputs: list[MemberOutput]) -> list[Output]:
        """What the shell is to do; what the node itself does is done."""
        found: list[Output] = []
        readings: list[Measured] = []
        for output in outputs:
            match output:
                case Send(port, message):
                    found.append(NodeSend(port, message))
                case Publish(topic, body, content_type):
                    self._publish(topic, body, content_type)
                case Refuse(port, reason):
                    log.error("neighbour refused", node=self._node.name, port=port, reason=reason)
                    found.append(Close(port, reason, "address"))
                case Log(event, level, fields):
                    getattr(log, level)(event, node=self._node.name, **fields)
                case Measured():
                    readings.append(output)
        if readings:
            for topic, body, content_type in self.reports.measured(readings, self._engine.mono_ns, time.time_ns()):
                self._publish(topic, body, content_type)
        return found

    def _publish(self, topic: str, body: bytes, content_type: str) -> None:
        if self.own is not None:
            self.own.publish(topic, body, content_type)

    def _told(self, topic: str, body: bytes) -> None:
        for answer, text, content_type in self.reports.received(topic, body, self._engine.mono_ns):
            self._publish(answer, text, content_type)
        while self.reports.advised:
            self._perform(self.member.advised(self.reports.advised.pop(), self._engine.mono_ns))
