"""Two engines over real links: events over TCP, status over UDP beside its control connection."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from chappe.engine._engine import Engine
from chappe.links._datagram import DatagramSession
from chappe.links._socket import Flusher
from chappe.links.address import parse
from chappe.links.datagram import DatagramEndpoint, open_datagrams
from chappe.links.handshake import accept_handshake, connect_handshake
from chappe.links.heartbeat import Heartbeat, LinkStatus
from chappe.links.stream import FlushTick, Link, Raw, dial, listen
from chappe.wire.control import Hello, Welcome
from chappe.wire.frames import Kind, encode_frame
from tests.unit.links.wait import until

KEY = b"0123456789abcdef"
VARIABLE = 1 << 22 | 9
CLIENT = b"c" * 16


@dataclass
class Router:
    """An engine with a control port to the other router, a datagram port beside it and a local client."""

    engine: Engine
    tick: FlushTick
    endpoint: DatagramEndpoint
    control: int
    datagrams: int
    local: int
    links: list[Link] = field(default_factory=list)
    lost: list[Exception | None] = field(default_factory=list)
    session: DatagramSession | None = None

    def attach(self, raw: Raw) -> None:
        self.links.append(raw.attach(self.engine, self.control, self.tick, self.lost.append))

    def publish(self, count: int, start: int = 0) -> None:
        records = b"".join(struct.pack(">qIB3xd", 1000 + start + n, VARIABLE, 0, 0.5) for n in range(count))
        self.engine.feed(self.local, encode_frame(Kind.STATUS, records))
        self.tick.soon()

    def delivered(self) -> int:
        """Status records queued for the local client."""
        return self.engine.pending(self.local) // 24


async def router(packing: int = 0) -> Router:
    engine = Engine()
    tick = FlushTick(asyncio.get_running_loop(), Flusher(engine))
    endpoint = await open_datagrams(parse("udp://127.0.0.1:0"), tick)
    control = engine.open_port(peer=True)
    datagrams = engine.open_port(peer=True, datagram=True, partner=control, packing=packing)
    return Router(engine, tick, endpoint, control, datagrams, engine.open_port(issuer=CLIENT))


def wire(left: Router, right: Router) -> None:
    """What control messages would agree on: a session, its key, and the path of the variable from left to right."""
    place = (right.endpoint.address.host, right.endpoint.address.port)
    left.session = left.endpoint.bind(1, left.engine, left.datagrams, KEY, opener=True, peer=place)
    right.session = right.endpoint.bind(1, right.engine, right.datagrams, KEY, opener=False)
    left.engine.status.set_variable(VARIABLE, 0, 1, [left.local])
    left.engine.status.setup_path(VARIABLE, left.control, 1, [0], [3], 0xFFFF)
    right.engine.status.set_variable(VARIABLE, 0, 1, [right.control])
    right.engine.status.setup_path(VARIABLE, right.local, 1, [0], [3], 0xFFFF)


async def connected(left: Router, right: Router) -> AsyncIterator[tuple[Router, Router]]:
    async def accepted(raw: Raw) -> None:
        await accept_handshake(raw, lambda _: Welcome(name="right", session=b"r" * 16))
        right.attach(raw)

    listener = await listen(parse("tcp://127.0.0.1:0"), accepted)
    raw = await dial(listener.address)
    await connect_handshake(raw, Hello(role="node", name="left", session=b"l" * 16))
    left.attach(raw)
    await until(lambda: len(right.links) == 1)
    wire(left, right)
    yield left, right
    await listener.close()
    for side in (left, right):
        side.endpoint.close()
        for link in side.links:
            link.abort()
            await link.wait_closed()


@pytest.fixture
async def routers(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Router, Router]]:
    packing = getattr(request, "param", 0)
    async for pair in connected(await router(packing), await router()):
        yield pair


@pytest.mark.spec("GS-003")
async def test_status_leaves_by_datagrams_and_not_by_the_control_connection(routers: tuple[Router, Router]) -> None:
    left, right = routers
    left.publish(8)
    await until(lambda: right.delivered() >= 8)
    assert right.endpoint.counters()["accepted"] > 0
    assert left.links[0].counters()["bytes_out"] == 0
    left.links[0].abort()  # the command path is gone; the event channel is not
    await until(lambda: right.lost == [None])
    before = right.delivered()
    left.publish(8, start=100)
    await until(lambda: right.delivered() >= before + 8)


@pytest.mark.spec("GS-005")
@pytest.mark.parametrize(("routers", "datagrams"), [(0, 3), (1, 10), (5, 2)], indirect=["routers"])
async def test_events_are_packed_up_to_the_limit_of_the_link(routers: tuple[Router, Router], datagrams: int) -> None:
    """Ten records at once: four a datagram unless configured otherwise."""
    left, right = routers
    left.publish(10)
    await until(lambda: right.delivered() >= 10)
    counters = right.endpoint.counters()
    assert counters["accepted"] - counters["paths"] == datagrams
    assert left.endpoint.counters()["written"] == datagrams


@pytest.mark.spec("GS-161")
async def test_a_status_event_from_a_stranger_is_rejected_by_its_link(routers: tuple[Router, Router]) -> None:
    left, right = routers
    forged = struct.pack(">IQ", 1, 1) + encode_frame(Kind.STATUS, struct.pack(">qIB3xd", 1, VARIABLE, 0, 666.0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(forged + bytes(16), (right.endpoint.address.host, right.endpoint.address.port))
        await until(lambda: right.session is not None and right.session.bad_tag == 1)
    assert right.delivered() == 0
    left.publish(1)
    await until(lambda: right.delivered() == 1)


@pytest.mark.spec("NS-007")
async def test_events_arrive_in_order_over_tcp(routers: tuple[Router, Router]) -> None:
    left, right = routers
    left.engine.topics.subscribe(left.control, "grid/#")
    right.engine.topics.subscribe(right.local, "grid/#")
    left.engine.feed(left.local, encode_frame(Kind.TOPIC, struct.pack(">IBB", 1, ord("s"), 0) + b"grid/alarm"))
    for sequence in range(1, 1001):
        left.engine.feed(
            left.local, encode_frame(Kind.EVENT, struct.pack(">III", 1, 3 << 24, sequence) + b"%04d" % sequence)
        )
    left.tick.soon()
    await until(lambda: right.engine.port_counters(right.control)["events_in"] == 1000)
    queued = bytearray()
    while part := bytes(right.engine.peek(right.local)):
        queued += part
        right.engine.consumed(right.local, len(part))
    bodies = [
        bytes(queued[place + 16 : place + 20])
        for place in range(len(queued))
        if queued[place : place + 5] == b"\x02\0\0\x10\0"
    ]
    assert bodies == [b"%04d" % sequence for sequence in range(1, 1001)]


@pytest.mark.spec("GS-004")
async def test_both_sides_ping_and_a_silent_side_is_declared_dead(routers: tuple[Router, Router]) -> None:
    left, right = routers
    beats = {id(side): Heartbeat(100_000_000, 5) for side in routers}
    seen: dict[int, set[LinkStatus]] = {id(side): set() for side in routers}
    for side in routers:
        beats[id(side)].connected(clocks()[0])

    def check(side: Router) -> None:
        verdict = beats[id(side)].check(clocks()[0], side.engine.last_heard(side.control))
        seen[id(side)].add(verdict.status)
        if verdict.send:
            side.engine.heartbeat(side.control)
            side.tick.soon()

    def both_heard() -> bool:
        check(left)
        check(right)
        return all(side.engine.port_counters(side.control)["frames_in"] >= 5 for side in routers)

    def left_alone() -> bool:
        check(left)
        return LinkStatus.FAILED in seen[id(left)]

    await until(both_heard)
    assert LinkStatus.FAILED not in seen[id(left)] | seen[id(right)]
    right.links[0].pause_reading()  # neither hears nor answers
    await until(left_alone)
    assert LinkStatus.SUSPECT in seen[id(left)]
    silent_ns = clocks()[0] - left.engine.last_heard(left.control)
    assert silent_ns >= 500_000_000


def clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()
