from asyncio import Future
from collections.abc import Callable, Iterable
from typing import Any, Literal, overload

from chappe.client._outbox import Outbox
from chappe.client._parcels import Parcels
from chappe.client.topics import Topic
from chappe.engine._stack import Stack

class Sender(Stack):
    """What a client sends over one connection (port 0) and its datagrams (port 1)."""

    outbox: Outbox
    schedule: Callable[[], object] | None
    write: Callable[[], object] | None
    on_durable: Callable[..., Any] | None
    scheduled: bool
    live_clock: bool
    stamping: bool
    ahead_ns: int
    datagram_heard_ns: int

    @overload
    def publish(
        self,
        topic: Topic,
        body: bytes | bytearray | memoryview,
        priority: int = 3,
        *,
        created: int | None = None,
        expires: int | None = None,
        reply: Topic | None = None,
        correlation: int | None = None,
        content_type: str | None = None,
        properties: dict[str, Any] | None = None,
        origin: str | None = None,
        durable: Literal[False] = False,
    ) -> bool:
        """True: the event is in the queue and will reach the node. False: the queue is full, nothing happened."""
    @overload
    def publish(
        self,
        topic: Topic,
        body: bytes | bytearray | memoryview,
        priority: int = 3,
        *,
        created: int | None = None,
        expires: int | None = None,
        reply: Topic | None = None,
        correlation: int | None = None,
        content_type: str | None = None,
        properties: dict[str, Any] | None = None,
        durable: Literal[True],
    ) -> Future[str]:
        """The name of the archive that has stored it, when it has."""
    def publish_durable(
        self,
        topic: Topic,
        body: bytes | bytearray | memoryview,
        priority: int = 3,
        *,
        created: int | None = None,
        expires: int | None = None,
        reply: Topic | None = None,
        correlation: int | None = None,
        content_type: str | None = None,
        properties: dict[str, Any] | None = None,
        origin: str | None = None,
    ) -> int | None:
        """The sequence number of the event, marked as durable; None: the queue is full, nothing happened."""
    def publish_many(self, topic: Topic, bodies: Iterable[bytes], priority: int = 3) -> int:
        """How many of the bodies, from the first on, are in the queue."""
    def write_now(self) -> None:
        """Write what is queued in this moment instead of at the end of the tick."""
    def go_on(self, sequence: int, resent: bool = False) -> None:
        """Number the next events from behind this one; `resent`: some may have been sent by another process."""
    def flush(self) -> int:
        """The serial that `flushed` reaches when the node has all that was published until now."""
    def acknowledge_soon(self) -> None: ...
    @property
    def flushed(self) -> int: ...
    @property
    def queued(self) -> int: ...
    @property
    def has_room(self) -> bool: ...
    def send_control(self, payload: bytes) -> None: ...
    @property
    def parcels(self) -> Parcels:
        """The flows of this client."""
    def send_parcels(self) -> None:
        """Write what flows have to send at the end of the tick."""
    def heartbeat(self) -> None: ...
    def open_datagrams(self) -> None:
        """Port 1 carries datagrams; values use it from the first echo on."""
    def close_datagrams(self) -> None: ...
    def probe_datagrams(self) -> None: ...
    @property
    def by_datagrams(self) -> bool: ...
