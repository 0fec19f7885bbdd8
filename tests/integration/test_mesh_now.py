"""A node is asked to measure now, or as often as somebody says; either end of a link may ask (MR-072)."""

from __future__ import annotations

import asyncio
import json

import pytest

import chappe
from chappe.errors import RefusedError, UnknownError
from chappe.runtime.node import Node
from chappe.wire.mesh import Pace
from tests.support.commands import chappe as command
from tests.support.meshes import Plan, mesh
from tests.support.nodes import eventually, running


def interval_s(node: Node, name: str) -> float:
    assert node.mesh is not None
    link = node.mesh.member.links.named(name)
    assert link is not None
    return node.mesh.member.measurement.initiator.interval_ns(link.port) / 1e9


def readings(node: Node, name: str) -> int:
    assert node.mesh is not None
    link = node.mesh.member.links.named(name)
    assert link is not None
    return len(node.mesh.member.measurement.initiator.history(link.port))


async def until(client: chappe.Client, link: str, outcome: str) -> None:
    """Ask again and again, until the link is measured or refused so."""
    async with asyncio.timeout(10):
        said = ""
        while outcome not in said:
            try:
                said = "fresh" if (await client.measure(link))[0]["fresh"] else "silent"
            except RefusedError as error:
                said = str(error)


@pytest.mark.spec("MR-072")
async def test_an_operator_asks_for_a_measurement_now_and_gets_it() -> None:
    plan = Plan((("a", "b"), ("a", "c")), interval_s=60)
    async with mesh(plan) as nodes, chappe.connect(nodes["a"].url) as operator:
        before = readings(nodes["a"], "b"), readings(nodes["a"], "c")
        rows = await operator.measure("b")
        assert [(row["name"], row["fresh"]) for row in rows] == [("b", True)]
        assert 0 < rows[0]["mean_ms"] < 1000
        assert readings(nodes["a"], "b") > before[0]
        assert readings(nodes["a"], "c") == before[1]
        assert sorted(row["name"] for row in await operator.measure()) == ["b", "c"]
        with pytest.raises(UnknownError, match=r"no link to 'd'.*b, c"):
            await operator.measure("d")


@pytest.mark.spec("MR-072")
async def test_either_end_sets_the_interval_or_ends_the_measuring_and_the_other_obeys() -> None:
    plan = Plan((("a", "b"),), interval_s=1)
    async with mesh(plan) as nodes, chappe.connect(nodes["a"].url) as operator:
        a, b = nodes["a"], nodes["b"]
        await operator.measure("b", every=5, far=True)
        assert interval_s(a, "b") == 5
        await eventually(lambda: interval_s(b, "a") >= 5)
        await operator.measure("b", every=0, far=True)
        with pytest.raises(RefusedError, match="not measured"):
            await operator.measure("b")
        async with chappe.connect(b.url) as other:
            await until(other, "a", "does not want to be probed")
            await operator.measure("b", usual=True, far=True)
            assert (await operator.measure("b"))[0]["fresh"]
            await until(other, "a", "fresh")
        with pytest.raises(RefusedError, match="choose one from"):
            await operator.measure("b", every=100_000)
        assert interval_s(a, "b") < 5


async def test_a_client_chooses_how_often_it_is_probed() -> None:
    toml = '[node]\nname = "n"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n[measure]\nclients = true\ninterval_s = 0.2\n'
    async with running(toml) as (node,), chappe.connect(node.url, name="phone") as phone:
        await eventually(lambda: readings(node, "phone") > 0)
        await phone.probed(every=30)
        await eventually(lambda: interval_s(node, "phone") >= 30)
        await phone.probed()
        await eventually(lambda: interval_s(node, "phone") < 30)


async def test_a_wish_without_sense_changes_nothing() -> None:
    plan = Plan((("a", "b"),), interval_s=1)
    async with mesh(plan) as nodes:
        member = nodes["a"].mesh.member if nodes["a"].mesh is not None else None
        assert member is not None
        before, refused = interval_s(nodes["a"], "b"), member.refused
        (told,) = member.receive(member.links.ports["b"], Pace(interval_ns=-5), 0)
        assert "give one up to a day" in str(told)
        assert (interval_s(nodes["a"], "b"), member.refused) == (before, refused + 1)


async def test_it_needs_a_node_that_measures() -> None:
    toml = '[node]\nname = "n"\n[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
    async with running(toml) as (node,), chappe.connect(node.url) as operator:
        with pytest.raises(RefusedError, match=r"add \[mesh\] or \[measure\]"):
            await operator.measure()


async def test_the_command_line_measures_now() -> None:
    plan = Plan((("a", "b"),), interval_s=60)
    async with mesh(plan) as nodes:
        url = nodes["a"].url
        done = await asyncio.to_thread(command, "links", "--now", "--link", "b", "--json", "--url", url)
        row = json.loads(done.stdout)
        assert (row["name"], row["fresh"]) == ("b", True)
        shown = await asyncio.to_thread(command, "links", "--every", "7", "--link", "b", "--url", url)
        assert "7.000" in shown.stdout
        await asyncio.to_thread(command, "links", "--every", "usual", "--url", url)
        assert interval_s(nodes["a"], "b") != 7
        await asyncio.to_thread(lambda: command("links", "--every", "soon", "--url", url, code=2))
        await asyncio.to_thread(lambda: command("links", "--now", "--link", "nobody", "--url", url, code=1))
