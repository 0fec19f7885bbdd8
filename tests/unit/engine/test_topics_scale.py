"""Cost of the topic table by counting its own work and memory, not by a clock."""

from __future__ import annotations

import pytest

from chappe.engine._topics import TopicTable

MANY = 200_000


def pattern(i: int) -> str:
    return f"site/{i % 500}/device/{i}/value"


@pytest.mark.spec("MR-134")
def test_adding_and_removing_cost_the_same_in_a_large_table() -> None:
    table = TopicTable()

    def work(first: int, count: int) -> float:
        before = table.steps()
        for i in range(first, first + count):
            assert table.subscribe(i % 1000, pattern(i))
        for i in range(first, first + count):
            assert table.unsubscribe(i % 1000, pattern(i))
        return (table.steps() - before) / count

    small = work(0, 2000)
    for i in range(MANY):
        table.subscribe(i % 1000, pattern(i))
    assert table.subscriptions() == MANY
    assert table.memory_bytes() < MANY * 250
    large = work(MANY, 2000)
    assert large < 2 * small + 20
    for i in range(0, MANY, 997):
        assert table.match(pattern(i)) == ([i % 1000], {})
    before = table.steps()
    for port in range(1000):
        assert table.remove_port(port, MANY) == 0
    assert (table.steps() - before) / MANY < 2 * small + 20
    assert table.nodes() == 0
    assert table.memory_bytes() < 1_000_000


def test_no_single_change_reorganises_the_table() -> None:
    table = TopicTable()
    worst, before = 0, table.steps()
    for i in range(MANY):
        table.subscribe(i % 1000, pattern(i))
        after = table.steps()
        worst, before = max(worst, after - before), after
    assert worst < 400


def test_removing_from_a_crowded_node_searches_nothing() -> None:
    table = TopicTable()
    for port in range(MANY):
        table.subscribe(port, "a/b")
    assert len(table.match("a/b")[0]) == MANY
    before = table.steps()
    for port in range(0, MANY, 20):
        assert table.unsubscribe(port, "a/b")
    assert (table.steps() - before) / (MANY // 20) < 60
    assert len(table.match("a/b")[0]) == MANY - MANY // 20


def test_matching_does_not_depend_on_the_number_of_subscriptions() -> None:
    table = TopicTable()
    costs = []
    for target in (100, 10_000, 50_000):
        for i in range(table.subscriptions(), target):
            table.subscribe(1, pattern(i))
        before = table.steps()
        for i in range(0, target, target // 100):
            assert table.match(pattern(i)) == ([1], {})
        costs.append((table.steps() - before) / 100)
    assert max(costs) < 3 * min(costs) + 10


def test_an_empty_table_is_small() -> None:
    assert TopicTable().memory_bytes() < 16 * 1024
