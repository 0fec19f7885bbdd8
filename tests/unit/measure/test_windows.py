"""Windows of many links: level shifts restart them, noise does not, and a replay gives what a node had."""

from __future__ import annotations

import numpy as np
import pytest

from chappe.measure import metrics
from chappe.measure.windows import Windows, replay

ROW = np.zeros(1, dtype=np.intp)


def feed(windows: Windows, *latencies: float) -> list[bool]:
    """Whether the window restarted, for each of the samples."""
    return [bool(windows.absorb(ROW, np.array([latency])).shifted[0]) for latency in latencies]


def test_one_spike_is_an_outlier_and_leaves_no_trace() -> None:
    windows = Windows()
    feed(windows, *[20.0, 20.2] * 8)
    before = windows.latency_ms[0]
    assert feed(windows, 70.0) == [False]
    assert windows.outliers[0] == 1
    assert windows.latency_ms[0] == pytest.approx(before, abs=0.02)
    assert feed(windows, 20.0, 70.0, 20.2) == [False] * 3
    assert windows.latency_ms[0] == pytest.approx(before, abs=0.02)


def test_two_in_a_row_are_a_new_level() -> None:
    windows = Windows()
    feed(windows, *[20.0, 20.2] * 8)
    assert feed(windows, 70.0, 71.0) == [False, True]
    assert windows.count[0] == 2
    assert windows.latency_ms[0] == 70.5
    assert feed(windows, 70.0, 71.0) == [False, False]
    assert windows.latency_ms[0] == 70.5


def test_a_round_trip_during_the_change_is_no_sample_of_the_new_level() -> None:
    windows = Windows()
    feed(windows, *[4.0] * 16)
    assert feed(windows, 29.0, 54.0) == [False, True]
    assert windows.latency_ms[0] == 54.0
    assert windows.count[0] == 1
    feed(windows, 54.2)
    assert windows.latency_ms[0] == pytest.approx(54.1)


def test_the_way_back_is_as_quick() -> None:
    windows = Windows()
    feed(windows, *[20.0] * 16, 70.0, 70.0)
    assert feed(windows, 20.0, 20.0) == [False, True]
    assert windows.latency_ms[0] == 20.0


def test_deviations_to_both_sides_are_noise() -> None:
    windows = Windows()
    feed(windows, *[20.0] * 16)
    assert feed(windows, 30.0, 10.0, 30.0, 10.0) == [False] * 4


@pytest.mark.parametrize("noise", ["gauss", "exponential", "uniform"])
@pytest.mark.parametrize("share", [0.02, 0.3])
def test_noise_is_no_level_shift(noise: str, share: float) -> None:
    rng = np.random.default_rng(5)
    drawn = {
        "gauss": rng.normal(0, share, (200, 300)),
        "exponential": rng.exponential(share, (200, 300)),
        "uniform": rng.uniform(-share, share, (200, 300)),
    }[noise]
    windows = Windows(rows=200)
    rows, restarts = np.arange(200), 0
    for column in (20 * (1 + drawn)).T:
        restarts += int(windows.absorb(rows, np.maximum(column, 0.1)).shifted.sum())
    assert restarts < 0.01 * drawn.size


@pytest.mark.spec("MR-065")
def test_jitter_of_a_node_is_that_of_the_series() -> None:
    series = np.random.default_rng(2).uniform(5, 15, 100)
    assert replay(series)["jitter_ms"][-1] == pytest.approx(float(metrics.rtp_jitter(series)))


def test_a_replay_gives_what_each_window_was() -> None:
    series = np.random.default_rng(3).normal(50, 0.4, 60)
    found = replay(series)
    for at in (3, 15, 59):
        count, mean, deviation, jitter = metrics.summary(series[max(0, at - 15) : at + 1])
        assert found["latency_ms"][at] == pytest.approx(float(mean))
        assert found["deviation_ms"][at] == pytest.approx(float(deviation))
        assert found["jitter"][at] == pytest.approx(float(jitter))
        assert (found["outliers"][at], found["count"][at]) == (count, min(at + 1, 16))


def test_rows_do_not_touch_each_other_and_can_be_cleared() -> None:
    windows = Windows(rows=2)
    windows.grow(5)
    for latency in range(10, 20):
        windows.absorb(np.array([1, 4]), np.array([float(latency), 100.0]))
    assert windows.latency_ms[4] == 100.0
    assert windows.count.tolist() == [0, 10, 0, 0, 10]
    windows.clear(1)
    assert windows.count[1] == 0
    assert np.isnan(windows.latency_ms[1])
    windows.absorb(np.array([1]), np.array([7.0]))
    assert windows.latency_ms[1] == 7.0
    assert windows.jitter_ms[1] == 0.0
