"""Accepting connections, through floods and exhausted descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias

import structlog

from chappe.errors import ChappeError, LinkError
from chappe.links._accept import accept_some
from chappe.links.address import Address
from chappe.links.link import Accepted, Raw, reason_of
from chappe.links.meter import Meter
from chappe.links.options import LinkOptions, apply
from chappe.security.tls import handshake_reason

log = structlog.get_logger(__name__)

Finished: TypeAlias = Callable[[Raw], None]
Opening: TypeAlias = Coroutine[Any, Any, Raw | None]  # None: nothing to hand over
Opener: TypeAlias = Callable[[socket.socket, Address, Finished], Opening]

_Arrival: TypeAlias = tuple[int, str, int]  # descriptor, host, port

ACCEPT_BATCH = 32  # connections taken in one callback, so that a flood leaves time for those who are served
LOG_S = 1.0  # between two lines about handshakes that were ended
FAILED_NS = 5_000_000  # that a handshake without success costs its host beside its time: honest ones succeed
PAUSE_S = 0.1  # after the system ran out of descriptors or memory
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def bind(address: Address, opener: Opener, accepted: Accepted, options: LinkOptions) -> Listener:
    """Listen on the TCP port or Unix socket of an address; `opener` turns an accepted socket into a Raw.

    `accepted(raw)` does the handshake and attaches or closes the connection; an error that leaves it closes it.
    """
    try:
        sock = _bind_unix(address) if address.scheme == "unix" else await _bind_tcp(address)
        try:
            apply(sock, options)
            sock.listen(options.backlog)
            return Listener(sock, address, opener, accepted, options)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise LinkError(f"can not listen on {address}: {reason_of(error)}") from error


async def _bind_tcp(address: Address) -> socket.socket:
    found = await asyncio.get_running_loop().getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, place = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_unix(address: Address) -> socket.socket:
    if _alive(address.path):
        raise LinkError(f"can not listen on {address}: another process listens there")
    with contextlib.suppress(FileNotFoundError):
        if not _is_socket(address.path):
            raise LinkError(f"can not listen on {address}: the path exists and is no socket; remove it")
        os.unlink(address.path)  # left behind by a process that was killed
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(address.path)
    except BaseException:
        sock.close()
        raise
    return sock


def _is_socket(path: str) -> bool:
    return (os.lstat(path).st_mode & 0o170000) == 0o140000


def _alive(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True


class Listener:
    """A listening socket; `address` has the real port."""

    def __init__(
        self, sock: socket.socket, address: Address, opener: Opener, accepted: Accepted, options: LinkOptions
    ) -> None:
        self.address = address.with_port(sock.getsockname()[1]) if address.scheme != "unix" else address
        self.accepted_total = 0
        self.accept_errors = 0
        self.tls_failures = 0  # and upgrades that failed
        self.evicted = 0
        self._sock = sock
        self._inode = os.stat(address.path).st_ino if address.scheme == "unix" else 0
        self.on_close: Callable[[], None] = lambda: None  # ends what the opener keeps
        self._opener = opener
        self._accepted = accepted
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._pending: dict[asyncio.Task[None], str] = {}  # in order of arrival, with the host each comes from
        self._hosts: dict[str, dict[asyncio.Task[None], None]] = {}  # those of each host
        self._logged_s = -1.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._unserved: dict[asyncio.Task[None], socket.socket] = {}  # whose task has not begun
        self._held: dict[str, deque[_Arrival]] = {}  # by host, until the gate lets them in
        self._pause: asyncio.TimerHandle | None = None
        self._loop.add_reader(sock, self._on_readable)

    @property
    def pending(self) -> int:
        """Connections that are neither attached nor closed."""
        return len(self._pending) + sum(map(len, self._held.values()))

    def counters(self) -> dict[str, int]:
        """What happened to connections so far."""
        return {
            "accepted": self.accepted_total,
            "accept_errors": self.accept_errors,
            "tls_failures": self.tls_failures,
            "evicted": self.evicted,
            "pending": self.pending,
        }

    async def close(self) -> None:
        """Stop listening; connections whose handshake is not over are closed, attached ones stay."""
        if self._sock.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        if self.address.scheme == "unix":
            with contextlib.suppress(OSError):
                if os.stat(self.address.path).st_ino == self._inode:
                    os.unlink(self.address.path)
        for held in self._held.values():
            for descriptor, _, _ in held:
                os.close(descriptor)
        self._held.clear()
        pending = list(self._pending)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        self.on_close()

    def _on_readable(self) -> None:
        try:
            found = accept_some(self._sock.fileno(), ACCEPT_BATCH)
        except OSError as error:
            self.accept_errors += 1
            if error.errno in EXHAUSTED:
                log.warning("accept failed, pausing", address=str(self.address), reason=reason_of(error))
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(PAUSE_S, self._resume)
            return
        self.accepted_total += len(found)
        for arrival in found:
            self._admit(arrival)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._on_readable)

    def _admit(self, arrival: _Arrival) -> None:
        """Begin its handshake, now or when the gate says so."""
        host = arrival[1]
        gate = self._options.gate if host else None
        meter = gate.meter(host) if gate is not None else None
        if gate is None or meter is not None:
            self._start(arrival, meter)
            return
        held = self._held.setdefault(host, deque())
        if len(held) >= self._options.max_held_of_host:
            os.close(held.popleft()[0])
            self._count_evicted(host, f"{len(held) + 1} connections of {host} wait for their turn")
        else:
            gate.wait(host, partial(self._let_in, host))
        held.append(arrival)

    def _let_in(self, host: str, meter: Meter) -> None:
        held = self._held.get(host)
        if held:  # else the listener was closed
            arrival = held.popleft()
            if not held:
                del self._held[host]
            self._start(arrival, meter)

    def _start(self, arrival: _Arrival, meter: Meter | None) -> None:
        descriptor, host, port = arrival
        sock = socket.socket(self._sock.family, socket.SOCK_STREAM, self._sock.proto, descriptor)
        same = self._hosts.setdefault(host, {})
        # An honest handshake takes milliseconds: the one that has waited longest is the least likely to be one.
        if host and len(same) >= self._options.max_pending_of_host:
            self._evict(next(iter(same)), f"{len(same)} connections of {host} have not finished their handshake")
        elif len(self._pending) >= self._options.max_pending:
            self._evict(next(iter(self._pending)), f"{len(self._pending)} connections have not finished theirs")
        peer = Address(self.address.scheme, host, port) if host else self.address
        task = self._loop.create_task(self._serve(sock, peer, host, meter))
        self._unserved[task] = sock
        self._pending[task] = host
        self._hosts.setdefault(host, {})[task] = None
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _evict(self, task: asyncio.Task[None], reason: str) -> None:
        host = self._pending[task]
        self._settled(task)
        task.cancel()
        self._count_evicted(host, reason)

    def _count_evicted(self, host: str, reason: str) -> None:
        self.evicted += 1
        if self._loop.time() - self._logged_s >= LOG_S:
            self._logged_s = self._loop.time()
            log.warning("the oldest handshake was ended", peer=host, address=str(self.address), reason=reason)

    def _settled(self, task: asyncio.Task[None]) -> None:
        """Its handshake is over, however it ended."""
        host = self._pending.pop(task, None)
        if host is not None:
            same = self._hosts[host]
            del same[task]
            if not same:
                del self._hosts[host]

    def _done(self, task: asyncio.Task[None]) -> None:
        self._settled(task)
        self._tasks.discard(task)
        sock = self._unserved.pop(task, None)
        if sock is not None:  # cancelled before it began
            sock.close()

    async def _serve(self, sock: socket.socket, peer: Address, host: str, meter: Meter | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._unserved[task]

        def finished(raw: Raw) -> None:
            self._settled(task)

        try:
            apply(sock, self._options)
            opening = self._opener(sock, peer, finished)
            raw = await (opening if meter is None else meter.measured(opening))
        except BaseException as error:
            sock.close()
            if not isinstance(error, (OSError, ChappeError)):  # ssl.SSLError and TimeoutError are OSErrors, too
                raise
            self.tls_failures += 1
            if meter is not None:
                meter.add(FAILED_NS)
            log.info("connection ended before its handshake", peer=str(peer), reason=_why(error))
            return
        if raw is None:
            return
        raw.host, raw.meter = host, meter
        try:
            accepting = self._accepted(raw)
            await (accepting if meter is None else meter.measured(accepting))
        except ChappeError as error:
            if meter is not None:
                meter.add(FAILED_NS)
            log.info("connection refused", peer=str(peer), reason=str(error))
            raw.close()
        except Exception:
            log.exception("accepting a connection failed", peer=str(peer))
            raw.abort()
        except BaseException:
            raw.abort()
            raise


def _why(error: BaseException) -> str:
    return handshake_reason(error) if isinstance(error, ssl.SSLError) else str(error) or type(error).__name__
