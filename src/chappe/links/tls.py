"""TLS links: an asyncio transport encrypts, the stack is fed from one shared buffer and written from its queues."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

from chappe.engine._stack import Stack
from chappe.errors import LinkError
from chappe.links._socket import collect, feed
from chappe.links.address import Address
from chappe.links.link import LINGER_S, Link, OnLost, Raw
from chappe.links.tick import FlushTick

RAW_LIMIT = 262_144  # bytes kept for a handshake that does not read on
HIGH_WATER = 65_536  # the transport pauses us above it; with one chunk and its own queue it stays below 256 KiB
CHUNK = 65_536
WRITE_BUDGET = 1 << 20  # a fast reader must not hold the loop for longer than this many bytes

# What arrives is fed or copied before the transport asks for a buffer again, so all connections share one.
_arrival = bytearray(262_144)
_arrival_view = memoryview(_arrival)


class TlsStream(asyncio.BufferedProtocol):
    """The protocol of one TLS transport; passes everything on to the Raw and later to the Link."""

    def __init__(self) -> None:
        self.owner: TlsRaw | TlsLink | None = None
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.early = bytearray()  # came with the end of the TLS handshake, before there was an owner
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _arrival_view

    def buffer_updated(self, nbytes: int) -> None:
        if self.owner is not None:
            self.owner.arrived(nbytes)
        else:
            self.early += _arrival_view[:nbytes]

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.owner is not None:
            self.owner.resumed()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)
        if self.owner is not None:
            self.owner.over(exc)


class TlsRaw(Raw):
    """A TLS connection before the handshake of Chappe; that of TLS is over."""

    def __init__(self, stream: TlsStream, peer: Address, finished: Callable[[Raw], None] | None = None) -> None:
        super().__init__(peer, finished)
        assert stream.transport is not None
        self._stream = stream
        self._transport = stream.transport
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._over = False
        self._paused = False
        self._error: Exception | None = None
        secured = cast(ssl.SSLObject, self._transport.get_extra_info("ssl_object"))
        self.certificate = secured.getpeercert() or None
        self.certificate_der = secured.getpeercert(binary_form=True)
        stream.owner = self
        self._buffer += stream.early
        if stream.lost:
            self.over(stream.lost[0])

    def arrived(self, count: int) -> None:
        self._buffer += _arrival_view[:count]
        if len(self._buffer) > RAW_LIMIT and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._waiter)

    def resumed(self) -> None:
        _wake(self._room)

    def over(self, error: Exception | None) -> None:
        self._over = True
        self._error = error
        _wake(self._waiter)
        _wake(self._room)
        self._finish()

    async def _fill(self) -> bool:
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        before = len(self._buffer)
        while len(self._buffer) == before:
            if self._error is not None:
                raise LinkError(f"{self.peer}: {self._error}")
            if self._over:
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return True

    def write(self, data: bytes) -> None:
        if self._over:
            raise LinkError(f"the connection to {self.peer} is closed")
        self._transport.write(data)

    async def drain(self) -> None:
        while not self._stream.writable and not self._over:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def close(self) -> None:
        if not self._over:
            end_soon(self._transport)
            self._finish()

    def abort(self) -> None:
        self._transport.abort()
        self._finish()

    def _attach(self, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> Link:
        if self._over or self._transport.is_closing():
            raise LinkError(f"the connection to {self.peer} is closed")
        link = TlsLink(self._stream, self.peer, stack, port, tick, on_lost, self._buffer)
        if self._paused:
            self._transport.resume_reading()
        return link


class TlsLink(Link):
    """A TLS connection that carries a port."""

    def __init__(
        self, stream: TlsStream, peer: Address, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost,
        arrived: bytearray,
    ) -> None:  # fmt: skip
        super().__init__(peer, stack, port, tick, on_lost)
        assert stream.transport is not None
        self._stream = stream
        self._transport = stream.transport
        self._bytes_in = len(arrived)
        self._bytes_out = self._reads = self._writes = 0
        stream.owner = self
        tick.bind(port, self, self._write)
        try:
            feed(stack, port, arrived, len(arrived))
        except Exception as error:
            self._transport.pause_reading()
            tick.loop.call_soon(self._ended, error)
        tick.soon()

    def counters(self) -> dict[str, int]:
        return {
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "reads": self._reads,
            "writes": self._writes,
        }

    def pause_reading(self) -> None:
        if self.open and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.open and not self._transport.is_reading():
            self._transport.resume_reading()

    def arrived(self, count: int) -> None:
        if not self.open:
            return
        self._bytes_in += count
        self._reads += 1
        try:
            feed(self._stack, self.port, _arrival_view, count)
        except Exception as error:
            self._tick.soon()
            self._ended(error)
        else:
            self.flusher.fed_bytes(count)

    def _write(self) -> bool:
        left = WRITE_BUDGET
        while self._stream.writable and self.open:
            if left <= 0:
                self._tick.loop.call_soon(self.flusher.wake, self.port)
                break
            chunk = collect(self._stack, self.port, CHUNK)
            if not chunk:
                break
            self._transport.write(chunk)
            self._bytes_out += len(chunk)
            self._writes += 1
            left -= len(chunk)
        return True  # a full transport says itself when it has room again

    def resumed(self) -> None:
        if self.open:
            self.flusher.wake(self.port)

    def want_write(self, port: int) -> None:
        """Never asked for: `_write` always says that it is done."""

    def over(self, error: Exception | None) -> None:
        self._ended(error)
        self._closed()

    def _detach(self) -> None:
        """What arrives from now on is thrown away by `arrived`."""

    def _send_last(self, data: bytes) -> None:
        if data:
            self._transport.write(data)
        end_soon(self._transport)

    def _end(self) -> None:
        self._transport.abort()


def end_soon(transport: asyncio.Transport) -> None:
    """Close a transport after its last bytes, and cut it off when the other side does not answer in time."""
    asyncio.get_running_loop().call_later(LINGER_S, transport.abort)
    transport.close()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
