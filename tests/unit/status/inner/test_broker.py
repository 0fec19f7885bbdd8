"""An inner broker and its neighbours: joining, names, relays, modes, floods, changes of the tree, what it shows."""

from __future__ import annotations

import pytest

from chappe.machine import Connected, Disconnected
from chappe.status.topology import Topology
from chappe.wire.base import Done, Failed, Message
from chappe.wire.management import (
    AddChannel,
    AddChild,
    AddRouter,
    Ask,
    ChangeMode,
    ChannelFact,
    Child,
    Claim,
    ClearFlood,
    Commit,
    Describe,
    Described,
    Gone,
    Granted,
    Lead,
    Map,
    Outcome,
    RemoveChannel,
    RemoveChild,
    RouterFact,
    Seek,
    SetFlood,
    Unclaim,
    Unseek,
)
from tests.support.tree import THREE_LEVELS, TWO_CLOUDS, Played, answer, facts, messages, seek, variable

LOAD = variable("plant/load")
TRIP = variable("plant/trip", 2)


def played(topology: Topology = TWO_CLOUDS, role: str = "root") -> Played:
    broker = Played(role, topology, {"plant/load": (LOAD, "n1"), "plant/trip": (TRIP, "n1")})
    broker.join(*topology.children(role))
    broker.sent.clear()
    return broker


def west() -> Played:
    """A broker in the middle, with its parent connected."""
    broker = played(THREE_LEVELS, "west")
    broker.take(broker.broker.receive("parent", Connected(), broker.now_ns))
    broker.say("parent", Lead(role="root", epoch=4))
    broker.sent.clear()
    return broker


# joining


def test_a_child_is_answered_and_its_map_is_known() -> None:
    root = Played("root", TWO_CLOUDS)
    sends = root.join("north")
    assert [(send.to, send.message) for send in sends] == [("child/north", Lead(role="root", epoch=1, finds=True))]
    assert [(row["name"], row["up"]) for row in root.broker.rows("children")] == [("north", True), ("south", False)]
    assert {row["name"]: row["routers_up"] for row in root.broker.rows("clouds")} == {"north": 3, "south": 0}


def test_nobody_but_a_child_may_join_and_nothing_is_taken_from_it_before() -> None:
    root = Played("root", TWO_CLOUDS)
    sends = root.say("child/west", Child(id=3, role="west", epoch=1, mode=0, issuer=b"1"))
    assert answer(sends, "child/west", 3).code == "unknown"
    assert root.say("child/north", seek("north/1", "plant/load", "north", "n1")) == []


def test_a_standby_says_nothing() -> None:
    root = played()
    root.broker.epoch = 0
    assert root.broker.receive("operator/1", ChangeMode(id=1, mode=2), 0) == []
    assert root.broker.tick(0) == []


def test_a_lost_child_is_not_planned_through_and_a_router_that_left_its_map_is_gone() -> None:
    root = played()
    root.lose("north")
    assert {row["name"]: row["up"] for row in root.broker.rows("routers")}["n1"] is False
    root.join("north")
    root.say("child/north", Map(routers=facts(TWO_CLOUDS, "north").routers[:1], channels=()))
    assert [row["name"] for row in root.broker.rows("routers") if row["cloud"] == "north"] == ["n1"]


def test_a_channel_between_clouds_is_down_while_either_side_sees_it_so() -> None:
    root = played()
    told = facts(TWO_CLOUDS, "north")
    down = tuple(ChannelFact(c.a, c.b, c.bytes_per_s, c.latency_ns, c.security, up=c.b != "S2") for c in told.channels)
    root.say("child/north", Map(routers=told.routers, channels=down))
    assert {row["a"]: row["up"] for row in root.broker.rows("channels")} == {"N2": False, "N3": True}
    root.say("child/north", told)
    assert {row["a"]: row["up"] for row in root.broker.rows("channels")} == {"N2": True, "N3": True}


