"""A mesh of three levels of units, by real nodes: what each sees, which way events go, and the tree for copies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import chappe
from tests.support.commands import chappe as command
from tests.support.commands import rows
from tests.support.meshes import Plan, mesh, quiet, relayed, wants
from tests.support.nodes import eventually

UNITS = {
    "n1": "A/SC-1/a", "n2": "A/SC-1/a", "n3": "A/SC-1/b", "n4": "A/SC-2/k", "n5": "B/SC-3/m", "n6": "B/SC-3/m",
}  # fmt: skip
LINKS = (("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n5"), ("n5", "n6"))


@pytest.mark.spec("MR-010", "MR-016", "MR-019")
async def test_nodes_of_clusters_super_clusters_and_super_super_clusters_see_units_and_reach_each_other() -> None:
    async with mesh(Plan(LINKS, UNITS)) as nodes, chappe.connect(nodes["n1"].url) as publisher:
        seen = {
            "n1": {"n1 - n2", "n2 - A/SC-1/b", "A/SC-1/b - A/SC-2", "A/SC-2 - B"},
            "n3": {"n3 - A/SC-1/a", "n3 - A/SC-2", "A/SC-2 - B"},
            "n6": {"n5 - n6", "n5 - A"},
        }
        for name, expected in seen.items():
            async with chappe.connect(nodes[name].url) as client:

                async def ends(client: chappe.Client = client) -> set[str]:
                    return {" - ".join(sorted_ends(row)) for row in await client.list("map")}

                await _becomes(ends, expected)
                members = {row["thing"]: row for row in await client.list("members")}
                unit = UNITS[name].split("/")
                for level in (1, 2, 3):  # cluster, super-cluster, super-super-cluster
                    own = members["/".join(unit[: 4 - level])]
                    assert (own["level"], own["own"]) == (level, True)
                    assert own["controller"] in nodes
        shown = (await asyncio.to_thread(command, "map", "--url", nodes["n1"].url)).stdout
        assert "A/SC-1: controller" in shown
        async with chappe.connect(nodes["n6"].url) as far, chappe.connect(nodes["n3"].url) as beside:
            streams = [await client.subscribe("news") for client in (far, beside)]
            await eventually(lambda: wants(nodes["n1"], "news") == {"B", "A/SC-1/b"})
            await eventually(lambda: all(map(quiet, nodes.values())))
            for number in range(50):
                publisher.publish("news", b"%d" % number)
            for stream in streams:
                got = [int(message.body) async for message in limited(stream, 50)]
                assert got == list(range(50))


def sorted_ends(row: dict[str, Any]) -> tuple[str, str]:
    """Nodes before units, then by name, as the test writes them."""
    a, b = sorted((row["from"], row["to"]), key=lambda name: (name[0].isupper(), name))
    return a, b


async def limited(stream: chappe.Subscription, count: int) -> AsyncIterator[chappe.Message]:
    """So many messages."""
    async with asyncio.timeout(30):
        for _ in range(count):
            yield await anext(aiter(stream))


SQUARE = (("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("b", "c"))


@pytest.mark.spec("MR-132")
async def test_the_tree_for_copies_to_everybody_has_the_cheapest_links_and_follows_their_costs() -> None:
    plan = Plan(SQUARE)
    slow = {("a", "b"): 30.0, ("b", "c"): 15.0, ("c", "d"): 0.0}
    async with relayed(plan, slow) as relays, mesh(plan, relays) as nodes, chappe.connect(nodes["a"].url) as client:

        async def tree() -> set[str]:
            return {"-".join(sorted((row["from"], row["to"]))) for row in await client.list("tree")}

        await _becomes(tree, {"a-c", "b-d", "c-d"})
        listed = rows((await asyncio.to_thread(command, "map", "--tree", "--json", "--url", nodes["a"].url)).stdout)
        assert len(listed) == 3
        shown = await asyncio.to_thread(command, "map", "--tree", "--url", nodes["a"].url)
        assert "3 links, together" in shown.stderr
        relays["c", "d"].delay_s = 0.05
        await _becomes(tree, {"a-c", "b-d", "b-c"})


async def _becomes(ask: Callable[[], Awaitable[set[str]]], expected: set[str]) -> None:
    async with asyncio.timeout(60):
        while await ask() != expected:  # noqa: ASYNC110  nothing announces it
            await asyncio.sleep(0.05)
