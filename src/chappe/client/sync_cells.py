"""The blocking form of a cell: the same names, iterators instead of async iterators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from chappe.client import cells as asynchronous
from chappe.client.arrivals import READ_LIMIT
from chappe.client.arrivals import CellMessage as AsyncMessage
from chappe.client.cells import Progress, Sent

T = TypeVar("T")


class Loop(Protocol):
    """Waits for coroutines on the loop of another thread."""

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T: ...


class CellMessage:
    """Blocking form of `chappe.CellMessage`."""

    def __init__(self, loop: Loop, message: AsyncMessage) -> None:
        self._loop = loop
        self._message = message
        self.source = message.source
        self.destination = message.destination
        self.large = message.large
        self.multicast = message.multicast

    @property
    def size(self) -> int:
        """Bytes, of a large message so far."""
        return self._message.size

    @property
    def body(self) -> bytes:
        """All of it; ValueError if it is a large one."""
        return self._message.body

    def read(self, limit: int = READ_LIMIT) -> bytes:
        """All of it, of whatever size up to `limit`."""
        return self._loop.run(self._message.read(limit))

    def save(self, path: str | Path, progress: Progress | None = None) -> int:
        """Write it to a file, which is there when all of it is; its bytes."""
        return self._loop.run(self._message.save(path, progress))

    def __iter__(self) -> Iterator[bytes]:
        pieces = aiter(self._message)
        while True:
            try:
                yield self._loop.run(_next(pieces))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """Give up what has not been read."""
        self._loop.run(_call(self._message.close))


class Cell:
    """Blocking form of `chappe.Cell`; use it with `with`."""

    def __init__(self, loop: Loop, cell: asynchronous.Cell) -> None:
        self._loop = loop
        self._cell = cell

    def __enter__(self) -> Cell:
        self._loop.run(self._cell.__aenter__())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._loop.run(self._cell.close(flush=error is None))

    @property
    def own(self) -> tuple[str, ...]:
        """The names of this cell."""
        return self._cell.own

    def add_name(self, name: str) -> None:
        """One more name, from now on."""
        self._loop.run(self._cell.add_name(name))

    def remove_name(self, name: str) -> None:
        """One name less."""
        self._loop.run(self._cell.remove_name(name))

    def names(self, prefix: str = "") -> list[dict[str, Any]]:
        """The names that the node knows, or those with a prefix."""
        return self._loop.run(self._cell.names(prefix))

    def routes(self, destination: str) -> list[dict[str, Any]]:
        """By which paths parcels go to a name now."""
        return self._loop.run(self._cell.routes(destination))

    def send(
        self, destination: str, body: bytes | bytearray | memoryview | Path | Iterable[bytes], *, source: str = "",
        progress: Progress | None = None,
    ) -> Sent:  # fmt: skip
        """Send a message and wait until the other end has all of it; an iterator is read in the thread of the loop."""
        whole = isinstance(body, bytes | bytearray | memoryview | Path | str)
        given: Any = body if whole else _stream(body)  # type: ignore[arg-type]
        return self._loop.run(self._cell.send(destination, given, source=source, progress=progress))

    def multicast(self, prefix: str, body: bytes, *, source: str = "") -> None:
        """Send to all names that begin so, written as `fr.*`; some may not get it."""
        self._loop.run(_call(lambda: self._cell.multicast(prefix, body, source=source)))

    def receive(self, timeout_s: float | None = None) -> CellMessage:
        """The next message; TimeoutExpired if none comes in time."""
        return CellMessage(self._loop, self._loop.run(self._cell.receive(), timeout_s))

    def __iter__(self) -> Iterator[CellMessage]:
        while True:
            try:
                yield CellMessage(self._loop, self._loop.run(_next(self._cell)))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        """Wait until what was sent has arrived, and give the names up."""
        self._loop.run(self._cell.close())


async def _stream(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def _next(steps: Any) -> Any:
    return await anext(steps)


async def _call(function: Callable[[], T]) -> T:
    return function()
