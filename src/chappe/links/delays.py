"""A relay in this process that makes a TCP link as slow as it is set, or cuts it: delay without a kernel's help."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from functools import partial
from typing import Self

PIECE = 1 << 16
BUFFERED = 8 << 20  # bytes that wait in one direction before the sender is read no further


class DelayRelay:
    """Listens on a free port of loopback; what comes there goes on to `target`, each way `delay_s` later.

    `delay_s` may be changed at any time; bytes never overtake each other. `cut` ends all connections and takes no new
    ones until `mend`.
    """

    def __init__(self, target: int, delay_s: float = 0.0) -> None:
        self.target = target
        self.delay_s = delay_s
        self.port = 0
        self.carried = 0  # bytes, both ways
        self._severed = False
        self._server: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> Self:
        """Listen; the port is known from then on."""
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._server))
        return self

    async def close(self) -> None:
        """End everything."""
        tasks = [*self._connections, *([self._accepting] if self._accepting is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def cut(self) -> None:
        """Neither end hears of the other any more."""
        self._severed = True
        for task in list(self._connections):
            task.cancel()

    def mend(self) -> None:
        """Connections are taken again."""
        self._severed = False

    async def _accept(self, server: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            inward, _ = await loop.sock_accept(server)
            if self._severed:
                inward.close()
                continue
            task = loop.create_task(self._connect(inward))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            task.add_done_callback(partial(_close, inward))  # also of a task that never began

    async def _connect(self, inward: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        outward = socket.socket()
        outward.setblocking(False)
        with inward, outward, contextlib.suppress(OSError):
            for sock in (inward, outward):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(outward, ("127.0.0.1", self.target))
            ways = [_Way(self, inward, outward), _Way(self, outward, inward)]
            tasks = [loop.create_task(job) for way in ways for job in (way.read(), way.write())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def _close(sock: socket.socket, _: asyncio.Task[None]) -> None:
    sock.close()


class _Way:
    """One direction of a connection: `read` is done when the sender has closed and all is passed on."""

    def __init__(self, relay: DelayRelay, source: socket.socket, sink: socket.socket) -> None:
        self._relay = relay
        self._source = source
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._changed = asyncio.Event()

    async def read(self) -> None:
        while piece := await self._loop.sock_recv(self._source, PIECE):
            last = self._waiting[-1][0] if self._waiting else 0.0
            self._waiting.append((max(last, self._loop.time() + self._relay.delay_s), piece))
            self._size += len(piece)
            self._changed.set()
            while self._size > BUFFERED:
                self._changed.clear()
                await self._changed.wait()
        while self._waiting:
            self._changed.clear()
            await self._changed.wait()

    async def write(self) -> None:
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            due, piece = self._waiting[0]
            pause = due - self._loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            await self._loop.sock_sendall(self._sink, piece)
            self._waiting.popleft()
            self._size -= len(piece)
            self._relay.carried += len(piece)
            self._changed.set()
