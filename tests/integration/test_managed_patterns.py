"""Variables by pattern at managed nodes: what two clouds publish, refusals, and what outlives a broker and a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import chappe
from chappe.errors import DeniedError, QosError
from chappe.runtime.node import Node
from chappe.security.config import Rule
from chappe.security.rules import RuleBook
from tests.integration.test_broker_tree import deployment, running
from tests.integration.test_client_managed import when_managed
from tests.support.cloud import cloud
from tests.support.nodes import eventually


def active(stream: chappe.StatusStream) -> list[str]:
    return sorted(f"{watch.publisher}/{watch.variable}" for watch in stream.watches if watch.active)


async def test_a_pattern_takes_in_what_all_clouds_publish_and_outlives_the_process_that_leads(tmp_path: Path) -> None:
    deployed = deployment(tmp_path)
    configs = {config.node.name: config for process in deployed.processes for config in process.members}
    async with (
        running(list(configs.values())) as nodes,
        chappe.connect(nodes["n1"].url) as north,
        chappe.connect(nodes["s3"].url) as south,
        chappe.connect(nodes["s3"].url) as reader,
    ):
        first = await when_managed(north, "scada", "volts", rate=50)
        await when_managed(south, "other", "volts", rate=50)
        stream = await reader.watch_many("+/volts")
        await eventually(lambda: active(stream) == ["other/volts", "scada/volts"])
        assert all(watch.granted[0].latency is not None for watch in stream.watches)  # promised, not best effort
        first.publish(1.0)
        async with asyncio.timeout(10):
            assert (await anext(stream)).value == 1.0
        for broker in ("south", "root"):
            await nodes[broker].stop(drain=False)
            nodes[broker] = Node(configs[broker], dev=True)
            await nodes[broker].start()
        later = await when_managed(north, "later", "volts", rate=50)
        await eventually(lambda: active(stream) == ["later/volts", "other/volts", "scada/volts"])
        later.publish(2.0)
        async with asyncio.timeout(10):
            while (await anext(stream)).value != 2.0:
                pass


async def test_what_is_refused_is_reported_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, "ab") as made,
        chappe.connect(made.url("a")) as publisher,
        chappe.connect(made.url("b")) as reader,
    ):
        errors: list[Exception] = []
        reader.on_error = errors.append
        await publisher.register("scada", "slow", rate=1)
        stream = await reader.watch_many("scada/#", type="float")
        await eventually(lambda: active(stream) == ["scada/slow"])
        await publisher.register("scada", "number", rate=1, type="int")
        await eventually(lambda: len(errors) == 1)
        assert "type" in str(errors[0])
        await publisher.register("scada", "fast", rate=50)
        await eventually(lambda: active(stream) == ["scada/fast", "scada/slow"])
        stream = await reader.watch_many("scada/#", qos=chappe.Qos(redundancy=2))
        await eventually(lambda: any(isinstance(error, QosError) for error in errors))
        assert active(stream) == []


async def test_a_client_that_comes_back_hears_of_what_came_meanwhile(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, "ab") as made,
        chappe.connect(made.url("a")) as publisher,
        chappe.connect(made.url("b")) as reader,
    ):
        stream = await reader.watch_many("scada/#")
        await publisher.register("scada", "volts", rate=50)
        await eventually(lambda: active(stream) == ["scada/volts"])
        await made.stop("b")
        variable = await publisher.register("scada", "amperes", rate=50)
        await made.start("b")
        await eventually(lambda: active(stream) == ["scada/amperes", "scada/volts"])
        [watch] = [each for each in stream.watches if each.variable == "amperes"]

        def arrived() -> bool:
            variable.publish(7.0)  # once more: the link to the node that came back may not be up yet
            return watch.updates > 0

        await eventually(arrived)
        await stream.unwatch()
        leaf = made.nodes["leaf"].core.role
        await eventually(lambda: not leaf.machine._broker.parts.names._askers)  # type: ignore[union-attr]


async def test_who_may_not_watch_all_of_a_pattern_is_refused(tmp_path: Path) -> None:
    async with cloud(tmp_path, "ab") as made, chappe.connect(made.url("b")) as reader:
        made.nodes["b"].core.access.book = RuleBook.of([Rule("watch", "scada/#")])
        await reader.watch_many("scada/hall/#")
        with pytest.raises(DeniedError):
            await reader.watch_many("#")