@pytest.mark.spec("GS-090", "GS-155")
def test_a_broker_in_the_middle_introduces_itself_and_passes_its_whole_map_up() -> None:
    broker = played(THREE_LEVELS, "west")
    broker.claim("plant", "w1")
    hello = broker.take(broker.broker.receive("parent", Connected(), broker.now_ns))
    child = messages(hello, Child)[0][1]
    assert (child.role, child.height, child.claims) == ("west", 2, (("plant", "w1"),))
    sends = broker.say("parent", Lead(role="root", epoch=4))
    told = messages(sends, Map)[-1][1]
    assert {router.name for router in told.routers} == {"a1", "A2", "b1", "B2"}
    assert {(channel.a, channel.b) for channel in told.channels} == {
        ("a1", "A2"), ("b1", "B2"), ("A2", "b1"), ("A2", "B2"), ("B2", "c1"), ("B2", "C2"), ("a1", "d1"),
    }  # fmt: skip
    lost = messages(broker.lose("w2"), Map)[0][1]
    assert {router.name for router in lost.routers if not router.up} == {"b1", "B2"}


# names


def test_a_name_belongs_to_one_cloud_until_it_gives_it_up() -> None:
    root = played()
    assert isinstance(answer(root.claim("plant", "north"), "child/north", 1), Done)
    assert isinstance(answer(root.claim("plant", "north"), "child/north", 1), Done)
    refused = answer(root.claim("plant", "south"), "child/south", 1)
    assert (refused.code, "north" in refused.reason) == ("exists", True)
    root.say("child/north", Unclaim(publisher="plant", cloud="north"))
    assert isinstance(answer(root.claim("plant", "south"), "child/south", 1), Done)
    root.start()
    assert root.broker.rows("publishers") == [{"publisher": "plant", "cloud": "south", "kept": False}]


@pytest.mark.spec("GS-155")
def test_names_that_a_child_gave_up_or_took_while_it_was_away_are_merged_when_it_is_back() -> None:
    root = played()
    root.claim("plant", "north")
    root.claim("mine", "north")
    root.lose("north")
    root.join("north", claims=(("plant", "north"), ("mill", "north")))
    assert {row["publisher"] for row in root.broker.rows("publishers")} == {"plant", "mill"}


def test_a_name_is_claimed_up_to_the_root_and_a_refusal_comes_back() -> None:
    broker = west()
    up = broker.say("child/w1", Claim(id=7, publisher="plant", cloud="w1"))
    claim = messages(up, Claim)[0]
    assert (claim[0], claim[1].publisher, claim[1].cloud) == ("parent", "plant", "w1")
    assert isinstance(answer(broker.say("parent", Done(id=claim[1].id)), "child/w1", 7), Done)
    up = broker.say("child/w2", Claim(id=8, publisher="mill", cloud="w2"))
    refusal = Failed(id=messages(up, Claim)[0][1].id, reason="taken", code="exists")
    assert answer(broker.say("parent", refusal), "child/w2", 8).code == "exists"
    assert [row["publisher"] for row in broker.broker.rows("publishers")] == ["plant"]


def test_a_child_claims_and_gives_up_names_of_its_own_clouds_only() -> None:
    root = played()
    root.claim("plant", "north")
    said = root.say("child/south", Claim(id=9, publisher="mill", cloud="north"))
    refused = answer(said, "child/south", 9)
    assert (refused.code, "not below south" in refused.reason) == ("denied", True)
    root.say("child/south", Unclaim(publisher="plant", cloud="north"))
    assert root.broker.rows("publishers") == [{"publisher": "plant", "cloud": "north", "kept": False}]


def test_without_a_parent_a_name_is_given_inside_and_claimed_when_the_parent_is_back() -> None:
    broker = west()
    broker.take(broker.broker.receive("parent", Disconnected(), broker.now_ns))
    assert isinstance(answer(broker.say("child/w1", Claim(id=7, publisher="plant", cloud="w1")), "child/w1", 7), Done)
    assert broker.broker.rows("publishers")[0]["kept"]
    broker.take(broker.broker.receive("parent", Connected(), broker.now_ns))
    claim = messages(broker.say("parent", Lead(role="root", epoch=5)), Claim)[0][1]
    broker.say("parent", Done(id=claim.id))
    assert not broker.broker.rows("publishers")[0]["kept"]


# relays


@pytest.mark.spec("GS-090")
def test_a_broker_in_the_middle_passes_requests_to_the_leaf_and_answers_back() -> None:
    broker = west()
    requests = [Describe(id=3, publisher="plant", variable="load", cloud="w2"),
                Ask(id=4, subscription="e2/1", variable=LOAD, grants=(), segments=(), cloud="w2"),
                Commit(id=5, subscription="e2/1", cloud="w2")]  # fmt: skip
    full = Failed(id=0, reason="full", code="capacity", obstacle="router/b1")
    replies: list[Message] = [Described(id=0, variable=LOAD, edge="b1"), full, Done(id=0)]
    for request, reply in zip(requests, replies, strict=True):
        down = broker.say("parent", request)
        assert [send.to for send in down] == ["child/w2"]
        reply.id = down[0].message.id  # type: ignore[attr-defined]
        back = answer(broker.say("child/w2", reply), "parent", request.id)
        assert type(back) is type(reply)
    down = broker.say("parent", Gone(subscription="w2/1", reason="bye", cloud="w2"))
    assert [(send.to, type(send.message)) for send in down] == [("child/w2", Gone)]


