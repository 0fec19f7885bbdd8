from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.measure import metrics
from chappe.pipeline import linkstats, periods
from chappe.pipeline.linkstats import Samples
from tests.support.records import DAY, HOUR, NOW, SECOND

ROUND = st.tuples(
    st.integers(0, 2),
    st.integers(0, 3000),
    st.one_of(st.just(np.nan), st.floats(0.01, 1000)),
    st.one_of(st.just(np.nan), st.floats(0, 1)),
)


def samples(rows: list[Any]) -> Samples:
    link, second, latency, loss = zip(*rows, strict=True) if rows else ((), (), (), ())
    at = NOW + np.array(second, dtype=np.int64) * SECOND + np.arange(len(rows))
    return linkstats.ordered(
        Samples(
            np.array(link, dtype=np.intp), at, np.array(latency, dtype=float), np.array(loss, dtype=float),
            np.full(len(rows), np.nan),
        )
    )  # fmt: skip


@pytest.mark.spec("MR-063")
@settings(max_examples=150, deadline=None)
@given(st.lists(ROUND, max_size=120), st.sampled_from(sorted(periods.LENGTHS)))
def test_the_numbers_are_those_of_the_node_s_formulas(rows: list[Any], period: str) -> None:
    of, length = samples(rows), periods.LENGTHS[period]
    found = linkstats.statistics(of, length, np.zeros(len(rows), dtype=np.bool_))
    assert int(found.rounds.sum()) == len(rows)
    for at in range(len(found.link)):
        inside = (of.link == found.link[at]) & (of.created_ns // length * length >= 0)
        inside &= (of.created_ns >= found.start_ns[at]) & (of.created_ns < found.start_ns[at] + length)
        series, loss = of.latency_ms[inside], of.loss[inside]
        series, loss = series[~np.isnan(series)], loss[~np.isnan(loss)]
        assert found.rounds[at] == inside.sum()
        assert found.samples[at] == len(series)
        expected = [
            metrics.mean(series), metrics.deviation(series), metrics.relative_jitter(series),
            metrics.rtp_jitter(series) if len(series) else np.nan, metrics.mean(loss),
        ]  # fmt: skip
        numbers = [found.latency_ms, found.deviation_ms, found.jitter, found.jitter_ms, found.loss]
        assert [values[at] for values in numbers] == pytest.approx(expected, rel=1e-9, abs=1e-7, nan_ok=True)


def test_a_long_series_has_the_jitter_of_the_whole() -> None:
    rng = np.random.default_rng(4)
    values = rng.gamma(2, 5, 20_000)
    values[:19_000] *= 50  # long ago and far away
    of = Samples(np.zeros(20_000, np.intp), NOW + np.arange(20_000) * SECOND, values, values * 0, values * 0)
    found = linkstats.statistics(of, periods.WEEK_NS, np.zeros(20_000, dtype=np.bool_))
    assert found.jitter_ms == pytest.approx([metrics.rtp_jitter(values)], rel=1e-12)


@pytest.mark.parametrize(
    ("period", "expected"), [("minute", NOW), ("hour", NOW), ("day", NOW), ("week", NOW - 3 * DAY)]
)
def test_weeks_begin_on_monday_and_all_else_as_the_clock_shows(period: str, expected: int) -> None:
    length = periods.LENGTHS[period]
    assert periods.start_ns(periods.number(NOW + 30 * SECOND, length), length) == expected
    assert periods.hour_of_week(NOW) == 72


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from([9.0, 10.0, 11.0, 10.2, 40.0, np.nan]), max_size=60), max_size=4))
def test_outliers_are_those_that_a_node_finds_in_the_same_windows(series: list[list[float]]) -> None:
    rows = [(link, at, value, np.nan) for link, values in enumerate(series) for at, value in enumerate(values)]
    of = samples(rows)
    flags, spikes = linkstats.outliers(of)
    for link, values in enumerate(series):
        known = np.array([value for value in values if value == value])
        expected = [
            bool(flag) for start in range(0, len(known), 16) for flag in metrics.outliers(known[start : start + 16])
        ]
        mine = flags[(of.link == link) & np.isfinite(of.latency_ms)]
        assert mine.tolist() == expected
    assert not flags[np.isnan(of.latency_ms)].any()
    assert len(spikes.link) <= flags.sum()


def test_a_spike_is_told_with_its_time_value_and_what_is_usual() -> None:
    rng = np.random.default_rng(1)
    values = 20 + rng.normal(0, 0.2, 64)
    values[30] = 55.0
    of = samples([(1, at, value, np.nan) for at, value in enumerate(values)])
    _, spikes = linkstats.outliers(of)
    assert spikes.created_ns.tolist() == [of.created_ns[30]]
    assert spikes.latency_ms.tolist() == [55.0]
    assert spikes.usual_ms == pytest.approx([20], abs=0.3)
    assert 0 < spikes.deviation_ms[0] < 0.5


def test_steady_links_are_advised_long_windows_and_restless_ones_short() -> None:
    rng = np.random.default_rng(2)
    steady = 20 + rng.normal(0, 1, 2000)
    restless = 50 + np.cumsum(rng.normal(0, 1, 2000))
    rows = [(0, at, value, 0.0) for at, value in enumerate(steady)]
    rows += [(1, at, value, 0.0) for at, value in enumerate(restless)]
    rows += [(2, at, 1.0, 0.0) for at in range(30)]  # too few to say anything
    found = linkstats.advice(samples(rows))
    assert found.link.tolist() == [0] * 4 + [1] * 4
    by_link = {
        int(link): int(size) for link, size, yes in zip(found.link, found.size, found.advised, strict=True) if yes
    }
    assert by_link[1] == 8
    assert by_link[0] >= 16
    assert found.tried.tolist() == [16] * 8


def test_rows_in_any_order_give_the_same() -> None:
    rng = np.random.default_rng(3)
    rows = [(int(rng.integers(3)), int(at), float(rng.random()), 0.0) for at in rng.permutation(500)]
    of = samples(rows)
    assert (np.diff(of.link) >= 0).all()
    again = linkstats.ordered(Samples(*(column[::-1] for column in of)))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(of, again, strict=True))
    assert HOUR == periods.HOUR_NS
