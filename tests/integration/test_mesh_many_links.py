"""A node that measures very many links at once (MR-062)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import chappe
from tests.support.nodes import running

NODE = """
[node]
name = "hub"
[[listen]]
url = "tcp://127.0.0.1:0"
[measure]
interval_s = 1.0
clients = true
[limits]
heartbeat_s = 20
"""
MANY = 1_000


@pytest.mark.spec("MR-062", "MR-002")
@pytest.mark.timeout(240)
async def test_a_node_measures_a_thousand_links_and_lists_each_of_them() -> None:
    async with running(NODE) as (node,), contextlib.AsyncExitStack() as stack:
        clients = []
        for first in range(0, MANY, 50):
            clients += await asyncio.gather(
                *(stack.enter_async_context(chappe.connect(node.url, name=f"c{number}", timeout_s=60))
                  for number in range(first, first + 50))
            )  # fmt: skip
        assert node.mesh is not None
        member = node.mesh.member
        async with asyncio.timeout(150):
            while not all(member.measurement.initiator.reading(link.port) for link in member.links):  # noqa: ASYNC110
                await asyncio.sleep(1)  # nothing announces it, and each look costs time that probes need
        rows = await clients[0].list("measured", 2 * MANY)
        assert {row["name"] for row in rows} == {f"c{number}" for number in range(MANY)}
        assert all(row["mean_ms"] > 0 for row in rows)
