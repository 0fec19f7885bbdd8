"""Messages that come to the names of a cell: small ones whole, large ones piece by piece."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from chappe.cells._arrivals import LARGE_BYTES, Incoming

TOGETHER = 1 << 20  # bytes that `save` writes at once, about
READ_LIMIT = 64 << 20


class Taker(Protocol):
    """Who knows what has come of a message."""

    def take(self, incoming: Incoming, *, skip: bool = False) -> list[bytes]:
        """The pieces that have come since; skip: the rest is not wanted."""

    def skip_soon(self, incoming: Incoming) -> None:
        """From any thread: nobody wants the rest."""


class CellMessage:
    """One message: `body` if it has at most 1 MiB; a larger one is saved, read or iterated over while it comes.

    A large message that nobody reads stops its sender; `close` gives up the rest of it.
    """

    def __init__(self, incoming: Incoming, taker: Taker) -> None:
        self.source = incoming.source
        self.destination = incoming.destination
        self.large = incoming.size > LARGE_BYTES
        self._incoming = incoming
        self._taker = taker
        self._over = not self.large
        self._body = b"" if self.large else b"".join(taker.take(incoming))
        self._waiter: asyncio.Future[None] | None = None

    @property
    def multicast(self) -> bool:
        """Whether it went to a prefix of names, which is then its destination."""
        return self._incoming.flow is None

    @property
    def size(self) -> int:
        """Bytes, of a large message so far."""
        return self._incoming.size

    @property
    def body(self) -> bytes:
        """All of it; ValueError if it is a large one."""
        if self.large:
            raise ValueError(f"the message has more than {LARGE_BYTES} bytes: save it, read it or iterate over it")
        return self._body

    async def read(self, limit: int = READ_LIMIT) -> bytes:
        """All of it, of whatever size up to `limit`; LinkError if the rest does not come."""
        pieces = []
        total = 0
        async for piece in self:
            total += len(piece)
            if total > limit:
                self.close()
                raise ValueError(f"the message has more than {limit} bytes: raise the limit, or save it")
            pieces.append(piece)
        return b"".join(pieces)

    async def save(self, path: str | Path, progress: Callable[[int], None] | None = None) -> int:
        """Write it to a file, which is there when all of it is; its bytes. `progress` is told the bytes so far."""
        path = Path(path)
        part = path.with_name(f"{path.name}.part")
        file = await asyncio.to_thread(part.open, "wb")
        try:
            written = await self._write(file, progress)
            await asyncio.to_thread(file.close)
            await asyncio.to_thread(os.replace, part, path)
        except BaseException:
            self.close()
            file.close()
            part.unlink(missing_ok=True)
            raise
        return written

    async def _write(self, file: BinaryIO, progress: Callable[[int], None] | None) -> int:
        written = 0
        pieces: list[bytes] = []
        waiting = 0
        async for piece in self:
            pieces.append(piece)
            waiting += len(piece)
            if waiting >= TOGETHER:
                await asyncio.to_thread(file.writelines, pieces)
                written, waiting = written + waiting, 0
                pieces.clear()
                if progress is not None:
                    progress(written)
        await asyncio.to_thread(file.writelines, pieces)
        if progress is not None:
            progress(written + waiting)
        return written + waiting

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Its pieces as they come, once."""
        if not self.large:
            yield self._body
            return
        incoming = self._incoming
        incoming.notify = self._wake
        while not self._over:
            for piece in self._taker.take(incoming):
                yield piece
            if incoming.failure is not None:
                self._over = True
                raise incoming.failure
            if incoming.waiting:
                continue
            if incoming.complete:
                self._over = True
                return
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def close(self) -> None:
        """Give up what has not been read."""
        if not self._over:
            self._over = True
            self._taker.take(self._incoming, skip=True)
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            self._taker.skip_soon(self._incoming)

    def __repr__(self) -> str:
        return f"CellMessage(source={self.source!r}, destination={self.destination!r}, size={self.size})"


class Box:
    """What has come to the names of one cell and was not taken."""

    def __init__(self) -> None:
        self._waiting: deque[Incoming] = deque()
        self._readers: deque[asyncio.Future[None]] = deque()
        self._failure: Exception | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, incoming: Incoming) -> None:
        """One more has come."""
        self._waiting.append(incoming)
        self._wake()

    def close(self, failure: Exception | None = None) -> None:
        """Nothing more comes: readers end, with the failure if there is one."""
        self.closed = True
        self._failure = failure
        self._waiting.clear()
        while self._readers:
            self._wake()

    async def get(self) -> Incoming | None:
        """The next one; None at the end."""
        while not self._waiting:
            if self.closed:
                if self._failure is not None:
                    raise self._failure
                return None
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            try:
                await reader
            except asyncio.CancelledError:
                if reader.done() and not reader.cancelled() and self._waiting:
                    self._wake()  # somebody else takes what this one was woken for
                raise
        return self._waiting.popleft()

    def _wake(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return
