"""Routers of a cloud come, go, restart and lose channels; brokers restart, fail over and wake up."""

from __future__ import annotations

import pytest

from chappe.wire.base import Failed, Qos
from chappe.wire.management import Configure, Granted, Issued, Reset, Setup, Teardown
from tests.support.clouds import LEAF, Cloud

MODE_COMMANDS = {"SetMode", "InformMode", "PrepareMode", "CommitMode"}


def told(cloud: Cloud, router: str, since: int = 0) -> list[str]:
    """The table commands that a router has obeyed."""
    names = [type(command).__name__ for command in cloud.router(router).commands[since:]]
    return [name for name in names if name not in MODE_COMMANDS]


@pytest.fixture
def cloud() -> Cloud:
    cloud = Cloud("a-b-c a-d-c")
    cloud.publish("a", "plant/power")
    assert isinstance(cloud.subscribe("c", "plant/power", Qos(redundancy=2)), Granted)
    return cloud


@pytest.mark.spec("GS-011", "GS-012")
def test_a_router_learns_its_channels_from_its_broker() -> None:
    cloud = Cloud("a-b a-c")
    channels = {name: {channel.peer: channel.url for channel in router.channels.values()}
                for name, router in cloud.plane.routers.items()}  # fmt: skip
    urls = {router.name: router.listen for router in cloud.plane.topology.router}
    assert channels == {"a": {"b": urls["b"], "c": urls["c"]}, "b": {"a": ""}, "c": {"a": ""}}
    assert all(row["up"] for row in cloud.leaf.rows("routers") + cloud.leaf.rows("channels"))


@pytest.mark.spec("GS-091", "GS-152")
def test_a_restarted_router_is_rebuilt(cloud: Cloud) -> None:
    table = dict(cloud.router("b").paths)
    cloud.plane.kill("b")
    assert not cloud.router("b").paths
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    assert cloud.router("b").paths == table
    assert told(cloud, "b") == ["Configure", "Reset", "Setup"]
    cloud.check()


@pytest.mark.spec("GS-151")
def test_a_router_that_was_cut_off_keeps_its_table_and_is_told_only_what_it_missed(cloud: Cloud) -> None:
    issued = cloud.publish("a", "plant/current")
    assert isinstance(issued, Issued)
    cloud.subscribe("c", "plant/current", Qos(redundancy=2))
    since = len(cloud.router("b").commands)
    cloud.plane.cut("b", LEAF)
    cloud.plane.settle()
    assert len(cloud.router("b").paths) == 2, "it goes on forwarding"
    cloud.unsubscribe("c", issued.variable_id)
    cloud.plane.heal("b", LEAF)
    cloud.plane.settle()
    assert told(cloud, "b", since) == ["Configure", "Teardown"]
    assert len(cloud.router("b").paths) == 1
    cloud.check()


