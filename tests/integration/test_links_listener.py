"""A listener under floods, exhausted descriptors and half handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chappe.errors import ConfigError, LinkError, TimeoutExpired
from chappe.links._socket import Flusher
from chappe.links.address import parse
from chappe.links.handshake import accept_handshake, connect_handshake
from chappe.links.stream import FlushTick, Link, LinkOptions, Listener, Raw, dial, listen
from chappe.wire.control import Hello, Refused, Welcome, decode
from chappe.wire.frames import PREAMBLE
from tests.support.rawframes import read_frame
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until

HELLO = Hello(role="client", name="c", session=b"c" * 16)
LOCAL = parse("tcp://127.0.0.1:0")


def welcome(_: Hello) -> Welcome:
    return Welcome(name="n", session=b"n" * 16, issuer=b"i" * 16)


class Echo:
    """A node that sends everything back, one port a connection."""

    def __init__(self, hello_timeout_s: float = 10.0) -> None:
        self.tape = Tape(echo=True)
        self.tick = FlushTick(asyncio.get_running_loop(), Flusher(self.tape))
        self.links: list[Link] = []
        self.errors: list[Exception] = []
        self.hello_timeout_s = hello_timeout_s

    async def accepted(self, raw: Raw) -> None:
        try:
            await accept_handshake(raw, welcome, self.hello_timeout_s)
        except Exception as error:
            self.errors.append(error)
            raise
        self.links.append(raw.attach(self.tape, len(self.links), self.tick, lambda error: None))

    async def close(self) -> None:
        for link in self.links:
            link.abort()
            await link.wait_closed()


@contextlib.asynccontextmanager
async def echo_node(
    options: LinkOptions | None = None, hello_timeout_s: float = 10.0
) -> AsyncIterator[tuple[Echo, Listener]]:
    node = Echo(hello_timeout_s)
    listener = await listen(LOCAL, node.accepted, options=options)
    try:
        yield node, listener
    finally:
        await listener.close()
        await node.close()


async def handshake(listener: Listener) -> Raw:
    raw = await dial(listener.address)
    await connect_handshake(raw, HELLO)
    return raw


async def test_three_hundred_connections_at_once_are_all_served() -> None:
    async with echo_node() as (node, listener):
        raws = await asyncio.gather(*(handshake(listener) for _ in range(300)))
        for number, raw in enumerate(raws):
            raw.write(b"%03d" % number)
        for number, raw in enumerate(raws):
            assert await raw.read_some() == b"%03d" % number
        await until(lambda: len(node.links) == 300)
        assert listener.counters() == {
            "accepted": 300,
            "accept_errors": 0,
            "tls_failures": 0,
            "evicted": 0,
            "pending": 0,
        }
        for raw in raws:
            raw.abort()


async def test_a_flood_from_one_host_ends_only_connections_of_that_host() -> None:
    async with echo_node(LinkOptions(max_pending=60, max_pending_of_host=20)) as (_, listener):
        place = (listener.address.host, listener.address.port)
        calm = [socket.create_connection(place, source_address=("127.0.0.2", 0)) for _ in range(5)]
        await until(lambda: listener.accepted_total == 5)
        flood = [socket.create_connection(place) for _ in range(100)]
        try:
            await until(lambda: listener.accepted_total == 105)
            assert (listener.pending, listener.evicted) == (25, 80)
            for each in calm:
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    assert each.recv(100) != b""  # it may have been greeted, and nothing ended it
        finally:
            for each in calm + flood:
                each.close()


async def test_a_flood_of_silent_connections_does_not_keep_others_out() -> None:
    async with echo_node(LinkOptions(max_pending=50)) as (_, listener):
        served = await handshake(listener)
        silent = [socket.create_connection((listener.address.host, listener.address.port)) for _ in range(300)]
        try:
            await until(lambda: listener.accepted_total == 301)
            assert listener.pending <= 50
            assert listener.evicted == 250
            served.write(b"still served")
            assert await served.read_some() == b"still served"
            late = await handshake(listener)
            late.write(b"welcome")
            assert await late.read_some() == b"welcome"
            late.abort()
        finally:
            served.abort()
            for each in silent:
                each.close()


async def test_a_half_handshake_is_refused_when_its_time_is_up() -> None:
    async with echo_node(hello_timeout_s=0.05) as (node, listener):
        raw = await dial(listener.address)
        raw.write(PREAMBLE + b"\x05\0\0")
        assert await raw.read_preamble() == PREAMBLE
        _, payload = await read_frame(raw)
        refused = decode(payload)
        assert isinstance(refused, Refused)
        assert "no Hello within 0.05 s" in refused.reason
        assert await raw.read_some() == b""
        raw.close()
        assert isinstance(node.errors[0], TimeoutExpired)
        await until(lambda: listener.pending == 0)


async def test_a_listener_survives_running_out_of_descriptors() -> None:
    async with echo_node() as (_, listener):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        waiting = socket.socket()
        waiting.setblocking(False)
        spare = os.open("/dev/null", os.O_RDONLY)
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare, limits[1]))
        try:
            with contextlib.suppress(BlockingIOError):
                waiting.connect((listener.address.host, listener.address.port))
            await until(lambda: listener.accept_errors > 0)
            assert listener.accepted_total == 0
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await until(lambda: listener.accepted_total == 1)
        waiting.close()
        raw = await handshake(listener)
        raw.abort()


async def test_closing_a_listener_ends_handshakes_and_keeps_links() -> None:
    node = Echo()
    listener = await listen(LOCAL, node.accepted)
    served, silent = await handshake(listener), await dial(listener.address)
    await until(lambda: listener.accepted_total == 2 and len(node.links) == 1)
    await listener.close()
    await silent.read_preamble()
    assert await silent.read_some() == b""
    served.write(b"still")
    assert await served.read_some() == b"still"
    with pytest.raises(LinkError, match="Connection refused"):
        await dial(listener.address)
    silent.abort()
    served.abort()
    await node.close()


async def test_an_error_while_accepting_ends_that_connection_alone() -> None:
    async def defect(raw: Raw) -> None:
        raise RuntimeError("a defect")

    listener = await listen(LOCAL, defect)
    for _ in range(2):
        raw = await dial(listener.address)
        assert await raw.read_some() == b""
        raw.abort()
    await listener.close()


async def test_unix_socket_files_come_and_go(tmp_path: Path) -> None:
    address = parse(f"unix://{tmp_path}/node.sock")
    node = Echo()
    listener = await listen(address, node.accepted)
    with pytest.raises(LinkError, match="another process listens there"):
        await listen(address, node.accepted)
    await listener.close()
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240
    with socket.socket(socket.AF_UNIX) as killed:  # leaves its file behind as a killed process does
        killed.bind(address.path)
    listener = await listen(address, node.accepted)
    raw = await handshake(listener)
    raw.abort()
    await listener.close()
    await node.close()


async def test_a_file_in_the_place_of_a_unix_socket_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "file"
    precious.write_text("precious")
    with pytest.raises(LinkError, match="no socket"):
        await listen(parse(f"unix://{precious}"), Echo().accepted)
    assert precious.read_text() == "precious"


async def test_an_address_in_use_is_named() -> None:
    node = Echo()
    listener = await listen(LOCAL, node.accepted)
    assert listener.address.port > 0
    with pytest.raises(LinkError, match=rf"can not listen on {listener.address}: {os.strerror(errno.EADDRINUSE)}"):
        await listen(listener.address, node.accepted)
    await listener.close()


@pytest.mark.parametrize("text", ["udp://127.0.0.1:0", "tls://127.0.0.1:0"])
async def test_what_can_not_be_listened_on_or_dialled_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"no byte stream|needs certificates"):
        await listen(parse(text), Echo().accepted)
    with pytest.raises(ConfigError, match=r"no byte stream|needs certificates"):
        await dial(parse(text))
