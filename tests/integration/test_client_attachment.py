"""Clients of several nodes: attached to the nearest, moved when another one is nearer for good."""

from __future__ import annotations

import asyncio

import pytest

import chappe
from chappe.links.delays import DelayRelay
from tests.support.nodes import eventually, free_port, running

TOML = '[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.spec("MR-118")
async def test_of_several_nodes_the_nearest_is_taken() -> None:
    async with (
        running(TOML.format(name="far"), TOML.format(name="near")) as (far, near),
        DelayRelay(port_of(far.url), delay_s=0.2) as relay,
        chappe.connect(f"tcp://127.0.0.1:{relay.port},{near.url}") as client,
    ):
        assert client.node is not None
        assert client.node.name == "near"


@pytest.mark.spec("MR-035", "MR-009")
async def test_after_a_loss_the_nearest_that_is_left_is_taken_and_subscriptions_are_there_again() -> None:
    tomls = [TOML.format(name=name) for name in ("near", "far", "middle")]
    async with (
        running(*tomls) as (near, far, middle),
        DelayRelay(port_of(near.url)) as close,
        DelayRelay(port_of(far.url), delay_s=0.25) as slow,
        DelayRelay(port_of(middle.url), delay_s=0.1) as medium,
        chappe.connect([f"tcp://127.0.0.1:{relay.port}" for relay in (slow, close, medium)]) as client,
        chappe.connect(middle.url) as other,
    ):
        assert client.node is not None
        assert client.node.name == "near"
        subscription = await client.subscribe("a")
        close.cut()
        await eventually(lambda: client.node is not None and client.node.name == "middle")
        await eventually(lambda: middle.engine.topics.subscriptions())
        other.publish("a", b"here")
        message = await asyncio.wait_for(anext(aiter(subscription)), 30)
        assert message.body == b"here"


@pytest.mark.spec("MR-008")
async def test_a_client_moves_to_a_node_that_is_nearer_for_good_and_loses_none_of_its_events() -> None:
    collected: list[int] = []

    async def collect(stream: chappe.Subscription) -> None:
        collected.extend([int(message.body) async for message in stream])

    async with (
        running(TOML.format(name="first"), TOML.format(name="second")) as (first, second),
        DelayRelay(port_of(first.url)) as relay,
        DelayRelay(port_of(second.url), delay_s=0.1) as other,
        chappe.connect([f"tcp://127.0.0.1:{each.port}" for each in (relay, other)], compare_s=0.2) as client,
    ):
        async with chappe.connect(first.url) as at_first, chappe.connect(second.url) as at_second:
            streams = [await each.subscribe("n") for each in (at_first, at_second)]
            tasks = [asyncio.create_task(collect(stream)) for stream in streams]
            assert client.node is not None
            assert client.node.name == "first"
            relay.delay_s, other.delay_s = 0.1, 0.0
            sent = 0
            while client.node.name == "first":
                client.publish("n", b"%d" % sent)
                sent += 1
                await asyncio.sleep(0.01)  # the pace of a publisher
            client.publish("n", b"%d" % sent)
            await client.flush()
            assert client.node.name == "second"
            await eventually(lambda: sum(stream.received for stream in streams) >= sent + 1)
        await asyncio.gather(*tasks)
    assert set(collected) == set(range(sent + 1))  # nodes of one mesh also drop what comes by both


async def test_when_no_node_can_be_reached_the_error_names_the_last_one() -> None:
    ports = free_port(), free_port()
    with pytest.raises(chappe.errors.LinkError, match=str(ports[1])):
        await chappe.connect(f"tcp://127.0.0.1:{ports[0]},tcp://127.0.0.1:{ports[1]}")
