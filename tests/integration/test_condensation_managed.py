"""Condensation in a managed cloud: asked for at an edge, placed by the broker, run beside a router, read elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import chappe
from chappe.client.client import Client
from chappe.errors import ChappeError
from chappe.wire.control import List, Listing
from chappe.wire.management import Condense, Function, Input, Issued, Uncondense
from tests.support.cloud import Cloud, cloud
from tests.support.nodes import eventually

MS = 1_000_000
CHAIN = ("ab", "bc", "cd")


def total(*inputs: str, **settings: Any) -> Function:
    given = {"calculator": "builtin:sum", **settings}
    named = tuple(Input(*name.split("/", 1)) for name in inputs)  # type: ignore[arg-type]
    return Function(publisher="area", variable="total", inputs=named, **given)


async def asked(client: Client, function: Function) -> int:
    """The id of the output of a function that was created."""
    answer = await client.operate(Condense(id=0, function=function))
    assert isinstance(answer, Issued)
    return answer.variable_id


async def functions(made: Cloud) -> list[dict[str, Any]]:
    answer = await made.operator.ask(List, what="functions")
    assert isinstance(answer, Listing)
    return list(answer.rows)


def runs_at(made: Cloud) -> dict[str, str]:
    """State of the one function by the router that runs it."""
    return {name: row["state"] for name, node in made.nodes.items() for row in node.functions.rows()}


async def until(publish: Callable[[], object], condition: Callable[[], object]) -> None:
    """Publish again and again until something is so."""

    def so() -> object:
        publish()
        return condition()

    await eventually(so)


@pytest.mark.spec("GS-134", "GS-135", "GS-136")
async def test_a_function_runs_at_the_common_edge_of_its_inputs_and_outlives_its_creator(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, *CHAIN) as made,
        chappe.connect(made.url("b"), name="meters") as meters,
        chappe.connect(made.url("d"), name="reader") as reader,
    ):
        one, two = [await meters.register("plant", name, rate=100) for name in ("one", "two")]
        async with chappe.connect(made.url("a"), name="creator") as creator:
            number = await asked(creator, total("plant/one", "plant/two", place="d"))
            assert await asked(creator, total("plant/one", "plant/two", place="d")) == number
        await eventually(lambda: runs_at(made) == {"b": "running"})  # the common edge goes before the wish
        watch = await reader.watch("area", "total")
        assert watch.variable_id == number

        def publish() -> None:
            one.publish(3.0)
            two.publish(4.0)

        await until(publish, lambda: watch.value == 7.0)
        async with chappe.connect(made.url("a"), name="other") as other:
            with pytest.raises(ChappeError, match="belongs to 'creator'"):
                await other.operate(Uncondense(id=0, publisher="area", variable="total"))
        async with chappe.connect(made.url("c"), name="creator") as creator:
            await creator.operate(Uncondense(id=0, publisher="area", variable="total"))
        await eventually(lambda: watch.withdrawn is not None)
        await eventually(lambda: runs_at(made) == {})
        assert await functions(made) == []


@pytest.mark.spec("GS-135", "GS-134", "GS-133")
async def test_inputs_of_two_edges_meet_at_the_wished_router_or_near_to_both(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, *CHAIN) as made,
        chappe.connect(made.url("a"), name="west") as west,
        chappe.connect(made.url("c"), name="east") as east,
        chappe.connect(made.url("d"), name="reader") as reader,
    ):
        one, two = await west.register("west", "power", rate=100), await east.register("east", "power", rate=100)

        def publish() -> None:
            one.publish(10.0)
            two.publish(5.0)

        for wish, place in (("d", "d"), ("", "a")):
            await asked(reader, total("west/power", "east/power", place=wish))
            await eventually(lambda place=place: runs_at(made) == {place: "running"})  # type: ignore[misc]
            watch = await reader.watch("area", "total")
            await until(publish, lambda watch=watch: watch.value == 15.0)  # type: ignore[misc]
            await reader.unwatch(watch)
            await reader.operate(Uncondense(id=0, publisher="area", variable="total"))
            await eventually(lambda: runs_at(made) == {})


@pytest.mark.spec("GS-152")
async def test_a_router_that_restarts_gets_its_function_again(tmp_path: Path) -> None:
    async with (
        cloud(tmp_path, *CHAIN) as made,
        chappe.connect(made.url("a"), name="west") as west,
        chappe.connect(made.url("b"), name="reader") as reader,
    ):
        power = await west.register("west", "power", rate=100)
        other = await reader.register("here", "power", rate=100)
        await asked(reader, total("west/power", "here/power", place="d"))
        await eventually(lambda: runs_at(made) == {"d": "running"})
        watch = await reader.watch("area", "total")

        def publish(value: float) -> None:
            power.publish(value)
            other.publish(1.0)

        await until(lambda: publish(1.0), lambda: watch.value == 2.0)
        await made.stop("d")
        assert runs_at(made) == {}
        await made.start("d")
        await until(lambda: publish(2.0), lambda: watch.value == 3.0)
        await eventually(lambda: runs_at(made) == {"d": "running"})


@pytest.mark.spec("GS-134")
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (total("plant/one", "plant/nothing"), "nobody publishes plant/nothing"),
        (total("plant/one", calculator="expression:one +"), "expression: column"),
        (total("plant/one", calculator="expression:9**9**9**9"), "more than 64 bits"),
        (total("plant/one", calculator="entry:nobody"), "has a calculator 'nobody'; install one"),
        (total("plant/one", type="int"), "gives a float, the output is of type int"),
        (total("plant/one", trigger="time"), "a time trigger needs an interval"),
    ],
)
async def test_a_wrong_request_is_refused_and_nothing_else_changes(
    tmp_path: Path, function: Function, words: str
) -> None:
    async with cloud(tmp_path, "ab") as made, chappe.connect(made.url("a"), name="plant") as client:
        await client.register("plant", "one", rate=100)
        before = made.tables
        with pytest.raises(ChappeError) as refused:
            await client.operate(Condense(id=0, function=function))
        assert words in str(refused.value)
        await eventually(lambda: made.tables == before)
        assert await functions(made) == []
        assert runs_at(made) == {}