def test_a_request_for_a_leaf_that_is_away_or_lost_meanwhile_is_answered_so() -> None:
    broker = west()
    broker.say("parent", Commit(id=5, subscription="e2/1", cloud="w2"))
    lost = broker.lose("w2")
    assert answer(lost, "parent", 5).code == "away"
    kinds = [type(send.message) for send in lost]
    assert kinds.index(Map) < kinds.index(Failed)  # whoever plans again knows already
    assert answer(broker.say("parent", Commit(id=6, subscription="e2/1", cloud="w2")), "parent", 6).code == "away"


def test_what_is_not_below_is_sought_above_and_asked_again_when_the_parent_changes() -> None:
    broker = west()
    up = broker.say("child/w1", seek("w1/1", "dam/level", "w1", "a1", number=6))
    above = messages(up, Seek)[0][1]
    broker.take(broker.broker.receive("parent", Disconnected(), broker.now_ns))
    broker.take(broker.broker.receive("parent", Connected(), broker.now_ns))
    again = messages(broker.say("parent", Lead(role="root", epoch=5)), Seek)[0][1]
    assert again == above
    granted = Granted(id=above.id, variable=LOAD, grants=(None,), modes=1)
    assert answer(broker.say("parent", granted), "child/w1", 6).variable == LOAD
    up = broker.say("child/w1", Unseek(id=9, subscription="w1/1"))
    end = messages(up, Unseek)[0][1]
    assert end.cloud == "w1"
    assert isinstance(answer(broker.say("parent", Done(id=end.id)), "child/w1", 9), Done)
    outcome = messages(broker.say("child/w1", Outcome(id=3, subscription="w1/1")), Outcome)
    assert [(to, message.cloud) for to, message in outcome] == [("parent", "w1")]


def test_without_a_parent_what_is_not_below_waits_for_it_because_it_may_be_allocated_above_already() -> None:
    broker = west()
    broker.take(broker.broker.receive("parent", Disconnected(), broker.now_ns))
    assert broker.say("child/w1", seek("w1/1", "dam/level", "w1", "a1", number=6)) == []
    broker.take(broker.broker.receive("parent", Connected(), broker.now_ns))
    again = messages(broker.say("parent", Lead(role="root", epoch=5)), Seek)
    assert [message.subscription for _, message in again] == ["w1/1"]


@pytest.mark.spec("GS-087", "GS-090")
def test_the_lowest_common_ancestor_allocates_by_itself() -> None:
    broker = west()
    broker.variables["plant/load"] = (LOAD, "a1")
    up = broker.say("child/w1", Claim(id=7, publisher="plant", cloud="w1"))
    broker.say("parent", Done(id=messages(up, Claim)[0][1].id))
    sends = broker.settle(broker.say("child/w2", seek("w2/1", "plant/load", "w2", "b1")))
    assert isinstance(answer(sends, "child/w2", 5), Granted)
    assert "parent" not in {send.to for send in sends}


# modes


@pytest.mark.spec("GS-117")
def test_a_mode_goes_to_all_children_at_once_and_one_that_joins_later_gets_it() -> None:
    root = played()
    root.lose("south")
    sends = root.settle(root.say("operator/1", ChangeMode(id=1, mode=2)))
    assert [(to, m.mode, m.rank) for to, m in messages(sends, ChangeMode)] == [("child/north", 2, 2)]
    done = answer(sends, "operator/1", 1)
    assert isinstance(done, Done)
    assert done.note == "left behind: south (away)"
    back = root.join("south")
    assert [(to, m.mode) for to, m in messages(back, ChangeMode)] == [("child/south", 2)]
    root.start()
    assert root.broker.rows("modes") == [{"broker": "root", "mode": 2, "next": None, "rank": 2}]


