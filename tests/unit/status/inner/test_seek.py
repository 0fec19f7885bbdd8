"""Inter-cloud subscriptions at one inner broker: describe, plan, ask, decide, commit, release; and what goes wrong."""

from __future__ import annotations

import pytest

from chappe.status.inner.inter_cloud import WINDOW
from chappe.wire.base import Done, Failed, Message, Qos
from chappe.wire.management import (
    Ask,
    Commit,
    Describe,
    Gone,
    Granted,
    Outcome,
    Release,
    RemoveChannel,
    Segment,
    Unseek,
)
from tests.support.tree import TWO_CLOUDS, Played, answer, messages, seek, variable

LOAD = variable("plant/load")


def played() -> Played:
    root = Played("root", TWO_CLOUDS, {"plant/load": (LOAD, "n1")})
    root.join("north", "south")
    root.claim("plant", "north")
    root.sent.clear()
    return root


def sought(root: Played, key: str = "south/1", *qos: Qos) -> list[tuple[str, Message]]:
    sends = root.settle(root.say("child/south", seek(key, "plant/load", "south", "s1", *qos)))
    return [(send.to, send.message) for send in sends]


@pytest.mark.spec("GS-087", "GS-088")
def test_segments_are_asked_of_every_leaf_then_committed_then_granted() -> None:
    root = played()
    sends = sought(root)
    assert [(to, type(message)) for to, message in sends] == [
        ("child/north", Describe),
        ("child/north", Ask), ("child/south", Ask),
        ("child/north", Commit), ("child/south", Commit),
        ("child/south", Granted),
    ]  # fmt: skip
    asks = {to: message.segments for to, message in sends if isinstance(message, Ask)}
    way = asks["child/north"][0].target[1]
    assert asks == {
        "child/north": (Segment(("n1", f"N{way}"), "", f"S{way}", 0, 0xFFFF),),
        "child/south": (Segment((f"S{way}", "s1"), f"N{way}", "", 0, 0xFFFF),),
    }
    granted = sends[-1][1]
    assert isinstance(granted, Granted)
    assert (granted.id, granted.variable) == (5, LOAD)
    assert granted.grants[0] is not None
    assert granted.grants[0].interval_ns == 10_000_000
    assert [key for kind, key in root.store if kind == "decision"] == ["south/1"]


def test_two_disjoint_paths_cross_two_channels_of_the_root() -> None:
    root = played()
    asks = [message for _, message in sought(root, "south/1", Qos(redundancy=2)) if isinstance(message, Ask)]
    assert {segment.routers for ask in asks for segment in ask.segments} == {
        ("n1", "N2"), ("n1", "N3"), ("S2", "s1"), ("S3", "s1"),
    }  # fmt: skip
    assert [row["paths"] for row in root.broker.rows("subscriptions")] == [2]


def test_a_leaf_that_refuses_is_planned_around_and_what_others_promised_is_given_back() -> None:
    root = played()
    full: list[str] = []

    def answers(child: str, message: Message) -> Message | None:
        if child == "south" and isinstance(message, Ask) and not full:
            full.append(message.segments[0].routers[0])
            return Failed(id=message.id, reason="no room", code="capacity", obstacle=f"router/{full[0]}")
        return None

    root.answers = answers
    sends = sought(root)
    kinds = [(to, type(message)) for to, message in sends]
    assert ("child/north", Release) in kinds
    assert ("child/south", Release) not in kinds  # it has promised nothing
    last = [message for to, message in sends if isinstance(message, Ask)][-2:]
    other = "3" if full == ["S2"] else "2"
    assert [segment.routers for ask in last for segment in ask.segments] == [("n1", f"N{other}"), (f"S{other}", "s1")]
    assert isinstance(sends[-1][1], Granted)


def test_no_choice_left_fails_with_the_reason_of_the_leaf_and_nothing_stays_reserved() -> None:
    root = played()

    def answers(child: str, message: Message) -> Message | None:
        if child == "south" and isinstance(message, Ask):
            router = message.segments[0].routers[0]
            return Failed(id=message.id, reason=f"{router} is full", code="capacity", obstacle=f"router/{router}")
        return None

    root.answers = answers
    failed = sought(root)[-1][1]
    assert isinstance(failed, Failed)
    assert (failed.id, failed.code) == (5, "capacity")
    assert "is full" in failed.reason
    assert all(max(row["load"]) == 0 for row in root.broker.rows("loads"))
    assert not [key for kind, key in root.store if kind == "decision"]


