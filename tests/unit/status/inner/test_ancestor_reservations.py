"""Channels of a broker in the middle: whoever plans a path, their capacity is reserved where it is managed."""

from __future__ import annotations

import msgspec
import pytest

from chappe.machine import Connected
from chappe.wire.base import Done, Failed, Grant, Message, Qos
from chappe.wire.management import Ask, Commit, Granted, Lead, Map, Outcome, Release, RemoveChannel, Segment
from tests.support.forest import Forest
from tests.support.tree import THREE_LEVELS, Played, deployment, facts, messages, narrowed, seek, variable

TREE = {"root": "", "west": "root", "east": "root", "w1": "west", "w2": "west", "e1": "east"}
CLOUDS = {"w1": ("a1",), "w2": ("b1", "B2"), "e1": ("c1",)}
CHANNELS = ("a1-b1", "a1-B2:3", "B2-b1", "b1-c1")
ONE = narrowed(deployment(TREE, CLOUDS, CHANNELS), "a1-b1", "a1-B2")
"""Of west, with room for one stream each: a1-b1 and, slower, a1-B2. Of the root: b1-c1."""

DEEP = narrowed(
    deployment(TREE | {"top": "", "root": "top", "far": "top", "f1": "far"},
               CLOUDS | {"f1": ("d1",)}, (*CHANNELS, "c1-d1")),
    "a1-b1", "a1-B2", "b1-c1",
)  # fmt: skip
"""The same below one more level: what the top plans leads over channels of `root` and of `west`."""


def loads(forest: Forest, role: str) -> dict[str, float]:
    return {row["resource"]: max(row["load"]) for row in forest.inner(role).rows("loads") if max(row["load"])}


def end(forest: Forest, edge: str, number: int) -> None:
    router = forest.router(edge)
    router.unsubscribe(router.entities[f"reader.{edge}"], number)
    forest.plane.advance(1)


# --- trees of brokers -------------------------------------------------------------------------------------------


@pytest.mark.spec("GS-089")
@pytest.mark.parametrize("order", [("c1", "b1", "c1"), ("b1", "c1", "c1"), ("c1", "c1", "b1")])
def test_what_the_root_and_the_middle_plan_never_exceeds_a_channel_of_the_middle(order: tuple[str, ...]) -> None:
    forest = Forest(ONE)
    for number in range(3):
        forest.publish("a1", f"plant/load{number}")
    answers = [forest.granted(edge, f"plant/load{number}") for number, edge in enumerate(order)]
    assert [type(answer) for answer in answers] == [Granted, Granted, Failed]  # two channels with room for one each
    assert sorted(path.target for path in forest.router("a1").paths.values()) == ["B2", "b1"]
    refused = answers[2]
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
    assert refused.obstacle in ("channel/a1/b1", "channel/a1/B2")
    forest.check()


@pytest.mark.spec("GS-089")
def test_one_stream_of_the_root_and_of_the_middle_counts_once_until_the_last_of_them_ends() -> None:
    forest = Forest(ONE)
    number = forest.publish("a1", "plant/load")
    for edge in ("c1", "b1"):
        assert isinstance(forest.granted(edge, "plant/load"), Granted)
    assert loads(forest, "west") == {"channel/a1/b1": 2400}
    end(forest, "c1", number)
    assert loads(forest, "west") == {"channel/a1/b1": 2400}
    assert forest.inner("west").parts.ancestor_reservations.by_key == {}
    end(forest, "b1", number)
    assert loads(forest, "west") == {}
    forest.check()


@pytest.mark.parametrize("role", ["root", "west"])
def test_after_a_restart_a_channel_of_the_middle_is_as_full_as_before_and_is_set_free(role: str) -> None:
    forest = Forest(ONE)
    number = forest.publish("a1", "plant/load")
    assert isinstance(forest.granted("c1", "plant/load"), Granted)
    forest.plane.kill(role)
    forest.plane.start(role)
    forest.plane.advance(15)
    assert loads(forest, "west") == {"channel/a1/b1": 2400}
    forest.check()
    end(forest, "c1", number)
    assert loads(forest, "west") == {}
    forest.check()


