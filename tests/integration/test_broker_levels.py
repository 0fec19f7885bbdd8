"""Brokers on three levels above four clouds, with real routers: paths, modes and failures at every height (GS-090)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import chappe
from chappe.errors import QosError
from chappe.wire.base import Done
from chappe.wire.management import ChangeMode
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually

TREE = {"root": "", "west": "root", "east": "root", "w1": "west", "w2": "west", "e1": "east", "e2": "east"}
CLOUDS = {"w1": ("a1",), "w2": ("b1",), "e1": ("c1",), "e2": ("d1",)}
CHANNELS = ("a1-b1", "b1-c1", "c1-d1", "a1-d1")  # a ring of clouds; a1-b1 is of west, c1-d1 of east, the others of root


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Deployed]:
    async with deployed(tmp_path, deployment(TREE, CLOUDS, CHANNELS)) as running:
        yield running


async def allocated(made: Deployed) -> dict[str, list[list[str]]]:
    """Paths by the inner broker that allocated them."""
    found = {}
    for role in ("root", "west", "east"):
        found[role] = sorted(row["routers"] for row in await made.rows(role, "paths"))
    return found


@pytest.mark.spec("GS-090", "GS-087")
async def test_the_lowest_broker_above_both_ends_allocates_and_values_flow_between_all_clouds(made: Deployed) -> None:
    async with (
        chappe.connect(made.url("a1"), name="meter") as meter,
        chappe.connect(made.url("b1"), name="near") as near,
        chappe.connect(made.url("c1"), name="far") as far,
        chappe.connect(made.url("d1"), name="both") as both,
    ):
        speed = await meter.register("plant", "speed", rate=100)
        watches = [await near.watch("plant", "speed"), await far.watch("plant", "speed")]
        watches.append(await both.watch("plant", "speed", qos=chappe.Qos(redundancy=2)))
        found = await allocated(made)
        assert found["west"] == [["a1", "b1"]]
        assert found["east"] == []
        assert {len(routers) for routers in found["root"]} == {2, 3, 4}
        assert ["a1", "d1"] in found["root"]
        assert ["a1", "b1", "c1", "d1"] in found["root"]  # the second of two disjoint paths crosses four clouds
        assert speed.publish(1.5)
        await eventually(lambda: [watch.value for watch in watches] == [1.5] * 3)
        with pytest.raises(QosError, match="disjoint paths"):
            await both.watch("plant", "speed", qos=chappe.Qos(redundancy=3))
        await meter.withdraw(speed)
        await eventually(lambda: all(watch.withdrawn is not None for watch in watches))
        await eventually(lambda: not made.tables)
        assert await allocated(made) == {"root": [], "west": [], "east": []}


@pytest.mark.spec("GS-090", "GS-117")
async def test_a_mode_change_at_the_root_reaches_every_router_through_brokers_between(made: Deployed) -> None:
    assert isinstance(await made.operators["root"].ask(ChangeMode, mode=4), Done)
    assert {name: node.engine.status.slot for name, node in made.routers.items()} == dict.fromkeys(made.routers, 4)


@pytest.mark.spec("GS-090", "GS-155")
@pytest.mark.parametrize("role", ["west", "root"])
async def test_values_go_on_without_an_inner_broker_and_it_learns_everything_again(made: Deployed, role: str) -> None:
    async with (
        chappe.connect(made.url("a1"), name="meter") as meter,
        chappe.connect(made.url("c1"), name="far") as far,
    ):
        speed = await meter.register("plant", "speed", rate=100)
        watch = await far.watch("plant", "speed")
        before = await allocated(made)
        await made.stop(role)
        assert speed.publish(2.5)
        await eventually(lambda: watch.value == 2.5)
        await made.start(role)
        await made.ready()
        assert await allocated(made) == before
        other = await meter.register("plant", "load", rate=100)
        load = await far.watch("plant", "load", wait_s=20)
        assert other.publish(3.5)
        await eventually(lambda: load.value == 3.5)
