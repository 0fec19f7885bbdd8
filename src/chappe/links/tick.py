"""One flush for each tick of the loop, whatever the number of buffers read in it."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Protocol

from chappe.links._poll import Poller
from chappe.links._socket import Flusher, StreamSocket, Target


class Carrier(Protocol):
    """What carries a port: a link or a datagram endpoint."""

    def want_write(self, port: int) -> None:
        """The socket is full: call it again when it can be written."""

    def failed(self, port: int, error: Exception) -> None:
        """Writing to the socket failed."""


class FlushTick:
    """Runs `before` and then one flush in the tick in which `soon` was called or a socket was read."""

    def __init__(self, loop: AbstractEventLoop, flusher: Flusher, before: Callable[[], None] | None = None) -> None:
        """`before` takes what arrived (control messages, echoes) and may queue answers for the same flush."""
        self.loop = loop
        self.flusher = flusher
        self._before = before
        self._carriers: dict[int, Carrier] = {}
        self._poller = Poller(self._run)
        flusher.schedule_on(loop.call_soon, self._run)

    def soon(self) -> None:
        """Something was queued outside of a read: flush in this tick."""
        self.flusher.soon()

    def now(self) -> None:
        """Flush at once: whoever queued something is about to wait for the answer to it."""
        self._flush()

    def read(self, sock: StreamSocket) -> None:
        """Read that socket whenever it has something."""
        if not len(self._poller):
            self.loop.add_reader(self._poller.fd, self._poller.poll)
        self._poller.add(sock)

    def leave(self, sock: StreamSocket) -> None:
        """Stop reading that socket."""
        self._poller.remove(sock.fd)
        if not len(self._poller):
            self.loop.remove_reader(self._poller.fd)

    def bind(self, port: int, carrier: Carrier, target: Target | Callable[[], bool]) -> None:
        """From now on that carrier writes what the port queues, through that target."""
        self._carriers[port] = carrier
        self.flusher.bind(port, target)

    def unbind(self, port: int, carrier: Carrier) -> None:
        """The carrier is gone; nothing changes if another one has taken its place already."""
        if self._carriers.get(port) is carrier:
            del self._carriers[port]
            self.flusher.unbind(port)

    def _run(self) -> None:
        try:
            if self._before is not None:
                self._before()
        finally:
            self._flush()

    def _flush(self) -> None:
        for port in self.flusher.flush():
            carrier = self._carriers.get(port)
            if carrier is not None:
                carrier.want_write(port)
        for port, error in self.flusher.take_failures():
            carrier = self._carriers.get(port)
            if carrier is not None:
                carrier.failed(port, error)
