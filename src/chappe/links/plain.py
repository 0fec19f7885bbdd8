"""TCP and Unix links: the compiled code reads and writes the descriptor, the loop only says when."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from chappe.engine._stack import Stack
from chappe.errors import LinkError
from chappe.links._socket import StreamSocket, Target, feed
from chappe.links.address import Address
from chappe.links.link import LINGER_S, Link, OnLost, Raw, Security, place_of, reason_of
from chappe.links.options import LinkOptions
from chappe.links.tick import FlushTick

CHUNK = 65_536


class PlainRaw(Raw):
    """A connected, non-blocking socket before its handshake."""

    def __init__(
        self, sock: socket.socket, peer: Address, options: LinkOptions, finished: Callable[[Raw], None] | None = None
    ) -> None:
        super().__init__(peer, finished)
        self.local = place_of(sock.getsockname()) or peer.path  # one end of a Unix socket has no name
        if sock.family == socket.AF_UNIX:
            self.security = Security(True, "this machine only")
        self._sock = sock
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._over = False

    async def _fill(self) -> bool:
        if self._over:
            return False
        try:
            data = await self._loop.sock_recv(self._sock, CHUNK)
        except OSError as error:
            raise LinkError(f"{self.peer}: {reason_of(error)}") from error
        self._buffer += data
        return bool(data)

    def write(self, data: bytes) -> None:
        if self._over:
            raise LinkError(f"the connection to {self.peer} is closed")
        self._unsent += data
        try:
            self._send()
        except OSError as error:
            raise LinkError(f"{self.peer}: {reason_of(error)}") from error

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent, socket.MSG_NOSIGNAL)]

    async def drain(self) -> None:
        if self._unsent:
            data = bytes(self._unsent)
            self._unsent.clear()
            try:
                await self._loop.sock_sendall(self._sock, data)
            except OSError as error:
                raise LinkError(f"{self.peer}: {reason_of(error)}") from error

    def close(self) -> None:
        if not self._over:
            self._over = True
            Farewell(self._loop, self._sock, bytes(self._unsent), lambda: None)
            self._finish()

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self._sock.close()
            self._finish()

    def _attach(self, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost) -> Link:
        if self._over:
            raise LinkError(f"the connection to {self.peer} is closed")
        if self._unsent:
            raise LinkError(f"{self.peer}: attach before drain; bytes of the handshake are not sent yet")
        self._over = True
        return PlainLink(self._sock, self.peer, stack, port, tick, on_lost, self._options.budget, self._buffer)


class PlainLink(Link):
    """A TCP or Unix connection that carries a port."""

    def __init__(
        self, sock: socket.socket, peer: Address, stack: Stack, port: int, tick: FlushTick, on_lost: OnLost,
        budget: int, arrived: bytearray,
    ) -> None:  # fmt: skip
        super().__init__(peer, stack, port, tick, on_lost)
        self._sock = sock
        self._loop = tick.loop
        self._fd = sock.fileno()
        self._socket = StreamSocket(stack, port, self._fd, budget)
        self._socket.report_to(tick.flusher, self._ended)
        self._reading = False
        self._farewell: Farewell | None = None
        self._arrived = len(arrived)
        tick.bind(port, self, self._socket)
        try:
            feed(stack, port, arrived, len(arrived))
        except Exception as error:
            self._loop.call_soon(self._ended, error)
        else:
            self.resume_reading()
        tick.soon()

    def counters(self) -> dict[str, int]:
        carried = self._socket
        return {
            "bytes_in": carried.bytes_in + self._arrived,
            "bytes_out": carried.bytes_out,
            "reads": carried.reads,
            "writes": carried.writes,
        }

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._tick.leave(self._socket)

    def resume_reading(self) -> None:
        if self.open and not self._reading:
            self._reading = True
            self._tick.read(self._socket)

    def _target(self) -> Target:
        return self._socket

    def hold(self) -> None:
        super().hold()
        if self.open:
            self._loop.remove_writer(self._fd)

    def release(self) -> None:
        super().release()
        if self.open and self._socket.blocked:
            self.want_write(self.port)

    def want_write(self, port: int) -> None:
        if self.open and not self.held:
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            if self._socket.writable():
                self._loop.remove_writer(self._fd)
        except OSError as error:
            self._ended(error)
        self._tick.soon()  # what has left may give publishers credit, and nobody else would write that now

    def _detach(self) -> None:
        self.pause_reading()
        self._loop.remove_writer(self._fd)

    def _send_last(self, data: bytes) -> None:
        self._farewell = Farewell(self._loop, self._sock, data, self._closed)

    def _end(self) -> None:
        if self._farewell is not None:
            self._farewell.end()
        else:
            self._sock.close()
            self._closed()


class Farewell:
    """Writes the last bytes, then waits for the other side's end: closing with unread input would reset them away."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, data: bytes, closed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._data = memoryview(data)
        self._closed = closed
        self._timer = loop.call_later(LINGER_S, self.end)
        loop.add_reader(sock, self._read)
        loop.add_writer(sock, self._write)
        self._write()

    def _write(self) -> None:
        try:
            while self._data:
                self._data = self._data[self._sock.send(self._data, socket.MSG_NOSIGNAL) :]
            self._loop.remove_writer(self._sock)
            self._sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def _read(self) -> None:
        try:
            if not self._sock.recv(CHUNK):
                self.end()
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def end(self) -> None:
        """Close the descriptor now."""
        if self._sock.fileno() >= 0:
            self._timer.cancel()
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._closed()
