"""A subscription in a mesh takes in what is published from its making on, wherever, and nothing that is older."""

from __future__ import annotations

import asyncio
import time

import chappe
from chappe.client._inbox import Subscription
from tests.support.meshes import Plan, mesh, quiet, relayed, wants
from tests.support.nodes import eventually, running

GAP_NS = 60_000_000  # more than clocks may differ


async def bodies(subscription: Subscription, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await anext(subscription)).body for _ in range(count)]


async def test_an_event_that_was_under_way_is_not_for_who_subscribed_meanwhile() -> None:
    plan = Plan((("a", "b"),), heartbeat_s=20)
    async with (
        relayed(plan, {("a", "b"): 0}) as relays,
        mesh(plan, relays) as nodes,
        chappe.connect(nodes["a"].url) as publisher,
        chappe.connect(nodes["b"].url) as reader,
    ):
        first = await reader.subscribe("news")
        await eventually(lambda: wants(nodes["a"], "news") == {"b"} and quiet(nodes["a"]))
        relays["a", "b"].delay_s = 3600  # nothing arrives for now
        publisher.publish("news", b"old")
        await publisher.flush()
        published_ns = time.time_ns()
        await eventually(lambda: time.time_ns() > published_ns + GAP_NS)
        second = await reader.subscribe("news")
        everything = await reader.subscribe("news", since=0)
        publisher.publish("news", b"new")
        relays["a", "b"].cut()  # what was under way is sent again, with the stamp it has
        relays["a", "b"].delay_s = 0
        relays["a", "b"].mend()
        assert await bodies(first, 2) == [b"old", b"new"]
        assert await bodies(everything, 2) == [b"old", b"new"]
        assert await bodies(second, 1) == [b"new"]
        assert (first.older, second.older, everything.older) == (0, 1, 0)
        assert reader.counters()["older"] == 1


async def test_what_comes_after_the_making_is_taken_as_soon_as_interest_has_spread_and_ends_with_it() -> None:
    plan = Plan((("a", "b"),))
    async with (
        mesh(plan) as nodes,
        chappe.connect(nodes["a"].url) as publisher,
        chappe.connect(nodes["b"].url) as reader,
    ):
        began_ns = time.time_ns()
        news = await reader.subscribe("news/#")
        number = 0
        while not news.received:  # what is published before a knows of it has nowhere to go
            publisher.publish("news/1", b"%d" % number)
            number += 1
            await asyncio.sleep(0.01)  # the pace of a publisher
        message = await anext(news)
        assert message.created is not None
        assert began_ns <= message.created <= time.time_ns()
        await news.unsubscribe()
        await eventually(lambda: wants(nodes["a"], "news/1") == set() and quiet(nodes["a"]))
        received = news.received
        publisher.publish("news/1", b"late")
        await publisher.flush()
        assert [rest.body for rest in news.take_nowait() if rest.body == b"late"] == []
        assert news.received == received


async def test_clients_of_a_node_outside_of_a_mesh_stamp_nothing_unless_they_want_to() -> None:
    async with (
        running('[node]\nname = "n"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n') as (node,),
        chappe.connect(node.url) as plain,
        chappe.connect(node.url, stamps=True) as stamping,
    ):
        heard = await plain.subscribe("a")
        plain.publish("a", b"1")
        await plain.flush()
        stamping.publish("a", b"2")
        first, second = [await anext(heard) for _ in range(2)]
        assert first.created is None
        assert second.created is not None
