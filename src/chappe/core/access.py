"""What sessions may do at this node: the rules asked, refusals counted, and rules that change asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chappe.core.answers import failed
from chappe.core.neighbours import NeighbourRules, address_of
from chappe.core.refusals import Refusals
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.core.variables import SLICE, Variables
from chappe.engine._engine import Engine
from chappe.machine import Effect, Send
from chappe.security.config import Action
from chappe.security.patterns import CELL, AddressPattern, cell_address, topic_address, variable_address
from chappe.security.rules import Rights, RuleBook, right_to_send
from chappe.wire import control, feeds
from chappe.wire.patterns import topic_text

Reserved = Callable[[str, bytes], bool]


class Access:
    """Asks the rules for everybody; `reserved(kind, topic)` says where only nodes publish."""

    def __init__(self, address: str, book: RuleBook, sessions: Sessions, reserved: Reserved = feeds.reserved) -> None:
        """`address`: of the node."""
        self.book = book
        self.neighbours = NeighbourRules(book)
        self.refused = 0  # actions that a rule or limit forbade
        self.refusals = Refusals()
        self.neighbour_refusals = Refusals("times")
        self._address = address
        self._sessions = sessions
        self._reserved = reserved
        self._denied: list[Effect] = []
        self._own = -1  # port by which the node itself publishes

    # --- requests

    def refusal(
        self, session: Session, request: control.Request | control.Command, action: Action, address: str, *,
        whole: bool = False,
    ) -> Send | None:  # fmt: skip
        """The answer to a request that no rule allows, or None."""
        decision = self.book.allows(session.identity, action, address, whole=whole)
        if decision:
            return None
        self.refused += 1
        return failed(session.port, request, "denied", decision.reason)

    def over_limit(self, session: Session, request: control.Request, key: str, limit: int) -> Send:
        """The answer to a request beyond a limit of its identity."""
        self.refused += 1
        reason = f"{session.identity} has {limit} {key}, the most allowed to all its connections (limits.{key})"
        return failed(session.port, request, "limit", reason)

    def count_refusal(self) -> None:
        """Somebody was refused something elsewhere."""
        self.refused += 1

    def everywhere(self, session: Session) -> frozenset[Action]:
        """What it may do everywhere, so that nothing has to be looked up: asked once for each book of rules."""
        if session.book is not self.book:
            actions: tuple[Action, ...] = ("register", "watch", "control")
            free = frozenset(each for each in actions if self.book.rights(session.identity, each).everywhere)
            session.book, session.everywhere = self.book, free
        return session.everywhere

    # --- publishing: asked by the engine

    def trust(self, port: int) -> None:
        """The node itself publishes by that port."""
        self._own = port

    def authorize(self, port: int, kind: str, topic: bytes) -> bool:
        """Whether a port may publish to a topic; the engine asks once per definition. `denials` follow."""
        session = self._sessions.get(port)
        if session is None:
            return port == self._own
        if kind == CELL:
            return self._may_send(session, topic)
        if session.role == "node":
            return self._forwards(session, kind, topic)
        text = topic_text(kind, topic)
        action, address = right_to_send(kind, text)
        if self._reserved(kind, topic):
            reason = f"only nodes publish to {text[:80]!r}: there the mesh reports about itself"
            return self._deny(session, kind, text, address_of(kind, topic), reason)
        decision = self.book.allows(session.identity, action, address)
        if not decision:
            return self._deny(session, kind, text, address_of(kind, topic), decision.reason)
        return True

    def _may_send(self, session: Session, destination: bytes) -> bool:
        """Whether a client may send parcels to a name, or to all names with a prefix."""
        try:
            name = destination.decode()
        except UnicodeDecodeError:
            return False
        address = cell_address(name)
        decision = self.book.allows(session.identity, "publish", address, whole=name.endswith("*"))
        if not decision:
            return self._deny(session, CELL, name, address, decision.reason)
        return True

    def denials(self) -> list[Effect]:
        """What publishers are sent about topics that were refused; they read it before any ECHO of events to them."""
        denied, self._denied = self._denied, []
        return denied

    def _deny(self, session: Session, kind: str, text: str, address: str, reason: str) -> bool:
        self.refused += 1
        self.refusals.note(session.identity, address, reason)
        self._denied.append(Send(session.port, control.PublishRefused(topic=text, kind=kind, reason=reason)))
        return False

    def _forwards(self, session: Session, kind: str, topic: bytes) -> bool:
        """Whether events of a topic are taken from a neighbour."""
        text = topic_text(kind, topic)
        action, address = right_to_send(kind, text)
        decision = self.neighbours.decide(session.identity.name, action, address)
        if not decision:
            self.refuse_neighbour(session, action, address, decision.reason)
            self._denied.append(Send(session.port, control.Failed(id=0, code="denied", reason=decision.reason)))
        return bool(decision)

    # --- neighbours

    def refuse_neighbour(self, session: Session, action: Action, address: str, reason: str) -> None:
        """Counted by the name of the neighbour and the action, and in the log and the audit log."""
        self.refused += 1
        self.neighbours.refused[session.identity.name, action] += 1
        self.neighbour_refusals.add(session.identity, action, address, reason)

    def announced(self, session: Session, variables: tuple[control.Variable, ...]) -> tuple[control.Variable, ...]:
        """Those of the variables that a neighbour announces which it may announce."""
        name = session.identity.name
        if self.neighbours.free(name, "register"):
            return variables
        allowed = []
        for variable in variables:
            decision = self.neighbours.registers(name, variable.publisher, variable.variable)
            if decision:
                allowed.append(variable)
            else:
                address = f"{variable.publisher}/{variable.variable}"
                self.refuse_neighbour(session, "register", address, decision.reason)
        return tuple(allowed)

    # --- other rules

    def replace(self, book: RuleBook, variables: Variables, now_ns: int) -> list[Session]:
        """Use other rules; neighbours that have asked under others, and must connect again to be decided anew."""
        self.book = book
        nodes = [session for session in self._sessions if session.role == "node"]
        names = self.neighbours.replace(book, [session.identity.name for session in nodes])
        asked = [session for session in nodes if session.identity.name in names]
        for session in asked:
            name = session.identity.name
            denied = [
                variable.variable_id for variable in variables.announced_by(session.port)
                if not self.neighbours.registers(name, variable.publisher, variable.variable)
            ]  # fmt: skip
            variables.retracted(session.port, denied, now_ns)
        return asked

    def recheck(self, session: Session, engine: Engine) -> Iterator[str]:
        """Ask the rules again about the topics of a connection, one with each step; the reason if one is not allowed.

        Variables are asked about by `recheck_variables`, all connections together; about destinations of parcels the
        engine asks again.
        """
        topics: list[tuple[Action, tuple[str, str]]] = [
            ("subscribe", (kind, pattern)) for kind, pattern, _ in session.subscriptions
        ]
        topics += [("publish", key) for key in session.advertised]
        actions: tuple[Action, ...] = ("subscribe", "publish", "watch", "inbox", "confirm", "register")
        rights = {action: self.book.rights(session.identity, action) for action in actions}
        for action, key in topics:
            yield self._lost_right(session, rights[action], action, topic_address(*key))
        for pattern in session.finds:
            yield self._lost_right(session, rights["watch"], "watch", pattern)
        for name in tuple(session.names):
            yield self._lost_right(session, rights["register"], "register", cell_address(name))
        if session.inboxes:
            yield self._lost_right(session, rights["inbox"], "inbox", self._address)
        start = 0
        while self._sessions.has(session):
            defined, start = engine.defined_topics(session.port, start, SLICE)
            for kind, topic in defined:
                right = right_to_send(kind, topic_text(kind, topic))
                yield self._lost_right(session, rights[right[0]], *right)
            if not start:
                return

    def recheck_variables(self, variables: Variables) -> Iterator[tuple[int, str]]:
        """Ask the rules again about who publishes and watches variables; port and reason where it is not allowed."""
        limited: dict[Action, dict[int, Rights]] = {"register": {}, "watch": {}}
        for session in self._sessions.clients():
            if not session.internal:
                for action, of_port in limited.items():
                    rights = self.book.rights(session.identity, action)
                    if not rights.everywhere:
                        of_port[session.port] = rights
        if not limited["register"] and not limited["watch"]:
            return
        for entry in variables.directory.walk():
            asked: list[tuple[Action, int]] = [("register", entry.owner), *(("watch", port) for port in entry.watchers)]
            for action, port in asked:
                rights_here = limited[action].get(port)
                session_here = self._sessions.get(port)
                if rights_here is None or session_here is None:
                    continue
                reason = self._lost_right(session_here, rights_here, action, variable_address(*entry.name))
                if reason:
                    yield port, reason
            yield -1, ""

    def _lost_right(self, session: Session, rights: Rights, action: Action, address: str) -> str:
        if rights.permit(AddressPattern.address(address)):
            return ""
        return self.book.allows(session.identity, action, address, whole=True).reason
