"""Relays between loopback addresses that delay a stream, and delay or lose datagrams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable


class StreamRelay:
    """Passes TCP connections on, each byte `delay_s` later."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self.pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []  # of connections, as they came
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near, far = await asyncio.open_connection(*self._target)
        self._writers += [writer, far]
        self.pairs.append((writer, far))
        for source, sink in ((reader, far), (near, writer)):
            queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
            for work in (self._read(source, queue), self._write(queue, sink)):
                self._tasks.add(asyncio.create_task(work))

    async def _read(self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while piece := await source.read(65_536):
                queue.put_nowait((loop.time() + self.delay_s, piece))
        queue.put_nowait((loop.time() + self.delay_s, b""))

    async def _write(self, queue: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                at, piece = await queue.get()
                await asyncio.sleep(max(0.0, at - loop.time()))
                if not piece:
                    break
                sink.write(piece)
                await sink.drain()
            sink.close()

    def cut(self, index: int) -> None:
        """Reset one connection on both sides."""
        for writer in self.pairs[index]:
            writer.transport.abort()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def stream_relay(place: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[StreamRelay]:
    relay = StreamRelay(target)
    server = await asyncio.start_server(relay.accept, *place)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()


class DatagramRelay:
    """Passes datagrams on, `delay_s` later, but for those that `loses(datagram)`; one sender at a time."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.delay_s = 0.0
        self.loses: Callable[[bytes], bool] = lambda _: False
        self.passed: list[bytes] = []  # towards the target
        self.lost: list[bytes] = []
        self._target = target
        self._sender: tuple[str, int] | None = None
        self.front: asyncio.DatagramTransport
        self.back: asyncio.DatagramTransport

    def there(self, data: bytes, sender: tuple[str, int]) -> None:
        self._sender = sender
        if self.loses(data):
            self.lost.append(data)
            return
        self.passed.append(data)
        asyncio.get_running_loop().call_later(self.delay_s, self._send, self.back, data, self._target)

    def here(self, data: bytes, _: tuple[str, int]) -> None:
        if self._sender is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self._send, self.front, data, self._sender)

    def _send(self, transport: asyncio.DatagramTransport, data: bytes, place: tuple[str, int]) -> None:
        if not transport.is_closing():
            transport.sendto(data, place)


class _Side(asyncio.DatagramProtocol):
    def __init__(self, received: Callable[[bytes, tuple[str, int]], None]) -> None:
        self._received = received

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._received(data, addr)


@contextlib.asynccontextmanager
async def datagram_relay(place: tuple[str, int], target: tuple[str, int]) -> AsyncIterator[DatagramRelay]:
    relay = DatagramRelay(target)
    loop = asyncio.get_running_loop()
    relay.front, _ = await loop.create_datagram_endpoint(lambda: _Side(relay.there), local_addr=place)
    relay.back, _ = await loop.create_datagram_endpoint(lambda: _Side(relay.here), local_addr=(target[0], 0))
    try:
        yield relay
    finally:
        relay.front.close()
        relay.back.close()
        await asyncio.sleep(0)
