"""The list of flooded variables: per mode, by rank, durable."""

from __future__ import annotations

import pytest

from chappe.status.flooding.floods import Floods
from chappe.wire.base import Variable

ALERT = Variable(5, "relay", "trip", "bool", 1, 10_000_000, 0, 0)
OTHER = Variable(4, "relay", "load", "float", 1, 10_000_000, 3, 0)


def levels(**modes: int) -> tuple[int, ...]:
    return tuple(modes.get(f"m{mode}", 0) for mode in range(16))


@pytest.mark.spec("GS-100")
def test_a_variable_has_a_level_in_each_mode_and_is_gone_when_no_mode_is_left() -> None:
    floods = Floods()
    assert floods.set(ALERT, 1, 0b0011, 1)
    assert floods.set(ALERT, 2, 0b0110, 1)
    assert floods.levels(5) == levels(m0=1, m1=2, m2=2)
    assert not floods.set(ALERT, 2, 0b0100, 1)
    assert floods.clear(5, 0b0010, 1)
    assert floods.levels(5) == levels(m0=1, m2=2)
    assert list(floods.variables()) == [ALERT]
    assert floods.clear(5, 0xFFFF, 1)
    assert list(floods.variables()) == []
    assert not floods.clear(5, 0xFFFF, 1)


@pytest.mark.spec("GS-101")
def test_the_word_of_a_parent_counts_more() -> None:
    floods = Floods()
    floods.set(ALERT, 3, 0b1, 3)
    assert not floods.set(ALERT, 1, 0b1, 1)
    assert floods.set(ALERT, 1, 0b11, 1)
    assert floods.levels(5) == levels(m0=3, m1=1)
    assert floods.overruled(5, 0b11, 1) == 0b1
    assert floods.clear(5, 0b11, 1)
    assert floods.levels(5) == levels(m0=3)
    floods.set(ALERT, 1, 0b10, 1)
    assert floods.clear(5, 0b11, 3)
    assert floods.levels(5) == levels()


def test_a_higher_rank_may_lower_the_level() -> None:
    floods = Floods()
    floods.set(ALERT, 2, 0b1, 2)
    assert floods.set(ALERT, 1, 0b1, 3)
    assert floods.levels(5) == levels(m0=1)


def test_what_is_dumped_is_loaded() -> None:
    floods, again = Floods(), Floods()
    floods.set(ALERT, 2, 0b101, 2)
    floods.set(OTHER, 1, 0b1, 1)
    for variable in floods.variables():
        value = floods.dump(variable.variable_id)
        assert value is not None
        again.load(value)
    assert list(again.variables()) == [OTHER, ALERT]
    assert again.levels(5) == floods.levels(5)
    assert again.ranks(5) == floods.ranks(5)
    assert floods.dump(77) is None


def test_groups_tell_another_list_the_same() -> None:
    floods, again = Floods(), Floods()
    floods.set(ALERT, 2, 0b101, 2)
    floods.set(ALERT, 3, 0b1000, 3)
    for level, rank, modes in floods.groups(5):
        again.set(ALERT, level, modes, rank)
    assert (again.levels(5), again.ranks(5)) == (floods.levels(5), floods.ranks(5))


def test_a_variable_that_is_withdrawn_is_dropped_whatever_its_rank() -> None:
    floods = Floods()
    floods.set(ALERT, 2, 0b101, 9)
    assert floods.find("relay", "trip") == ALERT
    assert floods.drop(5)
    assert floods.find("relay", "trip") is None
    assert not floods.drop(5)
