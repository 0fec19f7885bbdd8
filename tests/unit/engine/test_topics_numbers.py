"""Numbers and routes of the topic table: caching, interning, quarantine, limits."""

from __future__ import annotations

import pytest

from chappe.engine._memory import MemoryBudget
from chappe.engine._topics import TopicTable
from chappe.errors import RefusedError


def test_a_name_keeps_its_number_and_kinds_are_apart() -> None:
    table = TopicTable()
    numbers = [table.number("a"), table.number("b"), table.number(1, "i"), table.number(1, "l"), table.number("1")]
    assert numbers == [1, 2, 3, 4, 5]
    assert [table.number("a"), table.number(1, "l"), table.number("1", "i")] == [1, 4, 3]
    assert table.count() == 5


def test_equal_routes_are_one_object_across_topics() -> None:
    table = TopicTable()
    table.subscribe(1, "a/+")
    table.subscribe(2, "#")
    table.subscribe(1, "z")
    first, second, third, other = (table.number(topic) for topic in ("a/1", "a/2", "z", "b"))
    assert table.route(first)[0] == table.route(second)[0] == table.route(third)[0]
    assert table.route(other)[0] != table.route(first)[0]
    assert table.route(other)[1] == [2]


def test_backpressure_makes_another_route() -> None:
    table = TopicTable()
    table.subscribe(1, "a")
    table.subscribe(1, "b", backpressure=True)
    assert table.route(table.number("a"))[0] != table.route(table.number("b"))[0]


def test_routes_with_groups_are_one_per_topic() -> None:
    table = TopicTable()
    table.subscribe(1, "#", group="g")
    table.subscribe(2, "#", group="h")
    first, second = table.route(table.number("a")), table.route(table.number("b"))
    assert first[0] != second[0]
    pairs = [pair for route in (first, second) for pair, _, _ in route[3].values()]
    assert len(set(pairs)) == 4


def test_a_group_keeps_its_pair_number_over_changes() -> None:
    table = TopicTable()
    number = table.number("a")
    table.subscribe(1, "a", group="g")
    pair = table.route(number)[3]["g"][0]
    table.subscribe(2, "a", group="g")
    table.subscribe(3, "a")
    table.unsubscribe(1, "a", group="g")
    assert table.route(number)[1:] == ([3], [], {"g": (pair, [2], [])})


def test_a_route_follows_every_change_and_comes_back_as_the_same_object() -> None:
    table = TopicTable()
    number, twin = table.number("a/b"), table.number("a/c")
    table.subscribe(1, "a/+")
    before = table.route(number)
    assert table.route(twin)[0] == before[0]
    table.subscribe(2, "a/b")
    assert table.route(number)[1] == [1, 2]
    table.unsubscribe(2, "a/b")
    assert table.route(twin) == table.route(number)
    assert table.route(number)[1] == [1]


def test_nothing_is_allocated_while_nothing_changes() -> None:
    budget = MemoryBudget()
    table = TopicTable(budget=budget)
    table.subscribe(1, "a/+")
    table.subscribe(2, "#", group="g")
    numbers = [table.number(f"a/{i}") for i in range(50)]
    routes = [table.route(number) for number in numbers]
    before = budget.calls
    assert before > 0
    for _ in range(3):
        assert [table.number(f"a/{i}") for i in range(50)] == numbers
        assert [table.route(number) for number in numbers] == routes
    assert budget.calls == before
    table.stamp += 1  # a change that alters no route here: everything is computed again and found to be equal
    assert [table.route(number) for number in numbers] == routes
    assert budget.calls == before


def test_sweep_takes_names_without_holders_and_recycle_frees_their_numbers() -> None:
    table = TopicTable()
    kept, gone = table.number("kept"), table.number("gone")
    table.hold(kept)
    assert table.sweep() == 1
    assert table.name(gone) == ("s", b"gone", "")
    successor = table.number("gone")
    assert successor not in (kept, gone)
    assert table.number("new") not in (kept, gone, successor)
    assert table.recycle() == [gone]
    assert table.recycle() == []
    assert table.number("newest") == gone
    assert table.number("kept") == kept


