"""People at a broker: what they may ask for, and the record of what became of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import msgspec

from chappe.core.session import Session
from chappe.machine import Audit, AuditIntent, Effect, Send
from chappe.security.config import Action
from chappe.security.rules import RuleBook
from chappe.status.machine import Address
from chappe.wire import control, management
from chappe.wire.base import Done, Failed, Message, Request

ACTIONS: dict[type[Message], Action] = {
    management.ChangeMode: "control",
    management.SetFlood: "control",
    management.ClearFlood: "control",
    management.AddRouter: "admin",
    management.RemoveRouter: "admin",
    management.AddChannel: "admin",
    management.RemoveChannel: "admin",
    management.AddChild: "admin",
    management.RemoveChild: "admin",
}
NOT_HERE: tuple[type[Message], ...] = (
    control.Register, control.Withdraw, control.Watch, control.Unwatch, control.Subscribe, control.Unsubscribe,
)  # fmt: skip
"""What clients ask of routers; a broker forwards nothing."""


class Operators:
    """Clients of a broker; each request is written down with its outcome."""

    def __init__(self, node: str, book: Callable[[], RuleBook]) -> None:
        self._node = node
        self._book = book
        self._asked: dict[int, dict[int, tuple[Session, Request, int]]] = {}  # by port and id, with their intents
        self._intents = count(1)
        self._intended: dict[int, tuple[Session, Request]] = {}  # not written down yet

    def refusal(self, session: Session, request: Request) -> Audit | None:
        """The answer to somebody who may not ask for this."""
        decision = self._book().allows(session.identity, ACTIONS[type(request)], self._target(request))
        if decision:
            return None
        return self._recorded(session, request, 0, Failed(id=request.id, code="denied", reason=decision.reason))

    def intend(self, session: Session, request: Request) -> AuditIntent:
        """Have it written down; `intended` gives it back once that is done."""
        number = next(self._intents)
        self._intended[number] = (session, request)
        return AuditIntent(
            session.port, session.identity, ACTIONS[type(request)], self._target(request),
            msgspec.structs.asdict(request), number,
        )  # fmt: skip

    def intended(self, number: int) -> tuple[Session, Request]:
        """Who asked for what, of an intent that is written down or could not be."""
        return self._intended.pop(number)

    def failed(self, session: Session, request: Request, reason: str, number: int = 0) -> Audit:
        """Nobody here can do this now."""
        return self._recorded(session, request, number, Failed(id=request.id, code="unavailable", reason=reason))

    def asked(self, session: Session, request: Request, number: int) -> Address:
        """A request goes to the broker; the address that stands for who asked."""
        self._asked.setdefault(session.port, {})[request.id] = (session, request, number)
        return f"operator/{session.port}"

    def answer(self, session: Session, message: Message) -> Audit | None:
        """The record of an answer, or None if the message is not one."""
        if not isinstance(message, Done | Failed):
            return None
        known = self._asked.get(session.port, {}).pop(message.id, None)
        return self._recorded(*known, message) if known is not None else None

    def closed(self, session: Session) -> list[Effect]:
        """Nobody waits for the answers any more; that is what is known of what was asked for."""
        gone = self._asked.pop(session.port, {})
        answer = "it may have been done or not: the connection of who asked ended first"
        return [
            msgspec.structs.replace(self.failed(*known[:2], answer, known[2]), answer=None) for known in gone.values()
        ]

    def abandon(self, reason: str) -> list[Effect]:
        """What is under way will not be answered by this process: say so."""
        under_way = [known for requests in self._asked.values() for known in requests.values()]
        self._asked.clear()
        text = f"it may have been done or not: {reason}"
        return [self.failed(session, request, text, number) for session, request, number in under_way]

    def _recorded(self, session: Session, request: Request, number: int, answer: Done | Failed) -> Audit:
        failed = answer if isinstance(answer, Failed) else None
        outcome = "done" if failed is None else "denied" if failed.code == "denied" else "failed"
        return Audit(
            session.identity, ACTIONS[type(request)], self._target(request), outcome, failed.reason if failed else "",
            {} if number else msgspec.structs.asdict(request), Send(session.port, answer), number,
        )  # fmt: skip

    def _target(self, request: Request) -> str:
        return f"{self._node}/{type(request).__name__}"
