"""Condensation across clouds: asked for at an edge of one cloud, run in the other where all the inputs are."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest

import chappe
from chappe.errors import ChappeError
from chappe.wire.management import Condense, Function, Input, Issued, Uncondense
from tests.support.deployed import Deployed, deployed, deployment
from tests.support.nodes import eventually

TREE = {"root": "", "north": "root", "south": "root"}
CLOUDS = {"north": ("n1", "n2"), "south": ("s1", "s2")}
CHANNELS = ("n1-n2", "n2-s1", "s1-s2")


def total(*inputs: str) -> Function:
    named = tuple(Input(*name.split("/", 1)) for name in inputs)  # type: ignore[arg-type]
    return Function(publisher="area", variable="total", inputs=named, calculator="builtin:sum")


def runs_at(made: Deployed) -> dict[str, str]:
    """State of the one function by the router that runs it."""
    return {name: row["state"] for name, node in made.routers.items() for row in node.functions.rows()}


@pytest.mark.spec("GS-134", "GS-136")
async def test_a_function_over_inputs_of_another_cloud_runs_there_and_obeys_only_its_creator(tmp_path: Path) -> None:
    async with (
        deployed(tmp_path, deployment(TREE, CLOUDS, CHANNELS)) as made,
        chappe.connect(made.url("n1"), name="meters") as meters,
        chappe.connect(made.url("s1"), name="other") as other,
        chappe.connect(made.url("s2"), name="reader") as reader,
    ):
        one, two = [await meters.register("plant", name, rate=100) for name in ("one", "two")]
        function = total("plant/one", "plant/two")
        async with chappe.connect(made.url("s2"), name="creator") as creator:
            issued = await creator.operate(Condense(id=0, function=function))
            assert isinstance(issued, Issued)
        await eventually(lambda: runs_at(made) == {"n1": "running"})
        watch = await reader.watch("area", "total")
        assert watch.variable_id == issued.variable_id

        def summed() -> bool:
            one.publish(3.0)
            two.publish(4.0)
            return bool(watch.value == 7.0)

        await eventually(summed)
        with pytest.raises(ChappeError, match="belongs to 'creator'"):
            await other.operate(Uncondense(id=0, publisher="area", variable="total"))
        assert runs_at(made) == {"n1": "running"}
        async with chappe.connect(made.url("s1"), name="creator") as creator:
            again = await creator.operate(Condense(id=0, function=function))
            assert isinstance(again, Issued)
            assert again.variable_id == issued.variable_id
            await creator.operate(Uncondense(id=0, publisher="area", variable="total"))
        await eventually(lambda: watch.withdrawn is not None)
        await eventually(lambda: runs_at(made) == {})


@pytest.mark.spec("GS-139")
async def test_a_function_over_two_clouds_is_computed_in_both_and_survives_their_brokers(tmp_path: Path) -> None:
    """Two readings of the north and four of the south: the north sends its total in place of two streams."""
    async with (
        deployed(tmp_path, deployment(TREE, CLOUDS, CHANNELS)) as made,
        chappe.connect(made.url("n1"), name="meters") as meters,
        chappe.connect(made.url("s2"), name="others") as others,
        chappe.connect(made.url("n1"), name="reader") as reader,
        chappe.connect(made.url("s1"), name="creator") as creator,
    ):
        names = [f"plant/{name}" for name in ("one", "two")]
        names += [f"town/{name}" for name in ("one", "two", "three", "four")]
        variables = [
            await (meters if name.startswith("plant") else others).register(*name.split("/"), rate=100)
            for name in names
        ]
        function = msgspec.structs.replace(total(*names), calculator="builtin:mean")
        issued = await creator.operate(Condense(id=0, function=function))
        assert isinstance(issued, Issued)
        assert (issued.place, issued.parts) == ("south/s2", ("area@north/total",))
        await eventually(lambda: runs_at(made) == {"n1": "running", "s2": "running"})
        watch = await reader.watch("area", "total")
        bases = itertools.count(1)
        rounds = 0

        async def computed() -> None:
            """New readings give a new mean."""
            nonlocal rounds
            base = 10.0 * next(bases)
            async with asyncio.timeout(60):
                while watch.value != base + 3.5:
                    for number, variable in enumerate(variables, 1):
                        variable.publish(base + number)
                    rounds += 1
                    await asyncio.sleep(0.02)

        await computed()
        before, crossed = rounds, made.left("n2", "s1")
        for _ in range(5):
            await computed()
        assert 5 <= made.left("n2", "s1") - crossed <= rounds - before + 1  # one record a round, not two
        for role in ("south", "north", "root"):
            await made.stop(role)
            await computed()  # routers go on without it
            await made.start(role)
        await made.ready()
        again = await creator.operate(Condense(id=0, function=function))
        assert msgspec.structs.replace(again, id=issued.id) == issued
        [row] = await made.rows("south", "functions")
        assert (row["cloud"], row["router"], row["parts"]) == ("south", "s2", ["area@north/total"])
        await creator.operate(Uncondense(id=0, publisher="area", variable="total"))
        await eventually(lambda: watch.withdrawn is not None)
        await eventually(lambda: runs_at(made) == {} and not any(paths for _, paths in made.tables.values()))
