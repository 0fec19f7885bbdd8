"""The loops of the load generator over TLS: Python moves whole buffers, compiled code fills and scans them."""

from __future__ import annotations

import select
import selectors
import socket
import ssl
import time

from bench._publish import Publisher
from bench._subscribe import Subscriber
from bench.protocols import Link
from bench.shared import END, RUN, STOP, Shared
from chappe.errors import LinkError

WOULD_BLOCK = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
PAUSE_S = 100e-6
NO_LIMIT = 1 << 62


def receive(receiver: Subscriber, socks: list[socket.socket], shared: Shared) -> bool:
    """As Subscriber.run, for TLS connections."""
    room = bytearray(65536)
    view = memoryview(room)
    with selectors.EpollSelector() as selector:
        for i, sock in enumerate(socks):
            selector.register(sock, selectors.EVENT_READ, i)
        while shared.phase != END:
            for key, _ in selector.select(0.02):
                if not _pull(receiver, socks[key.data], key.data, view):
                    return False
    return True


def _pull(receiver: Subscriber, sock: socket.socket, i: int, view: memoryview) -> bool:
    """Everything that the connection has now; False at its end."""
    try:
        while got := sock.recv_into(view):
            receiver.feed(i, view[:got])
        return False
    except WOULD_BLOCK:
        if reply := receiver.take_reply(i):
            sock.send(reply)
        return True


def send(sender: Publisher, socks: list[socket.socket], shared: Shared, rate: float, limit: int) -> bool:
    """As Publisher.run, for TLS connections."""
    start, before = 0.0, 0
    turn = turns = 0
    try:
        while shared.phase < STOP and not (limit and shared.sent >= limit):
            if shared.phase < RUN:
                start = 0.0
                time.sleep(0.0002)
                continue
            if not start:
                start, before = time.monotonic(), shared.sent
            due = before + int(rate * (time.monotonic() - start)) if rate else NO_LIMIT
            batch = sender.next_batch(turn, min(due, limit or NO_LIMIT))
            turns += 1
            if not batch or turns & 255 == 0:
                _listen(sender, socks[turn], turn)
            if not batch:
                time.sleep(PAUSE_S)
                continue
            socks[turn].sendall(batch)
            turn = (turn + 1) % len(socks)
    except OSError:
        return shared.phase >= STOP
    return True


def linger(shared: Shared) -> None:
    """Keep the connections open until END."""
    while shared.phase != END:
        time.sleep(0.002)


def _listen(sender: Publisher, sock: socket.socket, turn: int) -> None:
    """Credits and heartbeats that came back, without waiting for any."""
    while select.select([sock], [], [], 0)[0]:
        chunk = sock.recv(65536)
        if not chunk:
            raise LinkError("the peer closed the connection")
        if reply := sender.feed(turn, chunk):
            sock.sendall(reply)


def ping_pong(
    scan: str, out: Link, back: Link, frame: bytes, places: tuple[int, ...], size: int, rounds: int, warm: int
) -> list[int]:
    """As the compiled ping_pong, for TLS connections."""
    shared = Shared(1)
    receiver = Subscriber(scan, [-1], 1, size, shared.words, 0, [back.head])
    message = bytearray(frame)
    times_ns: list[int] = []
    try:
        for i in range(rounds + warm):
            message[places[1] : places[1] + 8] = i.to_bytes(8, "big")
            if places[3] >= 0:
                message[places[3] : places[3] + 4] = (i + 1).to_bytes(4, "big")
            start = time.perf_counter_ns()
            out.sock.sendall(message)
            while shared.received(0) <= i:
                receiver.feed(0, back.sock.recv(65536))
            if i >= warm:
                times_ns.append(time.perf_counter_ns() - start)
    finally:
        del receiver
        shared.close()
    return histogram(times_ns)


def histogram(times_ns: list[int]) -> list[int]:
    """Counts in the buckets of the compiled meters."""
    counts = [0] * 2048
    for value in times_ns:
        shift = max(0, value.bit_length() - 6)
        counts[shift * 32 + (value >> shift)] += 1
    return counts
