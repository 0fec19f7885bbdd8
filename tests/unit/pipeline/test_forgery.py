"""Forged stamps: those off a schedule are told from late ones, and those of the future from clocks that differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import forgery

BEGUN = 1_760_000_000_000_000_000


def _grid(num: int, den: int, count: int, first: int = 0) -> list[int]:
    start = BEGUN * num // den
    return [-(-(start + first + step) * den // num) for step in range(count)]


@pytest.mark.spec("SJ-10")
@pytest.mark.parametrize("rate", [(50, 10**9), (30, 10**9), (30_000, 1001 * 10**9), (1, 10**10)])
@given(seed=st.integers(0, 2**32))
def test_stamps_put_into_an_exact_grid_are_found(rate: tuple[int, int], seed: int) -> None:
    num, den = rate
    random = np.random.default_rng(seed)
    honest = np.array(_grid(num, den, 200))
    off = random.uniform(0.1, 0.9, 10) * den / num
    forged = random.choice(honest, 10, replace=False) + off.astype(np.int64)
    stamps = np.concatenate((honest, forged))
    kept = forgery.schedule(stamps, num, den)
    assert kept is not None
    assert forgery.off_schedule(stamps, kept).tolist() == [False] * 200 + [True] * 10


@given(seed=st.integers(0, 2**32))
def test_a_publisher_by_the_clock_may_be_late_but_not_say_more_than_its_rate(seed: int) -> None:
    random = np.random.default_rng(seed)
    honest = BEGUN + 7_000_000 + np.arange(300) * 20_000_000 + random.normal(0, 200_000, 300).astype(np.int64)
    honest[100] += 6_000_000  # held up
    forged = honest[[50, 150]] + 9_000_000
    stamps = np.concatenate((honest, forged))
    assert forgery.rate_of(stamps) == (1, 20_000_000)
    kept = forgery.schedule(stamps, 1, 20_000_000)
    assert kept is not None
    assert kept.phase * 20_000_000 == pytest.approx((BEGUN + 7_000_000) % 20_000_000, abs=500_000)
    assert np.flatnonzero(forgery.off_schedule(stamps, kept)).tolist() == [300, 301]


def test_no_schedule_is_seen_in_what_has_none() -> None:
    random = np.random.default_rng(5)
    scattered = BEGUN + np.cumsum(random.exponential(1e7, 500)).astype(np.int64)
    rate = forgery.rate_of(scattered)
    assert rate is None or forgery.schedule(scattered, *rate) is None
    assert forgery.rate_of(_grid(50, 10**9, 10)) is None
    assert forgery.schedule(_grid(50, 10**9, 10), 50, 10**9) is None


@pytest.mark.spec("SJ-10", "GS-106")
def test_the_future_begins_after_what_clocks_may_differ() -> None:
    created = [BEGUN, BEGUN + 10**9, BEGUN + 10**9 + 1, 2**63 - 1]
    assert forgery.far_future(created, [BEGUN] * 4, 10**9).tolist() == [False, False, True, True]
    assert forgery.far_future([2**63 - 1], [2**63 - 1], 10**9).tolist() == [False]


def test_rates_too_fine_for_64_bits_are_counted_too() -> None:
    num, den = 59_999_999_999, 10**18
    honest = _grid(num, den, 60)
    kept = forgery.schedule(honest, num, den)
    assert kept is not None
    assert not forgery.off_schedule(honest, kept).any()
