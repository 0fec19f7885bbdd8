"""Requests of clients that only need a right: to know whether they have one, and to have a link opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.session import Session
from chappe.machine import Delegate, Effect, Send
from chappe.security.rules import ACTIONS
from chappe.wire import control


class AccessRequests:
    """Answers them by the rules of the node, or hands them to the process once they are allowed."""

    def __init__(self, node: str, access: Access) -> None:
        self._node = node
        self._access = access
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.Check: self._check,
            control.OpenLink: self._open_link,
        }

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
