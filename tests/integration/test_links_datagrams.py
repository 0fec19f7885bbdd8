"""Datagrams between two endpoints on one loop, beside a control connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chappe.errors import ConfigError, LinkError
from chappe.links._datagram import siphash128
from chappe.links._socket import Flusher
from chappe.links.address import parse
from chappe.links.datagram import DatagramEndpoint, open_datagrams, resolve_peer
from chappe.links.stream import FlushTick, LinkOptions
from tests.unit.links.tapes import Tape
from tests.unit.links.wait import until

KEY = b"0123456789abcdef"
LOCAL = parse("udp://127.0.0.1:0")


class Side:
    """An endpoint with its tape."""

    def __init__(self, tape: Any) -> None:
        self.tape = tape
        self.tick = FlushTick(asyncio.get_running_loop(), Flusher(tape))
        self.endpoint: DatagramEndpoint

    async def open(self, options: LinkOptions | None = None) -> Side:
        self.endpoint = await open_datagrams(LOCAL, self.tick, options=options)
        return self

    def send(self, port: int, frames: list[bytes]) -> None:
        self.tape.queue_datagrams(port, frames)
        self.tick.soon()


@pytest.fixture
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    node = await Side(Tape(echo=True)).open()
    client = await Side(Tape()).open()
    yield node, client
    node.endpoint.close()
    client.endpoint.close()


@pytest.mark.spec("GS-003", "NS-009")
async def test_two_sessions_of_one_socket_echo_their_own_frames(sides: tuple[Side, Side]) -> None:
    node, client = sides
    place = (node.endpoint.address.host, node.endpoint.address.port)
    for session, port in ((5, 0), (6, 3)):
        key = KEY[:-1] + bytes([session])
        node.endpoint.bind(session, node.tape, port, key, opener=False)
        client.endpoint.bind(session, client.tape, port, key, opener=True, peer=place)
    wanted = {port: [bytes([1, 0, 0, 24]) + bytes([port]) * 23 + bytes([n]) for n in range(200)] for port in (0, 3)}
    for port, frames in wanted.items():
        client.send(port, list(frames))
    await until(lambda: all(len(client.tape.datagrams.get(port, ())) == 200 for port in wanted))
    assert client.tape.datagrams == wanted
    counters = node.endpoint.counters()
    assert (counters["accepted"], counters["paths"], counters["written"]) == (402, 2, 400)
    assert counters["writes"] < 100  # in batches, not one call a datagram


@pytest.mark.spec("GS-161")
async def test_injected_datagrams_never_reach_the_stack(sides: tuple[Side, Side]) -> None:
    node, _ = sides
    session = node.endpoint.bind(5, node.tape, 0, KEY, opener=False)
    head = (5).to_bytes(4, "big") + (1).to_bytes(8, "big") + b"\x01\0\0\x18" + bytes(24)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
        for bad in (head + bytes(16), head + siphash128(b"k" * 16, head), b"\7" + head[1:] + bytes(16), head[:9]):
            thief.sendto(bad, (node.endpoint.address.host, node.endpoint.address.port))
        await until(lambda: node.endpoint.counters()["received"] == 4)
    counters = node.endpoint.counters()
    assert node.tape.datagrams == {}
    assert (session.bad_tag, counters["unknown_session"], counters["too_short"]) == (2, 1, 1)
    assert session.peer is None


async def test_frames_queued_before_the_client_was_heard_are_sent_then(sides: tuple[Side, Side]) -> None:
    node, client = sides
    node.tape.echo = False
    node.endpoint.bind(1, node.tape, 0, KEY, opener=False)
    node.send(0, [b"\x01\0\0\0early"])
    await asyncio.sleep(0)
    peer = await resolve_peer("localhost", node.endpoint.address.port)
    client.endpoint.bind(1, client.tape, 0, KEY, opener=True, peer=("127.0.0.1", peer[1]))
    client.send(0, [b"\x04\0\0\x10" + bytes(16)])
    await until(lambda: client.tape.datagrams.get(0) == [b"\x01\0\0\0early"])


@pytest.mark.spec("GS-006")
async def test_drops_of_the_kernel_are_visible_when_the_reader_is_late(sides: tuple[Side, Side]) -> None:
    _, client = sides
    late = await Side(Tape()).open(LinkOptions(receive_buffer=4096))
    assert late.endpoint.buffers.receive == 4096
    late.endpoint.bind(1, late.tape, 0, KEY, opener=False)
    place = (late.endpoint.address.host, late.endpoint.address.port)
    session = client.endpoint.bind(1, client.tape, 0, KEY, opener=True, peer=place)
    client.tape.queue_datagrams(0, [b"\x01\0\0\x60" + bytes(96)] * 500)
    assert session.writable()  # sends all of them before the loop runs the reader again
    await until(lambda: late.endpoint.counters()["received"] > 0)
    client.send(0, [b"\x01\0\0\x60" + bytes(96)])
    await until(lambda: late.endpoint.counters()["kernel_drops"] > 0)
    counters = late.endpoint.counters()
    late.endpoint.close()
    # Not exactly: whoever sent to this port before may not know yet that it has another owner.
    assert 501 <= counters["accepted"] + counters["kernel_drops"] < 520
    assert counters["accepted"] < 500


async def test_a_full_socket_keeps_frames_queued_and_goes_on(sides: tuple[Side, Side]) -> None:
    """More than one drain may take: the writer callback of the loop sends the rest."""
    node, client = sides
    node.tape.echo = False
    node.endpoint.bind(1, node.tape, 0, KEY, opener=False)
    client.endpoint.bind(
        1, client.tape, 0, KEY, opener=True, peer=(node.endpoint.address.host, node.endpoint.address.port)
    )
    client.send(0, [b"\x01\0\0\x18" + bytes(24)] * 3000)
    await until(lambda: client.tape.pending(0) == 0)
    await until(lambda: sum(node.endpoint.counters()[name] for name in ("accepted", "kernel_drops")) >= 3000)
    assert client.endpoint.counters()["written"] == 3000


async def test_what_can_not_be_opened_is_refused(sides: tuple[Side, Side]) -> None:
    node, _ = sides
    with pytest.raises(ConfigError, match="no datagram address"):
        await open_datagrams(parse("tcp://127.0.0.1:0"), node.tick)
    with pytest.raises(LinkError, match="Address already in use"):
        await open_datagrams(node.endpoint.address, node.tick)
    with pytest.raises(LinkError, match="not known"):
        await resolve_peer("no-such-host.invalid", 1)
