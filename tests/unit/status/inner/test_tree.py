"""Trees of real brokers over model routers: subscriptions, modes and floods across clouds, two and three levels."""

from __future__ import annotations

import pytest

from chappe.wire.base import Done, Failed, Qos
from chappe.wire.control import PrepareMode
from chappe.wire.management import (
    AddChannel,
    ChangeMode,
    ClearFlood,
    Command,
    Commit,
    Granted,
    RemoveChannel,
    SetFlood,
    Setup,
    Withdrawn,
)
from tests.support.forest import Forest
from tests.support.tree import THREE_LEVELS, TWO_CLOUDS

TWICE = Qos(redundancy=2)


@pytest.mark.spec("GS-087", "GS-088")
def test_a_subscription_between_two_clouds_fills_the_tables_along_both_paths_and_empties_them() -> None:
    forest = Forest(TWO_CLOUDS)
    number = forest.publish("n1", "plant/load")
    granted = forest.granted("s1", "plant/load", TWICE)
    assert isinstance(granted, Granted)
    assert granted.variable.variable_id == number
    assert granted.grants[0] is not None
    assert granted.grants[0].redundancy == 2
    assert forest.tables() == {
        "N2": [("n1", "S2")], "N3": [("n1", "S3")], "S2": [("N2", "s1")], "S3": [("N3", "s1")],
        "n1": [("", "N2"), ("", "N3")], "s1": [("S2", ""), ("S3", "")],
    }  # fmt: skip
    forest.check()
    forest.router("s1").unsubscribe(forest.router("s1").entities["reader.s1"], number)
    forest.plane.advance(1)
    assert forest.tables() == {}
    forest.check()


@pytest.mark.spec("GS-087", "GS-090")
def test_three_levels_each_allocated_by_the_lowest_common_ancestor() -> None:
    forest = Forest(THREE_LEVELS)
    forest.publish("a1", "plant/load")
    assert isinstance(forest.granted("b1", "plant/load"), Granted)  # two clouds of west
    assert isinstance(forest.granted("d1", "plant/load", Qos(latency_ns=10_000_000)), Granted)  # across the root
    assert isinstance(forest.granted("A2", "plant/load"), Granted)  # its own cloud
    assert {name: len(forest.inner(name).rows("subscriptions")) for name in ("root", "west", "east")} == {
        "root": 1, "west": 1, "east": 0,
    }  # fmt: skip
    path = forest.inner("root").rows("paths")[0]["routers"]
    assert path[:2] == ["a1", "A2"]
    assert path[-2:] == ["C2", "d1"]
    forest.check()


@pytest.mark.spec("GS-090")
def test_redundant_paths_across_three_levels_share_only_the_ends() -> None:
    forest = Forest(THREE_LEVELS)
    forest.publish("a1", "plant/load")
    granted = forest.granted("d1", "plant/load", TWICE)
    assert isinstance(granted, Granted)
    one, other = (set(row["routers"]) for row in forest.inner("root").rows("paths"))
    assert one & other == {"a1", "d1"}
    forest.check()


def test_a_bound_that_no_path_meets_is_refused_with_what_could_be_had() -> None:
    forest = Forest(TWO_CLOUDS)
    forest.publish("n1", "plant/load")
    refused = forest.granted("s1", "plant/load", Qos(latency_ns=1_000_000))
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
    assert "latency" in refused.reason
    assert forest.tables() == {}


def test_a_withdrawn_variable_ends_its_subscriptions_in_other_clouds() -> None:
    forest = Forest(THREE_LEVELS)
    number = forest.publish("a1", "plant/load")
    forest.granted("d1", "plant/load", TWICE)
    forest.granted("b1", "plant/load")
    forest.router("a1").unpublish(forest.router("a1").entities["plant"], number)
    forest.plane.advance(1)
    for edge in ("b1", "d1"):
        assert [n.variable_id for n in forest.router(edge).notices if isinstance(n, Withdrawn)] == [number], edge
    assert forest.tables() == {}
    forest.check()


