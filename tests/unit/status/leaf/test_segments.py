"""A leaf broker below a parent: segments of inter-cloud paths, claims, what it seeks and what it tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from chappe.machine import NEVER, Address, Change, Connected, Disconnected, Effect, Input, Send
from chappe.status.leaf.broker import LeafBroker
from chappe.status.leaf.remote_subscriptions import PATIENCE_NS
from chappe.status.machine import Broker
from chappe.status.topology import BrokerSpec, ChannelSpec, RouterSpec, Topology
from chappe.wire.base import Answer, Done, Failed, Grant, Message, Qos, Request, Variable
from chappe.wire.management import (
    AddChannel,
    Ask,
    Child,
    Claim,
    Commit,
    Describe,
    Described,
    Gone,
    Granted,
    Issued,
    Lead,
    Map,
    Outcome,
    Release,
    Seek,
    Segment,
    Setup,
    Unclaim,
    Unseek,
    Withdrawn,
)
from tests.support.clouds import LEAF, Cloud

ROOT, OTHER = "root", "other"
GRANTS = (Grant(10_000_000, 1, 2_000_000, 1, 3),) * 16
FOREIGN = Variable(9 << 22 | 1, "far", "power", "float", 1, 10_000_000, 3, 0)


class Parent:
    """A parent that the test speaks for: it leads, and records what it is told."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.epoch = 0
        self.heard: list[Message] = []
        self.denies = ""  # answer to claims
        self._number = 0

    def restore(self, items: Iterable[Change]) -> None:
        """It keeps nothing."""

    def lead(self, epoch: int, now_ns: int) -> list[Effect]:
        self.epoch = epoch
        return []

    def next_tick(self) -> int:
        return NEVER

    def tick(self, now_ns: int) -> list[Effect]:
        return []

    def rows(self, what: str) -> list[dict[str, Any]]:
        return []

    def receive(self, address: Address, message: Input, now_ns: int) -> list[Effect]:
        if isinstance(message, Connected | Disconnected):
            return []
        self.heard.append(message)
        answer: Message | None = None
        if isinstance(message, Child):
            answer = Lead(role=self.role, epoch=self.epoch)
        elif isinstance(message, Claim):
            answer = Failed(id=message.id, reason=self.denies, code="exists") if self.denies else Done(id=message.id)
        elif isinstance(message, Unseek):
            answer = Done(id=message.id)
        return [] if answer is None else [Send(address, answer)]


class Below(Cloud):
    """A cloud of a - b - c whose ends have channels to another cloud, under a scripted parent."""

    def __init__(self) -> None:
        listen = ("tcp://127.0.0.1:1",)
        router = {name: RouterSpec(name=name, cloud=LEAF if name in "abc" else OTHER, listen="tcp://127.0.0.1:1")
                  for name in "abcxy"}  # fmt: skip
        topology = Topology(
            broker=(BrokerSpec(name=ROOT, listen=listen), BrokerSpec(name=LEAF, parent=ROOT, listen=listen, number=7),
                    BrokerSpec(name=OTHER, parent=ROOT, listen=listen, number=9)),
            router=tuple(router.values()),
            channel=tuple(ChannelSpec(between=(one, two)) for one, two in ("ab", "bc", "xa", "cy")),
        )  # fmt: skip
        self.start(topology, self._make)
        self.plane.start(ROOT)
        self.plane.start(LEAF)
        self.plane.start_routers(*"abc")
        self.plane.settle()
        self._number = 1000

    def _make(self, role: str) -> Broker:
        return Parent(role) if role == ROOT else LeafBroker(role, self.plane.topology, 7)

    @property
    def parent(self) -> Parent:
        broker = self.plane.broker(ROOT)
        assert isinstance(broker, Parent)
        return broker

    def tell(self, message: Message) -> None:
        self.plane.put(ROOT, LEAF, message)
        self.plane.settle()

    def order(self, kind: type[Request], **fields: Any) -> Message | None:
        """The leaf's answer to a request of the parent."""
        self._number += 1
        self.tell(kind(id=self._number, **fields))
        answers = [each for each in self.parent.heard if isinstance(each, Answer) and each.id == self._number]
        return answers[-1] if answers else None

    def heard(self, kind: type[Message]) -> list[Any]:
        return [message for message in self.parent.heard if isinstance(message, kind)]

    def ask_through(self, key: str = "k") -> Message | None:
        """Promise a stream of another cloud that comes in at a and leaves at c."""
        through = Segment(("a", "b", "c"), "x", "y", 0, 0xFFFF)
        return self.order(Ask, subscription=key, variable=FOREIGN, grants=GRANTS, segments=(through,))

    def sizes(self) -> list[int]:
        return [len(self.router(name).paths) for name in "abc"]


