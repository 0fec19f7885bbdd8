"""Commands of brokers as a node takes them: written to the audit log, carried out, answered, each once."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.commands import Commands
from chappe.core.session import Session
from chappe.core.sessions import Sessions
from chappe.machine import Audit, AuditIntent, AuditWritten, Effect, Send
from chappe.wire import control, management


class CommandRequests:
    """Between the sessions of brokers and `Commands`: rights, intents and outcomes."""

    def __init__(self, node: str, commands: Commands, access: Access, sessions: Sessions) -> None:
        self._node = node
        self._commands = commands
        self._access = access
        self._sessions = sessions
        self._numbers = count(1)
        self._intended: dict[int, tuple[Session, control.Command]] = {}  # not written down yet
        self._working: tuple[Session, control.Command, int] | None = None  # who waits for a mode change

    def receive(self, session: Session, command: control.Command) -> list[Effect]:
        """Have it written down, or refuse it."""
        target = f"{self._node}/{type(command).__name__}"
        free = "control" in self._access.everywhere(session)
        refusal = None if free else self._access.refusal(session, command, "control", target)
        if refusal:
            return [self._outcome(session, command, refusal.message)]
        number = next(self._numbers)
        self._intended[number] = (session, command)
        return [AuditIntent(session.port, session.identity, "control", target, _details(command), number)]

    def carry_out(self, written: AuditWritten, now_ns: int) -> list[Effect]:
        """The intent of a command is in the audit log, or could not be written there."""
        number = written.number
        session, command = self._intended.pop(number)
        if written.error:
            return [failed(session.port, command, "unavailable", written.error)]
        if not self._sessions.has(session):
            over = control.Failed(id=command.id, code="unavailable", reason="the connection ended before it was done")
            return [self._outcome(session, command, over, number)]
        answer = self._commands.receive(command, now_ns)
        if answer is None:
            self._working = (session, command, number)
            return []
        return [self._outcome(session, command, answer, number)]

    def work(self) -> list[Effect]:
        """The next slice of a mode change; the answer to its command when it is done."""
        answer = self._commands.work()
        if answer is None or self._working is None:
            return []
        session, command, number = self._working
        self._working = None
        return [self._outcome(session, command, answer, number)]

    def notices(self) -> list[Effect]:
        """What commands have to be known to every client."""
        notices, self._commands.notices = self._commands.notices, []
        clients = [session.port for session in self._sessions.clients()] if notices else []
        return [Send(port, notice) for notice in notices for port in clients]

    def _outcome(self, session: Session, command: control.Command, answer: control.Message, number: int = 0) -> Audit:
        problem = answer if isinstance(answer, control.Failed) else None
        outcome = "done" if problem is None else "denied" if problem.code == "denied" else "failed"
        details = {} if number else _details(command)  # the intent has them
        target = f"{self._node}/{type(command).__name__}"
        reason = problem.reason if problem else ""
        back = Send(session.port, answer) if self._sessions.has(session) else None
        return Audit(session.identity, "control", target, outcome, reason, details, back, number)


def _details(command: control.Command) -> dict[str, Any]:
    """A command as the audit log shows it: which paths, not all that was said about each."""
    details = msgspec.structs.asdict(command)
    if isinstance(command, management.Setup):
        details["paths"] = [(path.variable.variable_id, path.path, path.source, path.target) for path in command.paths]
    return details
