"""Links over an asyncio transport: TLS, and WebSocket with or without it.

The stack is fed from the buffer of its thread and written from its queues; a codec, where there is one, stands between.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

from chappe.engine._stack import Stack
from chappe.errors import LinkError
from chappe.links._socket import collect, feed
from chappe.links.address import Address
from chappe.links.link import LINGER_S, Link, OnLost, Raw, Security, place_of, reason_of
from chappe.links.tick import FlushTick
from chappe.links.tls import start_tls
from chappe.security.tls import handshake_reason

RAW_LIMIT = 262_144  # bytes kept for a handshake that does not read on
HIGH_WATER = 65_536  # the transport pauses us above it; with one chunk and its own queue it stays below 256 KiB
CHUNK = 65_536
WRITE_BUDGET = 1 << 20  # a fast reader must not hold the loop for longer than this many bytes


class _Arrival(threading.local):
    """Where transports of this thread put what arrives; it is fed or copied before one asks for a buffer again.

    Reading with TLS and feeding both let other threads run, so each has its own.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(262_144))


arrival = _Arrival()


@dataclass(frozen=True, slots=True)
class Decoded:
    """What bytes of the transport meant."""

    payload: bytearray
    answer: bytes = b""  # to be written at once
    over: bool = False  # the other side ends the stream
    error: Exception | None = None  # it broke the rules: end the connection


class Codec(Protocol):
    """Between the bytes of the wire and those of a transport."""

    def decode(self, data: bytes | memoryview) -> Decoded: ...
    def encode(self, data: bytes) -> bytes: ...
    def farewell(self) -> bytes:
        """Last bytes of a stream that ends in good order."""


class TransportStream(asyncio.BufferedProtocol):
    """The protocol of one transport; passes everything on to the Raw and later to the Link."""

    def __init__(self) -> None:
        self.owner: TransportRaw | TransportLink | None = None
        self.transport: asyncio.Transport | None = None
        self.codec: Codec | None = None
        self.writable = True
        self.early = bytearray()  # came with the end of the TLS handshake, before there was an owner
        self.lost: list[Exception | None] = []
        self._ending = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)

    def get_buffer(self, sizehint: int) -> memoryview:
        return arrival.view

    def buffer_updated(self, nbytes: int) -> None:
        if self.owner is None:
            self.early += arrival.view[:nbytes]
        elif not self._ending:
            self.owner.arrived(nbytes)

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

    def send(self, data: bytes) -> None:
        """Write bytes of the wire."""
        assert self.transport is not None
        self.transport.write(data if self.codec is None else self.codec.encode(data))

    def end(self) -> None:
        """Close after the last bytes, and cut off when the other side does not end in time, too."""
        assert self.transport is not None
        self._ending = True
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.abort)
        if self.codec is not None and not self.transport.is_closing():
            self.transport.write(self.codec.farewell())
        if not self.transport.is_closing() and self.transport.can_write_eof():
            # Closing with unread input would reset the last bytes away: read on until the other side has ended.
            if not self.transport.is_reading():
                self.transport.resume_reading()
            self.transport.write_eof()
        else:
            self.transport.close()


