from collections.abc import Callable, Iterable
from typing import Any

from chappe.client._inbox import Subscription
from chappe.client._outbox import Outbox
from chappe.client._status import StatusStream, Watch
from chappe.client._watches import WatchTable
from chappe.client.topics import Topic
from chappe.engine._stack import Stack

class ClientCore(Stack):
    """One connection of a client, over all its reconnections; port 0 carries it."""

    outbox: Outbox
    watches: WatchTable
    floods: WatchTable
    flood: StatusStream | None
    schedule: Callable[[], object] | None
    write: Callable[[], object] | None
    on_control: Callable[[bytes], None] | None
    on_progress: Callable[[], None] | None
    on_full: Callable[[Subscription | StatusStream], None] | None
    on_unnamed: Callable[[list[Watch]], None] | None
    on_failure: Callable[[Exception], None] | None
    scheduled: bool
    live_clock: bool
    heard_ns: int
    datagram_heard_ns: int

    def __init__(self, *, queue_bytes: int = ..., status_bytes: int = ..., max_frame: int = ...) -> None: ...
    def connected(self, *, max_payload: int = ..., max_topics: int = ..., credit: int = 0, hold: bool = False) -> None:
        """The handshake of a new connection is over: definitions and events that are kept go out (again)."""
    def release_events(self) -> None:
        """Send the events that `connected` held back."""
    def close(self) -> None:
        """The connection is gone: events wait for the next one, the rest is forgotten."""
    @property
    def ready(self) -> bool: ...
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
    ) -> bool:
        """True: the event is in the queue and will reach the node. False: the queue is full, nothing happened."""
    def publish_many(self, topic: Topic, bodies: Iterable[bytes], priority: int = 3) -> int:
        """How many of the bodies, from the first on, are in the queue."""
    def write_now(self) -> None:
        """Write what is queued in this moment instead of at the end of the tick."""
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
    def heartbeat(self) -> None: ...
    def open_datagrams(self) -> None:
        """Port 1 carries datagrams; values use it from the first echo on."""
    def close_datagrams(self) -> None: ...
    def probe_datagrams(self) -> None: ...
    @property
    def by_datagrams(self) -> bool: ...
    def add_subscription(self, subscription: Subscription) -> None: ...
    def remove_subscription(self, subscription: Subscription) -> bool: ...
    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Every frame in the bytes, whole or cut anywhere. ProtocolError: the connection must be closed."""
    @property
    def losses(self) -> tuple[int, int]: ...
    @property
    def allocations(self) -> int: ...
    def counters(self) -> dict[str, int]: ...
