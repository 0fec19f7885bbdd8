"""End-entities at the edges of a cloud: new, back, restarted, moved, refused."""

from __future__ import annotations

import pytest

from chappe.machine import Send
from chappe.wire.base import Failed
from chappe.wire.management import ChangeMode, Granted, Issued, Join, Withdrawn
from tests.support.clouds import LEAF, Cloud


def names(cloud: Cloud) -> dict[str, tuple[str, bool, int, int]]:
    return {row["name"]: (row["edge"], row["attached"], row["publications"], row["subscriptions"])
            for row in cloud.leaf.rows("entities")}  # fmt: skip


def published(cloud: Cloud) -> set[str]:
    return {f"{row['publisher']}/{row['variable']}" for row in cloud.leaf.rows("publications")}


@pytest.fixture
def cloud() -> Cloud:
    """`plant` publishes at a, `viewer` subscribes at b."""
    cloud = Cloud("a-b-c a-c")
    assert isinstance(cloud.publish("a", "plant/power", client="plant"), Issued)
    assert isinstance(cloud.subscribe("b", "plant/power", client="viewer"), Granted)
    return cloud


def test_a_new_entity_is_kept_with_what_it_has(cloud: Cloud) -> None:
    cloud.router("c").attach("idle")
    cloud.plane.settle()
    assert names(cloud) == {"plant": ("a", True, 1, 0), "viewer": ("b", True, 0, 1), "idle": ("c", True, 0, 0)}
    assert {key for kind, key in cloud.plane.stores[LEAF].items if kind == "entity"} == {"plant", "viewer"}


@pytest.mark.spec("GS-153")
def test_an_entity_whose_link_failed_keeps_everything(cloud: Cloud) -> None:
    cloud.router("a").detach("plant")
    cloud.router("b").detach("viewer")
    cloud.plane.settle()
    assert names(cloud) == {"plant": ("a", False, 1, 0), "viewer": ("b", False, 0, 1)}
    cloud.router("a").attach("plant")
    cloud.router("b").attach("viewer")
    cloud.plane.settle()
    assert names(cloud) == {"plant": ("a", True, 1, 0), "viewer": ("b", True, 0, 1)}
    cloud.check()


@pytest.mark.spec("GS-153")
def test_a_restarted_publisher_begins_anew_and_its_subscribers_are_told(cloud: Cloud) -> None:
    cloud.router("a").detach("plant")
    cloud.router("a").attach("plant", session="2")
    cloud.plane.settle()
    assert published(cloud) == set()
    assert [notice.entities for notice in cloud.router("b").notices if isinstance(notice, Withdrawn)] == [("viewer",)]
    assert all(not router.paths for router in cloud.plane.routers.values())
    cloud.check()


@pytest.mark.spec("GS-153")
def test_a_restarted_subscriber_has_no_subscription_left(cloud: Cloud) -> None:
    cloud.router("b").detach("viewer")
    cloud.router("b").attach("viewer", session="2")
    cloud.plane.settle()
    assert not cloud.leaf.rows("subscriptions")
    assert published(cloud) == {"plant/power"}
    assert not cloud.router("b").notices, "it knows that it has restarted"
    cloud.check()


def test_a_name_that_is_connected_belongs_to_that_client(cloud: Cloud) -> None:
    impostor = cloud.router("c").attach("plant", session="other")
    refused = cloud.ask("c", cloud.router("c").publish(impostor, "plant/current"))
    assert isinstance(refused, Failed)
    assert refused.code == "exists"
    assert "connected at a" in refused.reason
    assert names(cloud)["plant"] == ("a", True, 1, 0)
    assert published(cloud) == {"plant/power"}


@pytest.mark.spec("GS-154")
def test_a_restarted_edge_keeps_what_its_legitimate_clients_had(cloud: Cloud) -> None:
    cloud.plane.kill("b")
    cloud.plane.start_router("b", LEAF)
    cloud.plane.settle()
    assert names(cloud)["viewer"] == ("b", False, 0, 1)
    viewer = cloud.router("b").attach("viewer")
    again = cloud.ask("b", cloud.router("b").subscribe(viewer, "plant/power"))
    assert isinstance(again, Granted)
    assert names(cloud)["viewer"] == ("b", True, 0, 1)
    assert len(cloud.leaf.rows("subscriptions")) == 1
    cloud.check()


@pytest.mark.spec("GS-154")
def test_a_restarted_edge_readmits_no_other_session_to_what_a_client_had(cloud: Cloud) -> None:
    cloud.plane.kill("b")
    cloud.plane.start_router("b", LEAF)
    cloud.router("b").attach("viewer", session="2")
    cloud.plane.settle()
    assert not cloud.leaf.rows("subscriptions")
    cloud.check()


def test_an_entity_that_moves_to_another_edge_begins_anew_there(cloud: Cloud) -> None:
    cloud.plane.cut("b", LEAF)
    viewer = cloud.router("c").attach("viewer")
    granted = cloud.ask("c", cloud.router("c").subscribe(viewer, "plant/power"))
    assert isinstance(granted, Granted)
    assert names(cloud)["viewer"] == ("c", True, 0, 1)
    cloud.plane.heal("b", LEAF)
    cloud.router("b").detach("viewer")
    cloud.plane.settle()
    assert names(cloud)["viewer"] == ("c", True, 0, 1)
    cloud.check()


def test_the_session_of_an_entity_survives_a_restart_of_the_broker(cloud: Cloud) -> None:
    cloud.router("a").detach("plant")
    cloud.restart()
    assert names(cloud)["plant"] == ("a", False, 1, 0)
    cloud.router("a").attach("plant", session="2")
    cloud.plane.settle()
    assert published(cloud) == set()


def test_an_entity_that_is_away_for_a_day_is_given_up(cloud: Cloud) -> None:
    cloud.router("a").detach("plant")
    cloud.plane.advance(23 * 3600, 60_000_000_000)
    assert published(cloud) == {"plant/power"}
    cloud.plane.advance(2 * 3600, 60_000_000_000)
    assert published(cloud) == set()
    assert "plant" not in names(cloud)


def test_a_broker_that_restarts_long_after_the_machine_was_started_gives_nobody_up(cloud: Cloud) -> None:
    cloud.plane.kill(LEAF)
    cloud.plane.now_ns += 48 * 3600 * 1_000_000_000
    cloud.plane.start(LEAF, lead=False)
    cloud.plane.cut("a", LEAF)
    cloud.plane.elect(LEAF)
    cloud.plane.tick()
    cloud.plane.heal("a", LEAF)
    cloud.plane.advance(5)
    assert names(cloud) == {"plant": ("a", True, 1, 0), "viewer": ("b", True, 0, 1)}
    cloud.check()


def test_a_broker_below_a_leaf_and_a_stranger_are_refused(cloud: Cloud) -> None:
    leaf = cloud.leaf
    (refused,) = leaf.receive("child/x", ChangeMode(id=7, mode=2), cloud.plane.now_ns)
    assert refused == Send(
        "child/x", Failed(id=7, code="denied", reason="leaf is a leaf broker: it has no brokers below it")
    )
    (refused,) = leaf.receive("router/x", Join(router="x", issuer=b"x"), cloud.plane.now_ns)
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Failed)
    assert "there is no router x in cloud leaf; add it with `chappe topology add router x`" in refused.message.reason
