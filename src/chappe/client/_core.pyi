from collections.abc import Callable

from chappe.client._inbox import Subscription
from chappe.client._sender import Sender
from chappe.client._status import StatusStream, Watch
from chappe.client._watches import WatchTable
from chappe.client.topics import Topic

class ClientCore(Sender):
    """One connection of a client, over all its reconnections; port 0 carries it."""

    watches: WatchTable
    floods: WatchTable
    flood: StatusStream | None
    on_control: Callable[[bytes], None] | None
    on_progress: Callable[[], None] | None
    on_full: Callable[[Subscription | StatusStream], None] | None
    on_unnamed: Callable[[list[Watch]], None] | None
    on_failure: Callable[[Exception], None] | None
    heard_ns: int

    def __init__(self, *, queue_bytes: int = ..., status_bytes: int = ..., max_frame: int = ...) -> None: ...
    def connected(self, *, max_payload: int = ..., max_topics: int = ..., credit: int = 0, hold: bool = False) -> None:
        """The handshake of a new connection is over: definitions and events that are kept go out (again)."""
    def release_events(self) -> None:
        """Send the events that `connected` held back."""
    def close(self) -> None:
        """The connection is gone: events wait for the next one, the rest is forgotten."""
    @property
    def ready(self) -> bool: ...
    def add_subscription(self, subscription: Subscription) -> None: ...
    def remove_subscription(self, subscription: Subscription) -> bool: ...
    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Every frame in the bytes, whole or cut anywhere. ProtocolError: the connection must be closed."""
    @property
    def losses(self) -> tuple[int, int]: ...
    @property
    def refused(self) -> tuple[int, int]:
        """Events of this client that nodes did not take, over all connections: (by rules, for lack of numbers)."""
    def refuse(self, topic: Topic) -> None:
        """The node does not take events to this topic: it is asked again when one is published there again."""
    def counters(self) -> dict[str, int]: ...
