"""Values by UDP beside the connection, and flooded variables, at a real node."""

from __future__ import annotations

import asyncio

import pytest

import chappe
from chappe.errors import ConfigError, RefusedError
from chappe.runtime.node import Node
from chappe.wire import management
from tests.support.nodes import eventually, running

STREAM = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
BOTH = STREAM + '[[listen]]\nurl = "udp://127.0.0.1:0"\n'


@pytest.mark.spec("GS-003", "GS-005", "GS-013")
async def test_values_go_and_come_by_datagrams_one_record_each() -> None:
    async with (
        running(BOTH) as (node,),
        chappe.connect(node.url, name="one", status="udp") as one,
        chappe.connect(node.url, name="two", status="udp") as two,
    ):
        variable = await one.register("plant", "speed", type="int")
        watch = await two.watch("plant", "speed")
        stream = aiter(watch)
        before = one.counters()
        for number in range(100):
            assert variable.publish(number)
        async with asyncio.timeout(30):
            assert [(await anext(stream)).value for _ in range(100)] == list(range(100))
        after = one.counters()
        records = after["out_bytes"] - before["out_bytes"]
        assert after["datagrams_written"] - before["datagrams_written"] >= 100  # publishers never pack
        assert records >= 100 * 28
        assert two.counters()["in_status"] == 100
        assert two.counters()["in_datagrams"] > 25  # the node packs four records at most
        counters = two.counters()
        assert counters["datagrams_accepted"] - counters["datagrams_paths"] == counters["in_datagrams"]


async def test_events_stay_on_the_connection() -> None:
    async with running(BOTH) as (node,), chappe.connect(node.url, status="udp") as client:
        subscription = await client.subscribe("a")
        written = client.counters()["datagrams_written"]
        for number in range(50):
            client.publish("a", b"%d" % number)
        await client.flush(5)
        assert [message.body for message in subscription.take_nowait()] == [b"%d" % number for number in range(50)]
        assert client.counters()["datagrams_written"] - written <= 2  # a heartbeat, an echo


async def test_a_node_without_datagrams_says_so() -> None:
    async with running(STREAM) as (node,):
        with pytest.raises(RefusedError, match="udp://"):
            await chappe.connect(node.url, status="udp")
    with pytest.raises(ConfigError, match="'stream' or 'udp'"):
        chappe.connect("tcp://127.0.0.1:1", status="pigeon")  # type: ignore[arg-type]


async def test_datagrams_come_back_after_a_reconnection() -> None:
    async with (
        running(BOTH) as (node,),
        chappe.connect(node.url, name="one", status="udp") as client,
        chappe.connect(node.url, name="two") as other,
    ):
        variable = await client.register("plant", "speed", type="int")
        watch = await other.watch("plant", "speed")
        assert client._session is not None
        client._session.drop(chappe.errors.LinkError("cut by the test"))
        await eventually(lambda: client.core.by_datagrams and variable.active)
        before = client.counters()["datagrams_written"]
        assert variable.publish(7)
        await eventually(lambda: watch.value == 7)
        assert client.counters()["datagrams_written"] > before


async def test_values_use_the_connection_when_datagrams_do_not_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.client.datagram.SILENT_NS", 200_000_000)
    async with (
        running(BOTH) as (node,),
        chappe.connect(node.url, name="one", status="udp") as client,
        chappe.connect(node.url, name="two") as other,
    ):
        variable = await client.register("plant", "speed", type="int")
        watch = await other.watch("plant", "speed")
        node.datagrams.gone(next(iter(node.datagrams._links)))
        await eventually(lambda: not client.core.by_datagrams)
        assert variable.publish(9)
        await eventually(lambda: watch.value == 9)


def flooding(node: Node, command: int, variable_id: int) -> management.Flood:
    entry = node.core.variables.directory.numbered(variable_id)
    assert entry is not None
    return management.Flood(id=0, epoch=1, command=command, variable=entry.variable, levels=(1,) * 16)


@pytest.mark.spec("GS-051")
@pytest.mark.parametrize("status", ["stream", "udp"])
async def test_flooded_variables_come_with_their_names(status: str) -> None:
    async with (
        running(BOTH) as (node,),
        chappe.connect(node.url, name="one") as one,
        chappe.connect(node.url, name="two", flooded=True, status=status) as two,  # type: ignore[arg-type]
    ):
        speed = await one.register("plant", "speed", type="int")
        heat = await one.register("plant", "heat")
        quiet = await one.register("plant", "quiet")
        stream = two.flooded()
        watched = await two.watch("plant", "heat")
        await one.command(flooding(node, 1, speed.id))
        await one.command(flooding(node, 2, heat.id))
        for variable, value in ((speed, 5), (heat, 2.5), (quiet, 1.0), (speed, 6)):
            assert variable.publish(value)
        async with asyncio.timeout(30):
            events = [await anext(stream) for _ in range(2)]
        assert [(event.publisher, event.variable, event.value) for event in events] == [
            ("plant", "speed", 5),
            ("plant", "speed", 6),
        ]
        await eventually(lambda: watched.value == 2.5)
        assert (len(stream), stream.dropped) == (0, 0)


async def test_a_full_stream_of_flooded_variables_counts_what_it_drops() -> None:
    async with (
        running(STREAM) as (node,),
        chappe.connect(node.url, name="one") as one,
        chappe.connect(node.url, name="two", flooded=True) as two,
    ):
        speed = await one.register("plant", "speed", type="int")
        stream = two.flooded(max_queue=10)
        stream.take_nowait()
        await one.command(flooding(node, 1, speed.id))
        for number in range(25):
            speed.publish(number)
        await eventually(lambda: stream.dropped == 15)
        await eventually(lambda: len(stream) == 10)
        assert [event.value for event in stream.take_nowait()] == list(range(10))
        assert two.counters()["dropped"] == 15
        assert two.flooded() is stream
        await stream.unwatch()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_a_client_that_did_not_ask_for_flooded_variables_is_told() -> None:
    async with running(STREAM) as (node,), chappe.connect(node.url) as client:
        with pytest.raises(ValueError, match="flooded=True"):
            client.flooded()