def test_release_undoes_hold_and_no_more() -> None:
    table = TopicTable()
    number = table.number("a")
    table.hold(number)
    table.hold(number)
    table.release(number)
    assert table.sweep() == 0
    table.release(number)
    with pytest.raises(ValueError, match="released more often than held"):
        table.release(number)
    assert table.sweep() == 1


def test_a_number_held_after_the_sweep_is_not_recycled() -> None:
    table = TopicTable()
    number = table.number("a")
    table.sweep()
    table.hold(number)
    assert table.recycle() == []
    assert table.name(number) == ("s", b"a", "")
    table.release(number)
    assert table.recycle() == [number]


def test_pairs_live_as_long_as_a_route_names_them() -> None:
    table = TopicTable()
    number = table.number("a")
    table.hold(number)
    table.subscribe(1, "a", group="g")
    pair = table.route(number)[3]["g"][0]
    assert table.sweep() == 0
    table.unsubscribe(1, "a", group="g")
    assert table.sweep() == 0, "the cached route still names it"
    assert table.route(number)[3] == {}
    assert table.sweep() == 1
    assert table.name(pair) == ("s", b"a", "g")
    assert table.recycle() == [pair]


def test_pairs_follow_their_topic_into_quarantine() -> None:
    table = TopicTable()
    table.subscribe(1, "#", group="g")
    table.subscribe(2, "#", group="h")
    number = table.number("a")
    pairs = {pair for pair, _, _ in table.route(number)[3].values()}
    assert table.sweep() == 3
    assert set(table.recycle()) == {number, *pairs}
    assert table.count() == 0


def test_sweep_with_a_limit_goes_on_where_it_stopped() -> None:
    table = TopicTable()
    for i in range(10):
        table.number(f"a/{i}")
    assert [table.sweep(4), table.sweep(4), table.sweep(4)] == [4, 4, 2]
    assert len(table.recycle()) == 10


@pytest.mark.parametrize("number", [0, 2, 4_000_000_000])
def test_numbers_not_in_use_are_refused(number: int) -> None:
    table = TopicTable()
    table.number("a")
    for call in (table.hold, table.release, table.name, table.route):
        with pytest.raises(IndexError, match="not in use"):
            call(number)


def test_the_limit_counts_quarantined_numbers_too() -> None:
    table = TopicTable(max_topics=2)
    table.number("a")
    table.number("b")
    with pytest.raises(RefusedError, match="max_topics"):
        table.number("c")
    assert table.number("a") == 1
    table.sweep()
    with pytest.raises(RefusedError, match="all 2 are in use"):
        table.number("c")
    table.recycle()
    assert table.number("c") in (1, 2)


def test_a_group_without_a_pair_number_is_counted_and_gets_one_later() -> None:
    table = TopicTable(max_topics=1)
    number = table.number("a")
    table.hold(number)
    table.subscribe(1, "a", group="first")
    table.subscribe(2, "a", group="second")
    assert len(table.route(number)[3]) == 1
    assert table.overflows == 1
    table.unsubscribe(1, "a", group="first")
    table.route(number)
    table.sweep()
    table.recycle()
    assert [group[1] for group in table.route(number)[3].values()] == [[2]]


@pytest.mark.parametrize("max_topics", [0, -1, 2**31])
def test_impossible_limits_are_refused(max_topics: int) -> None:
    with pytest.raises((ValueError, OverflowError), match="max_topics"):
        TopicTable(max_topics=max_topics)


def test_a_removed_world_leaves_nothing_behind() -> None:
    table = TopicTable(seed=7)

    def life() -> int:
        for i in range(2000):
            table.subscribe(i % 7, f"a/{i}/{i * 31}", group="" if i % 3 else f"g{i % 50}")
            table.route(table.number(f"a/{i}/{i * 31}"))
        for port in range(7):
            assert table.remove_port(port, 10_000) == 0
        table.sweep()
        table.recycle()
        assert (table.count(), table.nodes(), table.subscriptions()) == (0, 0, 0)
        assert [table.patterns(port) for port in range(7)] == [[]] * 7
        return table.memory_bytes()

    assert life() == life()
