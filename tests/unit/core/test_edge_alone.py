"""What an edge decides by itself: its workers, its peers, and everything where no broker manages it."""

from __future__ import annotations

from typing import Any

import pytest

from chappe.wire import control
from chappe.wire.control import Done, Grant, Qos, Registered, Watching
from chappe.wire.management import (
    Displace,
    Path,
    Place,
    Setup,
    Teardown,
)
from tests.unit.core.control_table import Table
from tests.unit.core.edge_leaf import FUNCTION, METER, RATE, READER, SPEED, SUM, Leaf


@pytest.fixture
def table() -> Table:
    return Table(("west", "east"), managed=True)


@pytest.fixture
def leaf(table: Table) -> Leaf:
    leaf = Leaf(table)
    leaf.lead()
    return leaf


class Placed:
    """Functions that run nowhere."""

    def __init__(self) -> None:
        self.placed: list[int] = []

    def place(self, command: Place) -> str:
        self.placed.append(command.output.variable_id)
        return ""

    def displace(self, variable_id: int) -> str:
        self.placed.remove(variable_id)
        return ""

    def clear(self) -> None:
        self.placed.clear()

    def may(self, action: str, publisher: str, variable: str) -> bool:
        return action == "watch" or (publisher, variable) == ("area", "sum")


def test_a_worker_of_this_node_needs_no_broker(table: Table, leaf: Leaf) -> None:
    table.commands.functions = functions = Placed()
    place = Place(id=1, epoch=1, command=9, output=SUM, function=FUNCTION, inputs=(SPEED,))
    assert leaf.told(table.tell("leaf-1", place)) == [Done(id=1)]
    assert functions.placed == [SUM.variable_id]
    sent = table.attach("worker", METER, internal=True)
    sent += table.tell("worker", control.Register(id=1, publisher="area", variable="sum"))
    assert sent == [("worker", Registered(id=1, variable_id=99))]
    leaf.command(Setup, paths=(Path(SPEED, 1, "west", "", (0,), (3,), 0xFFFF),))
    sent = table.tell("worker", control.Watch(id=2, publisher="plant", variable="speed", interval_ns=2_000_000))
    ((to, answer),) = sent
    assert (to, answer.variable_id, answer.every) == ("worker", SPEED.variable_id, 2)  # type: ignore[attr-defined]
    table.lose("worker")
    assert table.known() == {"area/sum", "plant/speed"}
    assert isinstance(leaf.command(Displace, variable_id=99), Done)
    assert isinstance(leaf.command(Teardown, paths=((SPEED.variable_id, 1),)), Done)
    assert (table.known(), functions.placed) == (set(), [])


def test_peers_do_not_announce_to_a_managed_node(table: Table) -> None:
    table.tell("west", control.Announce(variables=(SPEED,)))
    assert table.known() == set()


# --- nodes without a broker


def test_without_a_broker_terms_are_granted_here_without_a_promise_of_latency() -> None:
    table = Table()
    table.client("meter")
    table.client("reader")
    number = table.ask("meter", control.Register, publisher="plant", variable="speed", **RATE).variable_id
    wanted = {"publisher": "plant", "variable": "speed"}
    answer = table.ask("reader", control.Watch, **wanted, qos=(Qos(interval_ns=2_500_000, latency_ns=9),))
    assert (answer.variable_id, answer.every, answer.grants) == (number, 2, (Grant(2_000_000, 2, 0, 1, 3),))
    assert table.ask("reader", control.Watch, **wanted).grants == ()
    refused = table.ask("reader", control.Watch, **wanted, qos=(Qos(redundancy=2),))
    assert (refused.code, refused.best) == ("capacity", (Grant(1_000_000, 1, 0, 1, 3),))
    relaxed = table.ask("reader", control.Watch, **wanted, qos=(Qos(redundancy=2, worst_redundancy=1),))
    assert relaxed.grants[0].redundancy == 1


def test_a_variable_of_another_type_is_refused() -> None:
    table = Table()
    table.client("meter")
    table.client("reader")
    table.ask("meter", control.Register, publisher="plant", variable="speed", type="int")
    answer = table.ask("reader", control.Watch, publisher="plant", variable="speed", type="float")
    assert (answer.code, "of type int, not float" in answer.reason) == ("type", True)
    assert isinstance(table.ask("reader", control.Watch, publisher="plant", variable="speed", type="int"), Watching)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"qos": (Qos(),) * 2}, "2 entries"),
        ({"qos": (Qos(redundancy=0),)}, "redundancy"),
        ({"qos": (Qos(redundancy=1, worst_redundancy=2),)}, "redundancy"),
        ({"qos": (Qos(interval_ns=-1),)}, "out of range"),
        ({"qos": (Qos(priority=7),)}, "priority"),
        ({"qos": (Qos(security=3),)}, "security"),
    ],
)
def test_impossible_terms_are_refused_before_anybody_is_asked(table: Table, fields: dict[str, Any], word: str) -> None:
    table.attach("reader", READER)
    answer = table.ask("reader", control.Watch, publisher="plant", variable="speed", **fields)
    assert (answer.code, word in answer.reason) == ("invalid", True)
