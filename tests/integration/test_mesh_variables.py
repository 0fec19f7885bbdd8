"""Variables in a mesh of real nodes: found by name and by pattern, thinned on the way, and led round what fails."""

from __future__ import annotations

import asyncio
import time

import pytest

import chappe
from chappe.errors import DeniedError, RefusedError
from chappe.runtime.node import Node
from chappe.security.config import Rule
from chappe.security.rules import RuleBook
from tests.support.meshes import Plan, mesh
from tests.support.nodes import eventually, running

LISTEN = '[[listen]]\nurl = "tcp://127.0.0.1:0"\n'
MS = 1_000_000


def crossed(node: Node, neighbour: str) -> int:
    """How many values came to a node over its link to a neighbour."""
    port = node.core.ports.get(neighbour)
    assert port is not None
    return node.core.engine.port_counters(port)["status_in"]


async def publish(variable: chappe.Variable, rounds: range, period_ns: int = 20 * MS, pace_s: float = 0.0) -> None:
    """One value for each of these rounds, with their stamps."""
    for number in rounds:
        assert variable.publish(float(number), created=number * period_ns)
        await asyncio.sleep(pace_s)


async def test_a_link_carries_what_is_wanted_behind_it() -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    async with (
        mesh(plan) as nodes,
        chappe.connect(nodes["a"].url) as at_a,
        chappe.connect(nodes["b"].url) as at_b,
        chappe.connect(nodes["c"].url) as at_c,
    ):
        variable = await at_a.register("meter", "volts", rate=50)
        start = time.time_ns() // (20 * MS) // 100 * 100
        await publish(variable, range(start - 100, start))
        await at_a.flush()
        assert crossed(nodes["b"], "a") == 0
        seldom = await at_c.watch("meter", "volts", interval=1.0, wait_s=10)
        assert seldom.granted == {}  # nobody promises anything
        await eventually(lambda: seldom.updates)  # the present value
        often = await at_b.watch("meter", "volts", interval=0.2, wait_s=10)
        await eventually(lambda: often.updates)
        await eventually(lambda: _intervals(nodes["a"]) == {200 * MS})
        before = crossed(nodes["b"], "a"), crossed(nodes["c"], "b")
        await publish(variable, range(start, start + 200))
        await at_a.flush()
        await eventually(lambda: often.created == (start + 190) * 20 * MS)
        await eventually(lambda: seldom.created == (start + 150) * 20 * MS)
        after = crossed(nodes["b"], "a"), crossed(nodes["c"], "b")
        assert (after[0] - before[0], after[1] - before[1]) == (20, 4)
        await often.unwatch()
        await seldom.unwatch()
        await eventually(lambda: not _served(nodes["a"]))
        await publish(variable, range(start + 200, start + 300))
        await at_a.flush()
        assert crossed(nodes["b"], "a") == after[0]


def _intervals(node: Node) -> set[int]:
    """At which intervals values are sent to neighbours."""
    ports = set(node.core.ports._ports.values())
    demands = [entry.demand for entry in node.core.variables.directory.walk() if entry.demand is not None]
    terms = [term for demand in demands for port in ports for term in demand.served.get(port, ())]
    return {term.interval_ns for term in terms}


def _served(node: Node) -> list[int]:
    """Ports of neighbours that values are sent to."""
    ports = set(node.core.ports._ports.values())
    demands = (entry.demand for entry in node.core.variables.directory.walk())
    return [port for demand in demands if demand is not None for port in demand.served if port in ports]


async def test_a_pattern_takes_in_what_is_published_anywhere_and_later() -> None:
    plan = Plan((("a", "b"), ("b", "c")))
    async with (
        mesh(plan) as nodes,
        chappe.connect(nodes["a"].url) as at_a,
        chappe.connect(nodes["b"].url) as at_b,
        chappe.connect(nodes["c"].url) as at_c,
    ):
        stream = await at_c.watch_many("scada/#")
        first = await at_a.register("scada", "volts", rate=50)
        await at_a.register("other", "volts", rate=50)
        await eventually(lambda: len(stream.watches) == 1 and stream.watches[0].active)
        first.publish(1.0)
        second = await at_b.register("scada", "hall/amperes", rate=50)
        await eventually(lambda: len(stream.watches) == 2 and stream.watches[1].active)
        second.publish(2.0)
        values: dict[str, float] = {}
        async with asyncio.timeout(20):
            while len(values) < 2:
                event = await anext(stream)
                values[event.variable] = event.value
        assert values == {"volts": 1.0, "hall/amperes": 2.0}
        await stream.unwatch()
        await eventually(lambda: len(nodes["c"].core.variables.directory) == 0)


