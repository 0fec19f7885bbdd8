from __future__ import annotations

import random

import pytest

from chappe.links.backoff import Backoff


def test_the_first_attempt_is_immediate_and_bounds_double_up_to_the_cap() -> None:
    backoff = Backoff(lambda: 1.0, base_s=0.1, cap_s=1.0)
    assert [round(backoff.next_s(), 6) for _ in range(7)] == [0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_delays_are_spread_over_the_whole_range() -> None:
    backoff = Backoff(random.Random(7).random)
    for _ in range(10):
        backoff.next_s()
    delays = [backoff.next_s() for _ in range(2000)]
    assert min(delays) < 0.01
    assert 0.99 < max(delays) < 1.0
    assert 0.48 < sum(delays) / len(delays) < 0.52


def test_success_starts_over() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next_s(), backoff.next_s()] == [0, 0.05]
    backoff.reset()
    assert backoff.next_s() == 0


def test_it_can_fail_for_years() -> None:
    backoff = Backoff(lambda: 1.0)
    backoff.attempts = 10**9
    assert backoff.next_s() == 1.0


def test_a_cap_below_the_base_is_refused() -> None:
    with pytest.raises(ValueError, match="base"):
        Backoff(lambda: 0.5, base_s=2, cap_s=1)