def test_a_refusal_that_names_nothing_ends_the_search() -> None:
    root = played()
    root.answers = lambda child, message: (
        Failed(id=message.id, reason="no", code="unknown") if isinstance(message, Ask) and child == "north" else None
    )
    sends = sought(root)
    assert len([1 for _, message in sends if isinstance(message, Ask)]) == 2
    assert [(to, message.code) for to, message in sends if isinstance(message, Failed)] == [("child/south", "unknown")]
    assert ("child/south", Release) in [(to, type(message)) for to, message in sends]


def test_a_name_that_nobody_has_a_variable_that_is_not_published_and_another_type_are_refused() -> None:
    root = played()
    unknown = answer(root.say("child/south", seek("south/1", "other/load", "south", "s1")), "child/south", 5)
    assert (unknown.code, "other" in unknown.reason) == ("unknown", True)
    root.answers = lambda child, message: (
        Failed(id=message.id, reason="nobody", code="unknown") if isinstance(message, Describe) else None
    )
    missing = answer(root.settle(root.say("child/south", seek("south/2", "plant/x", "south", "s1"))), "child/south", 5)
    assert missing.code == "unknown"
    root.answers = lambda child, message: None
    wrong = answer(root.settle(root.say("child/south", seek("south/3", "plant/load", "south", "s1", type="bool"))),
                   "child/south", 5)  # fmt: skip
    assert wrong.code == "type"
    assert "float" in wrong.reason


def test_a_repeated_request_gets_the_same_answer_and_sets_up_nothing_twice() -> None:
    root = played()
    first = sought(root)[-1][1]
    again = root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1", number=9)))
    assert [(send.to, type(send.message)) for send in again] == [("child/south", Granted)]
    assert isinstance(first, Granted)
    assert answer(again, "child/south", 9).grants == first.grants


def test_the_same_key_with_another_quality_is_refused() -> None:
    root = played()
    sought(root)
    sends = root.say("child/south", seek("south/1", "plant/load", "south", "s1", Qos(redundancy=2), number=9))
    assert answer(sends, "child/south", 9).code == "exists"


def test_an_end_releases_every_segment_and_is_forgotten_when_all_have_confirmed() -> None:
    root = played()
    sought(root)
    sends = root.say("child/south", Unseek(id=8, subscription="south/1"))
    assert isinstance(answer(sends, "child/south", 8), Done)
    assert {to for to, _ in messages(sends, Release)} == {"child/north", "child/south"}
    assert not messages(sends, Gone)
    assert ("decision", "south/1") in root.store
    root.settle(sends)
    assert ("decision", "south/1") not in root.store
    assert all(max(row["load"]) == 0 for row in root.broker.rows("loads"))


def test_the_publishers_leaf_ends_a_subscription_and_the_subscribers_leaf_is_told() -> None:
    root = played()
    sought(root)
    sends = root.settle(root.say("child/north", Unseek(id=8, subscription="south/1", reason="withdrawn")))
    gone = messages(sends, Gone)
    assert [(to, message.reason, message.cloud) for to, message in gone] == [("child/south", "withdrawn", "south")]
    assert {message.reason for _, message in messages(sends, Release)} == {"withdrawn"}


def test_an_end_while_leaves_are_asked_gives_back_and_answers_both() -> None:
    root = played()
    root.silent = {"south"}
    root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1")))
    sends = root.say("child/south", Unseek(id=8, subscription="south/1"))
    assert answer(sends, "child/south", 5).code == "stale"
    assert isinstance(answer(sends, "child/south", 8), Done)
    assert {to for to, _ in messages(sends, Release)} == {"child/north", "child/south"}
    assert all(max(row["load"]) == 0 for row in root.broker.rows("loads"))


def test_a_child_that_says_nothing_is_given_up_after_ten_seconds() -> None:
    root = played()
    root.silent = {"south"}
    root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1")))
    assert not messages(root.pass_time(9), Failed)
    failed = answer(root.pass_time(2), "child/south", 5)
    assert failed.code == "unavailable"


