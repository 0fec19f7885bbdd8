"""What nodes, brokers and clients tell of themselves, heard by a client and turned into rows as an archive does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import chappe
from chappe.archive.feeds import FEEDS
from chappe.core.sections import Counters
from chappe.errors import ChappeError, DeniedError, QosError, RefusedError
from chappe.wire.management import ChangeMode, Function, Input, SetFlood
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import NodeProcess, eventually, fetch, free_port, running

Row = dict[str, Any]


class Heard:
    """The rows of a feed as they come."""

    def __init__(self, feed: str, subscription: chappe.Subscription) -> None:
        self._feed = FEEDS[feed]
        self._subscription = subscription
        self.rows: list[Row] = []

    async def until(self, condition: Callable[[list[Row]], object]) -> list[Row]:
        """All rows, once the condition holds for them."""
        async with asyncio.timeout(30):
            while not condition(self.rows):
                message = await anext(aiter(self._subscription))
                self.rows += self._feed.rows(str(message.topic), message.body, time.time_ns())
        return self.rows


async def hear(client: chappe.Client, feed: str) -> Heard:
    (topic,) = FEEDS[feed].topics
    return Heard(feed, await client.subscribe(topic))


def one(rows: list[Row], action: str, subject: str = "") -> Row:
    """The first action of a kind, with its detail decoded."""
    found = [row for row in rows if row["action"] == action and (not subject or row["subject"] == subject)]
    assert found, (action, subject, [(row["action"], row["subject"]) for row in rows])
    return {**found[0], **json.loads(found[0]["detail"])}


def has(*wanted: str) -> Callable[[list[Row]], bool]:
    return lambda rows: set(wanted) <= {row["action"] for row in rows}


# --- counters


async def test_counters_are_those_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f"""
        [node]
        name = "a"
        [[listen]]
        url = "tcp://127.0.0.1:{free_port()}"
        [metrics]
        address = "127.0.0.1:0"
        [counters]
        every_s = 0.1
    """)
    node = await NodeProcess.start(str(file), "--dev")
    try:
        async with chappe.connect(node.urls[0], name="desk") as client:
            heard = await hear(client, "counters")
            client.publish("some/topic", b"x" * 1000)
            rows = await heard.until(
                lambda rows: any(row["name"] == "chappe_port_bytes_total" and row["value"] > 1000 for row in rows)
            )
            told = {(row["name"], row["labels"]) for row in rows}
            _, page = await fetch(f"{node.metrics}/metrics")
            shown = {
                (line.partition("{")[0], line.partition("{")[2].rpartition("}")[0])
                for line in page.splitlines()
                if line and not line.startswith("#")
            }
            assert ("chappe_mode", 'node="a"') in told
            assert told <= shown
            assert {row["node"] for row in rows} == {"a"}
            await heard.until(lambda rows: len({row["created_ns"] for row in rows}) > 2)
    finally:
        await node.end()


async def test_counters_cross_a_mesh_and_only_nodes_tell_them() -> None:
    ports = [free_port(), free_port()]
    tables = "[mesh]\n[counters]\nevery_s = 0.1\n"
    listen = [f'[node]\nname = "{name}"\n[[listen]]\nurl = "tcp://127.0.0.1:{port}"\n'
              for name, port in zip("ab", ports, strict=True)]  # fmt: skip
    peer = f'[[peer]]\nname = "a"\nurl = "tcp://127.0.0.1:{ports[0]}"\n'
    async with running(listen[0] + tables, listen[1] + peer + tables) as (a, _), chappe.connect(a.url) as client:
        denied: list[Exception] = []
        client.on_error = denied.append
        heard = await hear(client, "counters")
        await heard.until(lambda rows: {row["node"] for row in rows} == {"a", "b"})
        for topic in ("node/counters/a", "broker/log/x"):
            client.publish(topic, b"{}")
        await eventually(lambda: len(denied) == 2)
        assert all("only nodes publish" in str(error) for error in denied)
        with pytest.raises(DeniedError, match="node/counters/a"):
            await client.flush()


# --- brokers


@contextlib.asynccontextmanager
async def cloud(folder: Path) -> AsyncIterator[Deployed]:
    file = deployment({"leaf": ""}, {"leaf": "abcd"}, ("a-b", "b-d", "a-c", "c-d"))
    async with deployed(folder, file) as made:
        yield made


@pytest.mark.timeout(90)
async def test_a_broker_tells_what_it_does(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path) as mesh,
        chappe.connect(mesh.url("leaf"), name="archive") as archive,
        chappe.connect(mesh.url("a"), name="plant") as plant,
        chappe.connect(mesh.url("d"), name="desk") as desk,
    ):
        heard = await hear(archive, "broker")
        variable = await plant.register("plant", "volts", rate=50)
        qos = chappe.Qos(interval=0.04, latency=0.5, redundancy=2)
        watch = await desk.watch("plant", "volts", qos=qos)
        rows = await heard.until(has("publish", "path", "subscribe"))
        published = one(rows, "publish", "plant/volts")
        assert (published["entity"], published["edge"], published["type"]) == ("plant", "a", "float")
        granted = one(rows, "subscribe", "plant/volts")
        assert (granted["broker"], granted["entity"], granted["edge"]) == ("leaf", "desk", "d")
        assert granted["variable_id"] == published["variable_id"] == watch.variable_id
        assert granted["wanted"][0]["interval_ns"] == 40_000_000
        assert granted["wanted"][0]["latency_ns"] == 500_000_000
        assert (granted["granted"][0]["every"], granted["granted"][0]["redundancy"]) == (2, 2)
        assert granted["took_ns"] > 0
        ways = [(row["subject"], path) for row in rows if row["action"] == "path"
                for path in json.loads(row["detail"])["paths"]]  # fmt: skip
        assert {router for router, _ in ways} == set("abcd")
        assert all(path["name"] == "plant/volts" for _, path in ways)

        with pytest.raises(QosError):
            await desk.watch("plant", "volts", qos=chappe.Qos(redundancy=3))
        refused = one(await heard.until(has("subscribe_refused")), "subscribe_refused")
        assert (refused["code"], refused["wanted"][0]["redundancy"]) == ("capacity", 3)
        assert refused["reason"]

        with pytest.raises(ChappeError):
            await archive.operate(SetFlood(id=0, publisher="nobody", variable="x"))
        await archive.operate(SetFlood(id=0, publisher="plant", variable="volts"))
        await archive.operate(ChangeMode(id=0, mode=3))
        rows = await heard.until(has("operate", "flood", "mode"))
        assert one(rows, "mode")["mode"] == 3
        assert one(rows, "mode")["by"] == "operator"
        assert one(rows, "flood")["name"] == "plant/volts"

        function = Function(publisher="plant", variable="sum", inputs=(Input("plant", "volts"),),
                            calculator="builtin:sum")  # fmt: skip
        await plant.condense(function)
        rows = await heard.until(has("condense", "place"))
        assert one(rows, "place")["calculator"] == "builtin:sum"

        await desk.unwatch(watch)
        await plant.uncondense("plant", "sum")
        await plant.withdraw(variable)
        await mesh.stop("b")
        rows = await heard.until(
            has("unsubscribe", "unpublish", "uncondense", "path_removed", "router_lost", "link_down")
        )
        assert one(rows, "router_lost")["subject"] == "b"
        assert one(rows, "unsubscribe")["subject"] == "plant/volts"
        stamps = [row["created_ns"] for row in rows]
        assert stamps == sorted(set(stamps))


async def test_a_broker_writes_nothing_down_while_nobody_listens(tmp_path: Path) -> None:
    async with cloud(tmp_path) as mesh:
        role: Any = mesh.nodes["leaf"].role
        async with chappe.connect(mesh.url("a"), name="plant") as plant:
            await plant.register("plant", "volts", rate=50)
            assert not role._log.on
            async with chappe.connect(mesh.url("leaf"), name="archive") as archive:
                heard = await hear(archive, "broker")
                await plant.register("plant", "amperes", rate=50)
                rows = await heard.until(has("publish"))
                assert one(rows, "publish")["subject"] == "plant/amperes"
            await eventually(lambda: not role._log.on)


async def test_a_broker_takes_subscriptions_to_what_it_tells_alone(tmp_path: Path) -> None:
    file = deployment({"leaf": ""}, {"leaf": "a"}, ())
    made = Deployed(file, tmp_path)
    made.configs["leaf"] = msgspec.structs.replace(made.configs["leaf"], counters=Counters(every_s=0.1))
    await made.start("leaf")
    try:
        async with chappe.connect(made.url("leaf"), name="archive") as archive:
            with pytest.raises(RefusedError, match="connect to a router"):
                await archive.subscribe("some/topic")
            denied: list[Exception] = []
            archive.on_error = denied.append
            archive.publish("broker/log/leaf", b"{}")
            await eventually(lambda: bool(denied))
            assert isinstance(denied[0], DeniedError)
            with pytest.raises(DeniedError, match="broker/log/leaf"):
                await archive.flush()
            heard = await hear(archive, "counters")
            rows = await heard.until(lambda rows: any(row["name"] == "chappe_broker_leading" for row in rows))
            assert {row["node"] for row in rows} == {"leaf"}
    finally:
        await made.stop("leaf")


# --- clients


@pytest.mark.timeout(90)
async def test_a_client_tells_of_broken_promises() -> None:
    listen = f'[node]\nname = "a"\n[[listen]]\nurl = "tcp://127.0.0.1:{free_port()}"\n'
    async with (
        running(listen) as (node,),
        chappe.connect(node.url, name="archive") as archive,
        chappe.connect(node.url, name="plant") as plant,
        chappe.connect(node.url, name="desk", report_quality=True) as desk,
        chappe.connect(node.url, name="silent") as silent,
    ):
        heard = await hear(archive, "quality")
        volts = await plant.register("plant", "volts", rate=20)
        amperes = await plant.register("plant", "amperes", rate=20)
        for client in (desk, silent):
            await client.watch("plant", "volts", qos=chappe.Qos(latency=0.05))
        rows = await heard.until(lambda rows: any(row["kind"] == "missed" for row in rows))
        missed = next(row for row in rows if row["kind"] == "missed")
        assert (missed["client"], missed["subject"]) == ("desk", "plant/volts")
        assert missed["count"] > 5, "those of a second are told together"
        assert json.loads(missed["detail"]) == {"mode": 0, "interval_ns": 50_000_000, "bound_ns": 50_000_000}

        for number in range(5):
            volts.publish(1.0, created=time.time_ns() - (number + 2) * 100_000_000)
        rows = await heard.until(lambda rows: any(row["kind"] == "late" for row in rows))
        late = next(row for row in rows if row["kind"] == "late")
        assert late["count"] >= 1
        assert late["latency_ns"] >= 50_000_000

        await desk.watch("plant", "amperes", extrapolate=chappe.Polynomial(order=1, points=2))
        first = time.time_ns() // 50_000_000
        for number in range(4):
            amperes.publish(float(number), created=(first - 3 + number) * 50_000_000)
        group = await desk.group("both")
        await group.add("plant", "volts")
        await group.add("plant", "amperes")
        for variable, steps in ((volts, (1, 2, 3)), (amperes, (3,))):
            for step in steps:
                variable.publish(2.0, created=(first + step) * 50_000_000)
        rows = await heard.until(lambda rows: {"extrapolated", "incomplete"} <= {row["kind"] for row in rows})
        assert next(row for row in rows if row["kind"] == "incomplete")["subject"] == "group/both"
        assert {row["client"] for row in rows} == {"desk"}
