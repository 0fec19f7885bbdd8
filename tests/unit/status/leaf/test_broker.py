"""A leaf broker and its routers: publications, subscriptions, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire.base import Done, Failed, Qos
from chappe.wire.management import Granted, Issued, Setup, Teardown, Withdrawn
from tests.support.clouds import LEAF, Cloud

MS = 1_000_000


def ways(cloud: Cloud) -> dict[str, list[tuple[str, str]]]:
    """Where each router takes events from and where it sends them; routers without paths are left out."""
    found = {name: sorted((path.source, path.target) for path in router.paths.values())
             for name, router in cloud.plane.routers.items()}  # fmt: skip
    return {name: paths for name, paths in found.items() if paths}


@pytest.mark.spec("GS-031", "GS-080")
def test_a_subscription_is_granted_when_every_router_has_its_path() -> None:
    cloud = Cloud("a-b-c")
    issued = cloud.publish("a", "plant/power")
    assert isinstance(issued, Issued)
    granted = cloud.subscribe("c", "plant/power", Qos(interval_ns=25 * MS))
    assert isinstance(granted, Granted)
    assert [grant.interval_ns for grant in granted.grants if grant is not None] == [20 * MS]
    assert granted.variable.variable_id == issued.variable_id == 7 << 22 | 1
    assert ways(cloud) == {"a": [("", "b")], "b": [("a", "c")], "c": [("b", "")]}
    cloud.check()


def test_the_publishers_edge_is_told_after_all_others_have_confirmed() -> None:
    cloud = Cloud("a-b-c-d")
    cloud.publish("a", "plant/power")
    cloud.plane.trace.clear()
    cloud.subscribe("d", "plant/power")
    told = [(source, target) for source, target, message in cloud.plane.trace if isinstance(message, Setup)]
    assert told[-1] == (LEAF, "a")
    before = cloud.plane.trace.index(next(t for t in cloud.plane.trace if t[1] == "a" and isinstance(t[2], Setup)))
    confirmed = [source for source, target, message in cloud.plane.trace[:before] if isinstance(message, Done)]
    assert sorted(confirmed) == ["b", "c", "d"]


def test_redundant_paths_share_nothing_but_their_ends() -> None:
    cloud = Cloud("a-b-c a-d-c")
    cloud.publish("a", "plant/power")
    granted = cloud.subscribe("c", "plant/power", Qos(redundancy=2))
    assert isinstance(granted, Granted)
    assert ways(cloud) == {"a": [("", "b"), ("", "d")], "b": [("a", "c")], "c": [("b", ""), ("d", "")],
                           "d": [("a", "c")]}  # fmt: skip


def test_one_edge_for_both_needs_no_path() -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power")
    assert isinstance(cloud.subscribe("a", "plant/power", Qos(redundancy=3)), Granted)
    assert ways(cloud) == {}


@pytest.mark.spec("GS-080")
def test_what_cannot_be_is_refused_with_the_reason_and_the_best_that_can() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    refused = cloud.subscribe("c", "plant/power", Qos(redundancy=2))
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
    assert "redundan" in refused.reason
    assert [grant.redundancy for grant in refused.best if grant is not None] == [1]
    assert ways(cloud) == {}
    assert not cloud.leaf.rows("subscriptions")
    assert not any(any(row["load"]) for row in cloud.leaf.rows("loads") if row["kind"] == "channel")


@pytest.mark.parametrize(
    ("qos", "word"),
    [((Qos(), Qos()), "one for all modes"), ((Qos(interval_ns=-1),), "negative"), ((Qos(redundancy=0),), "redundancy"),
     ((Qos(priority=9),), "priority")],
)  # fmt: skip
def test_quality_that_makes_no_sense_is_refused(qos: tuple[Qos, ...], word: str) -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power")
    refused = cloud.subscribe("b", "plant/power", *qos)
    assert isinstance(refused, Failed)
    assert refused.code == "invalid"
    assert word in refused.reason


@pytest.mark.spec("GS-022")
def test_a_subscriber_of_another_type_is_denied() -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power", type="int")
    refused = cloud.subscribe("b", "plant/power", type="float")
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("type", "plant/power is of type int, not float")
    assert isinstance(cloud.subscribe("b", "plant/power", type="int"), Granted)
    assert isinstance(cloud.subscribe("b", "plant/power", type=""), Granted)


@pytest.mark.spec("GS-032")
@pytest.mark.parametrize(
    ("fields", "word"),
    [({"slowest_ns": 5 * MS}, "longest interval"), ({"rate_den": 0}, "negative"), ({"priority": 7}, "priority"),
     ({"options": 256}, "option blocks")],
)  # fmt: skip
def test_a_registration_that_makes_no_sense_is_refused(fields: dict[str, Any], word: str) -> None:
    cloud = Cloud("a")
    refused = cloud.publish("a", "plant/power", **fields)
    assert isinstance(refused, Failed)
    assert refused.code == "invalid"
    assert word in refused.reason
    accepted = cloud.publish("a", "plant/power", slowest_ns=50 * MS, priority=1)
    assert isinstance(accepted, Issued)


@pytest.mark.spec("GS-031")
def test_names_are_unique_and_ids_never_given_twice() -> None:
    cloud = Cloud("a-b")
    first = cloud.publish("a", "plant/power")
    again = cloud.publish("a", "plant/power")
    assert isinstance(first, Issued)
    assert isinstance(again, Issued)
    assert first.variable_id == again.variable_id
    for refused in (cloud.publish("a", "plant/power", type="int"), cloud.publish("b", "plant/power", client="rival")):
        assert isinstance(refused, Failed)
        assert refused.code == "exists"
    cloud.unpublish("a", first.variable_id)
    cloud.restart()
    second = cloud.publish("a", "plant/power")
    assert isinstance(second, Issued)
    assert second.variable_id > first.variable_id


def test_ids_go_round_and_leave_out_those_in_use() -> None:
    cloud = Cloud("a")
    kept = cloud.publish("a", "plant/kept")
    assert isinstance(kept, Issued)
    cloud.leaf.parts.registry._numbers._next = (1 << 22) - 1
    numbers = [cloud.publish("a", f"plant/{n}") for n in range(3)]
    issued = [number.variable_id & (1 << 22) - 1 for number in numbers if isinstance(number, Issued)]
    assert issued == [(1 << 22) - 1, 2, 3]


def test_a_request_that_comes_twice_gets_the_same_answer() -> None:
    cloud = Cloud("a-b")
    cloud.publish("a", "plant/power")
    first, second = (cloud.subscribe("b", "plant/power") for _ in range(2))
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert first.grants == second.grants
    assert len(cloud.leaf.rows("subscriptions")) == 1
    cloud.check()


def test_other_quality_changes_the_paths_in_place_the_new_ones_first() -> None:
    cloud = Cloud("a-b-c a-d-c")
    cloud.publish("a", "plant/power")
    cloud.subscribe("c", "plant/power", Qos(redundancy=2))
    paths = {name: dict(router.paths) for name, router in cloud.plane.routers.items()}
    cloud.plane.trace.clear()
    granted = cloud.subscribe("c", "plant/power", Qos(interval_ns=40 * MS))
    assert isinstance(granted, Granted)
    cloud.check()
    kept = {name: set(paths[name]) & set(router.paths) for name, router in cloud.plane.routers.items()}
    assert all(len(kept[name]) == 1 for name in "ac"), "the path that stays has the same number"
    commands = [type(message) for _, _, message in cloud.plane.trace if isinstance(message, Setup | Teardown)]
    assert commands.index(Teardown) > max(at for at, kind in enumerate(commands) if kind is Setup)


def test_a_change_that_cannot_be_leaves_everything_as_it_was() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    cloud.subscribe("c", "plant/power", Qos(interval_ns=20 * MS))
    tables = {name: dict(router.paths) for name, router in cloud.plane.routers.items()}
    refused = cloud.subscribe("c", "plant/power", Qos(redundancy=2))
    assert isinstance(refused, Failed)
    assert tables == {name: router.paths for name, router in cloud.plane.routers.items()}
    cloud.router("b").refuses_once.add(Setup)
    refused = cloud.subscribe("c", "plant/power", Qos(interval_ns=10 * MS))
    assert isinstance(refused, Failed)
    assert "b refuses" in refused.reason
    assert tables == {name: router.paths for name, router in cloud.plane.routers.items()}
    cloud.check()


def test_a_router_that_refuses_fails_the_request_and_nothing_is_left() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    cloud.router("b").refuses.add(Setup)
    refused = cloud.subscribe("c", "plant/power")
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("limit", "router b refuses the path: b has no room")
    assert ways(cloud) == {}
    assert not cloud.leaf.rows("subscriptions")
    cloud.check()


def test_a_router_that_does_not_answer_fails_the_request_after_five_seconds() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    cloud.router("b").silent.add(Setup)
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "plant/power")
    cloud.plane.advance(4.9)
    assert request not in cloud.router("c").answers
    cloud.plane.advance(20)
    refused = cloud.router("c").answers[request]
    assert isinstance(refused, Failed)
    assert refused.code == "unavailable"
    assert ways(cloud) == {}


def test_a_router_that_is_lost_during_set_up_is_left_out_of_the_next_attempt() -> None:
    cloud = Cloud("a-b-c a-d-e-c")
    cloud.publish("a", "plant/power")
    cloud.router("b").silent.add(Setup)
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "plant/power")
    cloud.plane.settle()
    cloud.plane.cut("b", LEAF)
    cloud.plane.settle()
    assert isinstance(cloud.router("c").answers[request], Granted)
    assert {name for name in ways(cloud) if name != "b"} == {"a", "d", "e", "c"}
    cloud.plane.heal("b", LEAF)
    cloud.plane.settle()
    cloud.check()


def stalled_change() -> tuple[Cloud, int]:
    """A granted subscription whose subscriber asks for another quality while router b stands still."""
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    cloud.subscribe("c", "plant/power", Qos(interval_ns=20 * MS), client="viewer")
    cloud.plane.trace.clear()
    cloud.plane.stalled.add("b")
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "plant/power", Qos(interval_ns=40 * MS))
    return cloud, request


def test_a_change_that_no_router_answers_is_tried_three_times_and_then_fails() -> None:
    cloud, request = stalled_change()
    cloud.plane.advance(60, 250 * MS)
    refused = cloud.router("c").answers[request]
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason) == ("unavailable", "no answer from b while the path was set up")
    setups = [message for _, target, message in cloud.plane.trace if target == "c" and isinstance(message, Setup)]
    asked = [message for message in setups if message.paths[0].intervals_ns == (40 * MS,)]
    assert len(asked) == 3
    cloud.plane.stalled.clear()
    cloud.plane.settle()
    assert {path.intervals_ns for router in cloud.plane.routers.values() for path in router.paths.values()} == {
        (20 * MS,)
    }
    cloud.check()


def test_a_change_whose_first_attempt_is_answered_late_is_granted_by_the_second() -> None:
    cloud, request = stalled_change()
    cloud.plane.advance(6, 250 * MS)
    cloud.plane.stalled.clear()
    cloud.plane.settle()
    assert isinstance(cloud.router("c").answers[request], Granted)
    cloud.check()


@pytest.mark.parametrize("answers_late", [False, True])
def test_a_subscription_that_ends_during_the_second_attempt_of_a_change_is_gone(answers_late: bool) -> None:
    cloud, request = stalled_change()
    cloud.plane.advance(6, 250 * MS)
    cloud.unsubscribe("c", 7 << 22 | 1, client="viewer")
    if answers_late:
        cloud.plane.stalled.clear()
    cloud.plane.advance(20, 250 * MS)
    assert isinstance(cloud.router("c").answers[request], Failed)
    assert not cloud.leaf.rows("subscriptions")
    cloud.plane.stalled.clear()
    cloud.plane.settle()
    assert ways(cloud) == {}
    cloud.check()


def test_a_variable_that_nobody_publishes_is_unknown_or_waited_for() -> None:
    cloud = Cloud("a-b")
    refused = cloud.subscribe("b", "plant/power")
    assert isinstance(refused, Failed)
    assert refused.code == "unknown"
    request = cloud.router("b").subscribe(cloud.client("b", "viewer"), "plant/power", wait_ns=2_000 * MS)
    other = cloud.router("b").subscribe(cloud.client("b", "viewer"), "plant/other", wait_ns=2_000 * MS)
    cloud.plane.advance(1)
    assert request not in cloud.router("b").answers
    cloud.publish("a", "plant/power")
    assert isinstance(cloud.router("b").answers[request], Granted)
    cloud.plane.advance(1.3)
    late = cloud.router("b").answers[other]
    assert isinstance(late, Failed)
    assert late.code == "unknown"


@pytest.mark.spec("GS-053")
def test_subscribers_are_told_when_the_publisher_withdraws_even_if_their_edge_was_away() -> None:
    cloud = Cloud("a-b-c")
    issued = cloud.publish("a", "plant/power")
    assert isinstance(issued, Issued)
    cloud.subscribe("b", "plant/power", client="one")
    cloud.subscribe("b", "plant/power", client="two")
    cloud.subscribe("c", "plant/power", client="three")
    cloud.plane.cut("c", LEAF)
    cloud.unpublish("a", issued.variable_id)
    (notice,) = cloud.router("b").notices
    assert isinstance(notice, Withdrawn)
    assert (notice.variable_id, sorted(notice.entities)) == (issued.variable_id, ["one", "two"])
    assert "withdrew" in notice.reason
    assert not cloud.router("c").notices
    cloud.restart()
    cloud.plane.heal("c", LEAF)
    cloud.plane.advance(1)
    assert [notice.entities for notice in cloud.router("c").notices if isinstance(notice, Withdrawn)] == [("three",)]
    assert ways(cloud) == {}
    cloud.check()


def test_removal_returns_every_table_to_empty() -> None:
    cloud = Cloud("a-b-c a-d-c", inner="bd")
    issued = [cloud.publish("a", f"plant/{n}") for n in range(5)]
    for n in range(5):
        assert isinstance(cloud.subscribe("c", f"plant/{n}", Qos(redundancy=1 + n % 2)), Granted)
    for publication in issued:
        assert isinstance(publication, Issued)
        assert isinstance(cloud.unsubscribe("c", publication.variable_id), Done)
    assert ways(cloud) == {}
    for publication in issued:
        assert isinstance(publication, Issued)
        cloud.unpublish("a", publication.variable_id)
    kinds = {kind for kind, _ in cloud.plane.stores[LEAF].items}
    assert kinds == {"router", "counter"}
    assert not any(any(row["load"]) for row in cloud.leaf.rows("loads"))
    assert not cloud.leaf.parts.cloud.used


def test_only_its_own_entity_withdraws_a_publication() -> None:
    cloud = Cloud("a-b")
    issued = cloud.publish("a", "plant/power")
    assert isinstance(issued, Issued)
    refused = cloud.unpublish("b", issued.variable_id, client="rival")
    assert isinstance(refused, Failed)
    assert refused.code == "denied"
    assert isinstance(cloud.unpublish("a", 12345), Done), "one that is gone is no error"


def test_load_of_one_direction_does_not_count_in_the_other() -> None:
    cloud = Cloud("a-b", bytes_per_s=24 * 100.0)
    cloud.publish("a", "plant/there", 10 * MS)
    cloud.publish("b", "works/back", 10 * MS)
    assert isinstance(cloud.subscribe("b", "plant/there"), Granted)
    assert isinstance(cloud.subscribe("a", "works/back"), Granted)
    cloud.publish("a", "plant/more", 10 * MS)
    refused = cloud.subscribe("b", "plant/more")
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
