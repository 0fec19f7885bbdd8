"""One UDP data link beside a control connection, and the moves of STATUS between the two (MR-041).

A move loses nothing and lets nothing overtake. Leaving: what is queued for datagrams is sent, then the stream is held
until the other side has them or a tenth of a second has passed. Coming back: values wait in the queue of a new port
until the other side has said that everything before them has come by the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from chappe.engine._engine import Engine
from chappe.links._datagram import DatagramSession
from chappe.links.datagram import DatagramEndpoint
from chappe.links.link import control_frame
from chappe.links.migration import Constraint, LossRounds, Migration
from chappe.links.registry import LinkEntry, Transports
from chappe.links.tick import FlushTick
from chappe.runtime.links.connections import Connection, Connections
from chappe.wire.control import DatagramClosed, DatagramFence, DatagramReport, Message

BEAT_NS = 500_000_000
LEAVE_NS = 100_000_000  # the stream is held for no longer
RETURN_NS = 5_000_000_000  # values wait for the stream for no longer
PROBES = 20  # datagrams a beat while values go by the stream: a round
LAST_CLASS = 3  # of the queue: behind everything

State = Literal["apart", "leaving", "returning", "together"]  # together: values go by datagrams


@dataclass(slots=True, eq=False)
class DataLink:
    """A session of datagrams; `port` carries it, `control` is the port of its connection."""

    engine: Engine
    connections: Connections
    connection: Connection
    tick: FlushTick
    send: Callable[[int, Message], None]
    endpoint: DatagramEndpoint
    bound: DatagramSession
    port: int
    own_endpoint: bool
    reports: bool  # both sides tell each other what arrives; without that there is no move
    entry: LinkEntry
    constraint: Constraint = field(default_factory=Constraint)
    state: State = "together"
    used: bool = False  # values have gone by it
    next_beat_ns: int = 0
    closing: bool = False
    said: bool = False  # that we send no more
    heard: bool = False  # that the other side sends no more
    migration: Migration = field(init=False)
    rounds: LossRounds = field(default_factory=LossRounds)
    _fence: int = 0
    _last: int = 0  # sequence number after which the stream may go on
    _until_ns: int = 0
    _outlet: int = -1
    _why: str = ""

    def __post_init__(self) -> None:
        self.migration = Migration(self.constraint)
        if self.reports:  # whether datagrams arrive is not known yet
            self.state, self.migration.away = "apart", False
            self._shut()
        else:
            self.used = True

    @property
    def control(self) -> int:
        return self.connection.port

    @property
    def number(self) -> int:
        return self.bound.session

    # --- where values go

    def leave(self, now_ns: int, reason: str) -> bool:
        """Values go by the stream from now on; False if the socket is full, then ask again."""
        self.tick.now()
        if self.engine.pending(self.port):
            return False
        self._shut()
        self._last = self.bound.last_sent
        self._say_fence(now_ns + LEAVE_NS)
        self.tick.now()
        self.connection.link.hold()
        self.state = "leaving"
        self._transports.moved(self.entry, (), reason)
        return True

    def come_back(self, now_ns: int, reason: str) -> bool:
        """Values go by datagrams again; False if the stream is too full to ask for it, then ask again."""
        fence = DatagramFence(link=self.number, fence=self._fence + 1)
        if not self.engine.send(self.control, control_frame(fence), LAST_CLASS):
            return False
        self._fence += 1
        self._until_ns = now_ns + RETURN_NS
        self._outlet = self.engine.open_port(datagram=True, partner=self.control)
        self.state = "returning"
        self._transports.moved(self.entry, ("status",), reason)
        self.tick.soon()
        return True

    def _shut(self) -> None:
        """A second port takes the first one's place beside the control port and goes at once: the first only hears."""
        spare = self.engine.open_port(datagram=True, partner=self.control)
        self.connections.free(spare)

    def _say_fence(self, until_ns: int) -> None:
        self._fence += 1
        self._until_ns = until_ns
        self.send(self.control, DatagramFence(link=self.number, fence=self._fence))

    def _left(self) -> None:
        self.state = "apart"
        self.connection.link.release()
        if self.closing:
            self.say_closed()

    def _back(self) -> None:
        old, self.port, self._outlet = self.port, self._outlet, -1
        self.endpoint.carry(self.number, self.port)
        self._transports.rebound(self.entry, self.port)
        self.connections.free(old)
        self.state, self.used = "together", True
        self.tick.soon()

    # --- what is heard, and time

    def report(self, said: DatagramReport, now_ns: int) -> None:
        """The other side says what has arrived."""
        if self.state == "leaving" and said.fence == self._fence and said.newest >= self._last:
            self._left()
        elif self.state == "returning" and said.fence == self._fence:
            self._back()
        if said.fence or self.closing:
            return
        loss = self.rounds.report(said.newest, said.accepted, self.bound.last_sent)
        if self.state == "apart" and not self.migration.away and said.accepted > 0:
            self.come_back(now_ns, "datagrams arrive")  # the first time: no constraint has spoken
            return
        verdict = None if loss is None else self.migration.judge(loss)
        if verdict == "leave" and not self.leave(now_ns, self.migration.reason()):
            self.migration.away = False  # judged again
        elif verdict == "return" and not self.come_back(now_ns, self.migration.reason()):
            self.migration.away = True

    def own_report(self, fence: int = 0) -> DatagramReport:
        """What has arrived here."""
        return DatagramReport(
            link=self.number, newest=self.bound.newest_accepted, accepted=self.bound.accepted, fence=fence
        )

    def beat(self, now_ns: int) -> None:
        """Called at every tick of the node."""
        if self._until_ns and now_ns >= self._until_ns:
            self._until_ns = 0
            if self.state == "leaving":
                self._left()
            elif self.state == "returning":
                self._back()
        if self.closing:
            self._go_on_closing(now_ns)
        if now_ns < self.next_beat_ns:
            return
        self.next_beat_ns = now_ns + BEAT_NS
        for _ in range(PROBES if self.reports and self.state == "apart" else 1):
            self.engine.heartbeat(self.port)
        if self.reports:
            self.send(self.control, self.own_report())

    # --- the end

    def close(self, now_ns: int, reason: str) -> None:
        """End it without losing a value: both sides go over to the stream first."""
        if not self.closing:
            self.closing, self._why = True, reason
            self._go_on_closing(now_ns)

    def _go_on_closing(self, now_ns: int) -> None:
        if self.state == "together" and self.reports:
            self.leave(now_ns, self._why)
        elif self.state in ("apart", "together"):
            self.say_closed()

    def say_closed(self) -> None:
        """We send no more datagrams."""
        if not self.said:
            self.said = True
            self.send(self.control, DatagramClosed(link=self.number))

    @property
    def over(self) -> bool:
        """Both sides have said so."""
        return self.said and self.heard

    def free(self, reason: str) -> None:
        """Give back everything that it used (MR-039)."""
        if self.state == "leaving":
            self.connection.link.release()
        self.endpoint.unbind(self.number)
        self.connections.free(self.port)
        if self._outlet >= 0:
            self.connections.free(self._outlet)
        if self.own_endpoint:
            self.endpoint.close()
        self._transports.closed(self.entry, reason)

    @property
    def _transports(self) -> Transports:
        return self.connections.transports
