"""Requests of clients about topics: subscriptions and inboxes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from chappe.core.access import Access
from chappe.core.answers import failed
from chappe.core.inboxes import Inboxes
from chappe.core.requests import bad_subscribe
from chappe.core.roles import Interest
from chappe.core.sections import Limits
from chappe.core.session import Session
from chappe.core.variables import SLICE
from chappe.engine._topics import TopicTable
from chappe.machine import Effect, Send
from chappe.security.patterns import topic_address
from chappe.wire import control


class TopicRequests:
    """Keeps the topic table of the engine, and the interest that the mesh advertises, in step with sessions."""

    def __init__(self, address: str, topics: TopicTable, access: Access, mesh: Interest | None, limits: Limits) -> None:
        self.limits = limits
        self._inboxes = Inboxes(address, topics, access.refusal)
        self._topics = topics
        self._access = access
        self._mesh = mesh
        self._unsubscribing: deque[set[tuple[str, str, str]]] = deque()  # of clients that are gone, for the mesh
        self.answers: dict[type[control.Message], Callable[[Session, Any, int], list[Effect]]] = {
            control.Subscribe: self._subscribe,
            control.Unsubscribe: self._unsubscribe,
            control.OpenInbox: self._open_inbox,
            control.CloseInbox: self._inboxes.close,
        }

    @property
    def busy(self) -> bool:
        """Whether `work` has something to do."""
        return bool(self._unsubscribing)

    def _subscribe(self, session: Session, request: control.Subscribe, now_ns: int) -> list[Effect]:
        problem = bad_subscribe(request)
        if problem:
            return [failed(session.port, request, "invalid", problem)]
        refusal = self._access.refusal(session, request, "subscribe", topic_address(request.kind, request.pattern))
        if refusal:
            return [refusal]
        key = (request.kind, request.pattern, request.group)
        if key not in session.subscriptions and session.subscribed >= self.limits.subscriptions:
            return [self._access.over_limit(session, request, "subscriptions", self.limits.subscriptions)]
        try:
            self._topics.subscribe(session.port, request.pattern, request.kind, request.group, request.backpressure)
        except ValueError as error:
            return [failed(session.port, request, "invalid", str(error))]
        if self._mesh is not None and key not in session.subscriptions:
            self._mesh.subscribed(*key)
        session.subscriptions.add(key)
        return [Send(session.port, control.Done(id=request.id))]

    def _unsubscribe(self, session: Session, request: control.Unsubscribe, now_ns: int) -> list[Effect]:
        key = (request.kind, request.pattern, request.group)
        if key not in session.subscriptions:
            return [failed(session.port, request, "unknown", f"{request.pattern!r} is not subscribed to by you")]
        session.subscriptions.discard(key)
        if self._mesh is not None:
            self._mesh.unsubscribed(*key)
        self._topics.unsubscribe(session.port, request.pattern, request.kind, request.group)
        return [Send(session.port, control.Done(id=request.id))]

    def _open_inbox(self, session: Session, request: control.OpenInbox, now_ns: int) -> list[Effect]:
        if session.subscribed >= self.limits.subscriptions:
            return [self._access.over_limit(session, request, "subscriptions", self.limits.subscriptions)]
        answers = self._inboxes.open(session, request, self.limits.inboxes)
        self._access.refused += any(isinstance(each.message, control.Failed) for each in answers)
        return [*answers]

    def gone(self, session: Session) -> None:
        """A client is gone: `work` takes its interest back."""
        if self._mesh is not None and session.subscriptions:
            self._unsubscribing.append(session.subscriptions)

    def work(self) -> None:
        """Take back a slice of the interest of clients that are gone."""
        left = SLICE
        while self._unsubscribing and left:
            keys = self._unsubscribing[0]
            while keys and left:
                left -= 1
                key = keys.pop()
                if self._mesh is not None:
                    self._mesh.unsubscribed(*key)
            if not keys:
                self._unsubscribing.popleft()
