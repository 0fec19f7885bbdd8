"""Nodes of a mesh killed while events pass through them, in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

import chappe
from chappe.client.client import Client
from tests.support.meshes import Plan, processes, relayed

SQUARE = (("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"))


async def first_hop(client: Client, to: str) -> str:
    """The neighbour by which events go to a node."""
    for row in await client.list("routes"):
        if row["to"] == to:
            return str(row["way"][0])
    return ""


async def until(condition: object, timeout_s: float = 30.0) -> None:
    assert callable(condition)
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  there is nothing to wait for but the condition
            await asyncio.sleep(0.02)


@pytest.mark.spec("MR-009")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_node_on_the_way_is_killed_and_every_event_comes_once(tmp_path: Path, number: signal.Signals) -> None:
    plan = Plan(SQUARE)
    async with (
        processes(plan, tmp_path) as nodes,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['a']}") as publisher,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['d']}") as client,
    ):
        subscription = await client.subscribe("n")

        async def known() -> bool:
            publisher.publish("n", b"-1")
            await publisher.flush()
            return len(await publisher.list("map")) == 4 and subscription.received > 0

        await until(known)
        killed = await first_hop(publisher, "d")
        assert killed in ("b", "c")
        sent = 0
        ending = None
        for sent in range(3000):
            publisher.publish("n", b"%d" % sent)
            if sent % 10 == 0:
                await asyncio.sleep(0.005)  # the pace of a publisher
            if sent == 1000:
                ending = asyncio.create_task(nodes[killed].end(number))
        found: list[int] = []
        with contextlib.suppress(TimeoutError):
            while len(found) <= sent:
                async with asyncio.timeout(30):
                    found.append(int((await anext(subscription)).body))
                if found[-1] < 0:
                    found.pop()
        missing = sorted(set(range(sent + 1)) - set(found))
        assert missing == []
        assert sorted(found) == list(range(sent + 1))
        assert ending is not None
        await ending
        assert await first_hop(publisher, "d") == ("c" if killed == "b" else "b")


@pytest.mark.spec("MR-009")
async def test_a_node_that_comes_back_is_used_again(tmp_path: Path) -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    async with (
        processes(plan, tmp_path) as nodes,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['a']}") as publisher,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['c']}") as client,
    ):
        subscription = await client.subscribe("n")

        async def arrives() -> bool:
            before = subscription.received
            publisher.publish("n", b"x")
            await publisher.flush()
            await asyncio.sleep(0.02)
            return subscription.received > before

        await until(arrives)
        await nodes["b"].end(signal.SIGKILL)
        assert await first_hop(publisher, "c") in ("", "b")
        nodes["b"] = await type(nodes["b"]).start("--dev", tmp_path / "b.toml")
        await until(arrives)


@pytest.mark.spec("MR-021")
async def test_a_node_that_hangs_is_suspected_and_left_out_before_it_is_given_up(tmp_path: Path) -> None:
    plan = Plan(SQUARE, heartbeat_s=0.4)
    async with (
        processes(plan, tmp_path) as nodes,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['a']}") as client,
    ):

        async def known() -> bool:
            return len(await client.list("map")) == 4 and bool(await first_hop(client, "d"))

        await until(known)
        hung = await first_hop(client, "d")
        nodes[hung].tell(signal.SIGSTOP)
        try:
            seen: list[str] = []

            async def suspected() -> bool:
                seen[:] = [row["name"] for row in await client.list("measured") if row["status"] == "suspect"]
                return bool(seen) and await first_hop(client, "d") != hung

            await until(suspected)
            assert seen == [hung]
        finally:
            nodes[hung].tell(signal.SIGCONT)


@pytest.mark.spec("MR-009")
async def test_events_inside_a_node_that_is_killed_take_the_other_way(tmp_path: Path) -> None:
    """The link behind the killed node takes an hour: all that it had confirmed and passed on is lost with it."""
    links = (("a", "b"), ("b", "c"), ("b", "e"), ("c", "d"), ("e", "d"))
    plan = Plan(links, mesh="performance = false", heartbeat_s=60.0)
    async with (
        relayed(plan, {("c", "d"): 0.0, ("e", "d"): 0.0}) as relays,
        processes(plan, tmp_path, relays) as nodes,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['a']}") as publisher,
        chappe.connect(f"tcp://127.0.0.1:{plan.ports['d']}") as client,
    ):
        subscription, answered = await client.subscribe("n"), await publisher.subscribe("pong")

        async def known() -> bool:
            publisher.publish("n", b"-1")
            await publisher.flush()
            return subscription.received > 0 and len(await publisher.list("map")) == 5

        await until(known)
        killed = next(row["way"][1] for row in await publisher.list("routes") if row["to"] == "d")
        async with chappe.connect(f"tcp://127.0.0.1:{plan.ports[killed]}") as inside:
            asked = await inside.subscribe("ping")

            async def joined() -> bool:
                publisher.publish("ping", b"")
                inside.publish("pong", b"")
                await asyncio.gather(publisher.flush(), inside.flush())
                return asked.received > 0 and answered.received > 0

            await until(joined)
            relays[killed, "d"].delay_s = 3600.0
            for number in range(500):
                publisher.publish("n", b"%d" % number)
            publisher.publish("ping", b"last")
            async with asyncio.timeout(20):
                while (await anext(asked)).body != b"last":
                    pass
                # what is said there now comes to b after the confirmations: b has those when a has this
                inside.publish("pong", b"last")
                while (await anext(answered)).body != b"last":
                    pass
            await inside.flush()
            await nodes[killed].end(signal.SIGKILL)
            relays[killed, "d"].cut()
        found: list[int] = []
        with contextlib.suppress(TimeoutError):
            while len(found) < 500:
                async with asyncio.timeout(10):
                    number = int((await anext(subscription)).body)
                found += [number] if number >= 0 else []
        assert sorted(found) == list(range(500))
        publisher.publish("n", b"500")
        async with asyncio.timeout(10):
            assert int((await anext(subscription)).body) == 500, "nothing came twice in between"