def test_a_name_is_free_again_for_another_cloud_when_its_last_variable_is_gone() -> None:
    forest = Forest(THREE_LEVELS)
    number = forest.publish("a1", "plant/load")
    other = forest.router("d1").attach("thief")
    refused = forest.router("d1").publish(other, "plant/load")
    forest.plane.settle()
    assert isinstance(forest.router("d1").answers[refused], Failed)
    forest.router("a1").unpublish(forest.router("a1").entities["plant"], number)
    forest.plane.settle()
    forest.router("d1").publish(other, "plant/load")
    forest.plane.settle()
    assert forest.inner("root").rows("publishers") == [{"publisher": "plant", "cloud": "e2", "kept": False}]
    assert isinstance(forest.granted("a1", "plant/load"), Granted)


@pytest.mark.spec("GS-117", "GS-111")
def test_a_change_at_the_root_runs_the_five_phases_in_every_cloud() -> None:
    forest = Forest(THREE_LEVELS)
    operator = forest.plane.operator("root")
    first = operator.ask(ChangeMode, mode=1)
    forest.plane.settle()
    assert isinstance(operator.answers[first], Done)
    for router in forest.plane.routers.values():
        router.modes.clear()
    second = operator.ask(ChangeMode, mode=2)
    forest.plane.settle()
    assert operator.answers[second] == Done(id=second)
    for name, router in forest.plane.routers.items():
        edge = [("InformMode", 2), ("PrepareMode", 2), ("SetMode", 2), ("CommitMode", 2)]
        assert router.modes == (edge if name.islower() else [("SetMode", 2)])
    assert {forest.leaf(leaf).rows("modes")[0]["mode"] for leaf in THREE_LEVELS.leaves} == {2}
    forest.plane.trace.clear()
    operator.ask(ChangeMode, mode=2)
    forest.plane.settle()
    assert not [message for _, _, message in forest.plane.trace if isinstance(message, Command)]


@pytest.mark.spec("GS-119", "GS-120")
def test_a_dead_edge_holds_up_no_cloud_for_long_and_the_answer_names_it() -> None:
    forest = Forest(THREE_LEVELS)
    forest.router("c1").silent.add(PrepareMode)
    operator = forest.plane.operator("root")
    request = operator.ask(ChangeMode, mode=2)
    forest.plane.advance(2)
    answer = operator.answers[request]
    assert isinstance(answer, Done)
    assert "c1 (no answer to PrepareMode within 1 s)" in answer.note
    assert {router.mode for router in forest.plane.routers.values()} == {2}
    # a broker below cannot change what the root has set
    below = forest.plane.operator("w1")
    refused = below.ask(ChangeMode, mode=5)
    forest.plane.settle()
    answer = below.answers[refused]
    assert isinstance(answer, Failed)
    assert answer.code == "denied"


@pytest.mark.spec("GS-120")
def test_a_change_of_the_root_overtakes_one_of_a_leaf_and_neighbours_end_in_one_mode() -> None:
    for seed in range(10):
        forest = Forest(THREE_LEVELS, choose=seed)
        leaf, root = forest.plane.operator("w1"), forest.plane.operator("root")
        leaf.ask(ChangeMode, mode=3)
        root.ask(ChangeMode, mode=4)
        forest.plane.settle()
        assert {router.mode for router in forest.plane.routers.values()} == {4}


def test_a_cloud_that_was_cut_off_gets_the_mode_when_it_is_back() -> None:
    forest = Forest(THREE_LEVELS)
    forest.plane.cut("w2", "west")
    operator = forest.plane.operator("root")
    request = operator.ask(ChangeMode, mode=2)
    forest.plane.settle()
    answer = operator.answers[request]
    assert isinstance(answer, Done)
    assert "w2 (away)" in answer.note
    assert forest.router("b1").mode == 0
    forest.plane.heal("w2", "west")
    forest.plane.settle()
    assert forest.router("b1").mode == 2


