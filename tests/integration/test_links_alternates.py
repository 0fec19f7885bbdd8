"""Links for a while and for a kind of data: opened, used, ended in time, everything given back."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

import chappe
from chappe.errors import ConfigError, LinkError, RefusedError
from chappe.links.registry import Notice
from chappe.runtime.node import Node
from tests.integration.test_links_migration import is_status, pair
from tests.support.nodes import eventually, running


@pytest.mark.spec("MR-006", "MR-047", "MR-048", "MR-039")
async def test_values_use_datagrams_for_a_while_and_nothing_of_them_is_left_behind() -> None:
    async with pair(data="stream") as both:
        await both.flow(50)
        assert both.datagrams.passed == []
        descriptors, ports = len(both.east.addresses), both.east.engine.open_ports()
        entry = await both.east.alternates.open("west", "udp", lifetime_s=1.0)
        assert (entry.kind, entry.alternate, entry.security.secure) == ("udp", True, True)
        assert (await both.east.alternates.open("west", "udp")) is entry  # there is one already
        await both.flow_until("together")
        await both.flow(50)
        assert sum(map(is_status, both.datagrams.passed)) >= 50
        port = both.east.peers.port("west")
        assert port is not None
        async with asyncio.timeout(30):
            while both.east.datagrams.link(port) is not None:
                await both.flow(5)
        await eventually(lambda: all(peer.kind != "udp" for peer in both.west.connections.transports))
        seen = len(both.datagrams.passed)
        await both.flow(50)
        await eventually(lambda: len(both.reader.records) == both.published)
        assert both.received() == sorted(both.received())
        assert sum(map(is_status, both.datagrams.passed[seen:])) == 0
        told = [notice.what for notice in both.notices if notice.entry is entry]
        assert told == ["opened", "moved", "rebound", "expired", "moved", "closed"]
        await eventually(lambda: both.east.engine.open_ports() == ports)
        assert len(both.east.addresses) == descriptors


@contextlib.asynccontextmanager
async def two(*more: str) -> AsyncIterator[tuple[Node, Node]]:
    urls = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0", *more)
    listens = "".join(f'[[listen]]\nurl = "{url}"\n' for url in urls)
    west = f'[node]\nname = "west"\n{listens}[[peer]]\nname = "east"\n'
    async with running(west) as (there,):
        east = (
            '[node]\nname = "east"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
            f'[[peer]]\nname = "west"\nurl = "{there.url}"\n[[topic_route]]\npattern = "#"\nto = ["west"]\n'
        )
        async with running(east) as (here,):
            await eventually(lambda: here.peers.channels() == ["west"])
            yield here, there


def kind_of(node: Node, name: str = "west") -> str:
    peer = node.peers.named(name)
    return peer.connection.link.kind if peer is not None and peer.connection is not None else ""


@pytest.mark.spec("MR-040", "MR-047", "MR-007", "MR-036")
async def test_a_stream_moves_to_another_transport_and_back_and_no_event_is_lost_doubled_or_overtaken() -> None:
    async with two() as (east, west):
        notices: list[Notice] = []
        east.connections.transports.watch(notices.append)
        async with chappe.connect(east.url) as writer, chappe.connect(west.url) as reader:
            subscription = await reader.subscribe("n")
            got: list[int] = []

            async def read() -> None:
                async for message in subscription:
                    got.append(int(message.body))  # noqa: PERF401  seen while it grows

            reading = asyncio.create_task(read())
            numbers = itertools.count()

            async def flow_while(condition: object) -> None:
                assert callable(condition)
                async with asyncio.timeout(30):
                    while condition():
                        for _ in range(20):
                            writer.publish("n", b"%d" % next(numbers))
                        await asyncio.sleep(0.002)

            opening = asyncio.create_task(east.alternates.open("west", "ws", lifetime_s=1.5))
            await flow_while(lambda: kind_of(east) == "tcp")
            entry = await opening
            assert (entry.kind, entry.alternate) == ("ws", True)
            await flow_while(lambda: kind_of(east) != "tcp")
            await flow_while(lambda: len(got) < 1000)
            await writer.flush(5)
            total = next(numbers)
            await eventually(lambda: len(got) == total)
            assert got == list(range(total))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        kinds = [(notice.what, notice.entry.kind) for notice in notices if notice.entry.role == "node"]
        assert [what for what in kinds if what[0] != "closed"] == [
            ("opened", "ws"),
            ("expired", "ws"),
            ("opened", "tcp"),
        ]
        assert [row["kind"] for row in east.connections.transports.rows()] == ["tcp"]


@pytest.mark.spec("MR-044", "MR-048", "MR-120")
@pytest.mark.parametrize(("data", "expected"), [("bulk", "parallel"), ("status", "udp"), ("control", "tcp")])
async def test_for_each_kind_of_data_the_best_link_of_both_is_opened(data: str, expected: str) -> None:
    async with two("tcp://127.0.0.1:0?parallel=3", "udp://127.0.0.1:0") as (east, west):
        entry = await east.alternates.open_for("west", data, lifetime_s=5)
        assert entry.kind == expected
        async with chappe.connect(east.url) as writer, chappe.connect(west.url) as reader:
            subscription = await reader.subscribe("big")
            writer.publish("big", b"x" * 500_000)
            assert len((await anext(aiter(subscription))).body) == 500_000
        with pytest.raises(ConfigError, match="no kind of data"):
            await east.alternates.open_for("west", "video")


async def test_what_cannot_be_opened_is_refused_with_a_reason_and_changes_nothing() -> None:
    async with two() as (east, _):
        for name, kind, error, reason in (
            ("north", "ws", RefusedError, "no node that is connected .those are: west"),
            ("west", "pigeon", RefusedError, "no transport 'pigeon'"),
            ("west", "unix", LinkError, "has no unix link for us; it has: tcp"),
        ):
            with pytest.raises(error, match=reason):
                await east.alternates.open(name, kind)
        with pytest.raises(RefusedError, match="lifetime"):
            await east.alternates.open("west", "ws", lifetime_s=-1)
        assert kind_of(east) == "tcp"
        assert east.peers.channels() == ["west"]
