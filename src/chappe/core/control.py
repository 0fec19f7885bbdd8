"""The control protocol of a node: requests of clients, announcements of peers and commands of brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.command_requests import CommandRequests
from chappe.core.commands import Commands
from chappe.core.edge import Edge
from chappe.core.mesh_requests import MeshRequests
from chappe.core.registrations import Registrations
from chappe.core.requests import bad_register, bad_watch
from chappe.core.roles import Interest
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.topic_requests import TopicRequests
from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.machine import Address as Source
from chappe.machine import AuditWritten, Close, Connected, Delegate, Disconnected, Effect, NodeInput, Send, Suspected
from chappe.security.config import Action
from chappe.security.patterns import variable_address
from chappe.security.rules import ACTIONS
from chappe.wire import control, management
from chappe.wire.mesh import MESH, MeshJoin, Pace

log = structlog.get_logger(__name__)

Answer = Callable[[Session, Any, int], list[Effect]]


class Control:
    """Answers the requests of every port; with `Edge` and the member of the mesh it changes the tables of a node.

    `work` and `flush` go on with what one call would take too long for; the driver calls them while `busy`.
    """

    def __init__(
        self,
        node: str,
        address: str,
        engine: Engine,
        sessions: Sessions,
        access: Access,
        variables: Variables,
        commands: Commands,
        limits: Limits,
        edge: Edge | None = None,
        mesh: Interest | None = None,
    ) -> None:
        self.limits = limits
        self._node = node
        self._sessions = sessions
        self._access = access
        self._variables = variables
        self._commands = commands
        self._edge = edge
        self._registrations = Registrations(variables, edge, sessions, lambda: commands.modes.mode)
        self.advertisements = MeshRequests(node, mesh, access)
        self.topics = TopicRequests(address, engine.topics, access, mesh)
        self._command_requests = CommandRequests(node, commands, access, sessions)
        self._requests: dict[type[control.Message], Answer] = {
            control.Register: self._register,
            control.Withdraw: self._registrations.withdraw,
            control.Watch: self._watch,
            control.Unwatch: self._registrations.unwatch,
            management.Condense: self._condense,
            management.Uncondense: self._registrations.uncondense,
            control.Subscribe: lambda session, request, _: self.topics.subscribe(session, request, self.limits),
            control.Unsubscribe: lambda session, request, _: self.topics.unsubscribe(session, request),
            control.OpenInbox: lambda session, request, _: self.topics.open_inbox(session, request, self.limits),
            control.CloseInbox: self.topics.inboxes.close,
            control.Check: self._check,
            control.List: self._delegate,
            control.OpenDatagram: self._delegate,
            control.OpenLink: self._open_link,
            control.Goodbye: self._leave,
            Pace: self._ignore,
            **self.advertisements.answers,
        }
        self._from_peers: dict[type[control.Message], Answer] = {
            control.Announce: self._announce,
            control.Retract: self._retract,
            control.OpenDatagram: self._delegate,
            control.Goodbye: self._goodbye,
            control.DatagramOpened: self._delegate,
            control.DatagramReport: self._delegate,
            control.DatagramFence: self._delegate,
            control.DatagramClosed: self._delegate,
            control.Failed: self._goodbye,
            **dict.fromkeys(MESH, self._meshless),
        }
        self._from_brokers: dict[type[control.Message], Answer] = {
            management.Withdrawn: self._withdrawn,
            management.Regranted: self._regranted,
            control.Goodbye: self._goodbye,
        }

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
            or self.topics.busy
            or self._commands.busy
            or self._variables.busy
            or self._registrations.busy
        )

    @property
    def behind(self) -> bool:
        """Whether the next `tick` should come soon."""
        return self.busy or self._variables.behind

    def work(self) -> list[Effect]:
        """The next slice of a mode change and of what clients left behind; call it again while `busy`."""
        effects = self._variables.work() + self._registrations.work()
        self.topics.work()
        return effects + self._command_requests.work()

    def flush(self) -> list[Effect]:
        """What accumulated for peers and refused publishers; called once after a batch of messages."""
        return self._command_requests.notices() + self._variables.flush()

    # --- connections

    def _connected(self, session: Session, connected: Connected, now_ns: int) -> list[Effect]:
        modes = self._commands.modes
        if session.role == "client":
            return [Send(session.port, modes.state)] if modes.changing else []
        if not session.manager:
            self._variables.peer_up(session.port, connected.fresh, now_ns)
        return self.flush()

    def _disconnected(self, session: Session, now_ns: int) -> list[Effect]:
        """What a client registered may come back; `FreePort` follows when all of it is forgotten."""
        if session.role == "client":
            self.advertisements.gone(session)
            self.topics.gone(session)
            self._variables.client_gone(session.port, session.variables, session.watched, now_ns)
        elif not session.manager:
            self._variables.peer_down(session.port)
        return self._variables.flush()

    def _leave(self, session: Session, message: control.Goodbye, now_ns: int) -> list[Effect]:
        session.leaves = True
        if self._edge is not None and not session.internal:
            self._registrations.leave(session, now_ns)
        return []

    def _goodbye(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        log.info("message of the other side", link=session.name, message=str(message)[:500])
        return []

    def _delegate(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        return [Delegate(session.port, message)]

    def _ignore(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        return []

    # --- variables

    def _register(self, session: Session, request: control.Register, now_ns: int) -> list[Effect]:
        problem = bad_register(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "register")
        if refusal is not None:
            return [refusal]
        if session.usage.variables.count >= self.limits.variables:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.owner != session.port:
                return [self._access.over_limit(session, request, "variables", self.limits.variables)]
        return self._registrations.register(session, request, now_ns)

    def _watch(self, session: Session, request: control.Watch, now_ns: int) -> list[Effect]:
        problem = bad_watch(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "watch")
        if refusal is not None:
            return [refusal]
        if session.subscribed >= self.limits.subscriptions:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.variable.variable_id not in session.watched:
                return [self._access.over_limit(session, request, "subscriptions", self.limits.subscriptions)]
        return self._registrations.watch(session, request, now_ns)

    def _condense(self, session: Session, request: management.Condense, now_ns: int) -> list[Effect]:
        function = request.function
        asked: list[tuple[Action, str]] = [("register", variable_address(function.publisher, function.variable))]
        asked += [("watch", variable_address(each.publisher, each.variable)) for each in function.inputs]
        for action, address in asked:
            refusal = self._access.refusal(session, request, action, address)
            if refusal is not None:
                return [refusal]
        return self._registrations.condense(session, request, now_ns)

    def _refused_variable(
        self, session: Session, request: control.Register | control.Watch, action: Action
    ) -> Send | None:
        """A refusal, free of cost for whoever may do this everywhere: floods of variables are common."""
        if session.internal:
            functions = self._commands.functions
            if functions is not None and functions.may(action, request.publisher, request.variable):
                return None
            reason = f"no function of this node has {request.publisher}/{request.variable}"
            return failed(session.port, request, "denied", reason)
        if action in self._access.everywhere(session):
            return None
        return self._access.refusal(session, request, action, variable_address(request.publisher, request.variable))

    # --- the broker that leads

    def _withdrawn(self, session: Session, message: management.Withdrawn, now_ns: int) -> list[Effect]:
        return self._registrations.withdrawn(message) if self._led_by(session) else []

    def _regranted(self, session: Session, message: management.Regranted, now_ns: int) -> list[Effect]:
        return self._registrations.regranted(message) if self._led_by(session) else []

    def _led_by(self, session: Session) -> bool:
        return self._edge is not None and self._edge.leader == session.port

    # --- peers

    def _announce(self, session: Session, message: control.Announce, now_ns: int) -> list[Effect]:
        if self._edge is not None:
            log.error("announcement ignored: paths of this node come from its broker", link=session.name)
            return []
        taken = self._access.announced(session, message.variables)
        refused = self._variables.announced(session.port, taken)
        for reason in refused[:10]:
            log.error("announcement refused", link=session.name, reason=reason)
        effects: list[Effect] = []
        if self._registrations.awaited:
            for variable in taken:
                entry = self._variables.directory.named(variable.publisher, variable.variable)
                if entry is not None:
                    effects += self._registrations.appeared(entry)
        return effects

    def _retract(self, session: Session, message: control.Retract, now_ns: int) -> list[Effect]:
        self._variables.retracted(session.port, message.variable_ids, now_ns)
        return []

    def _meshless(self, session: Session, message: control.Message, now_ns: int) -> list[Effect]:
        if isinstance(message, MeshJoin):
            log.info("a neighbour is in a mesh, this node is not: add [mesh] to its file", link=session.name)
        return []

    # --- everything else

    def _check(self, session: Session, request: control.Check, now_ns: int) -> list[Effect]:
        """Say whether it has a right, and do nothing."""
        action = next((each for each in ACTIONS if each == request.action), None)
        if action is None:
            reason = f"unknown action {request.action[:40]!r}; actions are {', '.join(ACTIONS)}"
            return [failed(session.port, request, "invalid", reason)]
        decision = self._access.book.allows(session.identity, action, request.address, whole=True)
        if not decision:
            return [failed(session.port, request, "denied", decision.reason)]
        return [Send(session.port, control.Done(id=request.id))]

    def _open_link(self, session: Session, request: control.OpenLink, now_ns: int) -> list[Effect]:
        refusal = self._access.refusal(session, request, "control", f"{self._node}/OpenLink")
        return [Delegate(session.port, request) if refusal is None else refusal]