@pytest.mark.spec("GS-100", "GS-101")
@pytest.mark.parametrize(
    ("broker", "level", "reached"),
    [("root", 0, "a1 A2 b1 B2 c1 C2 d1 D2"), ("west", 0, "a1 A2 b1 B2"), ("w1", 0, "a1 A2"), ("root", 1, "")],
)
def test_flooding_reaches_everything_below_the_broker_with_its_level(broker: str, level: int, reached: str) -> None:
    forest = Forest(THREE_LEVELS)
    number = forest.publish("a1", "plant/trip")
    operator = forest.plane.operator(broker)
    request = operator.ask(SetFlood, publisher="plant", variable="trip", modes=0b10, level=level)
    forest.plane.settle()
    assert operator.answers[request] == Done(id=request)
    height = level or THREE_LEVELS.height(broker)
    expected = (0, height, *[0] * 14)
    flooded = {name for name, router in forest.plane.routers.items() if router.floods.get(number) == expected}
    assert flooded == set(reached.split() or forest.plane.routers)
    request = operator.ask(ClearFlood, publisher="plant", variable="trip")
    forest.plane.settle()
    assert operator.answers[request] == Done(id=request)
    assert not any(router.floods for router in forest.plane.routers.values())


@pytest.mark.spec("GS-101")
def test_the_flooding_of_a_parent_counts_more_than_that_of_a_leaf_whatever_came_first() -> None:
    forest = Forest(THREE_LEVELS)
    number = forest.publish("a1", "plant/trip")
    leaf, root = forest.plane.operator("w1"), forest.plane.operator("root")
    leaf.ask(SetFlood, publisher="plant", variable="trip", modes=0b1)
    forest.plane.settle()
    root.ask(SetFlood, publisher="plant", variable="trip", modes=0b1)
    forest.plane.settle()
    assert forest.router("a1").floods[number][0] == 3
    refused = leaf.ask(SetFlood, publisher="plant", variable="trip", modes=0b1)
    leaf.ask(ClearFlood, publisher="plant", variable="trip", modes=0b1)
    forest.plane.settle()
    assert isinstance(leaf.answers[refused], Failed)
    assert forest.router("a1").floods[number][0] == 3


def test_a_cloud_that_was_cut_off_gets_floods_and_removals_when_it_is_back() -> None:
    forest = Forest(THREE_LEVELS)
    one, two = forest.publish("a1", "plant/trip"), forest.publish("a1", "plant/fire")
    operator = forest.plane.operator("root")
    operator.ask(SetFlood, publisher="plant", variable="trip")
    forest.plane.settle()
    forest.plane.cut("e2", "east")
    operator.ask(ClearFlood, publisher="plant", variable="trip")
    operator.ask(SetFlood, publisher="plant", variable="fire")
    forest.plane.settle()
    assert set(forest.router("d1").floods) == {one}
    forest.plane.heal("e2", "east")
    forest.plane.settle()
    assert set(forest.router("d1").floods) == {two}


def test_a_flooded_name_that_is_published_anew_elsewhere_is_flooded_everywhere_under_its_new_id() -> None:
    forest = Forest(THREE_LEVELS)
    old = forest.publish("a1", "plant/trip")
    operator = forest.plane.operator("root")
    operator.ask(SetFlood, publisher="plant", variable="trip")
    forest.plane.settle()
    forest.router("a1").unpublish(forest.router("a1").entities["plant"], old)
    forest.plane.settle()
    new = forest.publish("d1", "plant/trip")
    assert {tuple(router.floods) for router in forest.plane.routers.values()} == {(new,)}
    operator.ask(ClearFlood, publisher="plant", variable="trip")
    forest.plane.settle()
    assert not any(router.floods for router in forest.plane.routers.values())


@pytest.mark.spec("GS-155")
def test_a_name_given_up_while_its_cloud_was_cut_off_is_free_when_it_is_back() -> None:
    forest = Forest(THREE_LEVELS)
    number = forest.publish("a1", "plant/load")
    forest.plane.cut("w1", "west")
    forest.router("a1").unpublish(forest.router("a1").entities["plant"], number)
    forest.plane.settle()
    assert len(forest.inner("root").rows("publishers")) == 1
    forest.plane.heal("w1", "west")
    forest.plane.settle()
    assert forest.inner("root").rows("publishers") == []


