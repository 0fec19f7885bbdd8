"""What a node may be beside a node: a role gets the messages that are meant for it and answers them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from chappe.core.outputs import Output
from chappe.wire.control import Measure, Message
from chappe.wire.mesh import Pace

if TYPE_CHECKING:
    from chappe.core.session import Session


class Role(Protocol):
    """Everything is called in the loop of the node; what takes long is done elsewhere and told to `Shell.perform`."""

    async def open(self) -> None:
        """What it needs before anybody may connect; whoever dials meanwhile is refused and tries again."""

    async def start(self) -> None:
        """The node listens: begin."""

    async def stop(self) -> None:
        """The node ends; its connections are still there."""

    def opened(self, session: Session, now_ns: int) -> list[Output]:
        """A connection whose identity is known: a client, a node that came, or one that this node dials."""

    def closed(self, session: Session, now_ns: int) -> list[Output]:
        """It is over."""

    def takes(self, message: Message) -> bool:
        """Whether messages of this kind are for the role, whoever sends them."""

    def receive(self, session: Session, message: Message, now_ns: int) -> list[Output]:
        """A message it takes."""

    def tick(self, now_ns: int) -> list[Output]:
        """Called every 20 ms."""

    def rows(self, what: str) -> list[dict[str, Any]] | None:
        """The rows of a listing; None: it knows of no such listing. Who asks has the right to administrate.

        RefusedError says why it cannot answer now.
        """

    def gauges(self) -> dict[str, float]:
        """What /metrics shows of it, as `chappe_NAME`."""


class Interest(Protocol):
    """The mesh as the control protocol knows it."""

    def takes(self, message: Message) -> bool:
        """Whether messages of this kind, of other nodes, are for the mesh."""

    def receive(self, port: int, message: Message, now_ns: int) -> list[Output]:
        """One that it takes."""

    def reserved(self, kind: str, topic: bytes) -> bool:
        """Whether only nodes publish there."""

    def advertised(self, patterns: Collection[tuple[str, str]]) -> None:
        """What clients of this node publish, as (kind, topic or pattern); it is read at the next tick."""

    def publications(self) -> Iterator[dict[str, Any]]:
        """What is advertised elsewhere in the mesh."""

    def measure(self, port: int, request: Measure, now_ns: int) -> list[Output]:
        """A client asks for measurements; RefusedError says why there are none."""

    def paced(self, port: int, message: Pace) -> None:
        """A client says how often it wants to be probed at most."""

    def subscribed(self, kind: str, pattern: str, group: str) -> None:
        """A client wants events of that pattern."""

    def unsubscribed(self, kind: str, pattern: str, group: str) -> None:
        """It does not any more."""
