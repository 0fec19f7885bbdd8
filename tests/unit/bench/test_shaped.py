"""The relay that makes a link narrow: its rate, its delay, and that nothing is lost."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.shaped import ShapedRelay, limit


@contextmanager
def through(rate: float, queue_bytes: int, delay_s: float) -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ShapedRelay(server.getsockname()[1], rate, queue_bytes, delay_s) as relay,
        socket.create_connection(("127.0.0.1", relay.port), timeout=10) as source,
        server.accept()[0] as sink,
    ):
        sink.settimeout(10)
        yield source, sink


def receive(sink: socket.socket, size: int) -> tuple[bytes, float, float]:
    """The bytes, and when the first and the last of them came."""
    found, first = b"", 0.0
    while len(found) < size:
        found += sink.recv(1 << 16)
        first = first or time.monotonic()
    return found, first, time.monotonic()


@pytest.mark.parametrize("rate", [200_000.0, 2_000_000.0])
def test_so_many_bytes_a_second_after_the_delay(rate: float) -> None:
    sent = bytes(range(256)) * int(rate * 0.4 / 256)
    for _ in range(5):
        with through(rate, 32_000, 0.03) as (source, sink):
            began = time.monotonic()
            writer = threading.Thread(target=source.sendall, args=(sent,))
            writer.start()
            found, first, last = receive(sink, len(sent))
            writer.join()
        assert found == sent
        assert first - began >= 0.03
        assert last - began >= 0.03 + len(sent) / rate * 0.99, "never faster than the line"
        if last - began < 0.03 + len(sent) / rate * 2:
            return
    pytest.fail("five times slower than the line, which is not the work of a busy machine")


def test_both_ways_and_without_a_limit() -> None:
    with through(math.inf, 1 << 20, 0.0) as (source, sink):
        source.sendall(b"there")
        assert sink.recv(100) == b"there"
        sink.sendall(b"and back")
        assert source.recv(100) == b"and back"


def test_the_end_of_a_connection_ends_only_it() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ShapedRelay(server.getsockname()[1], 1e6, 1 << 16, 0.01) as relay,
    ):
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", relay.port), timeout=10) as source, server.accept()[0] as sink:
                sink.settimeout(10)
                source.sendall(b"x" * 5000)
                assert receive(sink, 5000)[0] == b"x" * 5000
    assert relay.carried == 10_000


def test_nobody_at_the_other_end_is_a_closed_connection_and_no_more() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with ShapedRelay(port) as relay:
        with socket.create_connection(("127.0.0.1", relay.port), timeout=10) as source:
            assert source.recv(1) == b""
        with (
            socket.create_server(("127.0.0.1", port)) as server,
            socket.create_connection(("127.0.0.1", relay.port), timeout=10) as source,
            server.accept()[0] as sink,
        ):
            source.sendall(b"now")
            assert sink.recv(10) == b"now"


def test_its_own_limit_is_far_above_what_it_is_used_for() -> None:
    assert limit(0.2) > 25e6
