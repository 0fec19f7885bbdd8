"""A managed node in a mesh: what its broker does not know comes through the mesh, and what it knows does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from chappe.machine import RECONNECT, Close
from chappe.wire import control
from chappe.wire.base import DemandTerm, Done, Failed, Qos
from chappe.wire.control import Announce, Demand, Retract, Variable, Watch, Watching
from chappe.wire.management import (
    Granted,
    Issued,
    Names,
    Path,
    Search,
    Setup,
    SubscribeRequest,
    Teardown,
    UnsubscribeRequest,
)
from tests.unit.core.control_table import Table
from tests.unit.core.edge_leaf import METER, READER, SLOW, SPEED, Leaf, asked

OTHER = Variable(0x900001, "plant", "speed", "float", 1, 1_000_000, 3, 0)  # of the same name, published in the mesh
SPEED_NAME = ("plant", "speed")
WAIT_NS = 20_000_000_000


@pytest.fixture
def table() -> Table:
    return Table(("west", "east"), managed=True, meshed=True, capabilities=("demand",))


@pytest.fixture
def leaf(table: Table) -> Leaf:
    leaf = Leaf(table)
    leaf.lead()
    table.attach("reader", READER)
    return leaf


def announce(table: Table, variable: Variable = OTHER, by: str = "west", origin: str = "u") -> list[Any]:
    """A neighbour in the mesh brings a variable; what is sent until nothing is left to do."""
    return settle(table, table.tell(by, Announce(variables=(variable,), origins=(origin,))))


def settle(table: Table, sent: Sequence[tuple[str, control.Message]] = ()) -> list[Any]:
    effects = []
    while table.core.busy:
        effects += table.core.work()
    return [*sent, *table.sent([*effects, *table.control.flush()])]


def refused(leaf: Leaf, **fields: Any) -> list[Any]:
    """A client watches a variable that the broker does not know; what everybody is sent then."""
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed", **fields)
    assert isinstance(request, SubscribeRequest)
    assert request.wait_ns == 0  # the node waits
    table = leaf.table
    return settle(table, table.tell(leaf.name, Failed(id=request.id, code="unknown", reason="nobody publishes it")))


def to(sent: Sequence[tuple[str, control.Message]], name: str, kind: type[control.Message]) -> list[Any]:
    return [message for receiver, message in sent if receiver == name and isinstance(message, kind)]


def test_what_the_broker_does_not_know_and_the_mesh_brings_is_watched_without_a_promise(
    table: Table, leaf: Leaf
) -> None:
    announce(table)
    sent = refused(leaf, interval_ns=5_000_000)
    (answer,) = to(sent, "reader", Watching)
    assert (answer.variable_id, answer.grants) == (OTHER.variable_id, ())
    assert to(sent, "west", Demand) == [Demand(wanted=((OTHER.variable_id, (DemandTerm(5_000_000, 3),)),))]
    assert to(sent, leaf.name, Search) == [Search(begin=("plant/speed",))]


def test_it_waits_for_the_mesh_and_the_broker_as_long_as_the_client_says(table: Table, leaf: Leaf) -> None:
    sent = refused(leaf, wait_ns=WAIT_NS)
    assert to(sent, leaf.name, Search) == [Search(begin=("plant/speed",))]
    assert to(sent, "reader", Failed) == []
    sent = settle(table, table.pass_time(21))
    assert [answer.code for answer in to(sent, "reader", Failed)] == ["unknown"]
    assert to(sent, leaf.name, Search) == [Search(end=("plant/speed",))]
    assert not table.core.control._registrations.awaited


def test_what_comes_by_the_mesh_ends_the_wait(table: Table, leaf: Leaf) -> None:
    refused(leaf, wait_ns=WAIT_NS)
    sent = announce(table)
    assert [answer.variable_id for answer in to(sent, "reader", Watching)] == [OTHER.variable_id]
    assert to(table.pass_time(21), "reader", Failed) == []


def test_what_the_broker_names_is_asked_of_it_once_more(table: Table, leaf: Leaf) -> None:
    refused(leaf, wait_ns=WAIT_NS)
    table.now_ns += 5_000_000_000
    sent = table.tell(leaf.name, Names(pattern="plant/speed", variables=(SPEED_NAME,)))
    (request,) = to(sent, leaf.name, SubscribeRequest)
    sent = table.tell(leaf.name, Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF))
    assert to(sent, leaf.name, Search) == [Search(end=("plant/speed",))]
    (answer,) = to(sent, "reader", Watching)
    assert (answer.variable_id, answer.grants) == (SPEED.variable_id, (SLOW,))


def test_the_wait_goes_on_when_what_was_named_is_gone_and_does_not_begin_again(table: Table, leaf: Leaf) -> None:
    refused(leaf, wait_ns=WAIT_NS)
    table.now_ns += 15_000_000_000
    sent = table.tell(leaf.name, Failed(id=known(leaf).id, code="unknown", reason="withdrawn"))
    assert settle(table, sent) == []  # above all it searches for it no second time: it would be named for ever
    assert len(to(table.pass_time(6), "reader", Failed)) == 1


def test_a_refusal_ends_the_wait(table: Table, leaf: Leaf) -> None:
    refused(leaf, wait_ns=WAIT_NS)
    sent = table.tell(leaf.name, Failed(id=known(leaf).id, code="capacity", reason="full"))
    (answer,) = to(sent, "reader", Failed)
    assert (answer.id, answer.code) == (7, "capacity")
    assert to(table.pass_time(21), "reader", Failed) == []


def known(leaf: Leaf) -> SubscribeRequest:
    """The broker names the variable; what it is asked for because of that."""
    sent = leaf.table.tell(leaf.name, Names(pattern="plant/speed", variables=(SPEED_NAME, ("plant", "other"))))
    (request,) = to(sent, leaf.name, SubscribeRequest)
    assert isinstance(request, SubscribeRequest)
    return request


def test_a_client_without_a_promise_connects_again_when_the_broker_grants_another_id(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    granted = Granted(id=known(leaf).id, variable=SPEED, grants=(SLOW,), modes=0xFFFF)
    effects = table.core.receive(table.ports[leaf.name], granted, table.now_ns)
    assert [(effect.to, effect.code) for effect in effects if isinstance(effect, Close)] == [
        (table.ports["reader"], RECONNECT)
    ]
    assert to(table.lose("reader"), leaf.name, Search) == [Search(end=("plant/speed",))]


def test_a_client_without_a_promise_is_told_what_is_granted_for_the_same_id(table: Table, leaf: Leaf) -> None:
    announce(table, SPEED)
    refused(leaf)
    sent = table.tell(leaf.name, Granted(id=known(leaf).id, variable=SPEED, grants=(SLOW,), modes=0xFFFF))
    assert [(answer.id, answer.grants) for answer in to(sent, "reader", Watching)] == [(0, (SLOW,))]
    assert to(sent, "west", Demand) == [Demand(wanted=((SPEED.variable_id, ()),))]
    assert to(sent, leaf.name, Search) == [Search(end=("plant/speed",))]


@pytest.mark.parametrize("code", ["unknown", "capacity"])
def test_what_the_broker_names_and_does_not_grant_goes_on_without_a_promise(
    table: Table, leaf: Leaf, code: str
) -> None:
    announce(table)
    refused(leaf)
    assert table.tell(leaf.name, Failed(id=known(leaf).id, code=code, reason="because")) == []
    known(leaf)  # asked again when it is named again


def test_a_grant_for_what_was_given_up_meanwhile_is_given_back(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    request = known(leaf)
    table.tell("reader", control.Unwatch(id=8, variable_id=OTHER.variable_id))
    sent = table.tell(leaf.name, Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF))
    assert [message.variable_id for message in to(sent, leaf.name, UnsubscribeRequest)] == [SPEED.variable_id]


def granted(leaf: Leaf, request: SubscribeRequest) -> list[Any]:
    """The broker grants that; what everybody is sent then."""
    answer = Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF)
    return settle(leaf.table, leaf.table.tell(leaf.name, answer))


def test_a_grant_for_a_client_that_has_gone_is_kept_until_it_is_back(table: Table, leaf: Leaf) -> None:
    """As when the mesh brings the new id of a publisher that has moved before the broker has answered."""
    announce(table)
    refused(leaf)
    request = known(leaf)
    table.lose("reader")
    assert to(granted(leaf, request), leaf.name, UnsubscribeRequest) == []
    table.attach("reader", READER)
    sent = table.tell("reader", Watch(id=9, publisher="plant", variable="speed"))
    assert [(answer.id, answer.grants) for answer in to(sent, "reader", Watching)] == [(9, (SLOW,))]


def test_a_grant_for_a_client_that_is_back_and_asks_again_is_not_given_back(table: Table, leaf: Leaf) -> None:
    """To the broker it is one client with one subscription: that of its new connection, too, would be over."""
    announce(table)
    refused(leaf)
    before = known(leaf)
    table.lose("reader")
    table.attach("reader", READER)
    again = asked(leaf, "reader", Watch, publisher="plant", variable="speed", wait_ns=WAIT_NS)
    sent = [*granted(leaf, before), *granted(leaf, again)]
    assert to(sent, leaf.name, UnsubscribeRequest) == []
    assert [(answer.variable_id, answer.grants) for answer in to(sent, "reader", Watching)] == [
        (SPEED.variable_id, (SLOW,))
    ]


def test_a_grant_for_what_was_given_up_and_is_asked_for_again_is_not_given_back(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    before = known(leaf)
    table.tell("reader", control.Unwatch(id=8, variable_id=OTHER.variable_id))
    again = asked(leaf, "reader", Watch, publisher="plant", variable="speed", wait_ns=WAIT_NS)
    sent = [*granted(leaf, before), *granted(leaf, again)]
    assert to(sent, leaf.name, UnsubscribeRequest) == []
    assert [answer.grants for answer in to(sent, "reader", Watching)] == [(SLOW,)]


def test_what_the_broker_names_twice_is_granted_once(table: Table, leaf: Leaf) -> None:
    announce(table, SPEED)
    refused(leaf)
    sent = [message for request in [known(leaf), known(leaf)] for message in granted(leaf, request)]
    assert to(sent, leaf.name, UnsubscribeRequest) == []
    assert [answer.grants for answer in to(sent, "reader", Watching)] == [(SLOW,)]


def test_a_client_that_has_the_port_of_one_that_has_gone_is_left_alone(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    request = known(leaf)
    port = table.ports["reader"]
    table.lose("reader")
    table.attach("other", METER)
    assert table.ports["other"] == port
    other = asked(leaf, "other", Watch, publisher="plant", variable="speed")
    table.tell(leaf.name, Failed(id=other.id, code="unknown", reason="nobody publishes it"))
    answer = Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF)
    effects = table.core.receive(table.ports[leaf.name], answer, table.now_ns)
    assert not [effect for effect in effects if isinstance(effect, Close)]


def test_a_watch_that_the_broker_grants_takes_the_place_of_one_without_a_promise(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed", qos=(Qos(),))
    sent = table.tell(leaf.name, Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF))
    assert [answer.variable_id for answer in to(sent, "reader", Watching)] == [SPEED.variable_id]
    assert to(sent, leaf.name, Search) == [Search(end=("plant/speed",))]
    assert to(sent, "west", Demand) == [Demand(wanted=((OTHER.variable_id, ()),))]
    session = table.core.sessions.get(table.ports["reader"])
    assert session is not None
    assert session.watched == {SPEED.variable_id}


def test_what_was_not_promised_is_given_up_without_the_broker(table: Table, leaf: Leaf) -> None:
    announce(table)
    refused(leaf)
    sent = table.tell("reader", control.Unwatch(id=8, variable_id=OTHER.variable_id))
    assert to(sent, "reader", Done) == [Done(id=8)]
    assert to(sent, "west", Demand) == [Demand(wanted=((OTHER.variable_id, ()),))]
    assert to(sent, leaf.name, Search) == [Search(end=("plant/speed",))]


def test_any_other_refusal_of_the_broker_stands(table: Table, leaf: Leaf) -> None:
    announce(table)
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed")
    (answer,) = leaf.answer(request, Failed, code="capacity", reason="full")
    assert (answer.code, answer.reason) == ("capacity", "full")


def test_what_a_broker_brings_is_not_demanded_in_the_mesh_too(table: Table, leaf: Leaf) -> None:
    path = Path(SPEED, 1, "east", "", (2_000_000,), (3,), 0xFFFF)
    assert isinstance(leaf.command(Setup, paths=(path,)), Done)
    announce(table, SPEED)
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed")
    sent = settle(table, table.tell(leaf.name, Granted(id=request.id, variable=SPEED, grants=(SLOW,), modes=0xFFFF)))
    assert to(sent, "west", Demand) == []
    number = SPEED.variable_id
    table.variables.mesh.offer(table.ports["east"], "east", (0, "u"), "plant/speed")
    assert to(settle(table), "east", Announce) == [Announce(variables=(SPEED,), origins=("u",))]
    sent = settle(table, table.tell("east", Demand(wanted=((number, (DemandTerm(8_000_000, 2),)),))))
    assert to(sent, "west", Demand) == [Demand(wanted=((number, (DemandTerm(8_000_000, 6),)),))]  # in the background


def test_what_comes_by_a_path_of_the_broker_alone_is_not_offered_in_the_mesh(table: Table, leaf: Leaf) -> None:
    """Its publisher's node offers it; else it would be published at every node that it passes."""
    leaf.command(Setup, paths=(Path(SPEED, 1, "west", "", (2_000_000,), (3,), 0xFFFF),))
    table.variables.mesh.offer(table.ports["east"], "east", (0, "n1"), "#")
    assert to(settle(table), "east", Announce) == []
    assert table.variables.mesh.publishers() == []
    announce(table, SPEED)
    assert table.variables.mesh.publishers() == []
    leaf.command(Teardown, paths=((SPEED.variable_id, 1),))
    assert to(settle(table, table.tell("west", Retract(variable_ids=(SPEED.variable_id,)))), "east", Announce) == []
    assert table.known() == set()


