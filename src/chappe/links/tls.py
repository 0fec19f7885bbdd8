"""TLS handshakes beside the loop: it moves their bytes, threads compute them, and a transport carries on after them.

A handshake costs a millisecond or two of arithmetic, for which messages would wait if the loop did it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from chappe.links._tls import TlsTransport
from chappe.links.link import LINGER_S

Step: TypeAlias = Callable[[], bool]

THREADS_MAX = 4
RECEIVE = 16_384
HANDSHAKE_MAX = 262_144  # bytes of an unfinished handshake
HEADER_SIZE = 5  # of a record: type, version, length
RECORD_MAX = (1 << 14) + 2048  # bytes that a record can have at most, by the older of the versions
RECORD_TYPES = range(20, 25)


async def start_tls(
    sock: socket.socket, context: ssl.SSLContext, server_name: str | None, protocol: asyncio.BufferedProtocol
) -> None:
    """Do the handshake on a connected, non-blocking socket, and give the protocol a transport that owns the descriptor.

    `server_name` is what the certificate of the server must carry; None if we are the server. ssl.SSLError says what
    is wrong with the other side, OSError that it is gone; then, and when cancelled, the socket is still the caller's,
    who also limits the time.
    """
    handshake = _Handshake(sock, context, server_name)
    secured = await handshake.run()
    loop = asyncio.get_running_loop()
    TlsTransport(loop, sock, protocol, secured, handshake.incoming, handshake.outgoing, LINGER_S)


class HandshakeThreads:
    """Runs steps of handshakes, as many at a time as there are threads; hosts take turns."""

    def __init__(self, threads: int) -> None:
        self._executor = ThreadPoolExecutor(threads, "chappe-tls")
        self._lock = threading.Lock()  # several loops of a process share the threads
        self._waiting: dict[str, deque[tuple[Future[bool], Step]]] = {}  # by host, in the order of their turns

    def submit(self, host: str, step: Step) -> Future[bool]:
        """What the step will return or raise when it was that host's turn; cancelled before, it does not run."""
        future: Future[bool] = Future()
        with self._lock:
            self._waiting.setdefault(host, deque()).append((future, step))
        self._executor.submit(self._run_next)
        return future

    def _run_next(self) -> None:
        with self._lock:
            host = next(iter(self._waiting))
            steps = self._waiting.pop(host)
            future, step = steps.popleft()
            if steps:
                self._waiting[host] = steps
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(step())
        except BaseException as error:
            future.set_exception(error)

    def close(self) -> None:
        """Run what was submitted, and end the threads."""
        self._executor.shutdown()


@functools.cache
def handshake_threads() -> HandshakeThreads:
    """Those of this process: its processors are what handshakes compete for."""
    return HandshakeThreads(min(THREADS_MAX, os.cpu_count() or 1))


class _Handshake:
    """One handshake. A step that was begun goes on when `run` is cancelled; it uses nothing but what is kept here."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_name: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._sock = sock
        self._host = _host_of(sock)
        self._context = context
        self._server_name = server_name
        self._secured: ssl.SSLObject | None = None
        self._arrived = bytearray()  # that OpenSSL has not seen: no whole record yet
        self._received = 0
        self._loop = asyncio.get_running_loop()

    async def run(self) -> ssl.SSLObject:
        """The connection once both sides are content; what arrived behind that waits in `incoming`."""
        if self._server_name is None:
            await self._receive()
        while not await self._step():
            await self._receive()
        assert self._secured is not None
        self.incoming.write(self._arrived)
        return self._secured

    async def _receive(self) -> None:
        """Wait for whole records: a thread that is given less does nothing but ask for more."""
        while not (size := whole_records(self._arrived)):
            received = await self._loop.sock_recv(self._sock, RECEIVE)
            if not received:
                raise ConnectionResetError("it closed the connection")
            self._received += len(received)
            if self._received > HANDSHAKE_MAX:
                raise ConnectionAbortedError(f"its TLS handshake has more than {HANDSHAKE_MAX} bytes")
            self._arrived += received
        self.incoming.write(self._arrived[:size])
        del self._arrived[:size]

    async def _step(self) -> bool:
        """Let a thread use what has arrived, and send what it answers; True if the handshake is over."""
        try:
            over = await asyncio.wrap_future(handshake_threads().submit(self._host, self._compute))
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # the alert: who does not read it learns less
                self._sock.send(self.outgoing.read(), socket.MSG_NOSIGNAL)
            raise
        if self.outgoing.pending:
            await self._loop.sock_sendall(self._sock, self.outgoing.read())
        return over

    def _compute(self) -> bool:
        if self._secured is None:
            server_side = self._server_name is None
            self._secured = self._context.wrap_bio(self.incoming, self.outgoing, server_side, self._server_name)
        try:
            self._secured.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True


def whole_records(arrived: bytearray) -> int:
    """The length of the TLS records at the start that are complete; OSError if one announces more than one can have.

    Everything, if it is no TLS: OpenSSL knows what it may be instead.
    """
    end = 0
    while len(arrived) - end >= HEADER_SIZE:
        if arrived[end] not in RECORD_TYPES or arrived[end + 1] != 3:
            return len(arrived)
        size = int.from_bytes(arrived[end + 3 : end + HEADER_SIZE], "big")
        if size > RECORD_MAX:
            raise ConnectionAbortedError(f"it announces a TLS record of {size} bytes; {RECORD_MAX} are allowed")
        if len(arrived) < end + HEADER_SIZE + size:
            break
        end += HEADER_SIZE + size
    return end


def _host_of(sock: socket.socket) -> str:
    place = sock.getpeername()
    return str(place[0]) if isinstance(place, tuple) else str(place)
