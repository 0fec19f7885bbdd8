"""The control protocol of a node: messages of clients and peers in, outputs for the shell out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import structlog

from chappe.core.commands import Commands
from chappe.core.edge import Edge
from chappe.core.inboxes import Inboxes
from chappe.core.listing import Find, listing
from chappe.core.mesh_requests import MeshRequests
from chappe.core.neighbours import NeighbourRules, address_of
from chappe.core.outputs import Close, DataOpened, DataSaid, Intend, OpenData, Output, Record, Send, Work
from chappe.core.refusals import Refusals
from chappe.core.registrations import Registrations, failed
from chappe.core.requests import bad_register, bad_subscribe, bad_watch
from chappe.core.roles import Interest, Role
from chappe.core.sections import Limits
from chappe.core.session import Session, Usage
from chappe.core.variables import SLICE, Variables
from chappe.engine._engine import Engine
from chappe.security.config import Action
from chappe.security.patterns import Pattern, topic_address, variable_address
from chappe.security.rules import ACTIONS, Rights, RuleBook, right_to_send
from chappe.wire import control, management, told
from chappe.wire.mesh import MESH, MeshJoin
from chappe.wire.patterns import topic_text

log = structlog.get_logger(__name__)


class Control:
    """Answers the requests of every port; nothing else changes the tables of a node.

    `facts(request, session)` gives the rows of listings, of which only the shell knows links, clients and counters.
    """

    def __init__(
        self,
        node: str,
        address: str,
        engine: Engine,
        variables: Variables,
        commands: Commands,
        book: RuleBook,
        limits: Limits,
        facts: Find,
        role: Role | None = None,
        edge: Edge | None = None,
        neighbours: NeighbourRules | None = None,
    ) -> None:
        self.role = role
        self.security: Callable[[int], int] = lambda port: 0  # what protects the link of a port, set where links are
        self.mesh: Interest | None = None  # set where the node is in a mesh
        self.book = book
        self.neighbours = neighbours or NeighbourRules(book)
        self.limits = limits
        self.sessions: dict[int, Session] = {}
        self.refused = 0  # actions that a rule or limit forbade
        self._usage: dict[str, Usage] = {}  # by the name of an identity
        self._node = node
        self._engine = engine
        self._variables = variables
        self._commands = commands
        self._facts = facts
        self._registrations = Registrations(
            variables, edge, self.sessions.get, lambda: commands.modes.mode, lambda port: self.security(port)
        )
        self.asked = MeshRequests(node, lambda: self.mesh, self._refusal)
        self.inboxes = Inboxes(address, engine.topics, self._refusal)
        self._working: tuple[Session, control.Command, int] | None = None  # who waits for a mode change
        self._intents = count(1)  # numbers of what is written down before it is done
        self._unsubscribing: deque[set[tuple[str, str, str]]] = deque()  # of clients that are gone, for the mesh
        self.refusals = Refusals()
        self.neighbour_refusals = Refusals("times")
        self._denied: list[Output] = []
        self._requests: dict[type[control.Message], Callable[[Session, Any, int], list[Output]]] = {
            control.Register: self._register,
            control.Withdraw: self._withdraw,
            control.Watch: self._watch,
            control.Unwatch: self._unwatch,
            management.Condense: self._condense,
            management.Uncondense: self._uncondense,
            control.Subscribe: self._subscribe,
            control.Unsubscribe: self._unsubscribe,
            control.OpenInbox: self._open_inbox,
            control.CloseInbox: self.inboxes.close,
            control.Check: self._check,
            control.List: self._list,
            control.OpenDatagram: self._open_datagram,
            control.Goodbye: self._leave,
            **self.asked.answers,
        }
        self._from_peers: dict[type[control.Message], Callable[[Session, Any, int], list[Output]]] = {
            control.Announce: self._announce,
            control.Retract: self._retract,
            control.OpenDatagram: self._open_datagram,
            control.Goodbye: self._goodbye,
            control.DatagramOpened: self._datagram_opened,
            control.DatagramReport: self._datagram_said,
            control.DatagramFence: self._datagram_said,
            control.DatagramClosed: self._datagram_said,
            control.Failed: self._goodbye,
            **dict.fromkeys(MESH, self._meshless),
        }
        self._from_brokers: dict[type[control.Message], Callable[[Session, Any, int], list[Output]]] = {
            management.Lead: self._lead,
            management.Standby: self._standby,
            management.Issued: self._answered,
            management.Granted: self._answered,
            management.Withdrawn: self._withdrawn,
            management.Regranted: self._regranted,
            control.Done: self._answered,
            control.Failed: self._answered,
            control.Goodbye: self._goodbye,
        }

    @property
    def busy(self) -> bool:
        """Whether `work` or `flush` has something to do."""
        return (
            bool(self._commands.notices or self._unsubscribing)
            or self._commands.busy
            or self._variables.busy
            or self._registrations.busy
        )

    @property
    def behind(self) -> bool:
        """Whether the next `tick` should come soon."""
        return self.busy or self._variables.behind

    def connections(self, name: str) -> int:
        """How many connections the clients of that identity have at this node."""
        return self._usage[name].connections if name in self._usage else 0

    def usage(self, name: str) -> Usage:
        """What the clients of that identity have together; `open` follows at once."""
        return self._usage.setdefault(name, Usage())

    def open(self, session: Session) -> None:
        """A port has a connection whose identity is known."""
        self.sessions[session.port] = session
        session.usage.connections += 1

    def opened(self, session: Session, now_ns: int) -> list[Output]:
        """Its connection can be sent to."""
        outputs = self.role.opened(session, now_ns) if self.role is not None else []
        modes, edge = self._commands.modes, self._registrations.edge
        if session.role == "client" and modes.changing:
            outputs.append(Send(session.port, modes.state))
        if edge is None or session.internal:
            return outputs
        if session.manager:
            return outputs + edge.opened(session, now_ns)
        if session.role == "node":
            return outputs + edge.link(session.name, True)
        told, over = edge.arrived(session)
        for memory in over:
            self._registrations.restarted(memory)
        return outputs + told

    def close(self, port: int, now_ns: int) -> list[Output]:
        """A connection is over; what a client registered may come back. `Free` follows when all is forgotten."""
        session = self.sessions.pop(port, None)
        outputs: list[Output] = []
        if session is not None:
            session.release()
            if session.usage.nothing and self._usage.get(session.identity.name) is session.usage:
                del self._usage[session.identity.name]
        if session is not None and self.role is not None:
            outputs = self.role.closed(session, now_ns)
        if session is not None and self.mesh is not None and session.subscriptions:
            self._unsubscribing.append(session.subscriptions)
        if session is not None and session.role == "client":
            self.asked.gone(session)
            self._variables.client_gone(port, session.variables, session.watched, now_ns)
        return outputs + self._departed(session, now_ns) + self._variables.flush()

    def receive(self, port: int, message: control.Message, now_ns: int) -> list[Output]:
        """What to do about one message."""
        session = self.sessions.get(port)
        if session is None:
            return []
        if self.role is not None and self.role.takes(message):
            return self.role.receive(session, message, now_ns)
        if self.mesh is not None and session.role == "node" and not session.manager and self.mesh.takes(message):
            return self.mesh.receive(session.port, message, now_ns)
        if isinstance(message, control.Command):
            return self._command(session, message, now_ns)
        if session.manager:
            known = self._from_brokers
        else:
            known = self._requests if session.role == "client" else self._from_peers
        answer = known.get(type(message))
        if answer is not None:
            return answer(session, message, now_ns)
        kind = type(message).__name__
        if isinstance(message, control.Request) and session.role == "node":
            return [failed(port, message, "unsupported", f"{kind} is a request of clients, {session.name} is a node")]
        return [Close(port, f"{kind} is not expected from a {session.role}")]

    def flush(self) -> list[Output]:
        """What accumulated for peers and refused publishers; called once after a batch of messages."""
        return self._notices() + self._variables.flush()

    def tick(self, now_ns: int) -> list[Output]:
        """Answer the watches whose time is over and forget what is away for too long."""
        self._variables.tick(now_ns)
        self._commands.tick(now_ns)
        outputs: list[Output] = self.role.tick(now_ns) if self.role is not None else []
        if self._registrations.edge is not None:
            outputs += self._registrations.edge.tick(now_ns)
        return outputs + self._registrations.tick(now_ns) + self._notices() + self._variables.flush()

    def authorize(self, port: int, kind: str, topic: bytes) -> bool:
        """Whether a port may publish to a topic; the engine asks once per definition."""
        session = self.sessions.get(port)
        if session is None:
            return False
        if session.role == "node":
            return self._forwards(session, kind, topic)
        text = topic_text(kind, topic)
        action, address = right_to_send(kind, text)
        if told.reserved(kind, topic) or (self.mesh is not None and self.mesh.reserved(kind, topic)):
            reason = f"only nodes publish to {text[:80]!r}: there the mesh tells of itself"
            return self._deny(session, kind, text, address_of(kind, topic), reason)
        decision = self.book.allows(session.identity, action, address)
        if not decision:
            return self._deny(session, kind, text, address_of(kind, topic), decision.reason)
        return True

    def _deny(self, session: Session, kind: str, text: str, address: str, reason: str) -> bool:
        self.refused += 1
        self.refusals.note(session.identity, address, reason)
        self._denied.append(Send(session.port, control.PublishRefused(topic=text, kind=kind, reason=reason)))
        return False

    def denials(self) -> list[Output]:
        """What publishers are told about topics that were refused; they read it before any ECHO of events to them."""
        denied, self._denied = self._denied, []
        return denied

    def _forwards(self, session: Session, kind: str, topic: bytes) -> bool:
        """Whether events of a topic are taken from a neighbour."""
        text = topic_text(kind, topic)
        action, address = right_to_send(kind, text)
        decision = self.neighbours.decide(session.identity.name, action, address)
        if not decision:
            self._neighbour_refused(session, action, address, decision.reason)
            self._denied.append(Send(session.port, control.Failed(id=0, code="denied", reason=decision.reason)))
        return bool(decision)

    def _neighbour_refused(self, session: Session, action: Action, address: str, reason: str) -> None:
        """Counted by the name of the neighbour and the action, and in the log and the audit log."""
        self.refused += 1
        self.neighbours.refused[session.identity.name, action] += 1
        self.neighbour_refusals.add(session.identity, action, address, reason)

    def changed_rules(self, book: RuleBook, now_ns: int) -> list[Session]:
        """Use other rules; neighbours that have asked under others, and must connect again to be decided anew."""
        self.book = book
        nodes = [session for session in self.sessions.values() if session.role == "node"]
        names = self.neighbours.replace(book, [session.identity.name for session in nodes])
        asked = [session for session in nodes if session.identity.name in names]
        for session in asked:
            name = session.identity.name
            denied = [
                variable.variable_id for variable in self._variables.announced_by(session.port)
                if not self.neighbours.registers(name, variable.publisher, variable.variable)
            ]  # fmt: skip
            self._variables.retracted(session.port, denied, now_ns)
        return asked

    def recheck(self, session: Session) -> Iterator[str]:
        """Ask the rules again about the topics of a connection, one with each step; the reason if one is not allowed.

        Variables are asked about by `recheck_variables`, all connections together.
        """
        topics: list[tuple[Action, tuple[str, str]]] = [
            ("subscribe", (kind, pattern)) for kind, pattern, _ in session.subscriptions
        ]
        topics += [("publish", key) for key in session.advertised]
        actions: tuple[Action, ...] = ("subscribe", "publish", "inbox", "confirm")
        rights = {action: self.book.rights(session.identity, action) for action in actions}
        for action, key in topics:
            yield self._lost_right(session, rights[action], action, topic_address(*key))
        if session.inboxes:
            yield self._lost_right(session, rights["inbox"], "inbox", self.inboxes.node)
        start = 0
        while self.sessions.get(session.port) is session:
            defined, start = self._engine.defined_topics(session.port, start, SLICE)
            for kind, topic in defined:
                right = right_to_send(kind, topic_text(kind, topic))
                yield self._lost_right(session, rights[right[0]], *right)
            if not start:
                return

    def recheck_variables(self) -> Iterator[tuple[int, str]]:
        """Ask the rules again about who publishes and watches variables; port and reason where it is not allowed."""
        limited: dict[Action, dict[int, Rights]] = {"register": {}, "watch": {}}
        for port, session in self.sessions.items():
            if session.role == "client" and not session.internal:
                for action, of_port in limited.items():
                    rights = self.book.rights(session.identity, action)
                    if not rights.everywhere:
                        of_port[port] = rights
        if not limited["register"] and not limited["watch"]:
            return
        for entry in self._variables.directory.walk():
            asked: list[tuple[Action, int]] = [("register", entry.owner), *(("watch", port) for port in entry.watchers)]
            for action, port in asked:
                rights_here = limited[action].get(port)
                session_here = self.sessions.get(port)
                if rights_here is None or session_here is None:
                    continue
                reason = self._lost_right(session_here, rights_here, action, variable_address(*entry.name))
                if reason:
                    yield port, reason
            yield -1, ""

    def _lost_right(self, session: Session, rights: Rights, action: Action, address: str) -> str:
        if rights.permit(Pattern.address(address)):
            return ""
        return self.book.allows(session.identity, action, address, whole=True).reason

    # --- variables

    def _register(self, session: Session, request: control.Register, now_ns: int) -> list[Output]:
        problem = bad_register(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "register")
        if refusal is not None:
            return [refusal]
        if session.usage.variables.count >= self.limits.variables:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.owner != session.port:
                return [self._limited(session, request, "variables", self.limits.variables)]
        return self._registrations.register(session, request, now_ns)

    def _withdraw(self, session: Session, request: control.Withdraw, now_ns: int) -> list[Output]:
        return self._registrations.withdraw(session, request, now_ns)

    def _watch(self, session: Session, request: control.Watch, now_ns: int) -> list[Output]:
        problem = bad_watch(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refused_variable(session, request, "watch")
        if refusal is not None:
            return [refusal]
        if self._used(session) >= self.limits.subscriptions:
            entry = self._variables.directory.named(request.publisher, request.variable)
            if entry is None or entry.variable.variable_id not in session.watched:
                return [self._limited(session, request, "subscriptions", self.limits.subscriptions)]
        return self._registrations.watch(session, request, now_ns)

    def _unwatch(self, session: Session, request: control.Unwatch, now_ns: int) -> list[Output]:
        return self._registrations.unwatch(session, request, now_ns)

    def _condense(self, session: Session, request: management.Condense, now_ns: int) -> list[Output]:
        function = request.function
        asked: list[tuple[Action, str]] = [("register", variable_address(function.publisher, function.variable))]
        asked += [("watch", variable_address(each.publisher, each.variable)) for each in function.inputs]
        for action, address in asked:
            refusal = self._refusal(session, request, action, address)
            if refusal is not None:
                return [refusal]
        return self._registrations.condense(session, request, now_ns)

    def _uncondense(self, session: Session, request: management.Uncondense, now_ns: int) -> list[Output]:
        return self._registrations.uncondense(session, request, now_ns)

    # --- the broker

    def _answered(self, session: Session, message: control.Request, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        if isinstance(message, control.Failed) and not message.id:  # no request, but its Join
            log.error("the broker does not take this router", node=self._node, broker=session.name,
                      reason=message.reason)  # fmt: skip
            return []
        return edge.answered(session, message, now_ns) if edge is not None else []

    def _lead(self, session: Session, message: management.Lead, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        return edge.lead(session, message, now_ns) if edge is not None else []

    def _standby(self, session: Session, message: management.Standby, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        return edge.standby(session, message, now_ns) if edge is not None else []

    def _withdrawn(self, session: Session, message: management.Withdrawn, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        return self._registrations.withdrawn(message) if edge is not None and edge.leader == session.port else []

    def _regranted(self, session: Session, message: management.Regranted, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        return self._registrations.regranted(message) if edge is not None and edge.leader == session.port else []

    # --- topics

    def _subscribe(self, session: Session, request: control.Subscribe, now_ns: int) -> list[Output]:
        problem = bad_subscribe(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._refusal(session, request, "subscribe", topic_address(request.kind, request.pattern))
        if refusal:
            return [refusal]
        key = (request.kind, request.pattern, request.group)
        if key not in session.subscriptions and self._used(session) >= self.limits.subscriptions:
            return [self._limited(session, request, "subscriptions", self.limits.subscriptions)]
        try:
            self._engine.topics.subscribe(
                session.port, request.pattern, request.kind, request.group, request.backpressure
            )
        except ValueError as error:
            return [failed(session.port, request, "invalid", str(error))]
        if self.mesh is not None and key not in session.subscriptions:
            self.mesh.subscribed(*key)
        session.subscriptions.add(key)
        return [Send(session.port, control.Done(id=request.id))]

    def _unsubscribe(self, session: Session, request: control.Unsubscribe, now_ns: int) -> list[Output]:
        key = (request.kind, request.pattern, request.group)
        if key not in session.subscriptions:
            return [failed(session.port, request, "unknown", f"{request.pattern!r} is not subscribed to by you")]
        session.subscriptions.discard(key)
        if self.mesh is not None:
            self.mesh.unsubscribed(*key)
        self._engine.topics.unsubscribe(session.port, request.pattern, request.kind, request.group)
        return [Send(session.port, control.Done(id=request.id))]

    def _open_inbox(self, session: Session, request: control.OpenInbox, now_ns: int) -> list[Output]:
        if self._used(session) >= self.limits.subscriptions:
            return [self._limited(session, request, "subscriptions", self.limits.subscriptions)]
        outputs = self.inboxes.open(session, request, self.limits.inboxes)
        self.refused += any(isinstance(each.message, control.Failed) for each in outputs)
        return [*outputs]

    # --- everything else

    def _check(self, session: Session, request: control.Check, now_ns: int) -> list[Output]:
        """Say whether it has a right, and do nothing."""
        action = next((each for each in ACTIONS if each == request.action), None)
        if action is None:
            reason = f"unknown action {request.action[:40]!r}; actions are {', '.join(ACTIONS)}"
            return [failed(session.port, request, "invalid", reason)]
        decision = self.book.allows(session.identity, action, request.address, whole=True)
        if not decision:
            return [failed(session.port, request, "denied", decision.reason)]
        return [Send(session.port, control.Done(id=request.id))]

    def _list(self, session: Session, request: control.List, now_ns: int) -> list[Output]:
        job = listing(self._facts, self.book, session, request, self._count_refusal)
        return [Work(session.port, session.identity.name, job, request.id)]

    def _count_refusal(self) -> None:
        self.refused += 1

    def _open_datagram(self, session: Session, request: control.OpenDatagram, now_ns: int) -> list[Output]:
        return [OpenData(session.port, request.id, request.reports, request.multicast)]

    def _datagram_said(self, session: Session, message: control.Message, now_ns: int) -> list[Output]:
        return [DataSaid(session.port, message)]

    def _datagram_opened(self, session: Session, answer: control.DatagramOpened, now_ns: int) -> list[Output]:
        return [DataOpened(session.port, answer)]

    def _leave(self, session: Session, message: control.Goodbye, now_ns: int) -> list[Output]:
        session.leaves = True
        if self._registrations.edge is not None and not session.internal:
            self._registrations.leave(session, now_ns)
        return []

    def _goodbye(self, session: Session, message: control.Message, now_ns: int) -> list[Output]:
        log.info("told by the other side", link=session.name, message=str(message)[:500])
        return []

    def _meshless(self, session: Session, message: control.Message, now_ns: int) -> list[Output]:
        if isinstance(message, MeshJoin):
            log.info("a neighbour is in a mesh, this node is not: add [mesh] to its file", link=session.name)
        return []

    def _announce(self, session: Session, message: control.Announce, now_ns: int) -> list[Output]:
        if self._registrations.edge is not None:
            log.error("announcement ignored: paths of this node come from its broker", link=session.name)
            return []
        name, taken = session.identity.name, message.variables
        if not self.neighbours.free(name, "register"):
            allowed = []
            for variable in message.variables:
                decision = self.neighbours.registers(name, variable.publisher, variable.variable)
                if decision:
                    allowed.append(variable)
                else:
                    address = f"{variable.publisher}/{variable.variable}"
                    self._neighbour_refused(session, "register", address, decision.reason)
            taken = tuple(allowed)
        refused = self._variables.announced(session.port, taken)
        for reason in refused[:10]:
            log.error("announcement refused", link=session.name, reason=reason)
        outputs: list[Output] = []
        if self._registrations.awaited:
            for variable in taken:
                entry = self._variables.directory.named(variable.publisher, variable.variable)
                if entry is not None:
                    outputs += self._registrations.appeared(entry)
        return outputs

    def _retract(self, session: Session, message: control.Retract, now_ns: int) -> list[Output]:
        self._variables.retracted(session.port, message.variable_ids, now_ns)
        return []

    def _command(self, session: Session, command: control.Command, now_ns: int) -> list[Output]:
        free = "control" in self._free(session)
        target = f"{self._node}/{type(command).__name__}"
        refusal = None if free else self._refusal(session, command, "control", target)
        if refusal:
            return [self._recorded(session, command, refusal.message)]
        number = next(self._intents)
        return [
            Intend(
                session.identity, "control", target, _details(command), number,
                lambda at_ns: self._carry_out(session, command, number, at_ns),
                lambda reason: failed(session.port, command, "unavailable", reason),
            )
        ]  # fmt: skip

    def _carry_out(self, session: Session, command: control.Command, number: int, now_ns: int) -> list[Output]:
        """Its intent is written down."""
        if self.sessions.get(session.port) is not session:
            over = control.Failed(id=command.id, code="unavailable", reason="the connection ended before it was done")
            return [self._recorded(session, command, over, number)]
        answer = self._commands.receive(command, now_ns)
        if answer is None:
            self._working = (session, command, number)
            return []
        return [self._recorded(session, command, answer, number)]

    def _departed(self, session: Session | None, now_ns: int) -> list[Output]:
        edge = self._registrations.edge
        if edge is None or session is None or session.internal:
            return []
        if session.manager:
            return edge.closed(session, now_ns)
        return edge.link(session.name, False) if session.role == "node" else edge.left(session, now_ns)

    def _notices(self) -> list[Output]:
        notices, self._commands.notices = self._commands.notices, []
        clients = [session.port for session in self.sessions.values() if session.role == "client"] if notices else []
        return [Send(port, notice) for notice in notices for port in clients]

    def work(self) -> list[Output]:
        """The next slice of a mode change and of what clients left behind; call it again while `busy`."""
        outputs = self._variables.work() + self._registrations.work()
        self._unsubscribe_some()
        answer = self._commands.work()
        if answer is not None and self._working is not None:
            session, command, number = self._working
            self._working = None
            outputs.append(self._recorded(session, command, answer, number))
        return outputs

    def _unsubscribe_some(self) -> None:
        left = SLICE
        while self._unsubscribing and left:
            keys = self._unsubscribing[0]
            while keys and left:
                left -= 1
                key = keys.pop()
                if self.mesh is not None:
                    self.mesh.unsubscribed(*key)
            if not keys:
                self._unsubscribing.popleft()

    def _recorded(self, session: Session, command: control.Command, answer: control.Message, number: int = 0) -> Record:
        failed = answer if isinstance(answer, control.Failed) else None
        outcome = "done" if failed is None else "denied" if failed.code == "denied" else "failed"
        details = {} if number else _details(command)  # the intent has them
        target = f"{self._node}/{type(command).__name__}"
        reason = failed.reason if failed else ""
        there = self.sessions.get(session.port) is session
        back = Send(session.port, answer) if there else None
        return Record(session.identity, "control", target, outcome, reason, details, back, number)

    def _used(self, session: Session) -> int:
        return session.usage.subscriptions.count + session.usage.inboxes.count + session.waiting

    def _refused_variable(
        self, session: Session, request: control.Register | control.Watch, action: Action
    ) -> Send | None:
        """As `_refusal`, but free of cost for whoever may do this everywhere: floods of variables are common."""
        if session.internal:
            functions = self._commands.functions
            if functions is not None and functions.may(action, request.publisher, request.variable):
                return None
            reason = f"no function of this node has {request.publisher}/{request.variable}"
            return failed(session.port, request, "denied", reason)
        if action in self._free(session):
            return None
        return self._refusal(session, request, action, variable_address(request.publisher, request.variable))

    def _free(self, session: Session) -> frozenset[Action]:
        """What it may do everywhere, so that nothing has to be looked up: asked once for each book of rules."""
        if session.book is not self.book:
            actions: tuple[Action, ...] = ("register", "watch", "control")
            free = frozenset(each for each in actions if self.book.rights(session.identity, each).everywhere)
            session.book, session.everywhere = self.book, free
        return session.everywhere

    def _refusal(
        self, session: Session, request: control.Request, action: Action, address: str, *, whole: bool = False
    ) -> Send | None:
        decision = self.book.allows(session.identity, action, address, whole=whole)
        if decision:
            return None
        self.refused += 1
        return failed(session.port, request, "denied", decision.reason)

    def _limited(self, session: Session, request: control.Request, key: str, limit: int) -> Send:
        self.refused += 1
        reason = f"{session.identity} has {limit} {key}, the most allowed to all its connections (limits.{key})"
        return failed(session.port, request, "limit", reason)


def _details(command: control.Command) -> dict[str, Any]:
    """A command as the audit log shows it: which paths, not all that was said about each."""
    details = msgspec.structs.asdict(command)
    if isinstance(command, management.Setup):
        details["paths"] = [(path.variable.variable_id, path.path, path.source, path.target) for path in command.paths]
    return details
