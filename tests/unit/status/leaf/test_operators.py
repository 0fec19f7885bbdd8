"""What operators do to a cloud: routers and channels, modes, flooding; and what they are shown."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire.base import Done, Failed, Message, Qos, Request, Variable
from chappe.wire.management import (
    AddChannel,
    AddRouter,
    ChangeMode,
    ClearFlood,
    Granted,
    Issued,
    RemoveChannel,
    RemoveRouter,
    SetFlood,
)
from tests.support.clouds import LEAF, Cloud

LEVELS = (1,) * 16


def order(cloud: Cloud, kind: type[Request], **fields: Any) -> Message:
    operator = cloud.plane.operator(LEAF)
    request = operator.ask(kind, **fields)
    cloud.plane.settle()
    return operator.answers[request]


@pytest.fixture
def cloud() -> Cloud:
    return Cloud("a-b-c", inner="b")


@pytest.mark.spec("GS-014")
def test_a_router_and_its_channels_are_added_and_used(cloud: Cloud) -> None:
    assert isinstance(order(cloud, AddRouter, name="d", edge=False), Done)
    assert isinstance(order(cloud, AddChannel, a="a", b="d", url="tcp://127.0.0.1:9"), Done)
    assert isinstance(order(cloud, AddChannel, a="d", b="c", url="tcp://127.0.0.1:4"), Done)
    assert cloud.router("a").channels["d"].url == "tcp://127.0.0.1:9"
    assert cloud.router("c").channels["d"].url == ""
    cloud.plane.start_router("d", LEAF)
    cloud.plane.settle()
    assert set(cloud.router("d").channels) == {"a", "c"}
    cloud.publish("a", "plant/power")
    assert isinstance(cloud.subscribe("c", "plant/power", Qos(redundancy=2)), Granted)
    assert len(cloud.router("d").paths) == 1
    cloud.restart()
    assert {row["name"] for row in cloud.leaf.rows("routers")} == set("abcd")
    assert len(cloud.leaf.rows("channels")) == 4
    cloud.check()


@pytest.mark.spec("GS-014")
def test_what_is_in_use_is_not_removed_and_what_is_removed_stays_so(cloud: Cloud) -> None:
    issued = cloud.publish("a", "plant/power")
    assert isinstance(issued, Issued)
    cloud.subscribe("c", "plant/power")
    for kind, fields, word in (
        (RemoveChannel, {"a": "b", "b": "a"}, "used by paths"),
        (RemoveRouter, {"name": "b"}, "paths lead through it"),
        (RemoveRouter, {"name": "a"}, "is published there"),
    ):
        refused = order(cloud, kind, **fields)
        assert isinstance(refused, Failed)
        assert word in refused.reason
    cloud.check()
    cloud.unsubscribe("c", issued.variable_id)
    assert isinstance(order(cloud, RemoveChannel, a="b", b="c"), Done)
    assert set(cloud.router("b").channels) == {"a"}
    assert isinstance(order(cloud, RemoveRouter, name="c"), Done)
    cloud.restart()
    assert {row["name"] for row in cloud.leaf.rows("routers")} == {"a", "b"}
    assert [(row["a"], row["b"]) for row in cloud.leaf.rows("channels")] == [("a", "b")]


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        (AddRouter, {"name": "a"}, "exists"),
        (RemoveRouter, {"name": "x"}, "unknown"),
        (AddChannel, {"a": "a", "b": "a"}, "invalid"),
        (AddChannel, {"a": "a", "b": "x"}, "unknown"),
        (AddChannel, {"a": "b", "b": "a"}, "exists"),
        (AddChannel, {"a": "a", "b": "c", "latency_ns": -1}, "invalid"),
        (RemoveChannel, {"a": "a", "b": "c"}, "unknown"),
        (SetFlood, {"publisher": "nobody", "variable": "x"}, "unknown"),
        (SetFlood, {"publisher": "nobody", "variable": "x", "level": 2}, "invalid"),
        (SetFlood, {"publisher": "nobody", "variable": "x", "modes": 0}, "invalid"),
        (ChangeMode, {"mode": 16}, "invalid"),
    ],
)
def test_an_order_that_makes_no_sense_changes_nothing(
    cloud: Cloud, kind: type[Request], fields: dict[str, Any], code: str
) -> None:
    before = dict(cloud.plane.stores[LEAF].items)
    refused = order(cloud, kind, **fields)
    assert isinstance(refused, Failed)
    assert refused.code == code
    assert cloud.plane.stores[LEAF].items == before


def test_a_mode_change_runs_through_its_phases_and_survives_a_restart(cloud: Cloud) -> None:
    assert isinstance(order(cloud, ChangeMode, mode=3), Done)
    edge = [("InformMode", 3), ("PrepareMode", 3), ("SetMode", 3), ("CommitMode", 3)]
    assert cloud.router("a").modes[-4:] == cloud.router("c").modes[-4:] == edge
    assert cloud.router("b").modes[-1] == ("SetMode", 3)
    cloud.plane.kill("b")
    cloud.restart()
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    assert [router.mode for router in cloud.plane.routers.values()] == [3, 3, 3]
    assert cloud.leaf.rows("modes") == [{"broker": LEAF, "mode": 3, "next": None, "rank": 1}]


def test_a_router_that_was_away_during_a_change_gets_the_mode_when_it_joins(cloud: Cloud) -> None:
    cloud.plane.cut("c", LEAF)
    done = order(cloud, ChangeMode, mode=5)
    assert isinstance(done, Done)
    assert "c" in done.note
    assert cloud.router("c").mode == 0
    cloud.plane.heal("c", LEAF)
    cloud.plane.settle()
    assert cloud.router("c").mode == 5


@pytest.mark.spec("GS-100")
def test_a_flooded_variable_is_told_to_all_routers_and_to_those_that_come_later(cloud: Cloud) -> None:
    issued = cloud.publish("a", "plant/alarm")
    assert isinstance(issued, Issued)
    cloud.plane.cut("c", LEAF)
    assert isinstance(order(cloud, SetFlood, publisher="plant", variable="alarm"), Done)
    flooded = {issued.variable_id: LEVELS}
    assert [cloud.router(name).floods for name in "abc"] == [flooded, flooded, {}]
    cloud.restart()
    cloud.plane.heal("c", LEAF)
    cloud.plane.settle()
    assert cloud.router("c").floods == flooded
    order(cloud, AddRouter, name="d")
    cloud.plane.start_router("d", LEAF)
    cloud.plane.settle()
    assert cloud.router("d").floods == flooded
    cloud.plane.cut("c", LEAF)
    assert isinstance(order(cloud, ClearFlood, publisher="plant", variable="alarm", modes=1), Done)
    assert cloud.router("a").floods == {issued.variable_id: (0, *LEVELS[1:])}
    assert isinstance(order(cloud, ClearFlood, publisher="plant", variable="alarm"), Done)
    cloud.restart()
    cloud.plane.heal("c", LEAF)
    cloud.plane.settle()
    assert [router.floods for router in cloud.plane.routers.values()] == [{}] * 4
    assert {kind for kind, _ in cloud.plane.stores[LEAF].items} <= {"router", "counter", "publication", "entity"}


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (AddRouter, {"name": "a/b"}, "'a/b' is no name of a router: 1 to 64 letters"),
        (AddRouter, {"name": ""}, "is no name of a router"),
        (AddRouter, {"name": "x\n"}, "is no name of a router"),
        (AddRouter, {"name": "d", "events_per_s": -1.0}, "router d: events_per_s must not be negative"),
        (AddRouter, {"name": "d", "events_per_s": float("nan")}, "router d: events_per_s must not be negative"),
        (AddRouter, {"name": "d", "x": float("inf")}, "no number endless"),
        (AddChannel, {"a": "a", "b": "c", "bytes_per_s": float("nan")}, "channel a - c: capacity and latency"),
    ],
)
def test_what_no_deployment_file_could_say_is_refused(
    cloud: Cloud, kind: type[Request], fields: dict[str, Any], words: str
) -> None:
    refused = order(cloud, kind, **fields)
    assert isinstance(refused, Failed)
    assert refused.code == "invalid"
    assert words in refused.reason
    assert {row["name"] for row in cloud.leaf.rows("routers")} == {"a", "b", "c"}
    assert len(cloud.leaf.rows("channels")) == 2


def test_an_operator_floods_no_variable_that_nobody_publishes_and_ends_nothing_of_a_broker_above(cloud: Cloud) -> None:
    made_up = Variable(99, "plant", "alarm", "bool", 0, 1, 3, 0)
    refused = order(cloud, SetFlood, publisher="plant", variable="alarm", described=made_up)
    assert isinstance(refused, Failed)
    assert refused.code == "unknown"
    issued = cloud.publish("a", "plant/alarm")
    assert isinstance(issued, Issued)
    cloud.leaf.receive("parent", SetFlood(id=1, publisher="plant", variable="alarm", level=1, rank=2), 0)
    for kind in (SetFlood, ClearFlood):
        refused = order(cloud, kind, publisher="plant", variable="alarm")
        assert isinstance(refused, Failed)
        assert (refused.code, refused.reason) == (
            "denied", "flooding of plant/alarm is decided by a broker above; ask there")  # fmt: skip
    assert [row["levels"] for row in cloud.leaf.rows("floods")] == [list(LEVELS)]


def test_a_flooded_name_that_is_published_anew_is_flooded_under_its_new_id(cloud: Cloud) -> None:
    first = cloud.publish("a", "plant/alarm")
    assert isinstance(first, Issued)
    order(cloud, SetFlood, publisher="plant", variable="alarm")
    cloud.unpublish("a", first.variable_id)
    second = cloud.publish("a", "plant/alarm")
    assert isinstance(second, Issued)
    assert all(router.floods == {second.variable_id: LEVELS} for router in cloud.plane.routers.values())


COLUMNS = {
    "routers": "name cloud edge up x y events_per_s load share",
    "channels": "a b level up bytes_per_s latency_ms security load share owner",
    "publications": "publisher variable variable_id type rate edge",
    "subscriptions": "key subscriber edge publisher variable modes redundancy interval_ms latency_ms paths state",
    "paths": "publisher variable key subscriber redundant routers before after modes intervals_ms security",
    "entities": "name edge attached publications subscriptions",
    "floods": "publisher variable levels rank",
    "modes": "broker mode next rank",
    "clouds": "name up routers routers_up",
}


def test_rows_have_the_columns_that_are_promised(cloud: Cloud) -> None:
    cloud.publish("a", "plant/power")
    cloud.subscribe("c", "plant/power", Qos(interval_ns=20_000_000))
    order(cloud, SetFlood, publisher="plant", variable="power")
    for what, columns in COLUMNS.items():
        rows = cloud.leaf.rows(what)
        assert rows, what
        assert all(set(row) == set(columns.split()) for row in rows), what
    (path,) = cloud.leaf.rows("paths")
    assert (path["routers"], path["intervals_ms"]) == (["a", "b", "c"], [20.0] * 16)
    assert {row["name"]: row["load"] for row in cloud.leaf.rows("routers")} == {"a": 100.0, "b": 50.0, "c": 50.0}
    with pytest.raises(KeyError, match="it shows channels"):
        cloud.leaf.rows("secrets")
