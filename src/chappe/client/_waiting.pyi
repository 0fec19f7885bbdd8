import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

class Waitable:
    """Something with entries to take: one, a list or a RecordBatch."""

    loop: asyncio.AbstractEventLoop | None
    before_wait: Callable[[], object] | None
    ready: Callable[[], object] | None
    closed: bool
    failure: BaseException | None
    def end(self, failure: BaseException | None = None) -> None:
        """Iterators finish after what is queued: quietly, or with `failure`."""
    def __len__(self) -> int: ...

class Steps(AsyncIterator[Any], Awaitable[Any]):
    """The awaitable iterator over a Waitable."""

    def __init__(self, queue: Waitable, form: int = 0, limit: int = 1, max_wait: float = 0.0) -> None: ...
    def __anext__(self) -> Awaitable[Any]: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...
