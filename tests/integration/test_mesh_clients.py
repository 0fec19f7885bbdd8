"""Clients of a mesh that move from one node to another while they publish."""

from __future__ import annotations

import asyncio

import pytest

import chappe
from chappe.links.delays import DelayRelay
from tests.support.meshes import Plan, mesh, quiet, wants
from tests.support.nodes import eventually


@pytest.mark.spec("MR-008", "MR-118")
async def test_a_publisher_that_moves_is_heard_once_wherever_it_is() -> None:
    plan = Plan((("a", "b"), ("b", "c"), ("a", "c")))
    async with (
        mesh(plan) as nodes,
        DelayRelay(plan.ports["a"]) as relay,
        DelayRelay(plan.ports["b"], delay_s=0.1) as other,
        chappe.connect(nodes["c"].url) as at_c,
        chappe.connect(nodes["b"].url) as at_b,
        chappe.connect([f"tcp://127.0.0.1:{each.port}" for each in (relay, other)], compare_s=0.2) as publisher,
    ):
        streams = [await at_c.subscribe("n"), await at_b.subscribe("n")]
        await eventually(lambda: wants(nodes["a"], "n") == {"b", "c"} and quiet(nodes["a"]))
        await eventually(lambda: wants(nodes["b"], "n") == {"c"} and quiet(nodes["b"]))
        assert publisher.node is not None
        assert publisher.node.name == "a"
        relay.delay_s, other.delay_s = 0.1, 0.0
        sent = 0
        while publisher.node.name == "a":
            publisher.publish("n", b"%d" % sent)
            sent += 1
            await asyncio.sleep(0.01)  # the pace of a publisher
        for _ in range(20):
            publisher.publish("n", b"%d" % sent)
            sent += 1
        await publisher.flush()
        for stream in streams:
            found: list[int] = []
            async with asyncio.timeout(30):
                while len(found) < sent:
                    found.append(int((await anext(stream)).body))
            assert sorted(found) == list(range(sent))
        await asyncio.sleep(0.1)  # what comes twice would come now
        assert [stream.received for stream in streams] == [sent, sent]
