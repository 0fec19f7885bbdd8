"""Condensation across clouds: asked for at an edge of one cloud, run in the other where all the inputs are."""

from __future__ import annotations

from pathlib import Path

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
        await other.register("far", "one", rate=100)
        function = total("plant/one", "plant/two")
        async with chappe.connect(made.url("s2"), name="creator") as creator:
            issued = await creator.operate(Condense(id=0, function=function))
            assert isinstance(issued, Issued)
            with pytest.raises(ChappeError, match=r"2 clouds \(north has plant/one; south has far/one\)"):
                await creator.operate(Condense(id=0, function=total("plant/one", "far/one")))
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