def test_a_commit_for_a_child_that_is_away_goes_out_when_it_is_back() -> None:
    root = played()
    root.silent = {"north"}
    sends = root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1")))
    describe = messages(sends, Describe)[0][1]
    sends = root.say("child/north", root.usual(describe) or Done(id=0))
    asks = dict(messages(sends, Ask))
    root.say("child/south", Done(id=asks["child/south"].id))
    sends = root.say("child/north", Done(id=asks["child/north"].id))
    assert [to for to, _ in messages(sends, Commit)] == ["child/north", "child/south"]
    root.lose("north")
    root.silent = set()
    assert not messages(root.settle(sends[1:]), Granted)
    back = root.settle(root.join("north"))
    assert [message.subscription for _, message in messages(back, Commit)] == ["south/1"]
    assert isinstance(answer(back, "child/south", 5), Granted)


def test_a_child_lost_while_it_is_asked_is_left_out_and_the_ends_of_the_path_cannot_be() -> None:
    root = played()
    root.silent = {"north"}
    root.answers = lambda child, message: root.usual(message) if isinstance(message, Describe) else None
    sends = root.say("child/south", seek("south/1", "plant/load", "south", "s1"))
    root.silent = set()
    sends = root.say("child/north", root.usual(messages(sends, Describe)[0][1]) or Done(id=0))
    lost = root.lose("north")
    assert answer(lost, "child/south", 5).code == "unavailable"
    assert [to for to, _ in messages(lost, Release)] == ["child/south"]


def test_a_router_that_cannot_be_set_up_undoes_the_decision() -> None:
    root = played()
    root.answers = lambda child, message: (
        Failed(id=message.id, reason="N2 is silent", code="unavailable")
        if isinstance(message, Commit) and child == "north"
        else None
    )
    sends = root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1")))
    assert answer(sends, "child/south", 5).reason == "N2 is silent"
    assert {to for to, _ in messages(sends, Release)} == {"child/north", "child/south"}
    assert ("decision", "south/1") not in root.store


@pytest.mark.parametrize("decided", [False, True])
def test_after_a_restart_a_promise_is_committed_if_that_was_decided_and_released_if_not(decided: bool) -> None:
    root = played()
    root.answers = lambda child, message: None
    if decided:
        sought(root)
    else:
        root.silent = {"south"}
        sought(root)
        root.silent = set()
    root.start()
    root.join("north", "south")
    sends = root.settle(root.say("child/north", Outcome(id=3, subscription="south/1")))
    assert [(to, type(message)) for to, message in messages(sends, Commit, Release)] == [
        ("child/north", Commit if decided else Release)
    ]


def test_a_leaf_that_has_no_part_in_a_decision_is_told_to_release_what_it_promised_before() -> None:
    root = played()
    sought(root)
    sends = root.say("child/south", Outcome(id=3, subscription="south/1", cloud="elsewhere"))
    assert not sends  # it cannot be reached
    root.say("child/south", Unseek(id=8, subscription="south/1"))
    sends = root.say("child/south", Outcome(id=3, subscription="south/1"))
    assert [type(send.message) for send in sends] == [Release]


def test_nothing_is_said_about_a_promise_while_others_are_still_asked() -> None:
    root = played()
    root.silent = {"south"}
    sought(root)
    assert root.say("child/north", Outcome(id=3, subscription="south/1")) == []


def test_a_request_repeated_after_a_restart_confirms_with_all_leaves_before_it_is_granted() -> None:
    root = played()
    sought(root)
    root.start()
    root.join("north", "south")
    sends = root.settle(root.say("child/south", seek("south/1", "plant/load", "south", "s1", number=2)))
    assert [type(send.message) for send in sends] == [Commit, Commit, Granted]


def test_an_end_that_was_under_way_is_finished_after_a_restart() -> None:
    root = played()
    sought(root)
    root.say("child/south", Unseek(id=8, subscription="south/1", reason="bye"))
    root.start()
    sends = root.settle(root.join("north", "south"))
    assert {(to, message.reason) for to, message in messages(sends, Release)} == {
        ("child/north", "bye"), ("child/south", "bye"),
    }  # fmt: skip
    assert ("decision", "south/1") not in root.store