@pytest.mark.spec("GS-089", "GS-090")
def test_a_broker_two_levels_up_asks_every_broker_below_for_its_channels() -> None:
    forest = Forest(DEEP)
    first, second = (forest.publish("a1", f"plant/load{number}") for number in range(2))
    assert isinstance(forest.granted("d1", "plant/load0"), Granted)
    assert loads(forest, "west") == {"channel/a1/b1": 2400}
    assert loads(forest, "root") == {"channel/b1/c1": 2400}
    refused = forest.granted("c1", "plant/load1")
    assert isinstance(refused, Failed)
    assert refused.obstacle == "channel/b1/c1"
    forest.check()
    forest.plane.kill("top")
    forest.plane.start("top")
    forest.plane.advance(15)
    end(forest, "d1", first)
    assert isinstance(forest.granted("c1", "plant/load1"), Granted)
    end(forest, "c1", second)
    assert [loads(forest, role) for role in ("top", "root", "west")] == [{}, {}, {}]
    forest.check()


@pytest.mark.spec("GS-089")
def test_a_channel_that_a_path_of_the_root_leads_over_cannot_be_removed() -> None:
    forest = Forest(ONE)
    number = forest.publish("a1", "plant/load")
    assert isinstance(forest.granted("c1", "plant/load"), Granted)
    operator = forest.plane.operator("west")
    request = operator.ask(RemoveChannel, a="a1", b="b1")
    forest.plane.settle()
    assert isinstance(operator.answers[request], Failed)
    end(forest, "c1", number)
    request = operator.ask(RemoveChannel, a="a1", b="b1")
    forest.plane.settle()
    assert isinstance(operator.answers[request], Done)


# --- one broker in the middle -----------------------------------------------------------------------------------


def middle() -> Played:
    west = Played("west", ONE)
    follow(west)
    west.join("w1", "w2")
    return west


def follow(west: Played) -> None:
    west.take(west.broker.receive("parent", Connected(), west.now_ns))
    west.say("parent", Lead(role="root", epoch=1))


def ask(key: str, number: int = 1, hop: tuple[str, str] = ("a1", "b1")) -> Ask:
    grants = (Grant(10_000_000, 1, 5_000_000, 1, 3, 6_000_000),) * 16
    segments = (Segment(hop, "", "", 0, 0xFFFF),)
    return Ask(id=7, subscription=key, variable=variable("plant/load", number), grants=grants, segments=segments,
               cloud="west")  # fmt: skip


def taken(west: Played) -> dict[str, float]:
    return {row["resource"]: max(row["load"]) for row in west.broker.rows("loads") if max(row["load"])}


def test_the_map_says_who_manages_which_channel() -> None:
    west = middle()
    told = messages(west.sent, Map)[-1][1]
    assert set(told.owners) == {("a1", "b1", "west"), ("a1", "B2", "west")}


def test_a_request_that_comes_twice_is_promised_once_and_another_one_under_its_key_replaces_it() -> None:
    west = middle()
    for _ in range(2):
        assert [send.message for send in west.say("parent", ask("e1/1"))] == [Done(id=7)]
    assert taken(west) == {"channel/a1/b1": 2400}
    west.say("parent", ask("e1/1", hop=("a1", "B2")))
    assert taken(west) == {"channel/a1/B2": 2400}
    for _ in range(2):
        sends = west.say("parent", Release(id=8, subscription="e1/1", cloud="west"))
        assert [send.message for send in sends] == [Done(id=8)]
    assert taken(west) == {}
    assert not [key for kind, key in west.store if kind == "promise"]


