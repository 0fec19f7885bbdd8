"""Clients look for variables by pattern: what is known, what comes, and who may look."""

from __future__ import annotations

import pytest

from chappe.security.config import Rule
from chappe.status.names import MOST
from chappe.wire import control
from chappe.wire.base import Done, Failed
from chappe.wire.control import Announce, Find, Found, Retract, Unfind, Variable
from chappe.wire.management import Names, Search
from tests.unit.core.control_table import Table
from tests.unit.core.edge_leaf import Leaf


def variable(number: int, name: str) -> Variable:
    publisher, _, short = name.partition("/")
    return Variable(number, publisher, short, "float", 1, 10**8, 3, 0)


def named(sent: list[tuple[str, control.Message]], client: str) -> list[str]:
    found = [message for to, message in sent if to == client and isinstance(message, Found)]
    return sorted("/".join(name) for message in found for name in message.variables)


def ask(table: Table, name: str, message: control.Message) -> list[tuple[str, control.Message]]:
    """What is sent because of a message, until the node has nothing left to do."""
    sent = table.tell(name, message)
    effects = []
    while table.core.busy:
        effects += table.core.work()
    return sent + table.sent(effects)


def test_what_is_known_is_named_and_what_comes_too() -> None:
    table = Table(("west",))
    table.tell("west", Announce(variables=(variable(5, "p/a"), variable(6, "p/b/c"), variable(7, "q/a"))))
    table.client("reader")
    sent = ask(table, "reader", Find(id=1, pattern="p/#"))
    assert sent[0] == ("reader", Done(id=1))
    assert named(sent, "reader") == ["p/a", "p/b/c"]
    sent = ask(table, "west", Announce(variables=(variable(8, "p/d"), variable(9, "q/d"), variable(5, "p/a"))))
    assert named(sent, "reader") == ["p/d"]
    table.client("p")
    assert named(ask(table, "p", control.Register(id=1, publisher="p", variable="e")), "reader") == ["p/e"]


def test_what_comes_back_is_named_again_though_it_was_watched_all_the_time() -> None:
    table = Table(("west",))
    table.client("reader")
    ask(table, "reader", Find(id=1, pattern="+/a"))
    assert named(ask(table, "west", Announce(variables=(variable(5, "p/a"),))), "reader") == ["p/a"]
    table.tell("reader", control.Watch(id=2, publisher="p", variable="a"))
    ask(table, "west", Retract(variable_ids=(5,)))
    assert named(ask(table, "west", Announce(variables=(variable(5, "p/a"),))), "reader") == ["p/a"]


def test_what_nobody_publishes_is_not_named() -> None:
    table = Table(("west",))
    table.client("other")
    table.client("reader")
    table.tell("west", Announce(variables=(variable(5, "p/a"),)))
    table.tell("other", control.Watch(id=2, publisher="p", variable="a"))
    table.tell("west", Retract(variable_ids=(5,)))
    assert named(ask(table, "reader", Find(id=1, pattern="#")), "reader") == []


def test_two_clients_and_two_patterns_hear_what_each_asked_for() -> None:
    table = Table(("west",))
    for client in ("one", "two"):
        table.client(client)
        ask(table, client, Find(id=1, pattern="p/#"))
    ask(table, "two", Find(id=2, pattern="q/#"))
    sent = ask(table, "west", Announce(variables=(variable(5, "p/a"), variable(6, "q/a"))))
    assert named(sent, "one") == ["p/a"]
    assert named(sent, "two") == ["p/a", "q/a"]
    assert ask(table, "two", Unfind(id=3, pattern="p/#")) == [("two", Done(id=3))]
    table.leave("one")
    sent = ask(table, "west", Announce(variables=(variable(7, "p/b"), variable(8, "q/b"))))
    assert named(sent, "two") == ["q/b"]
    assert ask(table, "two", Unfind(id=4, pattern="q/#")) == [("two", Done(id=4))]
    assert table.variables.came is None  # nothing is kept for anybody


def test_thousands_are_named_in_slices_and_messages_of_bounded_size() -> None:
    table = Table(("west",))
    for block in range(50):
        table.tell("west", Announce(variables=tuple(variable(1 + block * 100 + at, f"p/{block * 100 + at}")
                                                    for at in range(100))))  # fmt: skip
    table.client("reader")
    table.tell("reader", Find(id=1, pattern="p/#"))
    turns = []
    while table.core.busy:
        turns.append(table.sent(table.core.work()))
    assert len([turn for turn in turns if turn]) >= 3
    messages = [message for turn in turns for _, message in turn]
    assert all(len(message.variables) <= 100 for message in messages if isinstance(message, Found))
    assert len(set(named([each for turn in turns for each in turn], "reader"))) == 5_000