def test_a_key_whose_end_is_not_confirmed_is_sought_again_only_afterwards() -> None:
    root = played()
    sought(root)
    ending = root.say("child/south", Unseek(id=8, subscription="south/1"))
    assert root.say("child/south", seek("south/1", "plant/load", "south", "s1", number=9)) == []
    sends = root.settle(ending)
    kinds = [type(send.message) for send in sends]
    assert kinds.index(Describe) > max(at for at, kind in enumerate(kinds) if kind is Release)
    assert isinstance(answer(sends, "child/south", 9), Granted)


def test_capacity_of_the_own_channels_is_kept_and_the_other_one_is_used_then() -> None:
    root = Played("root", TWO_CLOUDS, {})
    thin = 24 * 100 * 3.5  # room for three streams of 100 events a second
    for managed in root.broker.parts.view.managed_channels.values():
        managed.item.bytes_per_s = thin
        root.broker.parts.allocator.add_channel(managed.item.a, managed.item.b, thin, managed.item.latency_ns)
    root.join("north", "south")
    root.claim("plant", "north")
    for number in range(8):
        root.variables[f"plant/v{number}"] = (variable(f"plant/v{number}", number + 1), "n1")
    answers = []
    for number in range(8):
        sends = root.settle(root.say("child/south", seek(f"south/{number}", f"plant/v{number}", "south", "s1")))
        answers.append(answer(sends, "child/south", 5))
    assert [isinstance(one, Granted) for one in answers] == [True] * 6 + [False] * 2
    assert "bandwidth of the channel" in answers[-1].reason
    assert all(row["share"] <= 1 for row in root.broker.rows("loads"))


def test_many_subscriptions_are_under_way_at_once_and_never_overbook_a_channel() -> None:
    root = Played("root", TWO_CLOUDS, {})
    room = 24 * 100 * 40.5  # forty streams of 100 events a second on each of two channels
    for managed in root.broker.parts.view.managed_channels.values():
        managed.item.bytes_per_s = room
        root.broker.parts.allocator.add_channel(managed.item.a, managed.item.b, room, managed.item.latency_ns)
    root.join("north", "south")
    root.claim("plant", "north")
    root.variables = {f"plant/v{number}": (variable(f"plant/v{number}", number + 1), "n1") for number in range(100)}
    asked = []
    for number in range(100):
        asked += root.say("child/south", seek(f"south/{number}", f"plant/v{number}", "south", "s1", number=number))
    assert len(messages(asked, Describe)) == WINDOW  # nobody has answered yet, the others wait for their turn
    sends = root.settle(asked)
    granted, failed = messages(sends, Granted), messages(sends, Failed)
    assert (len(granted), len(failed)) == (80, 20)
    assert {message.id for _, message in granted + failed} == set(range(100))
    assert {row["share"] <= 1 for row in root.broker.rows("loads")} == {True}


@pytest.mark.spec("GS-089")
def test_a_channel_between_clouds_belongs_to_the_root_and_stays_while_a_subscription_uses_it() -> None:
    root = played()
    assert {(row["a"], row["b"], row["owner"]) for row in root.broker.rows("channels")} == {
        ("N2", "S2", "root"), ("N3", "S3", "root"),
    }  # fmt: skip
    asked = [message for _, message in sought(root) if isinstance(message, Ask)]
    used, other = ("2", "3") if "S2" in asked[-1].segments[0].routers else ("3", "2")
    refused = answer(root.say("operator/1", RemoveChannel(id=1, a=f"S{used}", b=f"N{used}")), "operator/1", 1)
    assert refused.code == "invalid"
    assert "uses the channel" in refused.reason
    root.settle(root.say("child/south", Unseek(id=8, subscription="south/1")))
    sends = root.settle(root.say("operator/1", RemoveChannel(id=2, a=f"S{used}", b=f"N{used}")))
    assert isinstance(answer(sends, "operator/1", 2), Done)
    assert {to for to, _ in messages(sends, RemoveChannel)} == {"child/north", "child/south"}
    asks = [message for _, message in sought(root, "south/2") if isinstance(message, Ask)]
    assert {segment.routers for ask in asks for segment in ask.segments} == {("n1", f"N{other}"), (f"S{other}", "s1")}