class TransportRaw(Raw):
    """A transported connection before the handshake of Chappe; that of TLS is over."""

    def __init__(self, stream: TransportStream, peer: Address, finished: Callable[[Raw], None] | None = None) -> None:
        super().__init__(peer, finished)
        assert stream.transport is not None
        self._stream = stream
        self._transport = stream.transport
        self._waiter: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._over = False
        self._paused = False
        self._error: Exception | None = None
        self.local = place_of(self._transport.get_extra_info("sockname"))
        secured = cast(ssl.SSLObject | None, self._transport.get_extra_info("ssl_object"))
        if secured is not None:
            self.certificate = secured.getpeercert() or None
            self.certificate_der = secured.getpeercert(binary_form=True)
            cipher = secured.cipher()
            self.security = Security(True, f"{secured.version()} {cipher[0] if cipher else ''}".rstrip())
        stream.owner = self
        self._buffer += stream.early
        if stream.lost:
            self.over(stream.lost[0])

    def use(self, codec: Codec) -> None:
        """Everything from here on goes through the codec, also what has arrived and was not read."""
        self._stream.codec = codec
        arrived = bytes(self._buffer)
        self._buffer.clear()
        if arrived:
            self._decode(arrived)

    def arrived(self, count: int) -> None:
        if self._stream.codec is None:
            self._buffer += arrival.view[:count]
        else:
            self._decode(arrival.view[:count])
        if len(self._buffer) > RAW_LIMIT and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._waiter)

    def _decode(self, data: bytes | memoryview) -> None:
        assert self._stream.codec is not None
        decoded = self._stream.codec.decode(data)
        self._buffer += decoded.payload
        if decoded.answer and self._stream.writable and not self._transport.is_closing():
            self._transport.write(decoded.answer)
        if decoded.over or decoded.error is not None:
            self._over = True
            self._error = decoded.error
            self._stream.end()

    def resumed(self) -> None:
        _wake(self._room)

    def over(self, error: Exception | None) -> None:
        self._over = True
        self._error = self._error or error
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
        self._stream.send(data)

    async def drain(self) -> None:
        while not self._stream.writable and not self._over:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._stream.end()
            self._finish()

    def abort(self) -> None:
        self._transport.abort()
        self._finish()

    def _attach(self, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> Link:
        if self._over or self._transport.is_closing():
            raise LinkError(f"the connection to {self.peer} is closed")
        link = TransportLink(self._stream, self.peer, stack, port, tick, on_lost, self._buffer)
        if self._paused:
            self._transport.resume_reading()
        return link


class TransportLink(Link):
    """A transported connection that carries a port."""

    def __init__(
        self, stream: TransportStream, peer: Address, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost,
        arrived: bytearray,
    ) -> None:  # fmt: skip
        super().__init__(peer, stack, port, tick, on_lost)
        assert stream.transport is not None
        self._stream = stream
        self._codec = stream.codec
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
        self._reads += 1
        if self._codec is None:
            self._feed(arrival.view, count)
            return
        decoded = self._codec.decode(arrival.view[:count])
        if decoded.answer and self._stream.writable:
            self._transport.write(decoded.answer)
        if decoded.payload:
            self._feed(decoded.payload, len(decoded.payload))
        if decoded.over or decoded.error is not None:
            self._ended(decoded.error)

    def _feed(self, data: memoryview | bytearray, count: int) -> None:
        self._bytes_in += count
        try:
            feed(self._stack, self.port, data, count)
        except Exception as error:
            self._tick.soon()
            self._ended(error)
        else:
            self.flusher.fed_bytes(count)

    def _target(self) -> Callable[[], bool]:
        return self._write

    def _write(self) -> bool:
        left = WRITE_BUDGET
        while self._stream.writable and self.open and not self.held:
            if left <= 0:
                self._tick.loop.call_soon(self.flusher.wake, self.port)
                break
            chunk = collect(self._stack, self.port, CHUNK)
            if not chunk:
                break
            self._stream.send(chunk)
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
        if data and not self._transport.is_closing():
            self._stream.send(data)
        self._stream.end()

    def _end(self) -> None:
        self._transport.abort()


async def open_transport(
    protocol: asyncio.BufferedProtocol, sock: socket.socket, tls: ssl.SSLContext | None, server_name: str | None
) -> None:
    """Give a protocol its transport on a connected socket, after a TLS handshake if there is a context.

    `server_name` is None where we are the server. ssl.SSLError or OSError leaves the socket to the caller.
    """
    if tls is None:
        await asyncio.get_running_loop().create_connection(lambda: protocol, sock=sock)
    else:
        await start_tls(sock, tls, server_name, protocol)


async def connected(sock: socket.socket, address: Address, tls: ssl.SSLContext | None, name: str) -> TransportStream:
    """A transport on a connected socket, its TLS handshake done; LinkError says what went wrong, after a close."""
    stream = TransportStream()
    try:
        await open_transport(stream, sock, tls, name)
    except ssl.SSLError as error:
        sock.close()
        raise LinkError(f"{address}: {handshake_reason(error)}") from error
    except OSError as error:
        sock.close()
        raise LinkError(f"{address}: connection lost during TLS: {reason_of(error)}") from error
    except BaseException:
        sock.close()
        raise
    return stream


async def accepted(sock: socket.socket, tls: ssl.SSLContext | None, timeout_s: float) -> TransportStream:
    """A transport on an accepted socket, its TLS handshake done; OSError otherwise."""
    stream = TransportStream()
    try:
        async with asyncio.timeout(timeout_s):
            await open_transport(stream, sock, tls, None)
    except TimeoutError:
        raise TimeoutError(f"its TLS handshake was not over within {timeout_s:g} s") from None
    return stream


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