@pytest.fixture
def cloud() -> Below:
    return Below()


def test_the_parent_gets_the_map_of_the_cloud_and_every_change(cloud: Below) -> None:
    told = cloud.heard(Map)[-1]
    assert {(router.name, router.cloud, router.up) for router in told.routers} == {(n, LEAF, True) for n in "abc"}
    channels = {(channel.a, channel.b): channel.up for channel in told.channels}
    assert channels == {("a", "b"): True, ("b", "c"): True, ("x", "a"): True, ("c", "y"): True}
    cloud.router("b").link("c", False)
    cloud.plane.cut("a", LEAF)
    cloud.plane.settle()
    told = cloud.heard(Map)[-1]
    assert [router.name for router in told.routers if not router.up] == ["a"]
    assert [(channel.a, channel.b) for channel in told.channels if not channel.up] == [("b", "c")]


def test_loads_are_told_at_most_every_ten_seconds(cloud: Below) -> None:
    cloud.publish("a", "near/power")
    cloud.subscribe("c", "near/power")
    before = len(cloud.heard(Map))
    cloud.plane.advance(12)
    assert len(cloud.heard(Map)) - before == 1
    assert {router.name: router.load[0] for router in cloud.heard(Map)[-1].routers} == {"a": 100, "b": 100, "c": 100}


@pytest.mark.spec("GS-088")
def test_a_segment_is_reserved_when_asked_set_up_when_committed_gone_when_released(cloud: Below) -> None:
    assert isinstance(cloud.ask_through(), Done)
    assert cloud.sizes() == [0, 0, 0], "nothing is set up yet"
    assert any(any(row["load"]) for row in cloud.leaf.rows("loads"))
    assert isinstance(cloud.ask_through(), Done), "asked twice is promised once"
    assert isinstance(cloud.order(Commit, subscription="k"), Done)
    (path,) = cloud.router("b").paths.values()
    assert (path.source, path.target) == ("a", "c")
    ends = [next(iter(cloud.router(name).paths.values())) for name in "ac"]
    assert [(path.source, path.target) for path in ends] == [("x", "b"), ("b", "y")]
    assert isinstance(cloud.order(Commit, subscription="k"), Done)
    assert cloud.sizes() == [1, 1, 1]
    assert isinstance(cloud.order(Release, subscription="k"), Done)
    assert isinstance(cloud.order(Release, subscription="k"), Done), "unknown is no error"
    assert cloud.sizes() == [0, 0, 0]
    assert not any(any(row["load"]) for row in cloud.leaf.rows("loads"))
    late = cloud.order(Commit, subscription="k")
    assert isinstance(late, Failed)
    assert late.code == "unknown"


@pytest.mark.spec("GS-088")
def test_a_promise_survives_a_restart_and_its_outcome_is_asked_for(cloud: Below) -> None:
    cloud.ask_through()
    cloud.plane.advance(9)
    assert not cloud.heard(Outcome)
    cloud.plane.advance(2)
    assert [message.subscription for message in cloud.heard(Outcome)] == ["k"]
    cloud.restart()
    cloud.plane.advance(1)
    assert len(cloud.heard(Outcome)) == 2, "the next broker asks at once"
    assert isinstance(cloud.order(Commit, subscription="k"), Done)
    cloud.restart()
    cloud.plane.advance(20, 500_000_000)
    assert len(cloud.heard(Outcome)) == 2
    assert cloud.sizes() == [1, 1, 1]
    assert isinstance(cloud.order(Commit, subscription="k"), Done)
    cloud.check()