def test_what_the_broker_says_of_a_variable_counts_and_not_what_the_mesh_says(table: Table, leaf: Leaf) -> None:
    leaf.command(Setup, paths=(Path(SPEED, 1, "east", "", (2_000_000,), (3,), 0xFFFF),))
    announce(table, Variable(SPEED.variable_id, "plant", "speed", "int", 1, 10, 0, 0))
    entry = table.variables.directory.numbered(SPEED.variable_id)
    assert entry is not None
    assert entry.variable == SPEED


def test_a_variable_of_a_client_here_is_offered_in_the_mesh(table: Table, leaf: Leaf) -> None:
    request = asked(leaf, "reader", control.Register, publisher="plant", variable="speed", rate_num=1, rate_den=10)
    leaf.answer(request, Issued, variable_id=SPEED.variable_id)
    assert table.variables.mesh.publishers() == ["plant"]
    table.variables.mesh.offer(table.ports["east"], "east", (0, "n1"), "plant/#")
    (message,) = to(settle(table), "east", Announce)
    assert message.origins == ("n1",)


def test_with_a_broker_of_an_earlier_release_that_one_waits(table: Table) -> None:
    leaf = Leaf(table, finds=False)
    leaf.lead()
    table.attach("reader", READER)
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed", wait_ns=WAIT_NS)
    assert request.wait_ns == WAIT_NS


def test_outside_of_a_mesh_the_broker_waits_and_announcements_are_ignored() -> None:
    table = Table(("west",), managed=True)
    leaf = Leaf(table)
    leaf.lead()
    table.attach("reader", READER)
    announce(table)
    assert table.known() == set()
    request = asked(leaf, "reader", Watch, publisher="plant", variable="speed", wait_ns=WAIT_NS)
    assert request.wait_ns == WAIT_NS
    (answer,) = leaf.answer(request, Failed, code="unknown", reason="nobody publishes it")
    assert answer.reason == "nobody publishes it"