def test_a_mode_from_above_is_passed_on_with_its_rank_and_wins_over_the_own_operator() -> None:
    broker = west()
    sends = broker.settle(broker.say("parent", ChangeMode(id=1, mode=3, rank=3)))
    assert {(to, m.rank) for to, m in messages(sends, ChangeMode)} == {("child/w1", 3), ("child/w2", 3)}
    assert isinstance(answer(sends, "parent", 1), Done)
    assert answer(broker.say("operator/1", ChangeMode(id=2, mode=4)), "operator/1", 2).code == "denied"


@pytest.mark.spec("GS-119")
def test_a_child_that_does_not_answer_is_named() -> None:
    root = played()
    root.silent = {"south"}
    root.settle(root.say("operator/1", ChangeMode(id=1, mode=2)))
    assert not root.pass_time(11)
    assert "south (no answer" in answer(root.pass_time(2), "operator/1", 1).note


# floods


@pytest.mark.spec("GS-100", "GS-101")
def test_flooding_is_described_first_then_passed_to_all_children_and_removed_again() -> None:
    root = played()
    root.claim("plant", "north")
    sends = root.settle(root.say("operator/1", SetFlood(id=1, publisher="plant", variable="trip", modes=0b11)))
    assert isinstance(sends[0].message, Describe)
    orders = messages(sends, SetFlood)
    assert [(to, m.level, m.rank, m.modes, m.described) for to, m in orders] == [
        ("child/north", 2, 2, 0b11, TRIP), ("child/south", 2, 2, 0b11, TRIP),
    ]  # fmt: skip
    assert answer(sends, "operator/1", 1).note == ""
    row = root.broker.rows("floods")[0]
    assert (row["variable"], row["levels"][:3], row["rank"]) == ("trip", [2, 2, None], 2)
    sends = root.settle(root.say("operator/1", ClearFlood(id=2, publisher="plant", variable="trip")))
    assert {(to, m.rank) for to, m in messages(sends, ClearFlood)} == {("child/north", 2), ("child/south", 2)}
    assert root.broker.rows("floods") == []
    assert {kind for kind, _ in root.store} == {"claim"}


@pytest.mark.spec("GS-101")
def test_a_child_that_was_away_gets_the_floods_in_force_and_the_removals_it_missed_after_a_restart_too() -> None:
    root = played()
    root.claim("plant", "north")
    for name in ("trip", "load"):
        root.settle(root.say("operator/1", SetFlood(id=1, publisher="plant", variable=name, level=1)))
    root.lose("south")
    sends = root.settle(root.say("operator/1", ClearFlood(id=2, publisher="plant", variable="trip")))
    assert answer(sends, "operator/1", 2).note == "left behind: south (away)"
    root.start()
    root.settle(root.join("north"))
    back = root.settle(root.join("south"))
    assert [(m.variable, m.rank) for _, m in messages(back, ClearFlood)] == [("trip", 2)]
    assert [(m.variable, m.level) for _, m in messages(back, SetFlood)] == [("load", 1)]
    root.lose("south")
    assert not messages(root.join("south"), ClearFlood)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SetFlood(id=1, publisher="plant", variable="trip", level=3), "invalid"),
        (SetFlood(id=1, publisher="plant", variable="trip", modes=0), "invalid"),
        (SetFlood(id=1, publisher="nobody", variable="trip"), "unknown"),
    ],
)
def test_flooding_that_cannot_be_is_refused(request_: SetFlood, code: str) -> None:
    root = played()
    root.claim("plant", "north")
    assert answer(root.settle(root.say("operator/1", request_)), "operator/1", 1).code == code
    assert root.broker.rows("floods") == []


@pytest.mark.spec("GS-101")
def test_what_a_broker_above_floods_cannot_be_changed_below() -> None:
    broker = west()
    broker.variables["plant/trip"] = (TRIP, "a1")
    up = broker.say("child/w1", Claim(id=7, publisher="plant", cloud="w1"))
    broker.say("parent", Done(id=messages(up, Claim)[0][1].id))
    order = SetFlood(id=1, publisher="plant", variable="trip", modes=1, level=3, rank=3, described=TRIP)
    sends = broker.settle(broker.say("parent", order))
    assert {(to, m.level, m.rank) for to, m in messages(sends, SetFlood)} == {("child/w1", 3, 3), ("child/w2", 3, 3)}
    assert isinstance(answer(sends, "parent", 1), Done)
    own = SetFlood(id=2, publisher="plant", variable="trip", level=1)
    assert answer(broker.settle(broker.say("operator/1", own)), "operator/1", 2).code == "denied"
    clear = ClearFlood(id=3, publisher="plant", variable="trip")
    assert answer(broker.say("operator/1", clear), "operator/1", 3).code == "denied"
    assert broker.broker.rows("floods")[0]["levels"][0] == 3


