"""What every byte-stream link promises, before its handshake (Raw) and after it (Link)."""

from __future__ import annotations

import abc
import asyncio
import os
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from chappe.engine._stack import Stack
from chappe.errors import LinkError, ProtocolError, TimeoutExpired
from chappe.links._socket import Flusher, Target, collect
from chappe.links.address import Address
from chappe.links.meter import Meter
from chappe.links.tick import FlushTick
from chappe.wire.control import Message, Refused, encode
from chappe.wire.frames import PREAMBLE_SIZE, Kind, encode_frame

OnLost: TypeAlias = Callable[[Exception | None], None]

REST_LIMIT = 1 << 20  # bytes of a queue that a closing link still tries to write
LINGER_S = 1.0  # how long it tries


def reason_of(error: OSError) -> str:
    """The system's words for an error number; asyncio puts its own in their place."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else str(error)


def place_of(name: object) -> str:
    """A socket's own or other address as text: host:port, [host]:port or a path."""
    if isinstance(name, tuple) and len(name) >= 2:
        return f"[{name[0]}]:{name[1]}" if ":" in str(name[0]) else f"{name[0]}:{name[1]}"
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


@dataclass(frozen=True, slots=True)
class Security:
    """What protects a link (MR-037): nothing, the machine (Unix sockets), TLS, or a tag on each datagram."""

    secure: bool = False
    mechanism: str = "none"


def control_frame(message: Message) -> bytes:
    """A whole CONTROL frame."""
    return encode_frame(Kind.CONTROL, encode(message))


class Raw(abc.ABC):
    """A connection before its handshake: read and written in small pieces, then attached to a port or closed."""

    def __init__(self, peer: Address, finished: Callable[[Raw], None] | None = None) -> None:
        self.peer = peer
        self.certificate: dict[str, Any] | None = None  # of the other side, verified; as ssl's getpeercert() gives it
        self.certificate_der: bytes | None = None
        self.security = Security()
        self.local = ""  # our end
        self.kind = peer.scheme  # of transport
        self.host = ""  # that an accepted connection comes from
        self.meter: Meter | None = None  # of its handshake
        self._buffer = bytearray()
        self._finished = finished

    @abc.abstractmethod
    async def _fill(self) -> bool:
        """Append what arrives next to the buffer; False at the end of the stream."""

    @abc.abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes; `drain` waits until the system has them."""

    @abc.abstractmethod
    async def drain(self) -> None:
        """Everything written is in the system's hands."""

    @abc.abstractmethod
    def close(self) -> None:
        """Send what was written, then end the connection, in the background."""

    @abc.abstractmethod
    def abort(self) -> None:
        """End the connection now."""

    @abc.abstractmethod
    def _attach(self, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> Link: ...

    def attach(self, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> Link:
        """Go over to the compiled path: `stack` gets every further byte of this connection on `port`.

        `on_lost` is called once when the link ends by itself: with None at the end of the stream, with the error of
        the socket or the ProtocolError of bad bytes otherwise; never after `close` or `abort`.
        """
        link = self._attach(stack, port, tick, on_lost)
        link.local, link.security, link.kind = self.local, self.security, self.kind
        self._finish()
        return link

    async def read_some(self) -> bytes:
        """Whatever arrives next, at least one byte; empty at the end of the stream."""
        if not self._buffer:
            await self._fill()
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken

    def unread(self, data: bytes) -> None:
        """Put bytes back in front of what comes next."""
        self._buffer[:0] = data

    async def read_preamble(self, timeout_s: float = 10.0) -> bytes:
        """The eight bytes that open a stream."""
        return await self._read(PREAMBLE_SIZE, timeout_s, "its preamble")

    async def _read(self, size: int, timeout_s: float, what: str) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._buffer) < size:
                    if not await self._fill():
                        raise LinkError(f"{self.peer} closed the connection before {what} was complete")
        except TimeoutError:
            raise TimeoutExpired(f"{self.peer} did not send {what} within {timeout_s:g} s") from None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _finish(self) -> None:
        finished, self._finished = self._finished, None
        if finished is not None:
            finished(self)


Accepted: TypeAlias = Callable[[Raw], Coroutine[Any, Any, None]]
"""What a listener calls with each connection that it has accepted."""


class Link(abc.ABC):
    """A connection that carries a port of a stack."""

    def __init__(self, peer: Address, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> None:
        self.peer = peer
        self.port = port
        self.local = ""  # our end
        self.kind = peer.scheme  # of transport
        self.security = Security()
        self.open = True
        self.held = False
        self._stack = stack
        self._tick = tick
        self._on_lost = on_lost
        self._gone: asyncio.Future[None] = tick.loop.create_future()

    @property
    def flusher(self) -> Flusher:
        return self._tick.flusher

    @abc.abstractmethod
    def counters(self) -> dict[str, int]:
        """Bytes and system calls (or transport calls) of this connection so far."""

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Leave what arrives to the kernel, which makes the other side wait."""

    @abc.abstractmethod
    def resume_reading(self) -> None: ...

    @abc.abstractmethod
    def want_write(self, port: int) -> None: ...

    @abc.abstractmethod
    def _target(self) -> Target | Callable[[], bool]:
        """What the flusher writes to."""

    def hold(self) -> None:
        """Write nothing until `release`; what is queued waits with the port."""
        if self.open and not self.held:
            self.held = True
            self._tick.unbind(self.port, self)

    def release(self) -> None:
        """Write again."""
        if self.open and self.held:
            self.held = False
            self._tick.bind(self.port, self, self._target())

    @abc.abstractmethod
    def _detach(self) -> None:
        """Stop reading and writing for the port."""

    @abc.abstractmethod
    def _send_last(self, data: bytes) -> None:
        """Write bytes and end the connection within LINGER_S, in the background."""

    @abc.abstractmethod
    def _end(self) -> None:
        """End the connection now."""

    def close(self, reason: bytes | None = None) -> None:
        """Write what is queued and then the frame `reason`, and end the connection; both in the background.

        A queue of more than a mebibyte means that the other side does not read: the connection ends at once.
        """
        if not self.open:
            return
        self.open = False
        rest: bytes | None = self._rest()
        self._detach()
        self._tick.unbind(self.port, self)
        if rest is None:
            self._end()
        else:
            self._send_last(rest + (reason or b""))

    def abort(self) -> None:
        """End the connection now; what is queued stays with the port."""
        if self.open:
            self._drop()
        else:
            self._end()

    async def wait_closed(self) -> None:
        """The descriptor is closed."""
        await asyncio.shield(self._gone)

    def failed(self, port: int, error: Exception) -> None:
        """Writing failed: the link is lost."""
        self._ended(error)

    def _ended(self, error: Exception | None) -> None:
        if not self.open:
            return
        if isinstance(error, ProtocolError):
            self.close(control_frame(Refused(reason=str(error), code="protocol")))
        else:
            self._drop()
        self._on_lost(error)

    def _drop(self) -> None:
        self.open = False
        self._detach()
        self._tick.unbind(self.port, self)
        self._end()

    def _rest(self) -> bytes | None:
        parts: list[bytes] = []
        room = REST_LIMIT
        while room > 0 and (part := collect(self._stack, self.port, room)):
            parts.append(part)
            room -= len(part)
        return b"".join(parts) if room > 0 else None

    def _closed(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
