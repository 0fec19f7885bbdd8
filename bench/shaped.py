"""A TCP relay that carries so many bytes a second and no more, behind a short queue and with a delay."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections import deque
from typing import Self

READ = 1 << 18
SEGMENT = 1448
PIECE_S = 0.0002  # bytes leave in pieces of about so much time
LONGEST_PIECE = 1 << 16


class ShapedRelay:
    """Listens on a free port of loopback and goes on to `target`; works in a thread of its own.

    Each direction of a connection has a queue of `queue_bytes` in front of a line of `rate` bytes a second, then
    `delay_s`. When the queue is full nothing more is read, so that TCP slows its sender down: nothing is lost.
    """

    def __init__(self, target: int, rate: float = math.inf, queue_bytes: int = 1 << 20, delay_s: float = 0.0) -> None:
        self.target = target
        self.rate = rate
        self.queue_bytes = max(queue_bytes, SEGMENT)
        self.delay_s = delay_s
        self.carried = 0  # bytes towards the target
        self.late_ns = 0  # the worst that a piece left too late
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.port = int(self._server.getsockname()[1])
        self._wake = os.pipe()
        self._ways: list[_Way] = []
        self._thread = threading.Thread(target=self._run, name=f"relay {self.port}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._wake[1], b"x")
        self._thread.join()
        for descriptor in self._wake:
            os.close(descriptor)

    def _run(self) -> None:
        with self._server, contextlib.ExitStack() as stack:
            while True:
                now_ns = time.monotonic_ns()
                readers: list[int | socket.socket] = [self._wake[0], self._server]
                writers: list[socket.socket] = []
                wakes_ns = math.inf
                for way in self._ways:
                    if way.readable_ns(now_ns) <= now_ns:
                        readers.append(way.source)
                    wakes_ns = min(wakes_ns, way.next_ns(now_ns))
                    if way.blocked:
                        writers.append(way.sink)
                pause_s = None if wakes_ns == math.inf else max(wakes_ns - now_ns, 0) / 1e9
                ready, _, _ = select.select(readers, writers, (), pause_s)
                if self._wake[0] in ready:
                    return
                if self._server in ready:
                    self._accept(stack)
                now_ns = time.monotonic_ns()
                for way in self._ways:
                    if way.source in ready:
                        way.read(now_ns)
                    way.write(time.monotonic_ns())
                self._ways = [way for way in self._ways if not way.done]

    def _accept(self, stack: contextlib.ExitStack) -> None:
        inward, _ = self._server.accept()
        try:
            outward = socket.create_connection(("127.0.0.1", self.target))
        except OSError:  # nobody is there yet: so hears who wants to go there
            inward.close()
            return
        for sock in (inward, outward):
            stack.enter_context(sock)
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ways += [_Way(self, inward, outward, True), _Way(self, outward, inward, False)]


class _Way:
    """One direction of one connection."""

    def __init__(self, relay: ShapedRelay, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        self.source = source
        self.sink = sink
        self.blocked = False  # the sink takes no more
        self._relay = relay
        self._counts = counts
        self._ended = False
        self._waiting: deque[tuple[int, memoryview]] = deque()  # with the time at which each arrives
        self._free_ns = 0  # when the line has sent all that it was given

    @property
    def done(self) -> bool:
        return self._ended and not self._waiting

    def readable_ns(self, now_ns: int) -> float:
        """When the queue has room again."""
        if self._ended:
            return math.inf
        if self._relay.rate == math.inf:
            return now_ns
        full_ns = self._relay.queue_bytes / self._relay.rate * 1e9
        return max(now_ns, self._free_ns - full_ns)

    def next_ns(self, now_ns: int) -> float:
        """When something is to be done without a socket's asking."""
        readable_ns = self.readable_ns(now_ns)
        due_ns = self._waiting[0][0] if self._waiting and not self.blocked else math.inf
        return min(due_ns, readable_ns if readable_ns > now_ns else math.inf)

    def read(self, now_ns: int) -> None:
        relay = self._relay
        room = READ
        if relay.rate != math.inf:
            queued = max(self._free_ns - now_ns, 0) * relay.rate / 1e9
            room = min(READ, max(int(relay.queue_bytes - queued), SEGMENT))
        try:
            data = memoryview(self.source.recv(room))
        except BlockingIOError:
            return
        except OSError:
            data = memoryview(b"")
        if not data:
            self._ended = True
            return
        delay_ns = round(relay.delay_s * 1e9)
        if relay.rate == math.inf:
            self._waiting.append((now_ns + delay_ns, data))
            return
        step = min(max(int(relay.rate * PIECE_S), SEGMENT), LONGEST_PIECE)
        self._free_ns = max(self._free_ns, now_ns)
        for start in range(0, len(data), step):
            piece = data[start : start + step]
            self._free_ns += math.ceil(len(piece) / relay.rate * 1e9)
            self._waiting.append((self._free_ns + delay_ns, piece))

    def write(self, now_ns: int) -> None:
        """Everything that has arrived by now."""
        waiting = self._waiting
        if not waiting or waiting[0][0] > now_ns:
            return
        relay = self._relay
        if not self.blocked:
            relay.late_ns = max(relay.late_ns, now_ns - waiting[0][0])
        self.blocked = False
        while waiting and waiting[0][0] <= now_ns:
            due_ns, piece = waiting[0]
            try:
                sent = self.sink.send(piece)
            except BlockingIOError:
                self.blocked = True
                return
            except OSError:
                self._ended = True
                waiting.clear()
                return
            relay.carried += sent if self._counts else 0
            if sent < len(piece):
                waiting[0] = (due_ns, piece[sent:])
                self.blocked = True
                return
            waiting.popleft()


def limit(seconds: float = 0.5) -> float:
    """Bytes a second that a relay in this process carries at most: what it shapes must be well below."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ShapedRelay(server.getsockname()[1]) as relay,
        socket.create_connection(("127.0.0.1", relay.port)) as source,
        server.accept()[0] as sink,
    ):
        reader = threading.Thread(target=_drain, args=(sink,), daemon=True)
        reader.start()
        block, until = bytes(READ), time.monotonic() + seconds
        while time.monotonic() < until:
            source.send(block)
        carried = relay.carried
        source.shutdown(socket.SHUT_WR)
        reader.join(10)
        return carried / seconds


def _drain(sock: socket.socket) -> None:
    room = bytearray(1 << 18)
    with contextlib.suppress(OSError):
        while sock.recv_into(room):
            pass
