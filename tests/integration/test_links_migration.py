"""Values move between datagrams and the stream while they flow: none is lost by the move, none overtakes another."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from chappe.links.migration import Constraint
from chappe.links.registry import Notice
from chappe.runtime.node import Node
from chappe.wire.frames import Kind
from tests.support.nodes import eventually, free_port, running
from tests.support.relays import DatagramRelay, StreamRelay, datagram_relay, stream_relay
from tests.support.wireclient import WireClient

FRAME = 12  # where the frame begins in a datagram


def is_status(datagram: bytes) -> bool:
    return datagram[FRAME] == Kind.STATUS


@dataclass
class Pair:
    """Two nodes with relays in between, a publisher at one and a reader at the other."""

    east: Node
    west: Node
    stream: StreamRelay
    datagrams: DatagramRelay
    publisher: WireClient
    reader: WireClient
    variable: int
    notices: list[Notice]
    published: int = 0

    async def flow(self, count: int, pause_s: float = 0.002) -> None:
        """Publish that many values one after the other."""
        for _ in range(count):
            self.published += 1
            self.publisher.publish_status(self.variable, float(self.published), time.time_ns())
            await asyncio.sleep(pause_s)

    def state(self) -> str:
        port = self.east.peers.port("west")
        link = None if port is None else self.east.datagrams.link(port)
        return "gone" if link is None else link.state

    async def flow_until(self, *states: str) -> None:
        async with asyncio.timeout(30):
            while self.state() not in states:
                await self.flow(5)

    def received(self) -> list[float]:
        return [item.value_as("float") for item in self.reader.records]  # type: ignore[misc]

    def lost(self) -> int:
        return sum(1 for datagram in self.datagrams.lost if is_status(datagram))


@contextlib.asynccontextmanager
async def pair(data: str = "udp", cut: bool = False) -> AsyncIterator[Pair]:
    near, far, udp = free_port(), free_port(), free_port()
    west = (
        f'[node]\nname = "west"\n[[listen]]\nurl = "tcp://127.0.0.1:{far}"\n[[listen]]\nurl = "udp://127.0.0.1:{udp}"\n'
        '[[peer]]\nname = "east"\n'
    )
    east = (
        f'[node]\nname = "east"\n[[listen]]\nurl = "tcp://127.0.0.1:{near}"\n[[listen]]\nurl = "udp://127.0.0.1:0"\n'
        f'[[peer]]\nname = "west"\nurl = "tcp://127.0.0.2:{far}"\ndata = "{data}"\npacking = 1\n'
        '[[path]]\nvariables = "#"\nto = ["west"]\n'
    )
    async with contextlib.AsyncExitStack() as stack:
        [there] = await stack.enter_async_context(running(west))
        stream = await stack.enter_async_context(stream_relay(("127.0.0.2", far), ("127.0.0.1", far)))
        datagrams = await stack.enter_async_context(datagram_relay(("127.0.0.2", udp), ("127.0.0.1", udp)))
        datagrams.loses = lambda _: cut
        [here] = await stack.enter_async_context(running(east))
        here.datagrams.constraint = there.datagrams.constraint = Constraint(leave_rounds=3)
        notices: list[Notice] = []
        here.connections.transports.watch(notices.append)
        await eventually(lambda: here.peers.channels() == ["west"])
        publisher = await WireClient.open(here.url, name="publisher")
        reader = await WireClient.open(there.url, name="reader")
        stack.push_async_callback(publisher.close)
        stack.push_async_callback(reader.close)
        variable = await publisher.register("plant/speed")
        await reader.watch("plant/speed", wait_ns=30_000_000_000)
        yield Pair(here, there, stream, datagrams, publisher, reader, variable, notices)


@pytest.mark.spec("MR-040", "MR-041", "MR-007", "MR-025")
async def test_values_revert_to_the_stream_on_loss_and_return_and_none_is_lost_or_overtaken() -> None:
    async with pair() as both:
        await both.flow_until("together")
        await both.flow(100)
        await eventually(lambda: sum(map(is_status, both.datagrams.passed)) >= 100)
        both.datagrams.delay_s = 0.03  # the stream is quicker: without care it would overtake at the move
        counter = itertools.count()
        both.datagrams.loses = lambda _: next(counter) % 5 == 0
        await both.flow_until("leaving")
        await both.flow_until("apart")
        await both.flow(100)
        moved = [notice for notice in both.notices if notice.what == "moved"]
        assert moved[-1].entry.state == "waiting"
        assert "above 5% for 3 rounds" in moved[-1].reason
        both.datagrams.loses = lambda _: False
        both.datagrams.delay_s, both.stream.delay_s = 0.0, 0.04  # now the datagrams are quicker
        await both.flow_until("together")
        after = sum(map(is_status, both.datagrams.passed))
        await both.flow(100)
        await eventually(lambda: len(both.reader.records) == both.published - both.lost())
        assert sum(map(is_status, both.datagrams.passed)) > after + 50
        got = both.received()
        assert got == sorted(got)
        assert len(got) == len(set(got))
        assert 0 < both.lost() < both.published / 4
        returned = [notice for notice in both.notices if notice.what == "moved"][-1]
        assert "below 1% for 3 rounds" in returned.reason


async def test_datagrams_that_never_arrive_carry_no_value_from_the_beginning() -> None:
    async with pair(cut=True) as both:
        await both.flow(300)
        await eventually(lambda: len(both.reader.records) == both.published)
        assert both.lost() == 0
        assert both.received() == sorted(both.received())


async def test_when_all_datagrams_stop_the_stream_takes_over_and_only_they_are_lost() -> None:
    async with pair() as both:
        await both.flow_until("together")
        both.datagrams.loses = lambda _: True
        await both.flow_until("apart", "gone")  # gone: the machine was so busy that no round was over in time
        lost = both.lost()
        await both.flow(50)
        await eventually(lambda: len(both.reader.records) == both.published - lost)
        assert both.lost() == lost > 0
        assert both.received() == sorted(both.received())