@pytest.mark.parametrize(
    ("pattern", "part"),
    [("", "must not be empty"), ("a/#/b", "#"), ("int:5", "no pattern over publisher/variable"), ("x" * 2000, "1024")],
)
def test_a_pattern_that_makes_no_sense_is_refused(pattern: str, part: str) -> None:
    table = Table()
    table.client("reader")
    answer = table.ask("reader", Find, pattern=pattern)
    assert isinstance(answer, Failed)
    assert answer.code == "invalid"
    assert part in answer.reason


def test_a_pattern_counts_for_the_limit_of_subscriptions() -> None:
    table = Table(subscriptions=2)
    table.client("reader")
    for pattern in ("a/#", "b/#", "a/#"):
        assert isinstance(table.ask("reader", Find, pattern=pattern), Done)
    answer = table.ask("reader", Find, pattern="c/#")
    assert (answer.code, "limits.subscriptions" in answer.reason) == ("limit", True)
    table.ask("reader", Unfind, pattern="a/#")
    assert isinstance(table.ask("reader", Find, pattern="c/#"), Done)
    assert table.ask("reader", Unfind, pattern="a/#").code == "unknown"


def test_the_right_to_watch_must_hold_for_the_whole_pattern() -> None:
    table = Table(rules=(Rule("watch", "p/#"),))
    table.client("reader")
    assert isinstance(table.ask("reader", Find, pattern="p/x/#"), Done)
    answer = table.ask("reader", Find, pattern="#")
    assert answer.code == "denied"


def searches(sent: list[tuple[str, control.Message]], broker: str = "leaf-1") -> list[Search]:
    return [message for to, message in sent if to == broker and isinstance(message, Search)]


def test_a_managed_node_asks_its_broker_for_names_and_repeats_it_to_whoever_leads() -> None:
    table = Table(managed=True)
    leaf = Leaf(table)
    table.client("reader")
    sent = ask(table, "reader", Find(id=1, pattern="p/#"))
    assert (sent, searches(sent)) == ([("reader", Done(id=1))], [])  # nobody leads
    assert leaf.lead()[1:] == [Search(begin=("p/#",))]
    assert named(ask(table, "leaf-1", Names(pattern="p/#", variables=(("p", "a"), ("q", "a")))), "reader") == ["p/a"]
    second = Leaf(table, "leaf-2", epoch=2)
    assert second.lead()[1:] == [Search(begin=("p/#",))]
    assert named(ask(table, "leaf-1", Names(pattern="p/#", variables=(("p", "b"),))), "reader") == []
    assert named(ask(table, "leaf-2", Names(pattern="#", variables=(("p", "b"), ("p", "b")))), "reader") == ["p/b"]


def test_a_broker_hears_of_a_pattern_until_the_last_client_that_looks_for_it_is_gone() -> None:
    table = Table(managed=True)
    Leaf(table).lead()
    for client in ("one", "two"):
        table.client(client)
        assert searches(ask(table, client, Find(id=1, pattern="p/#"))) == [Search(begin=("p/#",))]  # all names again
    assert searches(ask(table, "one", Find(id=2, pattern="p/#"))) == [Search(begin=("p/#",))]
    assert searches(ask(table, "one", Unfind(id=3, pattern="p/#"))) == []
    assert searches(table.lose("two")) == [Search(end=("p/#",))]
    assert ask(table, "leaf-1", Names(pattern="p/#", variables=(("p", "a"),))) == []


def test_a_node_that_looks_for_very_many_patterns_searches_for_everything() -> None:
    table = Table(managed=True, subscriptions=1000)
    Leaf(table).lead()
    table.client("reader")
    for number in range(MOST):
        ask(table, "reader", Find(id=number, pattern=f"p{number}/#"))
    sent = searches(ask(table, "reader", Find(id=1, pattern="q/#")))
    assert [len(message.end) for message in sent] == [100, 100, 56, 0]
    assert sent[-1] == Search(begin=("#",))
    assert named(ask(table, "leaf-1", Names(pattern="#", variables=(("p7", "a"), ("x", "a")))), "reader") == ["p7/a"]
    sent = searches(ask(table, "reader", Unfind(id=1, pattern="q/#")))
    assert sent[0] == Search(end=("#",))
    assert sum(len(message.begin) for message in sent) == MOST


def test_a_broker_of_an_earlier_release_finds_nothing_and_is_not_asked() -> None:
    table = Table(managed=True)
    Leaf(table, finds=False).lead()
    table.client("reader")
    answer = table.ask("reader", Find, pattern="p/#")
    assert (answer.code, "earlier release" in answer.reason) == ("unsupported", True)
