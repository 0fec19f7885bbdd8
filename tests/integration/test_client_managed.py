"""The client at routers with a real leaf broker: grants, refusals, a mode change and a withdrawal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chappe
from chappe.cli._deployment import read
from chappe.client._status import Watch
from chappe.errors import QosError, RefusedError, WithdrawnError
from chappe.runtime.node import Node
from chappe.wire import control
from chappe.wire.management import ChangeMode
from tests.support.nodes import eventually, free_port

PERIOD = 20_000_000


@contextlib.asynccontextmanager
async def deployed(folder: Path) -> AsyncIterator[dict[str, Node]]:
    """Four routers in a ring (a-b-d and a-c-d) and their broker, all in this loop."""
    text = f'dev = true\n[[broker]]\nname = "leaf"\nlisten = ["tcp://127.0.0.1:{free_port()}"]\n'
    for name in "abcd":
        text += f'[[router]]\nname = "{name}"\ncloud = "leaf"\nlisten = "tcp://127.0.0.1:{free_port()}"\n'
    for pair in ("ab", "bd", "ac", "cd"):
        text += f'[[channel]]\nbetween = ["{pair[0]}", "{pair[1]}"]\n'
    file = folder / "grid.toml"
    file.write_text(text)
    nodes: dict[str, Node] = {}
    try:
        for process in read(file).processes:
            for config in process.members:
                node = nodes[config.node.name] = Node(config, dev=True)
                await node.start()
        yield nodes
    finally:
        await asyncio.gather(*(node.stop(drain=False) for node in nodes.values()))


async def when_managed(client: chappe.Client, publisher: str, variable: str, **options: object) -> chappe.Variable:
    """Register as soon as the broker has its routers."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.register(publisher, variable, **options)  # type: ignore[arg-type]
            except RefusedError:
                await asyncio.sleep(0.05)


async def granted(client: chappe.Client, qos: chappe.Qos) -> Watch:
    """Watch as soon as the channels are up."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await client.watch("pmu", "frequency", qos=qos, type=float)
            except RefusedError:
                await asyncio.sleep(0.05)


@pytest.mark.spec("GS-022", "GS-040", "GS-042", "GS-052", "GS-053", "GS-054")
async def test_quality_is_granted_refused_kept_through_a_mode_and_ended(tmp_path: Path) -> None:
    async with (
        deployed(tmp_path) as nodes,
        chappe.connect(nodes["a"].url, name="publisher") as one,
        chappe.connect(nodes["d"].url, name="subscriber") as two,
        chappe.connect(nodes["leaf"].url, name="operator") as operator,
    ):
        variable = await when_managed(one, "pmu", "frequency", rate=50, derived=[chappe.Mean(2)])
        watch = await granted(two, chappe.Qos(interval=0.05, latency=0.5, redundancy=2))
        grant = watch.granted[0]
        assert (grant.every, grant.redundancy) == (2, 2)
        assert 0 < grant.latency < 0.5
        async with chappe.connect(nodes["d"].url, name="greedy") as greedy:
            with pytest.raises(QosError, match=r"redundan|disjoint|path") as failure:
                await greedy.watch("pmu", "frequency", qos=chappe.Qos(redundancy=3))
            assert failure.value.best[0].redundancy == 2
            with pytest.raises(RefusedError, match="type"):
                await greedy.watch("pmu", "frequency", type=int)
        start = time.time_ns() // PERIOD // 2 * 2
        for number in range(100):
            variable.publish(float(number), created=(start + number) * PERIOD)
        got: list[tuple[float, float]] = []
        async with asyncio.timeout(30):
            while len(got) < 50:
                event = await anext(watch)
                got.append((event.value, event.derived["mean(2)"]))
        assert got == [(float(number), max(number - 0.5, 0)) for number in range(0, 100, 2)], "each one once"
        changed = await operator.operate(ChangeMode(id=0, mode=3))
        assert isinstance(changed, control.Done)
        await eventually(lambda: (two.mode, two.mode_changing) == (3, False) and one.mode == 3)
        await variable.withdraw()
        with pytest.raises(WithdrawnError, match="pmu/frequency was withdrawn"):
            await asyncio.wait_for(anext(watch), 30)


@pytest.mark.spec("GS-041", "GS-115")
async def test_each_mode_has_its_own_interval(tmp_path: Path) -> None:
    missed: list[chappe.Violation[Watch]] = []
    async with (
        deployed(tmp_path) as nodes,
        chappe.connect(nodes["a"].url, name="publisher") as one,
        chappe.connect(nodes["d"].url, name="subscriber") as two,
        chappe.connect(nodes["d"].url, name="other") as three,
        chappe.connect(nodes["leaf"].url, name="operator") as operator,
    ):
        told: list[tuple[int, int]] = []
        two.on_mode = lambda mode, following: told.append((mode, following))
        variable = await when_managed(one, "pmu", "frequency", rate=50)
        all_values = await granted(two, chappe.Qos())
        by_mode = {0: chappe.Qos(interval=0.04), 3: chappe.Qos(interval=0.1)}
        watch = await three.watch("pmu", "frequency", qos=by_mode, on_violation=missed.append, slack=60)
        only = await two.watch("pmu", "frequency", qos={0: chappe.Qos(interval=0.04)})
        assert {mode: grant.every for mode, grant in watch.granted.items()} == {0: 2, 3: 5}
        start = time.time_ns() // PERIOD // 10 * 10

        def publish(first: int) -> None:
            for number in range(first, first + 20):
                variable.publish(float(number), created=(start + number) * PERIOD)

        publish(0)
        await eventually(lambda: watch.updates == 10 and only.updates == 10)
        await operator.operate(ChangeMode(id=0, mode=3))
        await eventually(lambda: two.mode == three.mode == 3)
        publish(20)
        await eventually(lambda: watch.updates == 14)
        assert [event.value for event in watch.take_nowait()] == [*range(0, 20, 2), 20, 25, 30, 35]
        await eventually(lambda: all_values.updates == 40)
        assert only.updates == 10, "it does not live in this mode"
        assert told == [(0, 3), (3, 3)], "before and after"
        assert missed == []