@pytest.mark.spec("GS-088")
def test_a_commit_in_which_the_broker_ends_is_completed_by_the_next_one(cloud: Below) -> None:
    for steps in range(12):
        key = f"k{steps}"
        cloud.ask_through(key)
        cloud.plane.put(ROOT, LEAF, Commit(id=1, subscription=key))
        for _ in range(steps):
            cloud.plane.step()
        cloud.restart()
        assert isinstance(cloud.order(Commit, subscription=key), Done)
        assert cloud.sizes() == [steps + 1] * 3
        cloud.check()


def test_what_cannot_be_promised_names_its_obstacle(cloud: Below) -> None:
    cloud.plane.cut("b", LEAF)
    refused = cloud.ask_through()
    assert isinstance(refused, Failed)
    assert refused.obstacle == "router/b"
    cloud.plane.heal("b", LEAF)
    cloud.router("b").link("c", False)
    cloud.plane.settle()
    refused = cloud.ask_through()
    assert isinstance(refused, Failed)
    assert refused.obstacle == "channel/b/c"
    refused = cloud.order(Ask, subscription="s", variable=FOREIGN, grants=GRANTS,
                          segments=(Segment(("a",), "", "x", 0, 0xFFFF),))  # fmt: skip
    assert isinstance(refused, Failed)
    assert "is not published at a" in refused.reason
    assert not cloud.leaf.rows("paths")


def test_a_commit_that_a_router_refuses_fails_and_is_released(cloud: Below) -> None:
    cloud.ask_through()
    cloud.router("b").refuses_once.add(Setup)
    failed = cloud.order(Commit, subscription="k")
    assert isinstance(failed, Failed)
    cloud.order(Release, subscription="k")
    assert cloud.sizes() == [0, 0, 0]
    cloud.check()


def test_a_publication_is_described_to_the_parent(cloud: Below) -> None:
    issued = cloud.publish("b", "near/power")
    assert isinstance(issued, Issued)
    described = cloud.order(Describe, publisher="near", variable="power")
    assert isinstance(described, Described)
    assert (described.variable.variable_id, described.edge) == (issued.variable_id, "b")
    unknown = cloud.order(Describe, publisher="near", variable="nothing")
    assert isinstance(unknown, Failed)
    assert unknown.code == "unknown"


@pytest.mark.spec("GS-073")
def test_a_rate_that_other_clouds_rely_on_is_not_changed_in_place(cloud: Below) -> None:
    cloud.publish("a", "near/power")
    described = cloud.order(Describe, publisher="near", variable="power")
    assert isinstance(described, Described)
    out = Segment(("a", "b", "c"), "", "y", 0, 0xFFFF)
    request = {"subscription": "k", "variable": described.variable, "grants": GRANTS, "segments": (out,)}
    assert isinstance(cloud.publish("a", "near/power", 20_000_000), Issued)
    late = cloud.order(Ask, **request)
    assert isinstance(late, Failed)
    assert "another rate" in late.reason, "it was described as it was before"
    assert isinstance(cloud.publish("a", "near/power"), Issued)
    assert isinstance(cloud.order(Ask, **request), Done)
    refused = cloud.publish("a", "near/power", 20_000_000)
    assert isinstance(refused, Failed)
    assert (refused.code, "withdraw it and register it again" in refused.reason) == ("unsupported", True)
    cloud.order(Release, subscription="k")
    assert isinstance(cloud.publish("a", "near/power", 20_000_000), Issued)


@pytest.mark.spec("GS-053")
def test_a_withdrawn_variable_ends_its_subscriptions_in_other_clouds(cloud: Below) -> None:
    issued = cloud.publish("a", "near/power")
    assert isinstance(issued, Issued)
    described = cloud.order(Describe, publisher="near", variable="power")
    assert isinstance(described, Described)
    out = Segment(("a", "b", "c"), "", "y", 0, 0xFFFF)
    cloud.order(Ask, subscription="k", variable=described.variable, grants=GRANTS, segments=(out,))
    cloud.order(Commit, subscription="k")
    cloud.unpublish("a", issued.variable_id)
    assert [message.subscription for message in cloud.heard(Unseek)] == ["k"]
    cloud.restart()
    assert len(cloud.heard(Unseek)) == 2, "until it is released"
    cloud.order(Release, subscription="k")
    assert cloud.sizes() == [0, 0, 0]
    cloud.restart()
    assert len(cloud.heard(Unseek)) == 2