def test_a_name_that_is_published_anew_is_flooded_under_its_new_id() -> None:
    root = played()
    root.claim("plant", "north")
    root.settle(root.say("operator/1", SetFlood(id=1, publisher="plant", variable="trip", modes=1)))
    new = variable("plant/trip", 77)
    told = SetFlood(id=4, publisher="plant", variable="trip", described=new)
    sends = root.settle(root.say("child/north", told))
    assert {(to, m.described.variable_id) for to, m in messages(sends, SetFlood)} == {
        ("child/north", 77), ("child/south", 77),
    }  # fmt: skip
    root.start()
    assert len(root.broker.rows("floods")) == 1


# changes of the tree


def test_a_child_is_added_and_removed_and_not_while_it_is_needed() -> None:
    root = played()
    assert isinstance(answer(root.say("operator/1", AddChild(id=1, role="east")), "operator/1", 1), Done)
    assert answer(root.say("operator/1", AddChild(id=2, role="east")), "operator/1", 2).code == "exists"
    root.start()
    root.take(root.broker.receive("child/east", Connected(), root.now_ns))
    sends = root.say("child/east", Child(id=1, role="east", epoch=1, mode=0, issuer=b"1"))
    assert isinstance(sends[0].message, Lead)
    root.say("child/east", Map(routers=(RouterFact("x1", "east", True, 1e6),), channels=()))
    root.claim("mill", "east")
    assert answer(root.say("operator/1", RemoveChild(id=3, role="east")), "operator/1", 3).code == "invalid"
    root.say("child/east", Unclaim(publisher="mill", cloud="east"))
    assert isinstance(answer(root.say("operator/1", RemoveChild(id=4, role="east")), "operator/1", 4), Done)
    assert answer(root.say("operator/1", RemoveChild(id=5, role="east")), "operator/1", 5).code == "unknown"
    assert "x1" not in {row["name"] for row in root.broker.rows("routers")}
    root.start()
    assert [row["name"] for row in root.broker.rows("children")] == ["north", "south"]


@pytest.mark.spec("GS-089")
def test_a_channel_between_clouds_is_added_while_it_runs_and_both_leaves_are_told_again_when_they_join() -> None:
    root = played()
    request = AddChannel(id=1, a="n1", b="s1", url="tcp://127.0.0.1:9", bytes_per_s=1e6, latency_ns=5)
    sends = root.settle(root.say("operator/1", request))
    assert isinstance(answer(sends, "operator/1", 1), Done)
    assert {(to, m.level) for to, m in messages(sends, AddChannel)} == {("child/north", 2), ("child/south", 2)}
    assert answer(root.say("operator/1", request), "operator/1", 1).code == "exists"
    root.start()
    assert [to for to, _ in messages(root.join("south"), AddChannel)] == ["child/south"]
    assert ("n1", "s1") in {(row["a"], row["b"]) for row in root.broker.rows("channels")}


@pytest.mark.parametrize(
    ("ends", "reason"), [(("n1", "N3"), "both below north"), (("n1", "z9"), "no router z9 below root")]
)
def test_a_channel_that_is_not_between_children_is_refused(ends: tuple[str, str], reason: str) -> None:
    root = played()
    refused = answer(root.say("operator/1", AddChannel(id=1, a=ends[0], b=ends[1])), "operator/1", 1)
    assert refused.code == "invalid"
    assert reason in refused.reason


def test_a_channel_that_is_not_there_cannot_be_removed_and_routers_are_for_leaves() -> None:
    root = played()
    assert answer(root.say("operator/1", RemoveChannel(id=1, a="n1", b="s1")), "operator/1", 1).code == "unknown"
    assert answer(root.say("operator/1", AddRouter(id=2, name="x")), "operator/1", 2).code == "unsupported"


def test_rows_have_the_same_columns_and_a_wrong_word_names_those_that_are_right() -> None:
    root = played()
    root.claim("plant", "north")
    root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1")))
    for what in ("children", "clouds", "channels", "subscriptions", "modes", "publishers", "routers", "loads", "paths"):
        rows = root.broker.rows(what)
        assert rows
        assert len({tuple(row) for row in rows}) == 1
    with pytest.raises(KeyError, match="subscriptions"):
        root.broker.rows("nonsense")
