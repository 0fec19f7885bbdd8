"""Ten thousand idle connections: the clients here, the node in a process of its own."""

from __future__ import annotations

import contextlib
import resource
import secrets
import signal
import socket
import statistics
import time
from collections.abc import Iterator

import psutil
import pytest

from chappe.links.address import parse
from chappe.wire import control
from chappe.wire.frames import PREAMBLE, Kind, encode_frame
from tests.support.nodes import NodeProcess
from tests.support.wireclient import WireClient

COUNT = 10_000
BATCH = 100


@pytest.fixture
def many_files() -> Iterator[None]:
    """This process and its children may open enough files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = COUNT + 500
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"only {hard} files may be open here; run `ulimit -Hn {needed}` as root")
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect_batch(place: tuple[str, int]) -> list[socket.socket]:
    """Connections that said hello, with an hour between heartbeats, and were welcomed."""
    opened = [socket.create_connection(place) for _ in range(BATCH)]
    for sock in opened:
        hello = control.Hello(
            role="client", name="idle", session=secrets.token_bytes(16), heartbeat_ns=3_600_000_000_000
        )
        sock.sendall(PREAMBLE + encode_frame(Kind.CONTROL, control.encode(hello)))
    for sock in opened:
        sock.settimeout(30)
        answer = b""
        while len(answer) < 60:
            answer += sock.recv(4096)
        assert b"Welcome" in answer
    return opened


@pytest.mark.timeout(120)
async def test_ten_thousand_idle_connections_do_not_slow_the_eleventh_thousandth(many_files: None) -> None:
    """Beside a node that has none, asked in turns: a machine that is slow or busy is so for both."""
    node, empty = [await NodeProcess.start("--dev", "--listen", "tcp://127.0.0.1:0") for _ in range(2)]
    address = parse(node.urls[0])
    idle: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [sock.close() for sock in idle])
        try:
            process = psutil.Process(node.process.pid)
            empty_bytes = process.memory_info().rss
            while len(idle) < COUNT:
                idle += connect_batch((address.host, address.port))
            each_bytes = (process.memory_info().rss - empty_bytes) / COUNT
            client = await WireClient.open(node.urls[0], name="busy")
            other = await WireClient.open(empty.urls[0], name="alone")
            try:
                trips: dict[WireClient, list[float]] = {client: [], other: []}
                for each in trips:
                    await each.subscribe("x")
                for _ in range(200):
                    for each, took in trips.items():
                        before = time.perf_counter()
                        each.publish("x", b"")
                        await each.flush()
                        took.append(time.perf_counter() - before)
                await client.until(lambda: len(client.events) == 200)
                assert statistics.median(trips[client]) < 2 * statistics.median(trips[other]) + 0.002
                assert each_bytes < 40_000
                listing = await client.ask(control.List, what="clients", limit=1)
                assert listing.total == COUNT + 1
            finally:
                await client.close()
                await other.close()
        finally:
            await empty.end(signal.SIGKILL)
            assert await node.end(signal.SIGKILL) != 0
