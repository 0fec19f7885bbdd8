"""An edge between its clients and a scripted broker: what is relayed, what is answered here, who is believed."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.core import registrations
from chappe.core.edge import entity_of
from chappe.core.session import Session
from chappe.security.identity import dev_identity
from chappe.wire import control
from chappe.wire.control import Done, Failed, Grant, Qos, Registered, Variable, Watching
from chappe.wire.management import (
    Arrived,
    CommitMode,
    Condense,
    Entity,
    Granted,
    InformMode,
    Issued,
    Join,
    Lead,
    Left,
    LinkState,
    ModeState,
    Path,
    Publish,
    Setup,
    Standby,
    SubscribeRequest,
    Teardown,
    Uncondense,
    Unpublish,
    UnsubscribeRequest,
    Withdrawn,
)
from tests.unit.core.control_table import Table
from tests.unit.core.edge_leaf import FUNCTION, METER, RATE, READER, SLOW, SPEED, Leaf, asked


@pytest.fixture
def table() -> Table:
    return Table(("west", "east"), managed=True)


@pytest.fixture
def leaf(table: Table) -> Leaf:
    leaf = Leaf(table)
    leaf.lead()
    return leaf


def publish(leaf: Leaf, who: str = "meter") -> None:
    request = asked(leaf, who, control.Register, publisher="plant", variable="speed", **RATE)
    assert leaf.answer(request, Issued, variable_id=SPEED.variable_id) == [
        Registered(id=7, variable_id=SPEED.variable_id)
    ]


def watch(leaf: Leaf, who: str = "reader", **fields: Any) -> Watching:
    request = asked(leaf, who, control.Watch, publisher="plant", variable="speed", **fields)
    (answer,) = leaf.answer(request, Granted, variable=SPEED, grants=(SLOW,), modes=0xFFFF)
    assert isinstance(answer, Watching)
    return answer


# --- who leads


def test_every_process_of_the_role_is_joined_and_the_one_that_leads_again(table: Table) -> None:
    table.attach("meter", METER)
    one, two = Leaf(table, "leaf-1"), Leaf(table, "leaf-2", epoch=2)
    (join,) = one.joined
    assert join == Join(router="n1", issuer=bytes(16), entities=(Entity("meter", METER),), links=("east", "west"))
    table.tell("leaf-1", Standby(role="leaf"))
    assert two.joined == [join]
    (again,) = two.lead()
    assert isinstance(again, Join)
    assert again.epoch == 2
    assert two.lead() == []  # it says so to everybody more than once


def test_a_broker_of_an_older_epoch_is_not_believed(table: Table) -> None:
    old, new = Leaf(table, "leaf-1", epoch=1), Leaf(table, "leaf-2", epoch=2)
    new.lead()
    assert old.lead() == []
    assert old.command(Teardown, paths=()).code == "stale"
    table.attach("meter", METER)
    request = asked(new, "meter", control.Register, publisher="plant", variable="speed", **RATE)
    assert isinstance(request, Publish)


def test_a_broker_that_was_paused_answers_nobody_and_ends_nothing(table: Table) -> None:
    table.attach("meter", METER)
    old, new = Leaf(table, "leaf-1", epoch=1), Leaf(table, "leaf-2", epoch=2)
    old.lead()
    request = asked(old, "meter", control.Watch, publisher="plant", variable="speed")
    new.lead()
    assert old.answer(request, Failed, code="unknown", reason="I know nothing") == []
    (answer,) = new.answer(request, Granted, variable=SPEED, grants=(SLOW,), modes=0xFFFF)
    assert isinstance(answer, Watching)
    assert table.tell("leaf-1", Withdrawn(variable_id=SPEED.variable_id, reason="over")) == []
    assert table.known() == {"plant/speed"}


def test_a_broker_of_another_role_is_not_followed(table: Table) -> None:
    other, right = Leaf(table), Leaf(table, "leaf-2", epoch=1)
    assert table.tell("leaf-1", Lead(role="another", epoch=9)) == []
    assert len(right.lead()) == 1, "the epoch of another role says nothing"
    assert isinstance(right.command(Teardown, paths=()), Done)
    assert other.told(table.attach("meter", METER)) == []


def test_the_broker_is_told_about_links_and_clients(table: Table, leaf: Leaf) -> None:
    entity = Entity("meter", METER)
    assert leaf.told(table.attach("meter", METER)) == [Arrived(entity=entity)]
    assert leaf.told(table.lose("meter")) == [Left(entity=entity)]
    assert leaf.told(table.lose("east")) == [LinkState(peer="east", up=False)]


def test_a_client_that_calls_itself_by_a_name_that_is_not_its_own_is_another_entity(table: Table, leaf: Leaf) -> None:
    mallory = dev_identity("mallory", "client")
    session = Session(9, mallory.known_as("meter"), "client", mallory, METER)
    assert entity_of(session) == Entity("mallory/meter", METER)


# --- relaying


@pytest.mark.spec("GS-031", "GS-080")
def test_a_variable_gets_its_id_from_the_broker(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    fields = {**RATE, "slowest_ns": 5_000_000, "priority": 2}
    request = asked(leaf, "meter", control.Register, publisher="plant", variable="speed", **fields)
    assert request.entity == Entity("meter", METER)
    assert request.variable == Variable(0, "plant", "speed", "float", 1, 1_000_000, 2, 0, 5_000_000)
    assert table.known() == set()
    assert leaf.answer(request, Issued, variable_id=77) == [Registered(id=7, variable_id=77)]
    assert table.engine.status.describe(77)["inputs"] == [table.ports["meter"]]
    assert leaf.answer(request, Issued, variable_id=78) == []  # answered once


@pytest.mark.spec("GS-042", "GS-041")
def test_what_is_granted_is_what_the_table_does(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    qos = tuple(Qos(interval_ns=mode * 1_000_000) for mode in range(16))
    request = asked(leaf, "reader", control.Watch, publisher="plant", variable="speed", qos=qos, modes=0b11, wait_ns=9)
    assert (request.entity, request.qos, request.modes, request.wait_ns) == (Entity("reader", READER), qos, 3, 9)
    path = Path(SPEED, 1, "west", "", (2_000_000,), (3,), 0b11)
    assert isinstance(leaf.command(Setup, paths=(path,)), Done)
    grants = (SLOW, Grant(2_000_000, 2, 9, 1, 0), *[None] * 14)
    (answer,) = leaf.answer(request, Granted, variable=SPEED, grants=grants, modes=0b11)
    assert answer == Watching(
        id=7, variable_id=SPEED.variable_id, type="float", rate_num=1, rate_den=1_000_000, every=4, grants=grants
    )
    described = table.engine.status.describe(SPEED.variable_id)
    port = table.ports["reader"]
    assert described["inputs"] == [table.ports["west"]]
    assert {mode: ports[port] for mode, ports in described["modes"].items() if mode < 16} == {
        0: {"intervals": [4], "class": 1},
        1: {"intervals": [2], "class": 0},
    }


def test_a_watch_without_terms_asks_for_its_interval_by_one_way(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    fields = {"publisher": "plant", "variable": "speed", "interval_ns": 5, "priority": 1, "type": "float"}
    request = asked(leaf, "reader", control.Watch, **fields)
    assert (request.qos, request.type) == ((Qos(interval_ns=5, priority=1),), "float")


@pytest.mark.parametrize("code", ["capacity", "type", "unknown", "exists"])
def test_a_refusal_reaches_the_client_as_the_broker_said_it(table: Table, leaf: Leaf, code: str) -> None:
    table.attach("reader", READER)
    request = asked(leaf, "reader", control.Watch, publisher="plant", variable="speed")
    (answer,) = leaf.answer(request, Failed, code=code, reason="because", best=(SLOW,))
    assert answer == Failed(id=7, code=code, reason="because", best=(SLOW,))
    assert table.known() == set()


def test_what_is_withdrawn_and_unwatched_is_gone_everywhere(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    table.attach("reader", READER)
    publish(leaf)
    watch(leaf)
    request = asked(leaf, "reader", control.Unwatch, variable_id=SPEED.variable_id)
    assert request == UnsubscribeRequest(id=request.id, entity=Entity("reader", READER), variable_id=SPEED.variable_id)
    assert table.engine.status.describe(SPEED.variable_id)["paths"]  # until the broker says so
    assert leaf.answer(request, Done) == [Done(id=7)]
    request = asked(leaf, "meter", control.Withdraw, variable_id=SPEED.variable_id)
    assert request == Unpublish(id=request.id, entity=Entity("meter", METER), variable_id=SPEED.variable_id)
    assert leaf.answer(request, Done) == [Done(id=7)]
    assert (table.engine.status.entries(), table.known()) == (0, set())


def test_functions_are_relayed_with_their_creator(table: Table, leaf: Leaf) -> None:
    table.attach("maker", METER)
    request = asked(leaf, "maker", Condense, function=FUNCTION)
    assert (request.function, request.entity) == (FUNCTION, Entity("maker", METER))
    assert leaf.answer(request, Issued, variable_id=9) == [Issued(id=7, variable_id=9)]
    request = asked(leaf, "maker", Uncondense, publisher="area", variable="sum")
    assert request.entity == Entity("maker", METER)
    assert leaf.answer(request, Failed, code="denied", reason="not yours")[0].code == "denied"


# --- a broker that is away


@pytest.mark.spec("GS-151")
def test_requests_wait_for_a_leader_and_are_repeated_to_the_next(table: Table) -> None:
    table.attach("meter", METER)
    one = Leaf(table, "leaf-1", epoch=1)
    one.lead()
    request = asked(one, "meter", control.Register, publisher="plant", variable="speed", **RATE)
    table.lose("leaf-1")
    assert table.tell("meter", control.Register(id=8, publisher="plant", variable="heat", **RATE)) == []
    table.pass_time(9)
    two = Leaf(table, "leaf-2", epoch=2)
    join, *repeated = two.lead()
    assert isinstance(join, Join)
    assert repeated[0] == request
    assert [item.variable.variable for item in repeated if isinstance(item, Publish)] == ["speed", "heat"]
    assert two.answer(request, Issued, variable_id=5) == [Registered(id=7, variable_id=5)]


def test_without_a_leader_for_ten_seconds_a_request_fails_and_nothing_has_changed(table: Table) -> None:
    table.attach("meter", METER)
    leaf = Leaf(table)
    assert table.tell("meter", control.Register(id=8, publisher="plant", variable="heat", **RATE)) == []
    assert table.pass_time(9.9) == []
    ((to, answer),) = table.pass_time(0.2)
    assert (to, answer.id, answer.code) == ("meter", 8, "unavailable")  # type: ignore[attr-defined]
    assert table.known() == set()
    assert leaf.lead()[1:] == []


def test_a_client_has_not_more_than_so_many_requests_under_way(
    table: Table, leaf: Leaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registrations, "MAX_PENDING", 2)
    table.attach("meter", METER)
    first, _ = (asked(leaf, "meter", control.Register, publisher="p", variable=each, **RATE) for each in "ab")
    third = control.Register(id=9, publisher="p", variable="c", **RATE)
    ((to, refused),) = table.tell("meter", third)
    assert (to, refused.code, refused.id) == ("meter", "limit", 9)  # type: ignore[attr-defined]
    leaf.answer(first, Issued, variable_id=1)
    assert [type(message) for message in leaf.told(table.tell("meter", third))] == [Publish]


def test_a_broker_is_not_flooded_and_slow_answers_hold_nobody_up(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    sent = []
    for at in range(200):
        sent += leaf.told(table.tell("reader", control.Watch(id=at, publisher="plant", variable=f"v{at}", wait_ns=9)))
    assert len(sent) == 128
    more = leaf.told(table.tell("leaf-1", Failed(id=sent[0].id, code="unknown", reason="")))  # type: ignore[attr-defined]
    assert [want.variable for want in more] == ["v128"]  # type: ignore[attr-defined]
    assert table.pass_time(1.9) == []
    assert len(leaf.told(table.pass_time(0.2))) == 71
    table.lose("leaf-1")
    other = Leaf(table, "leaf-2", epoch=2)
    assert [want.variable for want in other.lead()[1:]] == [f"v{at}" for at in range(1, 129)]  # type: ignore[attr-defined]


@pytest.mark.spec("GS-151")
def test_a_router_forwards_on_without_its_broker(table: Table, leaf: Leaf) -> None:
    leaf.command(Setup, paths=(Path(SPEED, 1, "west", "east", (0,), (3,), 0xFFFF),))
    before = table.engine.status.describe(SPEED.variable_id)
    table.lose("leaf-1")
    table.pass_time(600)
    assert table.engine.status.describe(SPEED.variable_id) == before


# --- clients that come back


@pytest.mark.spec("GS-153")
def test_a_client_whose_link_failed_is_answered_here(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    table.attach("reader", READER)
    publish(leaf)
    granted = watch(leaf)
    table.lose("meter")
    table.lose("reader")
    table.attach("meter", METER)
    table.attach("reader", READER)
    registering = control.Register(id=8, publisher="plant", variable="speed", **RATE)
    assert table.tell("meter", registering) == [("meter", Registered(id=8, variable_id=SPEED.variable_id))]
    granted.id = 8
    assert table.tell("reader", control.Watch(id=8, publisher="plant", variable="speed")) == [("reader", granted)]
    described = table.engine.status.describe(SPEED.variable_id)
    assert described["inputs"] == [table.ports["meter"]]
    assert list(described["paths"].values()) == [table.ports["reader"]]


def test_a_client_that_gives_the_session_of_another_changes_nothing_for_that(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    publish(leaf)
    assert leaf.told(table.attach("mallory", METER)) == [Arrived(entity=Entity("mallory", METER))]
    registering = control.Register(id=8, publisher="plant", variable="speed", **RATE)
    ((to, refused),) = table.tell("mallory", registering)
    assert (to, refused.code) == ("mallory", "exists")  # type: ignore[attr-defined]
    assert table.tell("meter", registering) == [("meter", Registered(id=8, variable_id=SPEED.variable_id))]
    assert leaf.told(table.lose("meter")) == [Left(entity=Entity("meter", METER))]


def test_a_client_that_wants_something_else_is_not_answered_from_memory(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    watch(leaf)
    fields = {"publisher": "plant", "variable": "speed"}
    assert isinstance(asked(leaf, "reader", control.Watch, interval_ns=9_000_000, **fields), SubscribeRequest)


@pytest.mark.spec("GS-153")
def test_what_a_restarted_client_had_is_forgotten(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    publish(leaf)
    table.lose("meter")
    assert table.known() == {"plant/speed"}
    table.attach("meter", b"another session.")
    assert (table.known(), table.engine.status.entries()) == (set(), 0)
    request = asked(leaf, "meter", control.Register, publisher="plant", variable="speed", **RATE)
    assert request.entity == Entity("meter", b"another session.")


def test_a_client_that_is_away_for_too_long_has_to_ask_its_broker_again(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    publish(leaf)
    table.lose("meter")
    table.pass_time(61)
    assert table.known() == set()
    table.attach("meter", METER)
    asked(leaf, "meter", control.Register, publisher="plant", variable="speed", **RATE)


def test_an_answer_to_a_client_that_has_left_waits_for_it(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    request = asked(leaf, "reader", control.Watch, publisher="plant", variable="speed")
    table.lose("reader")
    assert leaf.answer(request, Granted, variable=SPEED, grants=(SLOW,), modes=0xFFFF) == []
    assert table.known() == set()
    table.attach("reader", READER)
    ((_, answer),) = table.tell("reader", control.Watch(id=9, publisher="plant", variable="speed"))
    assert (answer.id, answer.grants) == (9, (SLOW,))  # type: ignore[attr-defined]


def test_what_a_client_that_left_had_asked_for_is_not_repeated(table: Table) -> None:
    table.attach("reader", READER)
    table.attach("meter", METER)
    Leaf(table).lead()
    for who in ("reader", "meter"):
        table.tell(who, control.Watch(id=1, publisher="plant", variable=who))
    table.lose("reader")
    table.lose("leaf-1")
    other = Leaf(table, "leaf-2", epoch=2)
    assert [want.variable for want in other.lead()[1:]] == ["meter"]  # type: ignore[attr-defined]


def test_a_client_that_says_goodbye_is_gone_for_good(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)
    publish(leaf)
    assert leaf.told(table.tell("meter", control.Goodbye())) == []
    assert leaf.told(table.lose("meter")) == [Left(entity=Entity("meter", METER), gone=True)]
    assert (table.known(), table.engine.status.entries()) == (set(), 0)
    table.attach("meter", METER)
    table.lose("leaf-1")
    table.tell("meter", control.Goodbye())
    table.lose("meter")
    other = Leaf(table, "leaf-2", epoch=2)
    join, farewell = other.lead()
    assert (join.entities, farewell) == ((), Left(entity=Entity("meter", METER), gone=True))  # type: ignore[attr-defined]


@pytest.mark.spec("GS-154")
def test_a_restarted_edge_asks_its_broker_about_every_client_that_comes_back(table: Table, leaf: Leaf) -> None:
    table.attach("meter", METER)  # it was attached to the process before, its session says so
    request = asked(leaf, "meter", control.Register, publisher="plant", variable="speed", **RATE)
    assert request.entity == Entity("meter", METER)
    (answer,) = leaf.answer(request, Failed, code="exists", reason="meter is connected elsewhere")
    assert (answer.id, answer.code, table.known()) == (7, "exists", set())


# --- notices


@pytest.mark.spec("GS-053")
def test_subscribers_are_told_that_a_variable_was_withdrawn(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    table.attach("other", METER)
    watch(leaf)
    watch(leaf, "other")
    sent = table.tell("leaf-1", Withdrawn(variable_id=SPEED.variable_id, reason="over", entities=("reader",)))
    assert sent == [("reader", Withdrawn(variable_id=SPEED.variable_id, reason="over"))]
    sent = table.tell("leaf-1", Withdrawn(variable_id=SPEED.variable_id, reason="over"))
    assert sent == [("other", Withdrawn(variable_id=SPEED.variable_id, reason="over"))]
    assert (table.known(), table.engine.status.entries()) == (set(), 0)
    assert isinstance(asked(leaf, "reader", control.Watch, publisher="plant", variable="speed"), SubscribeRequest)


@pytest.mark.spec("GS-115")
def test_every_client_hears_of_a_mode_change_and_one_that_comes_in_between_too(table: Table, leaf: Leaf) -> None:
    table.attach("reader", READER)
    sent = table.tell("leaf-1", InformMode(id=1, epoch=1, command=1, mode=2))
    assert ("reader", ModeState(mode=0, next=2)) in sent
    assert ("late", ModeState(mode=0, next=2)) in table.attach("late", METER)
    sent = table.tell("leaf-1", CommitMode(id=2, epoch=1, command=2, mode=2))
    assert [message for to, message in sent if to in ("reader", "late")] == [ModeState(mode=2, next=2)] * 2
    assert [to for to, _ in table.attach("later", b"later-session...")] == ["leaf-1"]