def test_names_are_claimed_once_and_given_back(cloud: Below) -> None:
    first = cloud.publish("a", "near/power")
    second = cloud.publish("a", "near/current")
    assert [(claim.publisher, claim.cloud) for claim in cloud.heard(Claim)] == [("near", LEAF)]
    for issued in (first, second):
        assert isinstance(issued, Issued)
        assert not cloud.heard(Unclaim)
        cloud.unpublish("a", issued.variable_id)
    assert [message.publisher for message in cloud.heard(Unclaim)] == ["near"]
    cloud.parent.denies = "it belongs to cloud other"
    refused = cloud.publish("a", "far/power")
    assert isinstance(refused, Failed)
    assert refused.code == "exists"
    assert "belongs to cloud other" in refused.reason


def test_without_its_parent_a_cloud_accepts_and_claims_later(cloud: Below) -> None:
    cloud.plane.cut(LEAF, ROOT)
    assert isinstance(cloud.publish("a", "near/power"), Issued)
    assert not cloud.heard(Claim)
    cloud.parent.denies = "it belongs to cloud other"
    cloud.plane.heal(LEAF, ROOT)
    cloud.plane.settle()
    assert [claim.publisher for claim in cloud.heard(Claim)] == ["near"]
    assert isinstance(cloud.subscribe("c", "near/power"), Granted), "it keeps the name to itself"


def test_a_variable_of_another_cloud_is_sought_and_given_up(cloud: Below) -> None:
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power", Qos(interval_ns=20_000_000))
    cloud.plane.settle()
    (seek,) = cloud.heard(Seek)
    assert (seek.cloud, seek.edge, seek.request.publisher, seek.request.qos[0].interval_ns) == (
        LEAF,
        "c",
        "far",
        20_000_000,
    )
    cloud.restart()
    again = cloud.heard(Seek)[-1]
    assert again.subscription == seek.subscription, "the next broker asks for the same"
    cloud.tell(Granted(id=again.id, variable=FOREIGN, grants=GRANTS[:1], modes=0xFFFF))
    assert isinstance(cloud.router("c").answers[request], Granted)
    assert isinstance(cloud.subscribe("c", "far/power", Qos(interval_ns=20_000_000), client="viewer"), Granted)
    assert len(cloud.heard(Seek)) == 2
    assert isinstance(cloud.unsubscribe("c", FOREIGN.variable_id, "viewer"), Done)
    assert [message.subscription for message in cloud.heard(Unseek)] == [seek.subscription]
    assert not cloud.leaf.rows("subscriptions")


def test_an_answer_to_the_broker_before_is_not_taken_for_one_to_this(cloud: Below) -> None:
    cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power")
    cloud.plane.settle()
    before = cloud.heard(Seek)[-1]
    cloud.restart()
    cloud.tell(Failed(id=before.id, code="capacity", reason="too narrow"))
    cloud.tell(Granted(id=cloud.heard(Seek)[-1].id, variable=FOREIGN, grants=GRANTS[:1], modes=0xFFFF))
    assert [row["key"] for row in cloud.leaf.rows("subscriptions")] == [before.subscription]


