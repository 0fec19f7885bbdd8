"""The interest of one node: limits, and what must be told."""

from __future__ import annotations

import pytest

from chappe.engine._topics import TopicError
from chappe.errors import RefusedError
from chappe.events.interest import Pattern, Subscriptions, Wanted, covers


def test_the_mesh_is_told_when_something_new_is_wanted() -> None:
    mine = Subscriptions()
    assert mine.add("s", "a/+")
    assert mine.patterns() == (Pattern("s", "a/+"),)
    assert not mine.add("s", "a/b")  # covered
    assert not mine.add("s", "a/+")  # the second one
    assert mine.add("s", "a/b", "g")  # for a group: somebody must know where its members are
    mine.patterns()
    assert not mine.remove("s", "a/+")
    assert mine.remove("s", "a/+")
    assert settled(mine) == (Pattern("s", "a/b"), Pattern("s", "a/b", "g"))


def test_what_is_wrong_changes_nothing() -> None:
    mine = Subscriptions(max_groups=1)
    mine.add("s", "a", "g")
    mine.patterns()
    stamp = mine.stamp
    with pytest.raises(TopicError, match="empty level"):
        mine.add("s", "a//b")
    with pytest.raises(TopicError, match="unknown kind"):
        mine.add("x", "a")
    with pytest.raises(TopicError, match="longer than 255"):
        Subscriptions().add("s", "a", "g" * 256)
    with pytest.raises(RefusedError, match="has 1 groups already"):
        mine.add("s", "b", "h")
    with pytest.raises(KeyError):
        mine.remove("s", "b")
    assert (len(mine), mine.stamp, mine.patterns()) == (1, stamp, (Pattern("s", "a", "g"),))
    mine.remove("s", "a", "g")
    mine.add("s", "b", "h")  # the place is free again


def test_who_wants_it_here() -> None:
    mine = Subscriptions()
    assert not mine.wants("s", b"a")
    mine.add("s", "a/#", filters=("x > 1",))
    mine.add("s", "a/#", filters=("x > 2",))
    mine.add("s", "a/b", "g")
    mine.add("l", "-7")
    assert mine.wants("s", b"a/b") == Wanted(True, ("g",))
    assert mine.wants("l", (-7).to_bytes(8, "big", signed=True)) == Wanted(True)
    assert not mine.wants("i", (-7).to_bytes(4, "big", signed=True))
    mine.remove("s", "a/#", filters=("x > 1",))
    assert mine.wants("s", b"a/b").plain
    mine.remove("s", "a/#", filters=("x > 2",))
    assert mine.wants("s", b"a/b") == Wanted(False, ("g",))


def settled(mine: Subscriptions) -> tuple[Pattern, ...]:
    while mine.due:
        mine.work()
    return mine.patterns()


def test_many_subscriptions_are_counted_in_little_time() -> None:
    """What is covered by the summary needs no new one: a hundred thousand subscriptions, few summaries."""
    mine = Subscriptions(limit=10)
    told = 0
    for number in range(20_000):
        if mine.add("s", f"plant/{number % 100}/{number}"):
            told += 1
            assert len(settled(mine)) <= 10
    assert told < 50


def test_a_summary_is_made_in_slices_and_until_then_more_is_told_and_never_less() -> None:
    mine = Subscriptions(limit=100)
    for number in range(150):
        assert mine.add("s", f"plant/{number}/+")
    for number in range(10_000):  # many more than can be told, before anybody had time to summarise
        mine.add("s", f"other/{number}")
        assert len(mine.patterns()) <= 200 + 64 + 1
    turns = 0
    while mine.due and turns < 100:
        mine.work()
        turns += 1
        if turns == 2:
            assert mine.add("s", "late/+")
        told = mine.patterns()
        assert any(covers(each, Pattern("s", "plant/7/+")) for each in told)
        assert any(covers(each, Pattern("s", "other/9999")) for each in told)
    assert len(settled(mine)) <= 100
    assert any(covers(each, Pattern("s", "late/+")) for each in mine.patterns())


def test_what_a_wildcard_covered_is_told_again_when_it_is_taken_back() -> None:
    mine = Subscriptions()
    for number in range(500):
        mine.add("s", f"plant/{number}")
    mine.add("s", "plant/#")
    assert mine.remove("s", "plant/#")
    assert Pattern("s", "plant/#") in mine.patterns()  # for now
    assert settled(mine) == tuple(sorted(Pattern("s", f"plant/{number}") for number in range(500)))
