"""Variables as they come, go, return and move between nodes: what came in, what must go out."""

from __future__ import annotations

from chappe.core.sections import Route
from chappe.core.variables import static_routes
from chappe.machine import Close, Disconnected
from chappe.wire import control
from chappe.wire.control import Announce, Failed, Registered, Retract, Variable, Watching
from tests.unit.core.control_table import Table


def variable(number: int, name: str, rate: tuple[int, int] = (0, 1)) -> Variable:
    publisher, _, short = name.partition("/")
    return Variable(number, publisher, short, "float", *rate, 3, 0)


def inputs(table: Table, number: int) -> list[int]:
    return list(table.engine.status.describe(number)["inputs"])


def test_a_registered_variable_is_announced_where_its_path_leads() -> None:
    table = Table(("west", "east"), {"plant/#": ("east",)})
    table.client("p")
    sent = table.tell("p", control.Register(id=1, publisher="plant", variable="speed", rate_num=1, rate_den=10**9))
    (to_client, to_peer) = sent
    assert to_client == ("p", Registered(id=1, variable_id=to_client[1].variable_id))  # type: ignore[attr-defined]
    assert to_peer[0] == "east"
    assert isinstance(to_peer[1], Announce)
    assert [item.variable for item in to_peer[1].variables] == ["speed"]
    assert table.tell("p", control.Register(id=2, publisher="other", variable="x"))[1:] == []


def test_ids_are_of_the_leaf_and_the_same_in_whatever_order_publishers_come() -> None:
    publishers = [f"pmu-{number}" for number in range(20)]
    ids = []
    for order in (publishers, publishers[::-1]):
        table = Table()
        given = {}
        for publisher in order:
            table.client(publisher)
            for name in ("a", "b", "c"):
                answer = table.ask(publisher, control.Register, publisher=publisher, variable=name)
                given[publisher, name] = answer.variable_id
            assert given[publisher, "c"] == given[publisher, "a"] + 2
        assert {number >> 22 for number in given.values()} == {3}
        ids.append(given)
    assert ids[0] == ids[1]


def test_an_announced_variable_goes_on_but_not_back() -> None:
    table = Table(("west", "east"), {"#": ("west", "east")})
    sent = table.tell("west", Announce(variables=(variable(5, "plant/speed"),)))
    assert [(name, type(message)) for name, message in sent] == [("east", Announce)]
    assert inputs(table, 5) == [table.ports["west"]]


def test_a_second_source_makes_the_first_one_a_target_too() -> None:
    table = Table(("west", "east"), {"#": ("west", "east")})
    table.tell("west", Announce(variables=(variable(5, "plant/speed"),)))
    sent = table.tell("east", Announce(variables=(variable(5, "plant/speed"),)))
    assert ("west", Announce(variables=(variable(5, "plant/speed"),))) in sent
    assert sorted(inputs(table, 5)) == sorted([table.ports["west"], table.ports["east"]])


def test_a_changed_rate_reaches_those_who_know_the_variable() -> None:
    table = Table(("west", "east"), {"#": ("east",)})
    table.tell("west", Announce(variables=(variable(5, "plant/speed"),)))
    sent = table.tell("west", Announce(variables=(variable(5, "plant/speed", (1, 10**6)),)))
    assert sent == [("east", Announce(variables=(variable(5, "plant/speed", (1, 10**6)),)))]


def test_an_announcement_that_says_nothing_new_is_not_passed_on() -> None:
    table = Table(("west", "east"), {"#": ("east",)})
    table.tell("west", Announce(variables=(variable(5, "plant/speed"),)))
    assert table.tell("west", Announce(variables=(variable(5, "plant/speed"),))) == []


def test_a_neighbour_announces_so_many_variables_and_what_is_retracted_makes_room() -> None:
    table = Table(("west",), {}, announced=2)
    table.tell("west", Announce(variables=tuple(variable(number, f"plant/v{number}") for number in (5, 6, 7))))
    assert table.variables.announced_ids(table.ports["west"]) == {5, 6}
    assert table.core.access.neighbours.refused["west", "register"] == 1
    table.tell("west", Announce(variables=(variable(6, "plant/v6", (1, 10**6)), variable(8, "plant/v8"))))
    assert table.variables.announced_ids(table.ports["west"]) == {5, 6}
    entry = table.variables.directory.numbered(6)
    assert entry is not None
    assert entry.variable.rate_den == 10**6
    table.tell("west", Retract(variable_ids=(5,)))
    table.tell("west", Announce(variables=(variable(8, "plant/v8"),)))
    assert table.variables.announced_ids(table.ports["west"]) == {6, 8}


def test_what_is_retracted_disappears_unless_somebody_watches_it() -> None:
    table = Table(("west", "east"), {"#": ("east",)})
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"), variable(6, "p/b"))))
    assert isinstance(table.ask("reader", control.Watch, publisher="p", variable="b"), Watching)
    assert table.tell("west", Retract(variable_ids=(5, 6))) == [("east", Retract(variable_ids=(5,)))]
    assert table.known() == {"p/b"}
    assert inputs(table, 6) == []
    table.ask("reader", control.Unwatch, variable_id=6)
    assert table.known() == set()


