"""Counters over time: growth over restarts, by window; burstiness; how evenly values come."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from chappe.pipeline.growth import arrivals, burst, by_window, labels_of, series

S = 1_000_000_000
START = 1_800_000_000 * S


def test_labels_are_read_as_prometheus_writes_them() -> None:
    assert labels_of(r'node="a",link="x \"y\" \\",direction="in"') == {
        "node": "a",
        "link": 'x "y" \\',
        "direction": "in",
    }
    assert labels_of("") == {}


@pytest.mark.spec("SJ-08")
@settings(deadline=None)
@given(st.lists(st.integers(0, 50), min_size=2, max_size=40), st.sets(st.integers(1, 39)), st.randoms())
def test_growth_is_what_was_counted_whatever_restarted_and_in_whatever_order(
    steps: list[int], anew: set[int], mix
) -> None:  # type: ignore[no-untyped-def]
    read, value = [], 0
    for place, step in enumerate(steps):
        value = step if place in anew else value + step
        read.append((START + place * 3 * S, float(value)))
    counted = sum(steps[1:])
    if any(place in anew and steps[place] >= read[place - 1][1] for place in range(1, len(steps))):
        return  # such a restart cannot be told from growth
    readings = [*read, *read[::2], (START, float("nan"))]
    mix.shuffle(readings)
    grown = list(by_window(series(*zip(*readings, strict=True)), 10 * S))
    assert sum(each.amount for each in grown) == pytest.approx(counted)
    assert sum(each.seconds for each in grown) == pytest.approx(3 * (len(steps) - 1))
    assert all(each.step_s <= 3 for each in grown)


def test_a_window_gets_its_part_of_what_grew_between_two_readings() -> None:
    (first, second) = by_window(series([START + 5 * S, START + 25 * S], [100, 200]), 20 * S)
    assert (first.amount, first.seconds, second.amount, second.seconds) == (75.0, 15.0, 25.0, 5.0)
    assert list(by_window(series([START], [1.0]), S)) == list(by_window(series([], []), S)) == []


def test_a_clock_has_no_dispersion_poisson_has_one_and_bursts_have_more() -> None:
    seconds = START + np.arange(2001) * S
    noise = np.random.default_rng(4)
    even = burst(series(seconds, np.arange(2001) * 30.0))
    poisson = burst(series(seconds, np.concatenate([[0], noise.poisson(30, 2000).cumsum()])))
    bursts = burst(series(seconds, np.concatenate([[0], (noise.random(2000) < 0.1).cumsum() * 300.0])))
    assert even is not None and poisson is not None and bursts is not None  # noqa: PT018
    assert (even.mean, even.peak_to_mean) == pytest.approx((30.0, 1.0))
    assert even.dispersion == pytest.approx(0.0, abs=1e-9)
    assert poisson.dispersion == pytest.approx(1.0, abs=0.15)
    assert bursts.dispersion > 100
    assert bursts.peak == pytest.approx(300.0)
    assert burst(series(seconds[:2], [0, 1])) is None


def test_how_evenly_values_come() -> None:
    even = arrivals(START + np.arange(500) * S // 30)
    noise = np.random.default_rng(4)
    random = arrivals(START + noise.exponential(S / 30, 5000).cumsum().astype(np.int64))
    assert even is not None and random is not None  # noqa: PT018
    assert even.cv == pytest.approx(0.0, abs=1e-6)
    assert random.cv == pytest.approx(1.0, abs=0.1)
    assert random.dispersion == pytest.approx(1.0, abs=0.3)
    assert even.mean_s == pytest.approx(1 / 30)
    assert arrivals([1, 1, 2]) is None
