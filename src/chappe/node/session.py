"""What a node knows of one connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chappe.security.config import Action
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook

if TYPE_CHECKING:
    from chappe.node.listing import Cursor


@dataclass(slots=True)
class Session:
    """One connection after its handshake, or one peer whether it is connected or not."""

    port: int
    name: str  # of a client: its proven name, and what it calls itself if that is another one
    role: str
    identity: Identity
    issuer: bytes = b""  # of a client: who publishes its events
    manager: bool = False  # a broker that this node dialled
    internal: bool = False  # a worker of this node: needs no broker
    leaves: bool = False  # a client that said goodbye: it is not expected back
    variables: set[int] = field(default_factory=set)  # ids it registered
    watched: set[int] = field(default_factory=set)  # ids
    subscriptions: set[tuple[str, str, str]] = field(default_factory=set)  # (kind, pattern, group)
    advertised: set[tuple[str, str]] = field(default_factory=set)  # (kind, topic or pattern) that it will publish
    waiting: int = 0  # watches that wait for their variable, or for a broker
    asking: int = 0  # other requests that wait for a broker
    book: RuleBook | None = None  # that said where it may do
    everywhere: frozenset[Action] = frozenset()  # these
    cursor: Cursor | None = None  # where its last listing ended
