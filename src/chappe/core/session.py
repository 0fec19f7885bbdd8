"""What a node knows of one connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from chappe.core.cursor import Cursor
from chappe.security.config import Action
from chappe.security.identity import Identity
from chappe.security.rules import RuleBook
from chappe.wire.control import Watch

T = TypeVar("T")


class Tally:
    """How many things all connections of one identity have."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Counted(set[T]):
    """A set of one connection, whose size counts for its identity."""

    __slots__ = ("_tally",)

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally

    def add(self, item: T) -> None:
        before = len(self)
        super().add(item)
        self._tally.count += len(self) - before

    def discard(self, item: object) -> None:
        before = len(self)
        super().discard(item)
        self._tally.count += len(self) - before

    def pop(self) -> T:
        item = super().pop()
        self._tally.count -= 1
        return item

    def release(self) -> None:
        """Its connection is over: it counts no more."""
        self._tally.count -= len(self)
        self._tally = Tally()


@dataclass(slots=True)
class Usage:
    """What the connections of one identity have together: opening more of them does not give it more."""

    connections: int = 0
    variables: Tally = field(default_factory=Tally)  # registered
    subscriptions: Tally = field(default_factory=Tally)  # topics, watched variables and patterns of them
    inboxes: Tally = field(default_factory=Tally)

    @property
    def nothing(self) -> bool:
        return not (self.connections or self.variables.count or self.subscriptions.count or self.inboxes.count)


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
    usage: Usage = field(default_factory=Usage)  # of all connections of its identity
    variables: Counted[int] = field(init=False)  # ids it registered
    watched: Counted[int] = field(init=False)  # ids
    subscriptions: Counted[tuple[str, str, str]] = field(init=False)  # (kind, pattern, group)
    finds: Counted[str] = field(init=False)  # patterns of variables that it looks for
    inboxes: Counted[str] = field(init=False)  # addresses of the inboxes that it opened
    advertised: set[tuple[str, str]] = field(default_factory=set)  # (kind, topic or pattern) that it will publish
    names: set[str] = field(default_factory=set)  # that it has at this cell
    waiting: int = 0  # watches that wait for their variable, or for a broker
    wanting: dict[tuple[str, str], Watch] = field(default_factory=dict)  # by name, the last that a broker decides on
    asking: int = 0  # other requests that wait for a broker
    book: RuleBook | None = None  # that said where it may do
    everywhere: frozenset[Action] = frozenset()  # these
    security: int = 0  # what protects its link: 0 nothing, 1 authentic (datagrams beside it), 2 encrypted or local
    cursor: Cursor | None = None  # where its last listing ended

    def __post_init__(self) -> None:
        self.variables = Counted(self.usage.variables)
        self.watched = Counted(self.usage.subscriptions)
        self.subscriptions = Counted(self.usage.subscriptions)
        self.finds = Counted(self.usage.subscriptions)
        self.inboxes = Counted(self.usage.inboxes)

    @property
    def subscribed(self) -> int:
        """What counts for the limit of subscriptions of its identity."""
        return self.usage.subscriptions.count + self.usage.inboxes.count + self.waiting

    def release(self) -> None:
        """It is over: what it had counts no more for its identity."""
        self.usage.connections -= 1
        for each in (self.variables, self.watched, self.subscriptions, self.finds, self.inboxes):
            each.release()
