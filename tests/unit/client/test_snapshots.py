"""Sets of values from one instant."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.client.snapshots import PENDING, Member, Rhythm, Rounds, Sample, Snapshot

MS = 1_000_000
A, B, C = ("p", "a"), ("p", "b"), ("p", "c")


def rhythm(period_ms: int, **intervals_ms: int) -> Rhythm:
    """`m0=100`: an interval of 100 ms in mode 0."""
    return Rhythm(Fraction(period_ms * MS), {int(mode[1:]): Fraction(ms * MS) for mode, ms in intervals_ms.items()})


def group(*members: Member, history: int = 8, period: int = 50, **intervals: int) -> Rounds:
    rounds = Rounds(history)
    for member in members:
        rounds.add(member, rhythm(period, **(intervals or {"m0": 100})))
    return rounds


def offer(rounds: Rounds, member: Member, ms: float, value: float = 0.0) -> Snapshot | None:
    return rounds.offer(member, Sample(value, round(ms * MS), round(ms * MS) + 1))


@pytest.mark.spec("GS-047", "GS-064")
def test_values_around_one_instant_make_a_set() -> None:
    rounds = group(A, B)
    assert offer(rounds, A, 110, 1.0) is None
    snapshot = offer(rounds, B, 90, 2.0)
    assert snapshot is not None
    assert (snapshot.nominal, dict(snapshot), snapshot.spread_ns) == (100 * MS, {A: 1.0, B: 2.0}, 20 * MS)
    assert snapshot.samples[B].created == 90 * MS
    assert list(rounds.complete) == [snapshot]


@pytest.mark.spec("GS-064")
@given(st.lists(st.integers(-24, 24), min_size=2, max_size=2), st.integers(1, 50))
def test_the_values_of_a_set_are_never_further_apart_than_the_publishing_interval(
    jitter: list[int], number: int
) -> None:
    rounds = group(A, B)
    offer(rounds, A, number * 100 + jitter[0])
    snapshot = offer(rounds, B, number * 100 + jitter[1])
    assert snapshot is not None
    assert (snapshot.nominal, snapshot.spread_ns < 50 * MS) == (number * 100 * MS, True)


@pytest.mark.spec("GS-064")
def test_members_of_different_rates_meet_on_the_grid_of_the_finest() -> None:
    rounds = Rounds()
    rounds.add(A, rhythm(10, m0=100))
    rounds.add(B, rhythm(50, m0=100))
    offer(rounds, A, 101)
    assert offer(rounds, B, 120) is None, "20 ms from the instant is near for B, but not for A"
    assert rounds.strays == 1
    assert offer(rounds, B, 104) is not None


@pytest.mark.spec("GS-047")
def test_history_keeps_the_newest_sets_and_incomplete_ones_are_counted() -> None:
    rounds = group(A, B, history=2)
    for number in range(1, 6):
        offer(rounds, A, number * 100, number)
        if number != 3:
            offer(rounds, B, number * 100, -number)
    assert [snapshot.nominal // MS for snapshot in rounds.complete] == [400, 500]
    assert rounds.discarded == 1
    assert offer(rounds, B, 300) is None, "older than the newest complete set"
    assert rounds.strays == 1


def test_a_member_that_is_silent_does_not_fill_the_memory() -> None:
    rounds = group(A, B)
    for number in range(1, 1001):
        offer(rounds, A, number * 100)
    assert rounds.discarded == 1000 - PENDING
    assert offer(rounds, B, 1000 * 100) is not None
    assert rounds.discarded == 999


@pytest.mark.spec("GS-049")
def test_members_come_and_go() -> None:
    rounds = group(A, B)
    offer(rounds, A, 100)
    rounds.add(C, rhythm(50, m0=100))
    assert offer(rounds, B, 100) is None, "the round that had begun is given up"
    assert (offer(rounds, A, 200), offer(rounds, B, 200)) == (None, None)
    assert offer(rounds, C, 200) is not None
    rounds.remove(B)
    offer(rounds, A, 300)
    snapshot = offer(rounds, C, 300)
    assert snapshot is not None
    assert set(snapshot) == {A, C}
    assert offer(rounds, B, 400) is None, "it is no member"


@pytest.mark.spec("GS-049")
def test_a_member_that_never_meets_the_others_is_refused_and_changes_nothing() -> None:
    rounds = group(A)
    with pytest.raises(
        ValueError, match=r"p/b comes every 0.09 s and p/a every 0.1 s in mode 0: choose a group interval"
    ):
        rounds.add(B, rhythm(30, m0=90))
    assert rounds.members == (A,)
    assert offer(rounds, A, 100) is not None


@pytest.mark.spec("GS-116")
@pytest.mark.parametrize(("old", "new"), [(100, 200), (200, 100)])
def test_while_a_mode_changes_only_the_instants_of_both_modes_count(old: int, new: int) -> None:
    rounds = group(A, B, m0=old, m1=new)
    rounds.modes(0, 1)
    complete = []
    for ms in range(100, 1000, 100):
        offer(rounds, A, ms)  # A may be on the old interval and B on the new one
        if ms % 200 == 0 and (snapshot := offer(rounds, B, ms)) is not None:
            complete.append(snapshot.nominal // MS)
    assert complete == [200, 400, 600, 800]
    rounds.modes(1, 1)
    assert offer(rounds, A, 1100) is None
    assert (offer(rounds, B, 1100) is not None) == (new == 100), "from the commit on the new interval"


@pytest.mark.spec("GS-116")
def test_rounds_that_are_not_on_the_coarser_grid_are_given_up_when_a_change_is_announced() -> None:
    rounds = group(A, B, m0=100, m1=200)
    offer(rounds, A, 100)
    offer(rounds, A, 200)
    rounds.modes(0, 1)
    assert rounds.discarded == 1
    assert offer(rounds, B, 100) is None
    assert offer(rounds, B, 200) is not None


def test_a_group_outside_of_its_modes_has_no_sets() -> None:
    rounds = group(A, m1=100)
    assert offer(rounds, A, 100) is None
    rounds.modes(1, 1)
    assert offer(rounds, A, 200) is not None
