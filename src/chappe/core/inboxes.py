"""Inboxes of clients at a node: addresses that nobody can guess, subscribe to or see."""

from __future__ import annotations

import hashlib
from typing import Protocol

from chappe.core.answers import failed
from chappe.core.session import Session
from chappe.engine._topics import TopicTable
from chappe.machine import Effect, Send
from chappe.security.config import Action
from chappe.wire import control
from chappe.wire.addresses import ID_BYTES, KIND, confirm_address, inbox_address, redacted

KEY_BYTES = 16


class Refusal(Protocol):
    """Says that something is not allowed, or None."""

    def __call__(
        self, session: Session, request: control.Request, action: Action, address: str, *, whole: bool = False
    ) -> Send | None: ...


class Inboxes:
    """Opens and closes them; they are gone with the session, and the same again when its client comes back.

    The id of an inbox is a hash of the issuer, which the node authenticated, and of a random key that the client keeps
    for itself. So a client has the same inboxes after every reconnection, at this node the same addresses even after
    it was restarted, and nobody who learned an address can open that inbox in the place of its owner.
    """

    def __init__(self, node: str, topics: TopicTable, refusal: Refusal) -> None:
        self.node = node  # its address
        self._topics = topics
        self._refusal = refusal

    def open(self, session: Session, request: control.OpenInbox, limit: int) -> list[Send]:
        """Open one, or give the address of one that is open; of a confirmation inbox there is one a client."""
        if len(request.key) not in (0, KEY_BYTES):
            reason = f"the key of an inbox has {KEY_BYTES} random bytes, not {len(request.key)}"
            return [failed(session.port, request, "invalid", reason)]
        refusal = self._refusal(session, request, "inbox", self.node)
        if refusal is not None:
            return [refusal]
        address = self._address(session.issuer, request.key)
        if address not in session.inboxes:
            if session.usage.inboxes.count >= limit:
                reason = f"{session.identity} has {limit} inboxes at this node, the most allowed (limits.inboxes)"
                return [failed(session.port, request, "limit", reason)]
            self._topics.subscribe(session.port, address, KIND)
            session.inboxes.add(address)
        return [Send(session.port, control.InboxOpened(id=request.id, address=address))]

    def close(self, session: Session, request: control.CloseInbox, now_ns: int) -> list[Effect]:
        """Nothing more arrives there."""
        if request.address not in session.inboxes:
            return [
                failed(session.port, request, "unknown", f"{redacted(request.address)[:80]!r} is no inbox of yours")
            ]
        self._topics.unsubscribe(session.port, request.address, KIND)
        session.inboxes.discard(request.address)
        return [Send(session.port, control.Done(id=request.id))]

    def _address(self, issuer: bytes, key: bytes) -> str:
        if not key:
            return confirm_address(self.node, issuer)
        return inbox_address(self.node, hashlib.blake2b(issuer, key=key, digest_size=ID_BYTES).digest())
