from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from chappe.client._waiting import Waitable

Value = float | int | bool | bytes

class StatusEvent:
    """One value of a variable, with the time it was created and received."""

    watch: Watch
    created: int
    received: int
    @property
    def variable_id(self) -> int: ...
    @property
    def publisher(self) -> str: ...
    @property
    def variable(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def latency_ns(self) -> int: ...

class StatusStream(Waitable):
    """All values of one or more variables in order of arrival, bounded; `dropped` counts what found no room."""

    watches: list[Watch]
    owner: Any
    max_queue: int
    blocking: bool
    dropped: int
    unread: int
    def __init__(self, *, max_queue: int = 65536, on_full: str = "drop") -> None: ...
    def __aiter__(self) -> AsyncIterator[StatusEvent]: ...
    def __anext__(self) -> Awaitable[StatusEvent]: ...
    def batches(self, max: int = 65536) -> AsyncIterator[list[StatusEvent]]: ...
    def arrow(self, max_rows: int = 65536, max_wait: float = 0.0) -> AsyncIterator[Any]: ...
    def take_nowait(self, limit: int = 65536) -> list[StatusEvent]: ...
    def unwatch(self) -> Any: ...

class Watch:
    """The newest value of one variable, by its creation time; iterate it for all values."""

    publisher: str
    variable: str
    variable_id: int
    type: str
    owner: Any
    callback: Callable[[StatusEvent], None] | None
    stream: StatusStream
    interval_ns: int
    rate_num: int
    rate_den: int
    every: int
    updates: int
    active: bool
    def __init__(
        self,
        publisher: str,
        variable: str,
        *,
        interval_ns: int = 0,
        callback: Callable[[StatusEvent], None] | None = None,
        stream: StatusStream | None = None,
        max_queue: int = 65536,
        on_full: str = "drop",
    ) -> None: ...
    def granted(self, variable_id: int, type: str, rate_num: int, rate_den: int, every: int) -> None: ...
    @property
    def value(self) -> Any: ...
    @property
    def created(self) -> int | None: ...
    @property
    def received(self) -> int | None: ...
    @property
    def latency_ns(self) -> int | None: ...
    @property
    def dropped(self) -> int: ...
    def __aiter__(self) -> AsyncIterator[StatusEvent]: ...
    def __anext__(self) -> Awaitable[StatusEvent]: ...
    def batches(self, max: int = 65536) -> AsyncIterator[list[StatusEvent]]: ...
    def arrow(self, max_rows: int = 65536, max_wait: float = 0.0) -> AsyncIterator[Any]: ...
    def take_nowait(self, limit: int = 65536) -> list[StatusEvent]: ...
    def unwatch(self) -> Any: ...