def test_a_router_that_missed_too_much_is_rebuilt(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.status.leaf.routers.MISSED", 3)
    issued = [cloud.publish("a", f"plant/{n}") for n in range(4)]
    for n in range(4):
        cloud.subscribe("c", f"plant/{n}", Qos(redundancy=2))
    cloud.plane.cut("b", LEAF)
    for publication in issued:
        assert isinstance(publication, Issued)
        cloud.unsubscribe("c", publication.variable_id)
    since = len(cloud.router("b").commands)
    cloud.plane.heal("b", LEAF)
    cloud.plane.settle()
    assert told(cloud, "b", since) == ["Configure", "Reset", "Setup"]
    cloud.check()


def test_a_large_table_is_rebuilt_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chappe.status.leaf.routers.BATCH", 10)
    cloud = Cloud("a-b-c")
    for n in range(25):
        cloud.publish("a", f"plant/{n}")
        cloud.subscribe("c", f"plant/{n}")
    cloud.plane.kill("b")
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    sizes = [len(command.paths) for command in cloud.router("b").commands if isinstance(command, Setup)]
    assert sizes == [10, 10, 5]
    cloud.check()


def test_a_rebuild_that_a_broker_did_not_finish_is_begun_again(cloud: Cloud) -> None:
    cloud.plane.kill("b")
    cloud.router("b").silent.add(Setup)
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    cloud.router("b").paths.clear()  # the command was lost with the broker
    cloud.router("b").silent.clear()
    cloud.restart()
    assert told(cloud, "b")[-3:] == ["Configure", "Reset", "Setup"]
    cloud.check()


def test_a_path_that_a_rebuilt_router_refuses_for_good_is_over(cloud: Cloud) -> None:
    cloud.publish("a", "plant/current")
    cloud.subscribe("c", "plant/current", Qos(redundancy=2))
    cloud.plane.kill("b")
    cloud.router("b").refuses.add(Setup)
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    assert not cloud.leaf.rows("subscriptions")
    assert len(cloud.router("c").notices) == 2
    cloud.router("b").refuses.clear()
    cloud.check()


@pytest.mark.spec("GS-150")
def test_a_channel_that_fails_is_avoided_until_it_is_back_and_paths_on_it_stay(cloud: Cloud) -> None:
    cloud.router("b").link("a", False)
    cloud.plane.settle()
    assert [(row["a"], row["b"]) for row in cloud.leaf.rows("channels") if not row["up"]] == [("a", "b")]
    assert len(cloud.router("b").paths) == 1
    cloud.publish("a", "plant/current")
    refused = cloud.subscribe("c", "plant/current", Qos(redundancy=2))
    assert isinstance(refused, Failed)
    assert isinstance(cloud.subscribe("c", "plant/current"), Granted)
    assert len(cloud.router("d").paths) == 2
    cloud.router("b").link("a", True)
    cloud.plane.settle()
    assert isinstance(cloud.subscribe("c", "plant/current", Qos(redundancy=2)), Granted)
    cloud.check()


def test_a_router_that_is_away_is_not_used_for_new_paths(cloud: Cloud) -> None:
    cloud.plane.cut("b", LEAF)
    cloud.publish("a", "plant/current")
    assert isinstance(cloud.subscribe("c", "plant/current"), Granted)
    assert [row["routers"] for row in cloud.leaf.rows("paths") if row["variable"] == "current"] == [["a", "d", "c"]]


@pytest.mark.spec("GS-155")
def test_a_broker_that_restarts_knows_everything_and_disturbs_nothing(cloud: Cloud) -> None:
    tables = {name: dict(router.paths) for name, router in cloud.plane.routers.items()}
    shown = {what: cloud.leaf.rows(what) for what in ("publications", "subscriptions", "paths", "loads")}
    since = {name: len(router.commands) for name, router in cloud.plane.routers.items()}
    cloud.restart()
    assert {name: router.paths for name, router in cloud.plane.routers.items()} == tables
    assert {what: cloud.leaf.rows(what) for what in shown} == shown
    assert {name: told(cloud, name, since[name]) for name in tables} == {name: ["Configure"] for name in tables}


def test_the_next_broker_finishes_what_the_one_before_it_had_begun() -> None:
    cloud = Cloud("a-b-c")
    cloud.publish("a", "plant/power")
    for steps in range(20):
        viewer = cloud.client("c", f"viewer{steps}")
        request = cloud.router("c").subscribe(viewer, "plant/power")
        for _ in range(steps):
            cloud.plane.step()
        cloud.restart()
        assert isinstance(cloud.router("c").answers[request], Granted)
    assert len(cloud.leaf.rows("subscriptions")) == 20
    cloud.check()


def test_requests_wait_after_a_restart_until_all_routers_have_joined() -> None:
    cloud = Cloud("a-b-c a-d-c")
    cloud.publish("a", "plant/power")
    cloud.plane.cut("b", LEAF)
    cloud.plane.kill(LEAF)
    cloud.plane.start(LEAF)
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "plant/power", Qos(redundancy=2))
    cloud.plane.advance(1)
    assert request not in cloud.router("c").answers
    cloud.plane.heal("b", LEAF)
    cloud.plane.settle()
    assert isinstance(cloud.router("c").answers[request], Granted)


def test_requests_do_not_wait_for_a_router_that_does_not_come_back() -> None:
    cloud = Cloud("a-b-c a-d-c")
    cloud.publish("a", "plant/power")
    cloud.plane.cut("b", LEAF)
    cloud.plane.kill(LEAF)
    cloud.plane.start(LEAF)
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "plant/power")
    cloud.plane.advance(3.1)
    assert isinstance(cloud.router("c").answers[request], Granted)


def test_a_broker_that_was_paused_and_wakes_up_changes_nothing(cloud: Cloud) -> None:
    request = cloud.router("c").subscribe(cloud.client("c", "late"), "plant/power")
    for _ in range(3):
        cloud.plane.step()
    cloud.plane.pause(LEAF)
    cloud.plane.start(f"{LEAF}#1")
    cloud.plane.settle()
    assert isinstance(cloud.router("c").answers[request], Granted)
    tables = {name: dict(router.paths) for name, router in cloud.plane.routers.items()}
    stored = dict(cloud.plane.stores[LEAF].items)
    old = cloud.plane.processes[LEAF]
    cloud.plane.resume(LEAF)
    cloud.plane.advance(10, 500_000_000)
    assert {name: router.paths for name, router in cloud.plane.routers.items()} == tables
    assert cloud.plane.stores[LEAF].items == stored
    assert old.broker.epoch == 1
    assert all(router.leader == f"{LEAF}#1" for router in cloud.plane.routers.values())


def test_a_command_of_an_old_epoch_is_refused_and_ignored(cloud: Cloud) -> None:
    """The old broker sends before it knows: its commands carry its epoch."""
    for router in cloud.plane.routers.values():
        router.epoch = 5
    before = {name: dict(router.paths) for name, router in cloud.plane.routers.items()}
    cloud.router("c").subscribe(cloud.client("c", "late"), "plant/power")
    cloud.plane.settle()
    assert {name: router.paths for name, router in cloud.plane.routers.items()} == before


def test_commands_of_a_router_are_numbered_in_their_order(cloud: Cloud) -> None:
    cloud.unsubscribe("c", 7 << 22 | 1)
    for router in cloud.plane.routers.values():
        numbers = [(command.epoch, command.command) for command in router.commands]
        assert numbers == sorted(set(numbers))
        assert isinstance(router.commands[0], Configure)
        assert isinstance(router.commands[1], Reset)
    assert any(isinstance(command, Teardown) for command in cloud.router("b").commands)


def test_channels_that_a_router_refuses_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    cloud = Cloud("a-b")
    cloud.router("a").refuses_once.add(Configure)
    cloud.plane.cut("a", LEAF)
    cloud.plane.heal("a", LEAF)
    cloud.plane.settle()
    assert "router a refuses its channels" in caplog.text
