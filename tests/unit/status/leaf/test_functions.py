"""Condensation functions in a cloud: checked, placed, fed, kept, removed."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import Function, Granted, Input, Issued, Place, Withdrawn
from tests.support.clouds import LEAF, Cloud

MS = 1_000_000


def total(*inputs: str, **fields: Any) -> Function:
    names = tuple(Input(publisher, variable) for publisher, variable in (name.split("/") for name in inputs))
    return Function(**{"publisher": "sums", "variable": "total", "calculator": "builtin:sum", **fields}, inputs=names)


def condense(cloud: Cloud, function: Function, router: str = "d", creator: str = "creator") -> Message:
    return cloud.ask(router, cloud.router(router).condense(cloud.client(router, creator), function))


def uncondense(cloud: Cloud, router: str = "d", creator: str = "creator") -> Message:
    return cloud.ask(router, cloud.router(router).uncondense(cloud.client(router, creator), "sums/total"))


def placed(cloud: Cloud) -> dict[str, list[str]]:
    """The functions that routers run."""
    found = {name: [place.output.variable for place in router.functions.values()]
             for name, router in cloud.plane.routers.items()}  # fmt: skip
    return {name: functions for name, functions in found.items() if functions}


@pytest.fixture
def cloud() -> Cloud:
    """A chain of routers; one publishes at each end."""
    cloud = Cloud("a-b-c-d")
    cloud.publish("a", "west/power")
    cloud.publish("c", "east/power")
    return cloud


@pytest.mark.spec("GS-134")
def test_a_function_is_placed_fed_and_its_output_published(cloud: Cloud) -> None:
    issued = condense(cloud, total("west/power", "east/power"))
    assert isinstance(issued, Issued)
    ((router, _),) = placed(cloud).items()
    place = cloud.router(router).functions[issued.variable_id]
    assert [variable.publisher for variable in place.inputs] == ["west", "east"]
    inputs = {row["publisher"]: row for row in cloud.leaf.rows("paths")}
    assert [inputs[name]["routers"][-1] for name in ("west", "east")] == [router] * 2
    granted = cloud.subscribe("d", "sums/total")
    assert isinstance(granted, Granted)
    assert granted.variable.variable_id == issued.variable_id
    (row,) = cloud.leaf.rows("functions")
    assert (row["creator"], row["router"], row["inputs"]) == ("creator", router, ["west/power", "east/power"])
    again = condense(cloud, total("west/power", "east/power"))
    assert isinstance(again, Issued)
    assert again.variable_id == issued.variable_id
    cloud.check()


def test_inputs_are_there_before_the_function_and_the_function_before_its_output(cloud: Cloud) -> None:
    cloud.plane.trace.clear()
    condense(cloud, total("west/power", "east/power", place="d"))
    kinds = [type(message).__name__ for source, target, message in cloud.plane.trace]
    assert kinds.index("Place") > max(at for at, kind in enumerate(kinds) if kind == "Setup")
    assert kinds.index("Issued") > kinds.index("Place")


@pytest.mark.spec("GS-135")
def test_the_common_edge_of_all_inputs_is_taken_before_any_wish(cloud: Cloud) -> None:
    cloud.publish("a", "west/current")
    condense(cloud, total("west/power", "west/current", place="d"))
    assert placed(cloud) == {"a": ["total"]}
    assert [row["routers"] for row in cloud.leaf.rows("paths")] == [["a"]] * 2


@pytest.mark.spec("GS-135")
def test_the_wished_router_is_taken_where_the_inputs_have_no_common_edge(cloud: Cloud) -> None:
    condense(cloud, total("west/power", "east/power", place="d"))
    assert placed(cloud) == {"d": ["total"]}


@pytest.mark.spec("GS-135")
@pytest.mark.parametrize(("loads", "router"), [(0, "a"), (2, "b")])
def test_else_the_nearest_router_to_which_every_input_can_be_granted(loads: int, router: str) -> None:
    """a, b and c are equally near; two streams more fill the channel from b to a."""
    cloud = Cloud("a-b-c", bytes_per_s=24 * 250.0)
    cloud.publish("a", "west/power", 10 * MS)
    cloud.publish("c", "east/power", 10 * MS)
    for n in range(loads):
        cloud.publish("b", f"load/{n}", 10 * MS)
        assert isinstance(cloud.subscribe("a", f"load/{n}"), Granted)
    assert isinstance(condense(cloud, total("west/power", "east/power"), "b"), Issued)
    assert placed(cloud) == {router: ["total"]}
    assert all(row["share"] <= 1 for row in cloud.leaf.rows("loads"))
    cloud.check()


@pytest.mark.spec("GS-134")
@pytest.mark.parametrize(
    ("function", "code"),
    [
        (total("west/power", "nobody/power"), "unknown"),
        (total("west/power", trigger="never"), "invalid"),
        (total(), "invalid"),
        (total("west/power", calculator="builtin:magic"), "invalid"),
        (total("east/power", publisher="west", variable="power"), "exists"),
    ],
)
def test_a_function_that_cannot_be_changes_nothing(cloud: Cloud, function: Function, code: str) -> None:
    before = dict(cloud.plane.stores[LEAF].items)
    refused = condense(cloud, function)
    assert isinstance(refused, Failed)
    assert refused.code == code
    after = {key: value for key, value in cloud.plane.stores[LEAF].items.items() if key[0] != "counter"}
    assert after == {key: value for key, value in before.items() if key[0] != "counter"}
    assert placed(cloud) == {}


def test_a_router_that_refuses_a_function_leaves_nothing_behind(cloud: Cloud) -> None:
    cloud.router("d").refuses_once.add(Place)
    refused = condense(cloud, total("west/power", "east/power", place="d"))
    assert isinstance(refused, Failed)
    assert "d refuses the function" in refused.reason
    assert not cloud.leaf.rows("functions")
    assert not cloud.leaf.rows("paths")
    cloud.check()
    assert isinstance(condense(cloud, total("west/power", "east/power", place="d")), Issued)


@pytest.mark.spec("GS-136")
def test_a_function_outlives_its_creator_and_only_the_creator_removes_it(cloud: Cloud) -> None:
    condense(cloud, total("west/power", "east/power"))
    cloud.subscribe("a", "sums/total")
    cloud.router("d").detach("creator")
    cloud.plane.settle()
    cloud.router("d").attach("creator", session="2")  # it has restarted
    cloud.plane.settle()
    assert len(cloud.leaf.rows("functions")) == 1
    refused = uncondense(cloud, "b", "somebody")
    assert isinstance(refused, Failed)
    assert refused.code == "denied"
    assert len(cloud.leaf.rows("functions")) == 1
    assert isinstance(uncondense(cloud), Done)
    assert placed(cloud) == {}
    assert not cloud.leaf.rows("functions")
    assert not cloud.leaf.rows("paths")
    assert [type(notice) for notice in cloud.router("a").notices] == [Withdrawn]
    missing = uncondense(cloud)
    assert isinstance(missing, Failed)
    assert missing.code == "unknown"
    cloud.check()


@pytest.mark.spec("GS-136")
def test_a_function_survives_restarts_of_its_router_and_of_the_broker(cloud: Cloud) -> None:
    condense(cloud, total("west/power", "east/power", place="d"))
    running = dict(cloud.router("d").functions)
    cloud.restart()
    assert cloud.router("d").functions.keys() == running.keys()
    cloud.plane.kill("d")
    cloud.plane.start_router("d", LEAF)
    cloud.plane.settle()
    assert cloud.router("d").functions.keys() == running.keys()
    cloud.check()


def test_a_function_that_was_being_placed_when_the_broker_ended_is_placed_after_all(cloud: Cloud) -> None:
    for steps in range(30):
        request = cloud.router("d").condense(cloud.client("d", "creator"), total("west/power", "east/power", place="b"))
        for _ in range(steps):
            cloud.plane.step()
        cloud.restart()
        cloud.plane.advance(1)
        assert isinstance(cloud.router("d").answers[request], Issued), steps
        assert placed(cloud) == {"b": ["total"]}
        cloud.check()
        assert isinstance(uncondense(cloud), Done)
        assert placed(cloud) == {}
        cloud.check()


def test_an_input_that_was_withdrawn_is_fed_again_when_it_is_back(cloud: Cloud) -> None:
    issued = condense(cloud, total("west/power", "east/power", place="d"))
    assert isinstance(issued, Issued)
    cloud.router("a").detach("publisher.a")
    cloud.router("a").attach("publisher.a", session="2")
    cloud.plane.settle()
    assert {row["publisher"] for row in cloud.leaf.rows("paths")} == {"east"}
    back = cloud.publish("a", "west/power")
    assert isinstance(back, Issued)
    place = cloud.router("d").functions[issued.variable_id]
    assert place.inputs[0].variable_id == back.variable_id
    assert {row["publisher"] for row in cloud.leaf.rows("paths")} == {"west", "east"}
    cloud.check()
