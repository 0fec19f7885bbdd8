"""The asyncio client at a real node: publish, subscribe, watch, request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from fractions import Fraction

import numpy
import pytest

import chappe
from chappe.errors import ConfigError, LinkError, RefusedError, TimeoutExpired, UnknownError
from chappe.runtime.node import Node
from chappe.wire import control, management
from chappe.wire.control import Variable
from tests.support.nodes import eventually, free_port, running

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running(LISTEN) as nodes:
        yield nodes[0]


@pytest.fixture
async def one(node: Node) -> AsyncIterator[chappe.Client]:
    async with chappe.connect(node.url, name="one") as client:
        yield client


@pytest.fixture
async def two(node: Node) -> AsyncIterator[chappe.Client]:
    async with chappe.connect(node.url, name="two") as client:
        yield client


async def take(source: object, count: int) -> list[chappe.Message]:
    async with asyncio.timeout(30):
        return [await anext(source) for _ in range(count)]  # type: ignore[call-overload]


@pytest.mark.spec("NS-001", "NS-002", "MR-134")
async def test_events_reach_those_who_subscribed_in_order(one: chappe.Client, two: chappe.Client) -> None:
    wide = await two.subscribe("plant/#")
    narrow = await two.subscribe("plant/+/alarm")
    other = await two.subscribe("office/#")
    for number in range(1000):
        assert one.publish(f"plant/{number % 10}/{'alarm' if number % 2 else 'state'}", b"%d" % number)
    await one.flush(5)
    assert [int(message.body) for message in await take(wide, 1000)] == list(range(1000))
    assert [int(message.body) for message in await take(narrow, 500)] == list(range(1, 1000, 2))
    assert len(other) == 0
    assert one.counters()["published"] == 1000


async def test_integer_and_long_topics(one: chappe.Client, two: chappe.Client) -> None:
    small, large = await two.subscribe(42), await two.subscribe(chappe.Long(42))
    one.publish(42, b"small")
    one.publish(chappe.Long(42), b"large")
    assert [(message.topic, message.body) for message in await take(small, 1)] == [(42, b"small")]
    assert [(message.topic, message.body) for message in await take(large, 1)] == [(chappe.Long(42), b"large")]


async def test_bodies_of_any_size_up_to_the_limit_of_the_node(one: chappe.Client, two: chappe.Client) -> None:
    subscription = await two.subscribe("a")
    assert one.node is not None
    sizes = [0, 1, 65_520, 65_521, 300_000, one.node.max_payload - 12]
    for size in sizes:
        await one.publish_wait("a", bytes(size))
    assert [len(message.body) for message in await take(subscription, len(sizes))] == sizes
    with pytest.raises(ValueError, match="the node takes"):
        one.publish("a", bytes(one.node.max_payload))


async def test_a_group_shares_its_messages(node: Node, one: chappe.Client) -> None:
    async with chappe.connect(node.url) as left, chappe.connect(node.url) as right:
        members = [await client.subscribe("work", group="g") for client in (left, right)]
        watcher = await one.subscribe("work")
        for number in range(100):
            one.publish("work", b"%d" % number)
        await take(watcher, 100)
        await eventually(lambda: sum(len(member) for member in members) == 100)
        shares = [{message.body for message in member.take_nowait()} for member in members]
        assert shares[0] | shares[1] == {b"%d" % number for number in range(100)}
        assert not shares[0] & shares[1]
        assert min(map(len, shares)) > 0


async def test_after_unsubscribe_nothing_comes_and_iteration_ends(one: chappe.Client, two: chappe.Client) -> None:
    first, second = await two.subscribe("a"), await two.subscribe("a")
    one.publish("a", b"1")
    await take(second, 1)
    await first.unsubscribe()
    one.publish("a", b"2")
    await take(second, 1)
    assert [message.body async for message in first] == [b"1"]
    await second.unsubscribe()
    one.publish("a", b"3")
    await one.flush(5)
    assert two.counters()["in_events"] == 2


async def test_request_and_reply(one: chappe.Client, two: chappe.Client) -> None:
    service = await two.subscribe("double")

    async def serve() -> None:
        async for message in service:
            await message.respond(b"%d" % (2 * int(message.body)))

    server = asyncio.create_task(serve())
    answers = await asyncio.gather(*(one.request("double", b"%d" % number) for number in range(50)))
    assert [int(answer.body) for answer in answers] == [2 * number for number in range(50)]
    with pytest.raises(TimeoutExpired, match="no answer from 'nobody'"):
        await one.request("nobody", b"", timeout_s=0.05)
    one.publish("double", b"1")
    with pytest.raises(ValueError, match="expects no answer"):
        await server


@pytest.mark.spec("GS-020", "GS-023", "GS-043")
async def test_values_of_every_type_reach_a_holder(one: chappe.Client, two: chappe.Client) -> None:
    sent = {"float": 2.5, "int": -7, "bool": True, "bytes": b"12345678"}
    for kind, value in sent.items():
        variable = await one.register("pub", kind, rate=30, type=kind)
        watch = await two.watch("pub", kind)
        before = time.time_ns()
        assert variable.publish(value)
        event = await anext(watch)
        assert (event.value, watch.value) == (value, value)
        assert before <= event.created <= event.received <= time.time_ns()
        assert watch.latency_ns == event.received - event.created
        assert variable.publish(value, created=before - 1_000_000_000)
        late = await anext(watch)
        assert late.created == before - 1_000_000_000
        assert watch.created == event.created, "the holder keeps the newest"


@pytest.mark.spec("GS-044")
async def test_a_callback_is_called_for_every_value(one: chappe.Client, two: chappe.Client) -> None:
    got: list[float] = []
    variable = await one.register("pub", "var", rate=1000)
    await two.watch("pub", "var", callback=lambda event: got.append(event.value))
    for number in range(100):
        variable.publish(float(number), created=number * 1_000_000)
    await eventually(lambda: len(got) == 100)
    assert got == [float(number) for number in range(100)]


async def test_intervals_are_kept_for_each_watch_of_one_client(one: chappe.Client, two: chappe.Client) -> None:
    variable = await one.register("pub", "var", rate=Fraction(30), type="int")
    every = await two.watch("pub", "var")
    tenth = await two.watch("pub", "var", interval=Fraction(1, 3))
    third = await two.watch("pub", "var", interval=0.1)
    assert (every.every, third.every, tenth.every) == (1, 3, 10)
    await two.list("variables")  # the node has applied the finest interval before this answer
    for number in range(300):
        variable.publish(number, created=round(number * 1e9 / 30))
    await take(every, 300)
    assert [event.value for event in third.take_nowait()] == list(range(0, 300, 3))
    assert [event.value for event in tenth.take_nowait()] == list(range(0, 300, 10))


async def test_many_variables_in_one_arrow_stream(one: chappe.Client, two: chappe.Client) -> None:
    names = [f"v{number}" for number in range(100)]
    group = await one.register_many("pub", names, rate=30)
    stream = await two.watch_many([("pub", name) for name in names])
    for turn in range(20):
        assert group.publish_array(numpy.arange(100.0) + turn, created=turn + 1) == 100
    rows = 0
    async for batch in stream.arrow(max_rows=700):
        rows += batch.num_rows
        names_seen = set(batch.column("name").to_pylist())
        assert names_seen <= {f"pub/{name}" for name in names}
        if rows == 2000:
            break
    assert [watch.value for watch in stream.watches] == [19.0 + number for number in range(100)]
    await stream.unwatch()
    assert [batch async for batch in stream.batches()] == []


async def test_a_watch_may_wait_for_its_variable(one: chappe.Client, two: chappe.Client) -> None:
    with pytest.raises(UnknownError, match="late/var"):
        await two.watch("late", "var")
    waiting = asyncio.create_task(two.watch("late", "var", wait_s=30))
    await eventually(lambda: waiting.done() or two.counters()["out_bytes"] > 0)
    variable = await one.register("late", "var", rate=10)
    watch = await waiting
    variable.publish(1.0)
    assert (await anext(watch)).value == 1.0


async def test_what_exists_is_listed_and_commands_are_carried_out(one: chappe.Client) -> None:
    variable = await one.register("pub", "var", rate=30)
    assert [row["variable"] for row in await one.list("variables")] == ["var"]
    await one.command(control.SetMode(id=0, epoch=1, command=1, mode=3))
    with pytest.raises(RefusedError, match="nonsense"):
        await one.list("nonsense")
    with pytest.raises(RefusedError):
        await one.command(
            management.Flood(id=0, epoch=1, command=2, variable=Variable(1, "p", "v", "int", 0, 1, 3, 0), levels=(1,))
        )
    await variable.withdraw()
    assert variable.publish(1.0) is False


async def test_a_second_publisher_of_a_variable_is_refused(one: chappe.Client, two: chappe.Client) -> None:
    await one.register("pub", "var", rate=30)
    with pytest.raises(RefusedError, match="already"):
        await two.register("pub", "var", rate=30)


async def test_a_slow_consumer_drops_only_its_own(one: chappe.Client, two: chappe.Client) -> None:
    told: list[object] = []
    two.on_full = told.append
    small, large = await two.subscribe("a", max_queue=10), await two.subscribe("a", max_queue=10_000)
    for number in range(1000):
        one.publish("a", b"%d" % number)
    await eventually(lambda: len(large) == 1000)
    assert (len(small), small.dropped, told) == (10, 990, [small])
    assert two.counters()["dropped"] == 990


async def test_a_blocking_subscription_loses_nothing(one: chappe.Client, two: chappe.Client) -> None:
    slow = await two.subscribe("a", max_queue=100, backpressure=True)
    count = 30_000

    async def publish() -> None:
        for number in range(count):
            await one.publish_wait("a", b"%06d" % number + bytes(500))

    publisher = asyncio.create_task(publish())
    got = 0
    async with asyncio.timeout(30):
        async for batch in slow.batches(max=64):
            for message in batch:
                assert int(message.body[:6]) == got
                got += 1
            if got == count:
                break
    await publisher
    assert slow.dropped == 0
    assert two.losses == (0, 0)


async def test_a_full_outbox_refuses_and_drain_waits(node: Node) -> None:
    async with chappe.connect(node.url, queue_bytes=4096) as client:
        subscription = await client.subscribe("a")
        refused = 0
        for number in range(500):
            while not client.publish("a", b"%d" % number):
                refused += 1
                await client.drain()
        assert refused > 0
        assert [int(message.body) for message in await take(subscription, 500)] == list(range(500))


async def test_closing_flushes_what_was_accepted(node: Node, two: chappe.Client) -> None:
    subscription = await two.subscribe("a")
    async with chappe.connect(node.url) as client:
        for number in range(10_000):
            client.publish("a", b"%d" % number)
    assert [int(message.body) for message in await take(subscription, 10_000)] == list(range(10_000))
    assert client.state == "closed"
    with pytest.raises(LinkError, match="closed"):
        await client.subscribe("b")


async def test_errors_of_connecting_say_what_is_wrong(node: Node) -> None:
    with pytest.raises(ConfigError, match="no scheme"):
        chappe.connect("127.0.0.1:1")
    with pytest.raises(ConfigError, match="needs tls"):
        chappe.connect("tls://127.0.0.1:1")
    with pytest.raises(LinkError, match="refused"):
        await chappe.connect(f"tcp://127.0.0.1:{free_port()}")
    async with chappe.connect([f"tcp://127.0.0.1:{free_port()}", node.url]) as client:
        assert client.state == "connected"


async def test_waiting_for_a_node_that_comes_later() -> None:
    port = free_port()
    connecting = asyncio.create_task(chappe.connect(f"tcp://127.0.0.1:{port}", wait_s=30).__aenter__())
    await asyncio.sleep(0)
    async with running(f'[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'):
        client = await connecting
        assert client.state == "connected"
        await client.close()
