"""Variables go over a link as they are wanted behind it: what neighbours state, and what this node states to them."""

from __future__ import annotations

import pytest

from chappe.core.demand import combined, minimal, terms_by_mode
from chappe.wire import control
from chappe.wire.constants import ALL_MODES
from chappe.wire.control import Announce, Demand, DemandTerm, Retract, Variable
from chappe.wire.frames import Kind, encode_frame
from chappe.wire.status import Record
from tests.unit.core.control_table import Table

SECOND = 1_000_000_000
TEN_HZ = (1, SECOND // 10)
STATES = ("demand",)


def variable(number: int, name: str, rate: tuple[int, int] = TEN_HZ) -> Variable:
    publisher, _, short = name.partition("/")
    return Variable(number, publisher, short, "float", *rate, 3, 0)


def value_of(number: int) -> bytes:
    return encode_frame(Kind.STATUS, Record(1_000, number, bytes(8)).encode())


def chain(**more: object) -> Table:
    """West announces, east is announced to; both state what they want."""
    return Table(("west", "east"), {"#": ("east",)}, capabilities=STATES, **more)  # type: ignore[arg-type]


def served(table: Table, number: int, name: str) -> list[int]:
    """Every how many events go to a peer in mode 0."""
    port = table.engine.status.describe(number)["modes"].get(0, {}).get(table.ports[name])
    return list(port["intervals"]) if port is not None else []


def demands(sent: list[tuple[str, control.Message]], name: str) -> dict[int, tuple[DemandTerm, ...]]:
    return {
        number: terms
        for to, message in sent
        if to == name and isinstance(message, Demand)
        for number, terms in message.wanted
    }


def test_what_nobody_wants_is_announced_and_not_sent() -> None:
    table = chain()
    sent = table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert sent == [("east", Announce(variables=(variable(5, "p/a"),)))]
    assert served(table, 5, "east") == []


def test_a_neighbour_gets_what_it_wants_and_the_one_before_hears_of_it() -> None:
    table = chain()
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    term = DemandTerm(SECOND)
    assert table.tell("east", Demand(wanted=((5, (term,)),))) == [("west", Demand(wanted=((5, (term,)),)))]
    assert served(table, 5, "east") == [10]
    assert table.tell("east", Demand(wanted=((5, ()),))) == [("west", Demand(wanted=((5, ()),)))]
    assert served(table, 5, "east") == []


def test_a_link_carries_the_fewest_intervals_that_are_wanted_behind_it() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("east", Demand(wanted=((5, (DemandTerm(SECOND), DemandTerm(3 * SECOND // 10))),)))
    sent = table.tell("reader", control.Watch(id=1, publisher="p", variable="a", interval_ns=2 * SECOND))
    assert demands(sent, "west") == {}  # every second value is taken in already
    sent = table.tell("reader", control.Watch(id=1, publisher="p", variable="a", interval_ns=SECOND // 2))
    assert demands(sent, "west") == {5: (DemandTerm(3 * SECOND // 10), DemandTerm(SECOND // 2))}
    assert served(table, 5, "east") == [3, 10]
    sent = table.tell("reader", control.Unwatch(id=2, variable_id=5))
    assert demands(sent, "west") == {5: (DemandTerm(3 * SECOND // 10), DemandTerm(SECOND))}


def test_the_demand_of_a_client_that_left_is_over() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert demands(table.tell("reader", control.Watch(id=1, publisher="p", variable="a")), "west")
    assert demands(table.lose("reader"), "west") == {5: ()}


def test_what_is_demanded_before_it_is_announced_again_is_said_again() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("reader", control.Watch(id=1, publisher="p", variable="a"))
    again = table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert demands(again, "west") == {5: (DemandTerm(),)}
    table.tell("reader", control.Unwatch(id=2, variable_id=5))
    assert demands(table.tell("west", Announce(variables=(variable(5, "p/a"),))), "west") == {}
    table.tell("west", Retract(variable_ids=(5,)))
    assert "p/a" not in table.known()


def test_what_came_to_nothing_while_the_link_was_down_is_said_when_it_is_back() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("reader", control.Watch(id=1, publisher="p", variable="a"))
    table.disconnect("west")
    table.tell("reader", control.Unwatch(id=2, variable_id=5))
    table.connect("west", STATES, fresh=False)
    assert demands(table.tell("west", Announce(variables=(variable(5, "p/a"),))), "west") == {5: ()}


def test_a_neighbour_that_restarted_wants_nothing_until_it_says_so() -> None:
    table = chain()
    table.tell("west", Announce(variables=(variable(5, "p/a"), variable(6, "p/b"))))
    table.tell("east", Demand(wanted=((5, (DemandTerm(),)), (6, (DemandTerm(),)))))
    table.disconnect("east")
    table.connect("east", STATES, fresh=False)
    assert served(table, 5, "east") == [1]  # it has only lost its connection: streams go on
    table.disconnect("east")
    sent = table.connect("east", STATES)
    assert demands(sent, "west") == {5: (), 6: ()}
    assert served(table, 5, "east") == []
    table.tell("east", Demand(wanted=((6, (DemandTerm(),)),)))
    assert (served(table, 5, "east"), served(table, 6, "east")) == ([], [1])


def test_what_a_restarted_neighbour_states_at_once_is_not_forgotten_as_its_past() -> None:
    table = chain()
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("east", Demand(wanted=((5, (DemandTerm(),)),)))
    table.disconnect("east")
    table.variables.peer_up(table.ports["east"], True, table.now_ns, states=True)
    table.variables.demanded(table.ports["east"], [(5, (DemandTerm(SECOND),))])
    while table.variables.busy:
        table.core.work()
    assert served(table, 5, "east") == [10]


def test_a_neighbour_that_cannot_state_it_gets_all_of_its_paths_and_they_count() -> None:
    table = Table(("west", "east"), {"#": ("east",)})
    table.disconnect("west")
    table.connect("west", STATES)
    sent = table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert served(table, 5, "east") == [1]
    assert demands(sent, "west") == {5: (DemandTerm(),)}
    table.disconnect("east")
    sent = table.connect("east", STATES)  # upgraded
    assert served(table, 5, "east") == []
    assert demands(sent, "west") == {5: ()}
    table.disconnect("east")
    table.connect("east")  # and taken back
    assert served(table, 5, "east") == [1]


def test_a_static_path_thins_what_is_wanted_more_often() -> None:
    allowed = (DemandTerm(SECOND, 4, 0b0111),)
    assert combined(allowed, (DemandTerm(0, 1, 0b1110),)) == {DemandTerm(SECOND, 4, 0b0110)}
    assert combined(allowed, (DemandTerm(0, 6),)) == {DemandTerm(SECOND, 6, 0b0111)}
    assert combined(allowed, (DemandTerm(2 * SECOND, 1, 0b1000),)) == set()
    assert combined(allowed, (DemandTerm(2 * SECOND),)) == {DemandTerm(2 * SECOND, 4, 0b0111)}


def test_a_publisher_at_this_node_is_wanted_from_nobody_else() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("reader", control.Watch(id=1, publisher="p", variable="a"))
    table.client("p")
    sent = table.tell("p", control.Register(id=1, publisher="p", variable="a", rate_num=1, rate_den=SECOND // 10))
    assert demands(sent, "west") == {5: ()}
    assert demands(table.tell("p", control.Withdraw(id=2, variable_id=5)), "west") == {}  # its watches end with it


def test_between_two_that_announce_it_to_each_other_everything_goes() -> None:
    table = Table(("west", "east"), {"#": ("west", "east")}, capabilities=STATES)
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("east", Announce(variables=(variable(5, "p/a"),)))
    sent = table.tell("east", Demand(wanted=((5, (DemandTerm(SECOND),)),)))
    assert demands(sent, "west") == {5: (DemandTerm(),)}
    assert demands(sent, "east") == {5: (DemandTerm(),)}


def test_the_present_value_goes_to_a_neighbour_that_begins_to_want_a_variable() -> None:
    table = chain()
    table.client("reader")
    table.client("p")
    number = table.ask("p", control.Register, publisher="p", variable="a", rate_num=1, rate_den=SECOND).variable_id
    table.engine.feed(table.ports["p"], value_of(number))
    before = table.engine.port_counters(table.ports["east"])["status_out"]
    table.tell("east", Demand(wanted=((number, (DemandTerm(),)),)))
    assert table.engine.port_counters(table.ports["east"])["status_out"] == before + 1
    table.tell("east", Demand(wanted=((number, (DemandTerm(2 * SECOND),)),)))
    assert table.engine.port_counters(table.ports["east"])["status_out"] == before + 1


def test_a_value_that_came_before_nobody_wanted_it_is_not_the_present_one() -> None:
    table = chain()
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("reader", control.Watch(id=1, publisher="p", variable="a"))
    table.engine.feed(table.ports["west"], value_of(5))
    assert table.engine.status.last(5) is not None
    table.tell("reader", control.Unwatch(id=2, variable_id=5))
    assert table.engine.status.last(5) is None


@pytest.mark.parametrize(
    "term",
    [DemandTerm(-1), DemandTerm(1 << 63), DemandTerm(0, 7), DemandTerm(0, 3, 0), DemandTerm(0, 3, 1 << 16),
     DemandTerm((1 << 63) - 1)],
)  # fmt: skip
def test_terms_that_make_no_sense_change_nothing(term: DemandTerm) -> None:
    table = chain()
    table.tell("west", Announce(variables=(variable(5, "p/a", (30, SECOND)),)))
    table.tell("east", Demand(wanted=((5, (DemandTerm(SECOND),)),)))
    (reason,) = table.variables.demanded(table.ports["east"], [(5, (term,))])
    assert reason.startswith("p/a: ")
    assert served(table, 5, "east") == [30]


def test_a_variable_that_was_not_announced_cannot_be_demanded() -> None:
    table = Table(("west", "east"), {"q/#": ("east",)}, capabilities=STATES)
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert table.tell("east", Demand(wanted=((5, (DemandTerm(),)), (77, (DemandTerm(),))))) == []
    assert served(table, 5, "east") == []


def test_too_many_terms_are_everything() -> None:
    one = variable(5, "p/a", (1000, SECOND))
    primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]
    terms = [DemandTerm(prime * SECOND // 1000, 4) for prime in primes]
    assert minimal(one, terms) == tuple(terms)
    assert minimal(one, [*terms, DemandTerm(59 * SECOND // 1000, 2)]) == (DemandTerm(0, 2),)


def test_terms_are_minimal_in_modes_and_priorities_too() -> None:
    one = variable(5, "p/a")
    often, seldom = DemandTerm(SECOND // 5, 3, 0b01), DemandTerm(SECOND, 3, 0b11)
    assert minimal(one, [seldom, often]) == (often, seldom)  # of another mode, too
    assert minimal(one, [DemandTerm(SECOND, 1), DemandTerm(SECOND // 5, 3)]) == (
        DemandTerm(SECOND // 5, 3), DemandTerm(SECOND, 1)
    )  # fmt: skip
    assert minimal(variable(5, "p/a", (0, 1)), [DemandTerm(SECOND), DemandTerm(5)]) == (DemandTerm(5),)
    assert minimal(one, []) == ()


def test_a_watch_by_mode_becomes_a_term_for_each_interval() -> None:
    intervals = [SECOND if mode < 2 else 0 for mode in range(16)]
    assert terms_by_mode(intervals, [3], 0b0111) == {DemandTerm(SECOND, 3, 0b11), DemandTerm(0, 3, 0b100)}
    assert terms_by_mode([5], [2], ALL_MODES) == {DemandTerm(5, 2)}
