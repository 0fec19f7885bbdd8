"""Awaiting entries: without a suspension while there are some, and rightly otherwise."""

from __future__ import annotations

import asyncio

import pytest

from chappe.client._core import ClientCore
from chappe.client._inbox import Subscription
from chappe.errors import LinkError
from tests.support.clientpeer import Peer, event, issuer, topic


@pytest.fixture
async def queue() -> tuple[ClientCore, Subscription]:
    core = ClientCore()
    Peer(core)
    subscription = Subscription("#")
    subscription.loop = asyncio.get_running_loop()
    core.add_subscription(subscription)
    core.feed(issuer() + topic(0, "a"))
    return core, subscription


def numbers(first: int, last: int) -> bytes:
    return b"".join(event(0, number, b"%d" % number) for number in range(first, last + 1))


async def test_queued_messages_are_awaited_without_giving_way(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    core.feed(numbers(1, 100))
    ran: list[int] = []
    asyncio.get_running_loop().call_soon(ran.append, 1)
    for _ in range(100):
        await anext(subscription)
    assert ran == []


async def test_an_empty_queue_waits_for_the_next_message(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    asyncio.get_running_loop().call_later(0.01, core.feed, numbers(1, 2))
    got = []
    async for message in subscription:
        got.append(message.body)
        if len(got) == 2:
            break
    assert got == [b"1", b"2"]


async def test_several_may_wait_and_each_message_goes_to_one(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue

    async def take(count: int) -> list[bytes]:
        return [(await anext(subscription)).body for _ in range(count)]

    takers = [asyncio.create_task(take(5)) for _ in range(3)]
    await asyncio.sleep(0)
    for number in range(1, 16):
        core.feed(numbers(number, number))
        await asyncio.sleep(0)
    taken = await asyncio.gather(*takers)
    assert sorted(int(body) for each in taken for body in each) == list(range(1, 16))


async def test_a_cancelled_wait_loses_nothing(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    steps = aiter(subscription)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await anext(steps)
    core.feed(numbers(1, 1))
    assert (await anext(steps)).body == b"1"
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(steps), 0.005)
    core.feed(numbers(2, 2))
    assert (await asyncio.wait_for(anext(steps), 1)).body == b"2"


async def test_the_end_comes_after_what_is_queued(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    core.feed(numbers(1, 2))
    subscription.end()
    assert [message.body async for message in subscription] == [b"1", b"2"]
    core.feed(numbers(3, 3))
    assert [message async for message in subscription] == []


async def test_a_failure_is_raised_after_what_is_queued(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    got: list[bytes] = []

    async def read() -> None:
        async for message in subscription:
            got.append(message.body)  # noqa: PERF401 what came before the error must be kept

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    core.feed(numbers(1, 1))
    subscription.end(LinkError("gone"))
    with pytest.raises(LinkError, match="gone"):
        await reader
    assert got == [b"1"]


async def test_batches_hold_what_has_come(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    core.feed(numbers(1, 5))
    batches = subscription.batches(max=3)
    assert [message.body for message in await anext(batches)] == [b"1", b"2", b"3"]
    assert [message.body for message in await anext(batches)] == [b"4", b"5"]


async def test_an_arrow_batch_may_wait_for_more(queue: tuple[ClientCore, Subscription]) -> None:
    core, subscription = queue
    loop = asyncio.get_running_loop()
    batches = subscription.arrow(max_rows=6, max_wait=5.0)
    for number in range(1, 8):
        loop.call_later(0.002 * number, core.feed, numbers(number, number))
    began = loop.time()
    assert (await anext(batches)).num_rows == 6
    assert loop.time() - began < 4
    hurried = subscription.arrow(max_rows=6, max_wait=0.02)
    assert (await anext(hurried)).num_rows == 1
