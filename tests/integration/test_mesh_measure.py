"""A node that measures its links and is in no mesh, over every transport it has."""

from __future__ import annotations

from typing import Any

import pytest

import chappe
from chappe.runtime.node import Node
from tests.support.nodes import eventually, free_port, running

MEASURE = "[measure]\ninterval_s = 0.05\n"


def rows(node: Node) -> dict[str, dict[str, Any]]:
    assert node.mesh is not None
    return {row["name"]: row for row in node.mesh.page_rows("links")}


@pytest.mark.spec("MR-049", "MR-050")
async def test_datagrams_beside_a_connection_are_measured_without_code_of_their_own() -> None:
    a, b, datagrams = free_port(), free_port(), free_port()
    first = f'[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{a}"\n'
    first += f'[[peer]]\nname = "b"\nurl = "tcp://127.0.0.1:{b}"\ndata = "udp"\n{MEASURE}'
    second = f'[node]\nname = "b"\n[[listen]]\nurl = "tcp://127.0.0.1:{b}"\n'
    second += f'[[listen]]\nurl = "udp://127.0.0.1:{datagrams}"\n[[peer]]\nname = "a"\n{MEASURE}'
    async with running(first, second) as nodes:
        for node, other in zip(nodes, "ba", strict=True):
            await eventually(lambda node=node, other=other: (rows(node).get(other) or {}).get("mean_ms") is not None)
            udp = f"{other} (udp)"
            await eventually(lambda node=node, udp=udp: (rows(node).get(udp) or {}).get("loss") == 0.0)
            assert rows(node)[udp]["kind"] == "udp"
            assert rows(node)[udp]["mean_ms"] > 0


@pytest.mark.spec("MR-059", "MR-061")
async def test_a_node_without_the_section_measures_nothing_and_one_with_it_follows_its_links() -> None:
    port, other = free_port(), free_port()
    plain = f'[node]\nname = "plain"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
    measuring = f'[node]\nname = "m"\n[[listen]]\nurl = "tcp://127.0.0.1:{other}"\n'
    measuring += f'[[peer]]\nname = "plain"\nurl = "tcp://127.0.0.1:{port}"\n{MEASURE}clients = true\n'
    async with running(plain, measuring) as (silent, node):
        assert silent.mesh is None
        async with chappe.connect(silent.url) as client:
            with pytest.raises(chappe.errors.ChappeError, match="add \\[mesh\\] or \\[measure\\]"):
                await client.list("measured")
        await eventually(lambda: (rows(node).get("plain") or {}).get("mean_ms") is not None)
        async with chappe.connect(node.url, name="meter"):
            await eventually(lambda: (rows(node).get("meter") or {}).get("mean_ms") is not None)
        await eventually(lambda: "meter" not in rows(node))
        async with chappe.connect(node.url) as client:
            with pytest.raises(chappe.errors.ChappeError, match="in no mesh"):
                await client.list("map")


async def test_measuring_may_be_off_and_the_page_says_so() -> None:
    port, other = free_port(), free_port()
    plain = f'[node]\nname = "plain"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
    node_file = f'[node]\nname = "m"\n[[listen]]\nurl = "tcp://127.0.0.1:{other}"\n'
    node_file += f'[[peer]]\nname = "plain"\nurl = "tcp://127.0.0.1:{port}"\n{MEASURE}on = false\n'
    async with running(plain, node_file) as (_, node):
        await eventually(lambda: "plain" in rows(node))
        assert node.mesh is not None
        assert not node.mesh.member.measurement.initiator.awake
        assert rows(node)["plain"]["mean_ms"] is None
