from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, Literal, Unpack

from chappe.client._waiting import Waitable
from chappe.client.arguments import Extension
from chappe.client.topics import Topic
from chappe.wire.addresses import Address
from chappe.wire.events import PropertyValue, TopicName

class TopicEntry:
    topic: Topic
    kind: str
    group: str
    def __init__(self, name: TopicName) -> None: ...

class Window: ...

class IssuerEntry:
    session: bytes
    epoch: int
    def __init__(self, session: bytes, epoch: int) -> None: ...

class Message:
    """One event: topic and body, and lazily what its extension says."""

    body: bytes
    sequence: int
    @property
    def topic(self) -> Topic: ...
    @property
    def issuer(self) -> bytes: ...
    @property
    def epoch(self) -> int: ...
    @property
    def identifier(self) -> tuple[bytes, int, int]: ...
    @property
    def priority(self) -> int: ...
    @property
    def durable(self) -> bool:
        """True if its publisher waits until an archive has stored it."""
    @property
    def resent(self) -> bool: ...
    @property
    def group(self) -> str: ...
    @property
    def created(self) -> int | None: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def reply(self) -> Topic | None: ...
    @property
    def correlation(self) -> int | None: ...
    @property
    def origin(self) -> str | None: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def properties(self) -> dict[str, PropertyValue]: ...
    def respond(self, body: bytes, *, priority: int = 3, **extension: Unpack[Extension]) -> Awaitable[None]:
        """Answer a request. ValueError if the sender expects no answer."""

class Subscription(Waitable):
    """The messages of one topic pattern, in order, in a queue bounded by messages and bytes."""

    pattern: str
    kind: str
    group: str
    backpressure: bool
    blocking: bool
    owner: Any
    max_queue: int
    max_bytes: int
    received: int
    dropped: int
    since_ns: int
    older: int
    @property
    def address(self) -> Address | None:
        """Of an inbox: the topic to give to others, as `reply` for example; None of other subscriptions."""
    def __init__(
        self,
        pattern: Topic,
        *,
        group: str = "",
        backpressure: bool = False,
        max_queue: int = 65536,
        max_bytes: int = ...,
        on_full: Literal["drop", "block"] | None = None,
    ) -> None: ...
    def __aiter__(self) -> AsyncIterator[Message]: ...
    def __anext__(self) -> Awaitable[Message]: ...
    def batches(self, max: int = 65536) -> AsyncIterator[list[Message]]:
        """Lists of what has come, at most `max` messages each."""
    def arrow(self, max_rows: int = 65536, max_wait: float = 0.0) -> AsyncIterator[Any]:
        """RecordBatches; with `max_wait` seconds a batch waits that long for `max_rows`."""
    def take_nowait(self, limit: int = 65536) -> list[Message]: ...
    def unsubscribe(self) -> Coroutine[Any, Any, None]:
        """Stop: what is queued can still be read. Awaitable."""