@pytest.mark.spec("GS-089")
def test_a_channel_added_between_clouds_is_used_and_cannot_be_removed_while_it_is() -> None:
    forest = Forest(TWO_CLOUDS)
    forest.publish("n1", "plant/load")
    three = Qos(redundancy=3)
    assert isinstance(forest.granted("s1", "plant/load", three), Failed)
    operator = forest.plane.operator("root")
    request = operator.ask(AddChannel, a="n1", b="s1", url="tcp://127.0.0.1:99", latency_ns=1)
    forest.plane.settle()
    assert isinstance(operator.answers[request], Done)
    assert forest.router("n1").channels["s1"].level == 2
    forest.plane.settle()
    granted = forest.granted("s1", "plant/load", three)
    assert isinstance(granted, Granted), granted
    forest.check()
    request = operator.ask(RemoveChannel, a="n1", b="s1")
    forest.plane.settle()
    assert isinstance(operator.answers[request], Failed)
    forest.router("s1").unsubscribe(forest.router("s1").entities["reader.s1"], granted.variable.variable_id)
    forest.plane.advance(1)
    request = operator.ask(RemoveChannel, a="n1", b="s1")
    forest.plane.settle()
    assert isinstance(operator.answers[request], Done)
    assert "s1" not in forest.router("n1").channels


@pytest.mark.spec("GS-155")
def test_while_clouds_are_apart_local_work_goes_on_and_the_rest_is_merged_when_they_meet() -> None:
    forest = Forest(THREE_LEVELS)
    forest.publish("a1", "plant/load")
    number = forest.publish("c1", "dam/level")
    assert isinstance(forest.granted("b1", "dam/level"), Granted)
    forest.plane.cut("west", "root")
    forest.publish("b1", "mill/speed")
    assert isinstance(forest.granted("a1", "mill/speed"), Granted)  # below west
    assert isinstance(forest.granted("d1", "dam/level", reader="x"), Granted)  # below east
    away = forest.granted("d1", "mill/speed", reader="y")
    assert isinstance(away, Failed)
    forest.router("c1").unpublish(forest.router("c1").entities["dam"], number)
    forest.plane.settle()
    forest.plane.heal("west", "root")
    forest.plane.advance(12)
    assert isinstance(forest.granted("d1", "mill/speed", reader="y"), Granted)
    assert {row["publisher"] for row in forest.inner("root").rows("publishers")} == {"plant", "mill"}
    assert [n.variable_id for n in forest.router("b1").notices if isinstance(n, Withdrawn)] == [number]
    forest.check()


def test_a_router_that_refuses_its_path_leaves_nothing_in_any_cloud() -> None:
    forest = Forest(TWO_CLOUDS)
    forest.publish("n1", "plant/load")
    for name in ("S2", "S3"):
        forest.router(name).refuses.add(Setup)
    refused = forest.granted("s1", "plant/load")
    assert isinstance(refused, Failed)
    forest.plane.advance(12)
    assert forest.tables() == {}
    forest.check()


@pytest.mark.parametrize("role", ["root", "north", "south"])
def test_everything_is_there_after_a_broker_restarts(role: str) -> None:
    forest = Forest(TWO_CLOUDS)
    number = forest.publish("n1", "plant/load")
    forest.granted("s1", "plant/load", TWICE)
    before = forest.tables()
    forest.plane.kill(role)
    forest.plane.start(role)
    forest.plane.advance(15)
    assert forest.tables() == before
    forest.check()
    forest.router("s1").unsubscribe(forest.router("s1").entities["reader.s1"], number)
    forest.plane.advance(1)
    assert forest.tables() == {}


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_a_variable_withdrawn_while_its_own_cloud_seeks_it_ends_for_its_subscriber(seed: int) -> None:
    forest = Forest(TWO_CLOUDS, choose=seed)
    router = forest.router("n1")
    plant, reader = router.attach("plant"), router.attach("reader")
    publication = router.publish(plant, "plant/load")
    request = router.subscribe(reader, "plant/load")
    while not any(isinstance(message, Commit) for _, _, message in forest.plane.trace):
        assert forest.plane.step(), "it is sought by way of the root, while the name is claimed"
    number = router.answers[publication].variable_id  # type: ignore[attr-defined]
    router.unpublish(plant, number)
    forest.plane.advance(1)
    told = [notice.variable_id for notice in router.notices if isinstance(notice, Withdrawn)]
    assert told == [number] if isinstance(router.answers[request], Granted) else told == []
    assert forest.tables() == {}
    forest.check()
