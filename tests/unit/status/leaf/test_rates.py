"""A publisher changes the rate of a variable in place: tables, loads, grants, and failures in between (GS-073)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chappe.status.leaf.state import read
from chappe.wire.base import Failed, Message, Qos
from chappe.wire.management import Function, Granted, Input, Issued, Publish, Regranted, SetFlood, Setup, Teardown
from tests.support.clouds import LEAF, Cloud

MS = 1_000_000


def faster(cloud: Cloud, interval: int = 5 * MS, **fields: Any) -> Message:
    return cloud.publish("a", "plant/power", interval, **fields)


def loads(cloud: Cloud) -> dict[str, float]:
    """Of the first mode; without those that carry nothing."""
    return {row["resource"]: row["load"][0] for row in cloud.leaf.rows("loads") if any(row["load"])}


def tables(cloud: Cloud) -> dict[str, dict[tuple[int, int], object]]:
    return {name: dict(router.paths) for name, router in cloud.plane.routers.items()}


def told(cloud: Cloud, router: str) -> list[tuple[str, int]]:
    """(entity, granted interval) of the notices there."""
    return [(notice.entity, grant.interval_ns) for notice in cloud.router(router).notices
            if isinstance(notice, Regranted) for grant in notice.grants if grant is not None]  # fmt: skip


def watched(lines: str = "a-b-c", interval: int = 25 * MS, **channel: Any) -> tuple[Cloud, int]:
    """A variable of 10 ms at a, seen at c and at a itself."""
    cloud = Cloud(lines, **channel)
    issued = cloud.publish("a", "plant/power")
    assert isinstance(issued, Issued)
    for router in "ca":
        assert isinstance(cloud.subscribe(router, "plant/power", Qos(interval_ns=interval)), Granted)
    return cloud, issued.variable_id


@pytest.mark.spec("GS-073")
def test_a_rate_is_changed_in_every_router_and_grants_are_rounded_anew() -> None:
    cloud, number = watched()
    assert loads(cloud) == {"router/a": 100, "router/b": 50, "router/c": 50, "channel/a/b": 1200, "channel/b/c": 1200}
    before = tables(cloud)
    cloud.plane.trace.clear()
    issued = faster(cloud, priority=2, slowest_ns=50 * MS)
    assert isinstance(issued, Issued)
    assert issued.variable_id == number
    assert loads(cloud) == {"router/a": 200, "router/b": 40, "router/c": 40, "channel/a/b": 960, "channel/b/c": 960}
    for name in "abc":
        assert list(cloud.router(name).paths) == list(before[name]), "the same paths"
        for path in cloud.router(name).paths.values():
            assert (path.variable.rate_den, path.variable.priority, path.variable.slowest_ns) == (5 * MS, 2, 50 * MS)
            assert path.intervals_ns == (25 * MS,)
    assert (told(cloud, "c"), told(cloud, "a")) == ([("viewer.c", 25 * MS)], [("viewer.a", 25 * MS)])
    orders = [(target, type(message)) for source, target, message in cloud.plane.trace if source == LEAF]
    assert not [order for order in cloud.plane.trace if isinstance(order[2], Teardown) and order[2].paths]
    assert min(at for at, (target, _) in enumerate(orders) if target == "a") > max(
        at for at, (target, _) in enumerate(orders) if target != "a"), "the publisher's edge is last"  # fmt: skip
    granted = cloud.subscribe("c", "plant/power", Qos(interval_ns=25 * MS))
    assert isinstance(granted, Granted)
    assert [grant.every for grant in granted.grants if grant is not None] == [5]
    cloud.check()
    slower = faster(cloud, 100 * MS)
    assert isinstance(slower, Issued)
    assert loads(cloud) == {"router/a": 10, "router/b": 10, "router/c": 10, "channel/a/b": 240, "channel/b/c": 240}
    cloud.check()
    cloud.restart()
    cloud.check()
    cloud.unpublish("a", number)
    assert loads(cloud) == {}
    cloud.check()


def test_what_was_relaxed_stays_relaxed_and_each_mode_has_its_own() -> None:
    cloud = Cloud("a-b", bytes_per_s=800)
    cloud.publish("a", "plant/power")
    modes = tuple(Qos(interval_ns=(20 if mode else 30) * MS, worst_interval_ns=200 * MS) for mode in range(16))
    granted = cloud.subscribe("b", "plant/power", *modes)
    assert isinstance(granted, Granted)
    assert [grant.interval_ns // MS for grant in granted.grants[:2] if grant is not None] == [30, 40]
    assert isinstance(faster(cloud, 4 * MS), Failed), "28 ms is more often than 30 ms and does not fit"
    assert isinstance(faster(cloud, 5 * MS), Issued)
    again = cloud.subscribe("b", "plant/power", *modes)
    assert isinstance(again, Granted)
    assert [(grant.interval_ns // MS, grant.every) for grant in again.grants[:2] if grant is not None] == [
        (30, 6), (40, 8)]  # fmt: skip
    cloud.check()


@pytest.mark.spec("GS-073")
@pytest.mark.parametrize("lines", ["a-b-c", "a-b-c a-d-c"])
def test_a_rate_that_does_not_fit_is_refused_and_nothing_changes(lines: str) -> None:
    cloud, _ = watched(lines, interval=0, bytes_per_s=3000)
    before, carried, stored = tables(cloud), loads(cloud), dict(cloud.plane.stores[LEAF].items)
    refused = faster(cloud)
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
    assert "bandwidth of the channel" in refused.reason
    assert (tables(cloud), loads(cloud), cloud.plane.stores[LEAF].items) == (before, carried, stored)
    assert told(cloud, "c") == []
    assert isinstance(faster(cloud, 8 * MS), Issued), "3000 bytes/s are all that there are"
    cloud.check()


def test_other_properties_than_pace_are_refused() -> None:
    cloud, number = watched()
    for fields in ({"type": "int"}, {"options": 1}, {"rate_num": 0, "minimum_ns": 5 * MS}):
        refused = faster(cloud, **fields)
        assert isinstance(refused, Failed)
        assert (refused.code, "withdraw it first" in refused.reason) == ("exists", True)
    rival = cloud.publish("b", "plant/power", 5 * MS, client="rival")
    assert isinstance(rival, Failed)
    assert cloud.leaf.parts.registry.by_id[number].variable.rate_den == 10 * MS
    cloud.check()


def test_an_alert_gets_another_least_interval() -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power", rate_num=0, minimum_ns=100 * MS)
    cloud.subscribe("b", "plant/power")
    assert loads(cloud) == {"router/a": 10, "router/b": 10, "channel/a/b": 240}
    assert isinstance(faster(cloud, rate_num=0, minimum_ns=50 * MS), Issued)
    assert loads(cloud) == {"router/a": 20, "router/b": 20, "channel/a/b": 480}
    cloud.check()


@pytest.mark.spec("GS-073")
@pytest.mark.parametrize("router", ["a", "b", "c"])
@pytest.mark.parametrize("how", ["refuses", "silent", "lost"])
def test_a_change_that_fails_on_its_way_is_undone(router: str, how: str) -> None:
    cloud, number = watched()
    before, carried = tables(cloud), loads(cloud)
    edge = cloud.router("a")
    if how == "refuses":
        cloud.router(router).refuses_once.add(Setup)
    else:
        cloud.router(router).silent.add(Setup)
    request = edge.publish(cloud.client("a", "publisher.a"), "plant/power", 5 * MS)
    cloud.plane.settle()
    if how == "lost":
        cloud.plane.cut(router, LEAF)
        cloud.plane.advance(1)
        assert cloud.leaf.parts.registry.by_id[number].variable.rate_den == 10 * MS
        assert loads(cloud) == carried
        cloud.router(router).silent.clear()
        cloud.plane.heal(router, LEAF)
    cloud.router(router).silent.clear()
    cloud.plane.advance(6)
    answer = edge.answers.get(request)
    assert isinstance(answer, Failed) or (how == "lost" and router == "a"), answer
    if how != "lost" or router != "a":  # an edge that comes back asks again, and then it works
        assert (tables(cloud), loads(cloud)) == (before, carried)
        assert told(cloud, "c")[-1] == ("viewer.c", 20 * MS)
    assert read(cloud.plane.stores[LEAF].load())["publication"][str(number)].announced
    cloud.check()
    assert isinstance(faster(cloud), Issued)
    cloud.check()


def test_a_router_that_is_away_cannot_be_told() -> None:
    cloud, _ = watched()
    cloud.plane.cut("b", LEAF)
    refused = faster(cloud)
    assert isinstance(refused, Failed)
    assert (refused.code, "router b is not connected" in refused.reason) == ("unavailable", True)
    cloud.plane.heal("b", LEAF)
    cloud.plane.settle()
    assert isinstance(faster(cloud), Issued)
    cloud.check()


@pytest.mark.spec("GS-073")
def test_a_broker_that_ends_at_any_point_leaves_no_half_of_a_change() -> None:
    for steps in range(60):
        cloud, number = watched("a-b-c")
        edge = cloud.router("a")
        request = edge.publish(cloud.client("a", "publisher.a"), "plant/power", 5 * MS)
        for _ in range(steps):
            cloud.plane.step()
        finished = request in edge.answers
        cloud.restart()
        cloud.plane.advance(4)
        assert isinstance(edge.answers[request], Issued)
        assert loads(cloud)["router/a"] == 200
        assert read(cloud.plane.stores[LEAF].load())["publication"][str(number)].announced
        cloud.check()
        if finished:
            return
    raise AssertionError("the change was never complete")


def test_requests_meanwhile_wait_and_withdrawals_do_not() -> None:
    cloud, number = watched()
    cloud.router("b").silent.add(Setup)
    edge, viewer = cloud.router("a"), cloud.client("b", "late")
    request = edge.publish(cloud.client("a", "publisher.a"), "plant/power", 5 * MS)
    cloud.plane.settle()
    wanted = cloud.router("b").subscribe(viewer, "plant/power")
    cloud.plane.settle()
    assert wanted not in cloud.router("b").answers
    cloud.router("b").silent.clear()
    cloud.unsubscribe("c", number)
    assert isinstance(edge.answers[request], Issued), "what was waited for is not wanted any more"
    granted = cloud.router("b").answers[wanted]
    assert isinstance(granted, Granted)
    assert granted.variable.rate_den == 5 * MS
    cloud.check()
    cloud.router("b").silent.add(Setup)
    request = edge.publish(cloud.client("a", "publisher.a"), "plant/power", 20 * MS)
    cloud.plane.settle()
    late = cloud.router("c").subscribe(cloud.client("c", "late.c"), "plant/power")
    cloud.plane.settle()
    cloud.unpublish("a", number)
    cloud.router("b").silent.clear()
    assert isinstance(edge.answers[request], Failed)
    refused = cloud.router("c").answers[late]
    assert isinstance(refused, Failed)
    assert refused.code == "unknown"
    assert loads(cloud) == {}
    cloud.plane.advance(6)
    cloud.check()


def test_a_change_waits_for_a_subscription_that_is_being_set_up() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    cloud.router("b").silent.add(Setup)
    edge = cloud.router("a")
    cloud.router("c").subscribe(cloud.client("c", "viewer.c"), "plant/power")
    cloud.plane.advance(2)
    request = edge.publish(cloud.client("a", "publisher.a"), "plant/power", 5 * MS)
    cloud.plane.settle()
    assert request not in edge.answers
    cloud.router("b").silent.clear()
    cloud.plane.advance(4)  # the set-up is given up after 5 s and begun again
    assert isinstance(edge.answers[request], Issued)
    assert loads(cloud)["router/c"] == 200
    cloud.check()


def test_a_flooded_variable_is_flooded_with_its_new_rate() -> None:
    cloud, number = watched()
    operator = cloud.plane.operator(LEAF)
    operator.ask(SetFlood, publisher="plant", variable="power", modes=1)
    cloud.plane.settle()
    assert isinstance(faster(cloud), Issued)
    for name in "abc":
        thing = cloud.leaf.parts.cloud.routers.all[name].desired[number, -1]
        assert thing.variable.rate_den == 5 * MS  # type: ignore[union-attr]
    cloud.check()


def test_the_same_request_again_gets_the_same_answer() -> None:
    cloud, number = watched()
    edge = cloud.router("a")
    entity = cloud.client("a", "publisher.a")
    requests = [edge.publish(entity, "plant/power", 5 * MS) for _ in range(3)]
    cloud.plane.settle()
    answers = [edge.answers[request] for request in requests]
    assert [answer.variable_id for answer in answers if isinstance(answer, Issued)] == [number] * 3
    assert sum(isinstance(message, Publish) for _, _, message in cloud.plane.trace) == 4
    cloud.check()


def test_the_input_of_a_function_keeps_its_rate() -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power")
    function = Function(publisher="sum", variable="power", type="float", calculator="builtin:mean", trigger="event",
                        inputs=(Input("plant", "power"),))  # fmt: skip
    placed = cloud.ask("b", cloud.router("b").condense(cloud.client("b", "creator"), function))
    assert isinstance(placed, Issued), placed
    refused = faster(cloud)
    assert isinstance(refused, Failed)
    assert (refused.code, "input of the function sum/power" in refused.reason) == ("unsupported", True)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_in_whatever_order_tables_loads_and_state_agree(seed: int) -> None:
    chance = Random(seed)
    cloud = Cloud("a-b-c a-d-c b-d", choose=seed, bytes_per_s=20_000)
    cloud.publish("a", "plant/power")
    publisher = cloud.client("a", "publisher.a")
    for _ in range(25):
        name = chance.choice("abcd")
        what = chance.randrange(10)
        if what < 4:
            cloud.router("a").publish(publisher, "plant/power", chance.choice((2, 4, 5, 10, 20)) * MS)
        elif what < 6:
            viewer = cloud.client(name, f"viewer.{name}")
            cloud.router(name).subscribe(viewer, "plant/power", Qos(interval_ns=chance.choice((0, 25, 40)) * MS,
                                                               redundancy=chance.choice((1, 1, 2))))  # fmt: skip
        elif what == 6:
            for number in list(cloud.leaf.parts.registry.by_id):
                cloud.router(name).unsubscribe(cloud.client(name, f"viewer.{name}"), number)
        elif what == 7:
            cloud.router(name).refuses_once.add(Setup)
        elif what == 8:
            cloud.plane.cut(name, LEAF)
            cloud.plane.heal(name, LEAF)
        elif chance.random() < 0.4:
            cloud.plane.kill(LEAF)
            cloud.plane.start(LEAF)
        for _ in range(chance.randrange(12)):
            cloud.plane.step()
    for router in cloud.plane.routers.values():
        router.refuses_once.clear()
    cloud.plane.advance(12)
    assert all(not router.requests for router in cloud.plane.routers.values()), "everybody has an answer"
    cloud.check()