def test_whoever_waits_for_an_ancestor_that_does_not_answer_is_told(cloud: Below) -> None:
    viewer = cloud.client("c", "viewer")
    requests = [
        cloud.router("c").subscribe(viewer, "far/power", Qos(interval_ns=ns)) for ns in (20_000_000, 40_000_000)
    ]
    cloud.plane.advance(PATIENCE_NS // 10**9 + 1)
    answers = [cloud.router("c").answers[request] for request in requests]
    assert [answer.code for answer in answers if isinstance(answer, Failed)] == ["unavailable", "unavailable"]
    assert not cloud.leaf.rows("subscriptions")


def test_the_answer_of_the_ancestors_is_passed_on(cloud: Below) -> None:
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power")
    cloud.plane.settle()
    cloud.tell(Failed(id=cloud.heard(Seek)[-1].id, code="capacity", reason="too narrow", best=GRANTS[:1]))
    refused = cloud.router("c").answers[request]
    assert isinstance(refused, Failed)
    assert (refused.code, refused.reason, refused.best) == ("capacity", "too narrow", GRANTS[:1])
    assert not cloud.leaf.rows("subscriptions")


def test_other_quality_between_clouds_is_sought_anew_before_the_old_one_ends(cloud: Below) -> None:
    cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power")
    cloud.plane.settle()
    first = cloud.heard(Seek)[-1]
    cloud.tell(Granted(id=first.id, variable=FOREIGN, grants=GRANTS[:1], modes=0xFFFF))
    cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power", Qos(interval_ns=40_000_000))
    cloud.plane.settle()
    second = cloud.heard(Seek)[-1]
    assert second.subscription != first.subscription
    assert not cloud.heard(Unseek)
    cloud.tell(Granted(id=second.id, variable=FOREIGN, grants=GRANTS[:1], modes=0xFFFF))
    assert [message.subscription for message in cloud.heard(Unseek)] == [first.subscription]
    assert [row["key"] for row in cloud.leaf.rows("subscriptions")] == [second.subscription]


@pytest.mark.spec("GS-053")
def test_a_subscription_that_ancestors_end_is_withdrawn(cloud: Below) -> None:
    cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power")
    cloud.plane.settle()
    seek = cloud.heard(Seek)[-1]
    cloud.tell(Granted(id=seek.id, variable=FOREIGN, grants=GRANTS[:1], modes=0xFFFF))
    cloud.tell(Gone(subscription=seek.subscription, reason="far away it was withdrawn"))
    (notice,) = cloud.router("c").notices
    assert isinstance(notice, Withdrawn)
    assert (notice.variable_id, notice.reason, notice.entities) == (
        FOREIGN.variable_id,
        "far away it was withdrawn",
        ("viewer",),
    )
    assert not cloud.leaf.rows("subscriptions")


def test_a_variable_that_nobody_has_yet_is_sought_again_while_it_is_waited_for(cloud: Below) -> None:
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power", wait_ns=2_500_000_000)
    for _ in range(2):
        cloud.plane.advance(1.2)
        cloud.tell(Failed(id=cloud.heard(Seek)[-1].id, code="unknown", reason="nobody publishes it"))
        assert request not in cloud.router("c").answers
    cloud.plane.advance(1.5)
    late = cloud.router("c").answers[request]
    assert isinstance(late, Failed)
    assert late.code == "unknown"


def test_ancestors_that_do_not_answer_are_given_up(cloud: Below) -> None:
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "far/power")
    cloud.plane.advance(PATIENCE_NS // 10**9 - 1, 500_000_000)
    assert request not in cloud.router("c").answers
    cloud.plane.advance(2, 500_000_000)
    late = cloud.router("c").answers[request]
    assert isinstance(late, Failed)
    assert late.code == "unavailable"
    assert cloud.heard(Unseek)


def test_without_a_parent_that_can_be_reached_a_foreign_variable_is_unavailable(cloud: Below) -> None:
    cloud.plane.cut(LEAF, ROOT)
    refused = cloud.subscribe("c", "far/power")
    assert isinstance(refused, Failed)
    assert refused.code == "unavailable"


def test_what_the_own_cloud_cannot_give_is_sought_through_others(cloud: Below) -> None:
    cloud.publish("a", "near/power")
    request = cloud.router("c").subscribe(cloud.client("c", "viewer"), "near/power", Qos(redundancy=2))
    cloud.plane.settle()
    cloud.tell(Failed(id=cloud.heard(Seek)[-1].id, code="capacity", reason="no way round"))
    refused = cloud.router("c").answers[request]
    assert isinstance(refused, Failed)
    assert [grant.redundancy for grant in refused.best if grant is not None] == [1], "the refusal of its own cloud"


def test_a_channel_between_clouds_comes_from_above(cloud: Below) -> None:
    assert isinstance(cloud.order(AddChannel, a="x", b="b", url="tcp://127.0.0.1:3", level=2), Done)
    assert cloud.router("b").channels["x"].level == 2
    assert cloud.router("b").channels["x"].url == ""
    cloud.restart()
    assert "x" in cloud.router("b").channels