async def test_a_stream_by_pattern_outlives_what_it_is_for_and_its_connection() -> None:
    async with running(LISTEN) as (node,), chappe.connect(node.url) as reader, chappe.connect(node.url) as publisher:
        errors: list[Exception] = []
        reader.on_error = errors.append
        stream = await reader.watch_many("scada/#")
        variable = await publisher.register("scada", "volts", rate=50)
        await eventually(lambda: len(stream.watches) == 1 and stream.watches[0].active)
        (watch,) = stream.watches
        await publisher.withdraw(variable)
        await eventually(lambda: not watch.active)
        assert not errors
        variable = await publisher.register("scada", "volts", rate=50)
        await eventually(lambda: watch.active)
        assert stream.watches == [watch]
        variable.publish(5.0)
        async with asyncio.timeout(10):
            assert (await anext(stream)).value == 5.0
        assert reader._session is not None
        reader._session.drop(OSError("cut by the test"))
        await eventually(lambda: reader.state == "connected" and watch.active)
        another = await publisher.register("scada", "amperes", rate=50)
        await eventually(lambda: len(stream.watches) == 2 and stream.watches[1].active)
        another.publish(6.0)
        async with asyncio.timeout(10):
            while (await anext(stream)).value != 6.0:
                pass
        assert not errors


async def test_patterns_and_names_in_one_stream_and_what_is_wrong_with_them() -> None:
    async with running(LISTEN) as (node,), chappe.connect(node.url) as reader, chappe.connect(node.url) as publisher:
        await publisher.register("scada", "volts", rate=50)
        stream = await reader.watch_many([("scada", "volts"), "scada/+/temperature"])
        await publisher.register("scada", "hall/temperature", rate=50)
        await eventually(lambda: len(stream.watches) == 2 and stream.watches[1].active)
        for wrong in ("scada/#/x", "a//b", "int:5"):
            with pytest.raises(RefusedError):
                await reader.watch_many(wrong)
        with pytest.raises(ValueError, match="at least one"):
            await reader.watch_many([])
        assert set(reader._patterns.streams) == {stream}


async def test_who_may_not_watch_all_of_a_pattern_is_refused() -> None:
    async with running(LISTEN) as (node,), chappe.connect(node.url) as reader:
        node.core.access.book = RuleBook.of([Rule("watch", "scada/#")])
        await reader.watch_many("scada/hall/#")
        with pytest.raises(DeniedError):
            await reader.watch_many("#")


async def test_values_go_round_a_node_that_is_lost() -> None:
    plan = Plan((("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")))
    async with (
        mesh(plan) as nodes,
        chappe.connect(nodes["a"].url) as publisher,
        chappe.connect(nodes["d"].url) as reader,
    ):
        variable = await publisher.register("meter", "volts", rate=100)
        watch = await reader.watch("meter", "volts", wait_s=20)
        created: list[int] = []
        watch.tap(lambda event: created.append(event.created))
        going = asyncio.create_task(publish_always(variable))
        await eventually(lambda: len(created) > 20)
        ways: list[str] = []

        def one_way() -> bool:
            """Whether one node passes them on; both do for a moment when another way has become the shortest."""
            ways[:] = [name for name in ("b", "c") if _served(nodes[name])]
            return len(ways) == 1

        await eventually(one_way)
        (transit,) = ways
        await nodes[transit].stop(drain=False)
        before = len(created)
        await eventually(lambda: len(created) > before + 100)
        going.cancel()
        assert len(created) == len(set(created))
        assert _served(nodes["c" if transit == "b" else "b"])


async def publish_always(variable: chappe.Variable) -> None:
    """A hundred values a second."""
    while True:
        variable.publish(1.0)
        await asyncio.sleep(0.01)
