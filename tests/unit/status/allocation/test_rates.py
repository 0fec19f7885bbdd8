"""Rates of sets of intervals, rounding, sizes, bursts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.status.allocation.rates import (
    NANO,
    burst,
    event_bytes,
    every_of,
    interval_of,
    marginal,
    minimal,
    publishing_rate,
    rate_of_set,
    rates_by_mode,
    share,
)  # fmt: skip
from chappe.wire.base import Variable


def variable(num: int = 1, den: int = 10_000_000, options: int = 0, minimum_ns: int = 0) -> Variable:
    return Variable(1, "p", "v", "float", num, den, 3, options, minimum_ns=minimum_ns)


@pytest.mark.spec("GS-083")
def test_90_and_240_send_ten_events_in_720() -> None:
    assert share([90, 240]) * 720 == 10
    assert marginal([90], 240) == Fraction(2, 720)
    assert marginal([90], 180) == 0


@pytest.mark.spec("GS-083")
def test_the_multiples_of_an_interval_add_nothing() -> None:
    assert minimal([180, 90, 90]) == (90,)
    assert minimal([20, 30, 60, 45, 50]) == (20, 30, 45, 50)
    assert share([20, 30, 60]) == share([20, 30])
    assert share([]) == 0


@settings(deadline=None)
@given(st.lists(st.integers(1, 10), max_size=6))
def test_the_rate_is_what_counting_one_period_gives(intervals: list[int]) -> None:
    window = 2_520  # a multiple of all numbers up to 10
    passed = sum(any(number % interval == 0 for interval in intervals) for number in range(window))
    assert share(intervals) == Fraction(passed, window)


@pytest.mark.spec("GS-083")
def test_large_sets_are_counted_or_bounded() -> None:
    counted = (4, 6, 9, 10, 14, 15, 21, 22, 25, 26, 33, 35, 39, 55)
    assert len(minimal(counted)) == len(counted) > 12
    window = 4 * 9 * 25 * 7 * 11 * 13
    passed = sum(any(number % interval == 0 for interval in counted) for number in range(window))
    assert rate_of_set(counted) == Fraction(passed, window)
    primes = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087)
    assert rate_of_set(primes) == sum(Fraction(1, prime) for prime in primes)
    assert rate_of_set(primes[:12]) < sum(Fraction(1, prime) for prime in primes[:12])


@pytest.mark.spec("GS-061")
def test_intervals_are_rounded_down_to_multiples_of_the_publishing_interval() -> None:
    ten_ms = variable()
    rounded = {
        wanted: interval_of(ten_ms, every_of(ten_ms, wanted * 1_000_000)) // 1_000_000
        for wanted in (0, 5, 10, 19, 20, 35)
    }
    assert rounded == {0: 10, 5: 10, 10: 10, 19: 10, 20: 20, 35: 30}


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(1, 10**9), st.integers(1, 10**6))
def test_an_interval_that_was_granted_is_not_rounded_again(num: int, den: int, every: int) -> None:
    one = variable(num, den)
    nanoseconds = interval_of(one, every)
    assert nanoseconds >= Fraction(every * den, num) > nanoseconds - 1
    if den >= 2 * num:  # otherwise a nanosecond more or less is another event
        assert every_of(one, nanoseconds) == every


def test_thirty_a_second_has_no_whole_period_and_is_exact_all_the_same() -> None:
    thirty = variable(30, 10**9)
    assert [interval_of(thirty, every) for every in (1, 2, 3)] == [33_333_334, 66_666_667, 100_000_000]
    assert rates_by_mode(((3, 0xFFFF),), 30, 1) == (10 * NANO,) * 16
    assert rates_by_mode(((2, 0b01), (3, 0b11)), 30, 1)[:3] == (20 * NANO, 10 * NANO, 0)


def test_alerts_are_reserved_by_their_least_interval_and_never_filtered() -> None:
    alert = variable(0, 1, minimum_ns=20_000_000)
    assert publishing_rate(alert) == 50
    assert publishing_rate(variable(0, 1)) == 1
    assert (every_of(alert, 10**12), interval_of(alert, 1)) == (1, 0)


def test_an_event_has_24_bytes_and_as_many_for_each_option() -> None:
    assert [event_bytes(variable(options=options)) for options in (0, 1, 3)] == [24, 48, 96]


@pytest.mark.spec("GS-083")
def test_all_variables_of_a_mode_can_meet_in_one_instant() -> None:
    counts = burst([[(1, 0b011)], [(90, 0b001), (240, 0b100)], []])
    assert counts[:4] == (2, 1, 1, 0)
