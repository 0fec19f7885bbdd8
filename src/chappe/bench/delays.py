"""A relay in this process that makes a TCP link as slow as it is told, or cuts it: delay without a kernel's help."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Self

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
        self._server: asyncio.Server | None = None
        self._ends: set[_End] = set()

    async def start(self) -> Self:
        """Listen; the port is known from then on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        """End everything."""
        if self._server is not None:
            self._server.close()
        for end in list(self._ends):
            end.abort()
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def cut(self) -> None:
        """Neither end hears of the other any more."""
        self._severed = True
        for end in list(self._ends):
            end.abort()

    def mend(self) -> None:
        """Connections are taken again."""
        self._severed = False

    def _accept(self) -> asyncio.Protocol:
        return _End(self, dialled=False)


class _End(asyncio.Protocol):
    """One end of a connection through the relay: what it hears goes to its partner, later."""

    def __init__(self, relay: DelayRelay, dialled: bool, partner: _End | None = None) -> None:
        self._relay = relay
        self._dialled = dialled
        self._partner = partner
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._over = False
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._relay._ends.add(self)
        if self._relay._severed:
            self.abort()
        elif not self._dialled:
            transport.pause_reading()
            self._dialling = self._loop.create_task(self._dial())
        else:
            assert self._partner is not None
            self._partner._partner = self

    async def _dial(self) -> None:
        try:
            await self._loop.create_connection(lambda: _End(self._relay, True, self), "127.0.0.1", self._relay.target)
        except OSError:
            self.abort()
        else:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        last = self._waiting[-1][0] if self._waiting else 0.0
        self._waiting.append((max(last, self._loop.time() + self._relay.delay_s), data))
        self._size += len(data)
        if self._size > BUFFERED and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        if self._timer is None:
            self._release()

    def _release(self) -> None:
        self._timer = None
        now = self._loop.time()
        partner = self._partner
        while self._waiting and self._waiting[0][0] <= now:
            _, data = self._waiting.popleft()
            self._size -= len(data)
            self._relay.carried += len(data)
            if partner is not None and partner._transport is not None and not partner._transport.is_closing():
                partner._transport.write(data)
        if self._paused and self._size < BUFFERED // 2 and self._transport is not None and not self._over:
            self._paused = False
            self._transport.resume_reading()
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._release)
        elif self._over and partner is not None and partner._transport is not None:
            partner._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._over = True
        self._relay._ends.discard(self)
        if self._timer is None:
            self._release()

    def abort(self) -> None:
        """End it now, with what waits in it."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
