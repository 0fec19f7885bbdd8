"""The control protocol of a node: requests of clients, announcements of peers and commands of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.core.access_requests import AccessRequests
from chappe.core.answers import failed
from chappe.core.cell_requests import CellRequests
from chappe.core.command_requests import CommandRequests
from chappe.core.commands import Commands
from chappe.core.mesh_requests import MeshRequests
from chappe.core.peer_messages import PeerMessages
from chappe.core.registrations import Registrations
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.topic_requests import TopicRequests
from chappe.core.variable_requests import VariableRequests
from chappe.core.variables import Variables
from chappe.machine import Address as Source
from chappe.machine import AuditWritten, Close, Connected, Delegate, Disconnected, Effect, NodeInput, Send, Suspected
from chappe.wire import control

Answer = Callable[[Session, Any, int], list[Effect]]
DATAGRAM = (
    control.OpenDatagram, control.DatagramOpened, control.DatagramReport, control.DatagramFence, control.DatagramClosed,
)  # fmt: skip


class Control:
    """Gives every message to the part that answers it, by who sent it: a client, another node or a broker.

    `work` and `flush` go on with what one call would take too long for; the driver calls them while `busy`.
    """

    def __init__(
        self,
        sessions: Sessions,
        variables: Variables,
        commands: Commands,
        registrations: Registrations,
        command_requests: CommandRequests,
        variable_requests: VariableRequests,
        topic_requests: TopicRequests,
        mesh_requests: MeshRequests,
        access_requests: AccessRequests,
        cell_requests: CellRequests,
        peer_messages: PeerMessages,
    ) -> None:
        self.advertisements = mesh_requests
        self._sessions = sessions
        self._variables = variables
        self._commands = commands
        self._registrations = registrations
        self._command_requests = command_requests
        self._variable_requests = variable_requests
        self._finder = variable_requests.finder
        self._topics = topic_requests
        self._peer_messages = peer_messages
        self._requests: dict[type[control.Message], Answer] = {
            **variable_requests.answers,
            **topic_requests.answers,
            **mesh_requests.answers,
            **access_requests.answers,
            **cell_requests.answers,
            control.List: self._delegate,
            control.OpenDatagram: self._delegate,
            control.Goodbye: self._leave,
        }
        self._from_peers: dict[type[control.Message], Answer] = {
            **peer_messages.of_nodes,
            **dict.fromkeys(DATAGRAM, self._delegate),
        }
        self._from_brokers = peer_messages.of_brokers

    def limit(self, limits: Limits) -> None:
        """Apply other limits to what is asked from now on."""
        self._variable_requests.limits = self._finder.limits = self._topics.limits = self._peer_messages.limits = limits

    # --- a machine

    def receive(self, source: Source, message: NodeInput, now_ns: int) -> list[Effect]:
        """What follows from one message, or from a connection that came or went."""
        if isinstance(message, AuditWritten):
            return self._command_requests.carry_out(message, now_ns)
        assert isinstance(source, int)
        session = self._sessions.get(source)
        if session is None:
            return []
        if isinstance(message, Connected):
            return self._connected(session, message, now_ns)
        if isinstance(message, Disconnected):
            return self._disconnected(session, now_ns)
        if isinstance(message, Suspected):
            return []
        if isinstance(message, control.Command):
            return self._command_requests.receive(session, message)
        if session.manager:
            known = self._from_brokers
        else:
            known = self._requests if session.role == "client" else self._from_peers
        answer = known.get(type(message))
        if answer is not None:
            return answer(session, message, now_ns)
        kind = type(message).__name__
        if isinstance(message, control.Request) and session.role == "node":
            return [failed(source, message, "unsupported", f"{kind} is a request of clients, {session.name} is a node")]
        return [Close(source, f"{kind} is not expected from a {session.role}")]

    def tick(self, now_ns: int) -> list[Effect]:
        """Answer the watches whose time is over and forget what is away for too long."""
        self._variables.tick(now_ns)
        self._commands.tick(now_ns)
        return self._registrations.tick(now_ns) + self.flush()

    def next_tick(self) -> int:
        """At once while there is something to do; else when the first wait is over."""
        if self.busy or self._variables.behind:
            return 0
        return min(self._registrations.next_tick(), self._variables.next_tick(), self._commands.next_tick())

    @property
    def busy(self) -> bool:
        """Whether `work` or `flush` has something to do."""
        return (
            bool(self._commands.notices)
            or self._topics.busy
            or self._commands.busy
            or self._variables.busy
            or self._registrations.busy
            or self._finder.busy
        )

    @property
    def behind(self) -> bool:
        """Whether the next `tick` should come soon."""
        return self.busy or self._variables.behind

    def work(self) -> list[Effect]:
        """The next slice of a mode change and of what clients left behind; call it again while `busy`."""
        effects = self._variables.work() + self._registrations.work() + self._finder.work()
        self._topics.work()
        return effects + self._command_requests.work()

    def flush(self) -> list[Effect]:
        """What accumulated for peers refused publishers and the broker; called once after a batch of messages."""
        return self._command_requests.notices() + self._variables.flush() + self._registrations.flush()

    # --- connections

    def _connected(self, session: Session, connected: Connected, now_ns: int) -> list[Effect]:
        modes = self._commands.modes
        if session.role == "client":
            return [Send(session.port, modes.state)] if modes.changing else []
        if not session.manager:
            self._variables.peer_up(session.port, connected.fresh, now_ns, "demand" in connected.capabilities)
        return self.flush()

    def _disconnected(self, session: Session, now_ns: int) -> list[Effect]:
        """What a client registered may come back; `FreePort` follows when all of it is forgotten."""
        if session.role == "client":
            self.advertisements.gone(session)
            self._topics.gone(session)
            self._finder.gone(session)
            self._registrations.gone(session)
            self._variables.client_gone(session.port, session.variables, session.watched, now_ns)
        elif not session.manager:
            self._variables.peer_down(session.port, now_ns)
        return self.flush()

    def _leave(self, session: Session, message: control.Goodbye, now_ns: int) -> list[Effect]:
        session.leaves = True
        self._registrations.leave(session, now_ns)
        return []

    def _delegate(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        return [Delegate(session.port, message)]