def test_what_has_no_room_is_down_or_is_not_managed_here_is_refused_by_its_name() -> None:
    west = middle()
    west.say("parent", ask("e1/1"))
    full = west.say("parent", ask("e1/2", number=2))[0].message
    assert isinstance(full, Failed)
    assert (full.id, full.code, full.obstacle) == (7, "capacity", "channel/a1/b1")
    foreign = west.say("parent", ask("e1/3", number=3, hop=("B2", "b1")))[0].message
    assert isinstance(foreign, Failed)
    assert (foreign.code, foreign.obstacle) == ("unavailable", "channel/B2/b1")
    seen = messages(west.sent, Map)[-1][1]
    down = tuple(msgspec.structs.replace(fact, up=False) for fact in seen.channels if {fact.a, fact.b} == {"a1", "B2"})
    west.say("child/w1", Map(routers=tuple(fact for fact in seen.routers if fact.cloud == "w1"), channels=down))
    away = messages(west.say("parent", ask("e1/4", number=4, hop=("a1", "B2"))), Failed)[0][1]
    assert (away.code, away.obstacle) == ("unavailable", "channel/a1/B2")
    assert taken(west) == {"channel/a1/b1": 2400}


def test_a_promise_without_outcome_is_asked_for_and_a_committed_one_is_not() -> None:
    west = middle()
    west.say("parent", ask("e1/1"))
    assert messages(west.pass_time(9), Outcome) == []
    asked = [("parent", Outcome(id=0, subscription="e1/1", cloud="west"))]
    assert messages(west.pass_time(1), Outcome) == asked
    west.start()
    follow(west)
    assert messages(west.pass_time(0), Outcome) == asked  # at once after a restart
    for _ in range(2):
        sends = west.say("parent", Commit(id=9, subscription="e1/1", cloud="west"))
        assert [send.message for send in sends] == [Done(id=9)]
    assert messages(west.pass_time(60), Outcome) == []
    west.start()
    follow(west)
    assert taken(west) == {"channel/a1/b1": 2400}
    assert messages(west.pass_time(60), Outcome) == []


def test_a_commit_of_what_was_never_promised_is_refused() -> None:
    west = middle()
    sends = west.say("parent", Commit(id=9, subscription="e1/1", cloud="west"))
    assert [send.message.code for send in sends if isinstance(send.message, Failed)] == ["unknown"]


# --- the broker that plans --------------------------------------------------------------------------------------


def planner(*owners: tuple[str, str, str], of: str = "west") -> Played:
    """The root over west and east, one of which says who manages its channels."""
    root = Played("root", THREE_LEVELS, {"plant/load": (variable("plant/load"), "a1")})
    root.join("west", "east")
    root.claim("plant", "w1")
    root.say(f"child/{of}", msgspec.structs.replace(facts(THREE_LEVELS, of), owners=owners))
    return root


def sought(root: Played) -> list[tuple[str, Message]]:
    """From a1 to d1: through all clouds if that is possible, else by the slow channel between the two."""
    fast = Qos(latency_ns=10_000_000, worst_latency_ns=50_000_000)
    sends = root.settle(root.say("child/east", seek("e2/1", "plant/load", "e2", "d1", fast)))
    return [(send.to, send.message) for send in sends]


WEST = (("A2", "b1", "west"), ("A2", "B2", "west"))


def test_a_broker_in_the_middle_is_asked_for_its_channels_and_one_that_does_not_say_is_not() -> None:
    asks = {message.cloud: message.segments for _, message in sought(planner(*WEST)) if isinstance(message, Ask)}
    assert asks["west"] == (Segment(("A2", "B2"), "", "", 0, 0xFFFF),)
    assert "west" not in {message.cloud for _, message in sought(planner()) if isinstance(message, Ask)}


def test_a_broker_in_the_middle_that_does_not_answer_is_planned_around() -> None:
    root = planner(*WEST)
    root.answers = lambda child, message: (
        Failed(id=message.id, reason="no answer", code="away")
        if isinstance(message, Ask) and message.cloud == "west" else None
    )  # fmt: skip
    sends = sought(root)
    assert isinstance(sends[-1][1], Granted)
    assert [row["routers"] for row in root.broker.rows("paths")] == [["a1", "d1"]]
    released = [message.cloud for _, message in sends if isinstance(message, Release)]
    assert "west" in released  # it may have promised all the same


def test_a_child_cannot_name_a_broker_that_is_not_below_it() -> None:
    for owner in ("west", "root"):
        root = planner(("C2", "d1", owner), of="east")
        assert {message.cloud for _, message in sought(root) if isinstance(message, Ask)} == {"w1", "w2", "e1", "e2"}