def test_the_variables_of_a_client_that_left_wait_for_it_and_then_go() -> None:
    table = Table(("east",), {"#": ("east",)})
    table.client("p")
    number = table.ask("p", control.Register, publisher="p", variable="a").variable_id
    table.leave("p")
    table.pass_time(59)
    assert table.known() == {"p/a"}
    table.client("p")
    assert table.ask("p", control.Register, publisher="p", variable="a").variable_id == number
    table.pass_time(120)
    assert table.known() == {"p/a"}
    table.leave("p")
    sent = table.pass_time(61)
    assert table.known() == set()
    assert sent == [("east", Retract(variable_ids=(number,)))]


def test_ten_thousand_variables_of_one_client_leave_in_slices() -> None:
    table = Table()
    table.client("p")
    for number in range(3_000):
        table.tell("p", control.Register(id=number, publisher="p", variable=str(number)))
    port = table.ports.pop("p")
    table.engine.close_port(port)
    table.core.receive(port, Disconnected(), table.now_ns)
    rounds = 0
    while table.variables.busy:
        table.control.work()
        rounds += 1
    assert rounds >= 3
    assert not any(entry.published for entry in table.variables.directory.walk())


def test_a_restarted_peer_that_does_not_repeat_a_variable_loses_it() -> None:
    table = Table(("west",))
    port = table.ports["west"]
    table.tell("west", Announce(variables=(variable(5, "p/a"), variable(6, "p/b"))))
    table.variables.peer_down(port, table.now_ns)
    table.variables.peer_up(port, True, table.now_ns)
    table.tell("west", Announce(variables=(variable(6, "p/b"),)))
    table.pass_time(59)
    assert table.known() == {"p/a", "p/b"}
    table.pass_time(2)
    assert table.known() == {"p/b"}


def test_a_returning_peer_is_told_everything_again() -> None:
    table = Table(("east",), {"#": ("east",)})
    table.client("p")
    for name in "abc":
        table.tell("p", control.Register(id=1, publisher="p", variable=name))
    port = table.ports["east"]
    table.variables.peer_down(port, table.now_ns)
    table.tell("p", control.Register(id=1, publisher="p", variable="d"))
    table.variables.peer_up(port, False, table.now_ns)
    ((name, message),) = table.sent(table.control.flush())
    assert name == "east"
    assert isinstance(message, Announce)
    assert sorted(item.variable for item in message.variables) == ["a", "b", "c", "d"]


def test_many_variables_are_announced_in_messages_of_bounded_size() -> None:
    table = Table(("east",), {"#": ("east",)})
    table.client("p")
    table.variables.peer_down(table.ports["east"], table.now_ns)
    for number in range(2_500):
        table.tell("p", control.Register(id=1, publisher="p", variable=str(number)))
    table.variables.peer_up(table.ports["east"], False, table.now_ns)
    told: list[Variable] = []
    rounds = 0
    while table.variables.busy:
        rounds += 1
        for _, message in table.sent(table.control.flush()):
            assert isinstance(message, Announce)
            assert len(message.variables) <= 100
            told += message.variables
    assert rounds > 1
    assert len({item.variable_id for item in told}) == len(told) == 2_500


def test_a_name_that_comes_back_with_another_id_sends_its_watchers_to_ask_again() -> None:
    table = Table(("west",))
    reader = table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.ask("reader", control.Watch, publisher="p", variable="a")
    effects = table.control.receive(table.ports["west"], Announce(variables=(variable(6, "p/a"),)), table.now_ns)
    effects += table.control.flush()
    assert [(item.to, "new id" in item.reason) for item in effects if isinstance(item, Close)] == [(reader, True)]
    assert table.variables.directory.numbered(5) is None
    assert inputs(table, 6) == [table.ports["west"]]


def test_an_id_that_a_living_variable_has_is_not_given_to_another() -> None:
    table = Table(("west", "east"))
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    refused = table.variables.announced(table.ports["east"], [variable(5, "p/b"), variable(9, "p/a")])
    assert len(refused) == 2
    assert "node.leaf" in refused[0]
    assert "0x5 here and 0x9 there" in refused[1]
    assert table.known() == {"p/a"}
    assert inputs(table, 5) == [table.ports["west"]]


def test_other_paths_after_a_reload_leave_those_alone_that_stay() -> None:
    table = Table(("west", "east"), {"p/#": ("east",), "q/#": ("east",)})
    table.client("c")
    ids = {name: table.ask("c", control.Register, publisher=name, variable="x").variable_id for name in "pqr"}
    kept = table.engine.status.describe(ids["p"])["paths"]
    paths = (Route(variables="p/#", to=("east",)), Route(variables="r/#", to=("west",)))
    config = type(table.config)(peer=table.config.peer, path=paths)
    for _ in table.variables.reroute(static_routes(config)):
        pass
    sent = table.sent(table.control.flush())
    assert ("east", Retract(variable_ids=(ids["q"],))) in sent
    assert [name for name, message in sent if isinstance(message, Announce)] == ["west"]
    assert table.engine.status.describe(ids["p"])["paths"] == kept
    assert not table.engine.status.describe(ids["q"])["paths"]


def test_a_watch_that_waits_is_answered_when_a_peer_announces_its_variable() -> None:
    table = Table(("west",))
    table.client("reader")
    assert table.tell("reader", control.Watch(id=4, publisher="p", variable="a", wait_ns=10**9)) == []
    ((name, answer),) = table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    assert (name, type(answer)) == ("reader", Watching)
    assert table.tell("reader", control.Watch(id=5, publisher="p", variable="b", wait_ns=10**9)) == []
    assert table.pass_time(0.9) == []
    ((name, answer),) = table.pass_time(0.2)
    assert isinstance(answer, Failed)
    assert (name, answer.id, answer.code) == ("reader", 5, "unknown")
