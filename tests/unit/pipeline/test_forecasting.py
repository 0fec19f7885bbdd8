from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.forecast_traces import A_DAY, KINDS, traces
from chappe.aggregation.forecast import opinions
from chappe.errors import ConfigError
from chappe.measure.windows import replay
from chappe.pipeline.forecasting import NAIVE, SEASONAL, Rhythm, errors, forecasts, judge, judge_all, median

RHYTHM = Rhythm(24, 6)
DAYS = 21


def hourly(kind: str, seed: int = 3) -> np.ndarray:
    (trace,) = [each for each in traces(1, DAYS, seed) if each.kind == kind]
    return np.nanmean(trace.samples.reshape(-1, A_DAY // 24), axis=1)


@pytest.mark.parametrize("kind", ["daily with shifts", "random walk", "spikes", "wandering"])
def test_what_is_said_at_a_time_depends_on_nothing_after_it(kind: str) -> None:
    """Otherwise no judgement over a history would be out of sample."""
    series = hourly(kind)
    series[[40, 41, 200, 350]] = np.nan
    whole = judge(series, RHYTHM)
    for end in (201, len(series) - 1):
        part = judge(series[:end], RHYTHM)
        said, then = whole.spoken(whole.told)[end - 1], part.spoken(part.told)[-1]
        assert np.allclose(said, then, equal_nan=True)
        for method in part.methods:
            at, before = whole.methods.index(method), part.methods.index(method)
            assert np.allclose(whole.told[at, :end], part.told[before], equal_nan=True), method


def test_several_series_are_judged_as_each_alone() -> None:
    rows = [hourly("daily"), hourly("random walk")[100:], hourly("constant")]
    for row, together in zip(rows, judge_all(rows, RHYTHM), strict=True):
        alone = judge(row, RHYTHM)
        assert forecasts(together, RHYTHM) == forecasts(alone, RHYTHM)
        assert errors(together, 100) == errors(alone, 100)


def test_the_formulas_of_a_node_and_of_an_aggregator_speak() -> None:
    series = hourly("level shifts")
    judged = judge(series, RHYTHM)
    told = dict(zip(judged.methods, judged.told, strict=True))
    assert np.array_equal(told["node*"][:, 0], replay(series)["latency_ms"])
    for name, said in opinions(series).items():
        assert np.array_equal(told[name if name == NAIVE else f"{name}*"][:, 3], said)
    assert np.array_equal(told[SEASONAL][30], series[7:13])


@pytest.mark.parametrize("kind", [kind for kind, (daily, _) in KINDS.items() if daily])
def test_a_daily_pattern_is_used(kind: str) -> None:
    found = errors(judge(hourly(kind), RHYTHM), 7 * 24)
    assert all(each.judged == 7 * 24 for each in found)
    assert sum(each.mean for each in found) < 0.8 * sum(each.naive for each in found)


@pytest.mark.parametrize("kind", [kind for kind, (daily, _) in KINDS.items() if not daily])
def test_without_one_the_last_value_is_hardly_ever_better(kind: str) -> None:
    found = errors(judge(hourly(kind), RHYTHM), 7 * 24)
    assert sum(each.mean for each in found) <= 1.05 * sum(each.naive for each in found)


def test_a_level_that_is_gone_is_not_foretold_even_if_a_node_would_see_no_shift() -> None:
    """Of seven percent, which is less than what a node takes for a change."""
    series = np.random.default_rng(1).normal(43.0, 0.2, 14 * 24)
    series[200:] -= 3.0
    judged = judge(series, RHYTHM)
    before, after = judged.spoken(judged.told)[199], judged.spoken(judged.told)[206:]
    assert judged.methods[judged.chosen[199, 0]] != NAIVE
    assert np.allclose(before, 43.0, atol=0.3)
    assert np.allclose(after, 40.0, atol=1.0)


def test_who_knows_the_week_is_heard_when_judged_at_all_of_its_times() -> None:
    (trace,) = [each for each in traces(1, 35, 3) if each.kind == "daily and weekly"]
    judged = judge(np.nanmean(trace.samples.reshape(-1, A_DAY // 24), axis=1), RHYTHM)
    weekly = np.isin(judged.chosen, [at for at, name in enumerate(judged.methods) if name.startswith("week")])
    assert not weekly[: 20 * 24].any()  # two weeks make a habit, the third judges it
    assert weekly[28 * 24 :].mean() > 0.5


def test_the_band_holds_most_of_what_comes() -> None:
    series = hourly("daily")
    inside = []
    for end in range(15 * 24, len(series) - 6, 13):
        said = forecasts(judge(series[:end], RHYTHM), RHYTHM)
        assert all(each.low <= each.value <= each.high for each in said)
        inside += [each.low <= series[end + each.step - 1] <= each.high for each in said]
    assert 0.75 < np.mean(inside) < 0.99


def test_of_nothing_and_of_little_little_is_said() -> None:
    assert forecasts(judge([], RHYTHM), RHYTHM) == []
    assert forecasts(judge([np.nan] * 50, RHYTHM), RHYTHM) == []
    assert all(each.judged == 0 for each in errors(judge([], RHYTHM), 24))
    (first, *_) = forecasts(judge([np.nan, 5.0, np.nan], RHYTHM), RHYTHM)
    assert (first.value, first.method) == (5.0, NAIVE)
    assert np.isnan(first.low)


@pytest.mark.parametrize(("rhythm", "reason"), [
    (Rhythm(2, 1), "interval: a day has 2"), (Rhythm(24, 0), "horizon: 0"), (Rhythm(96, 95), "give 1 to 94"),
])  # fmt: skip
def test_a_rhythm_that_cannot_be_is_refused(rhythm: Rhythm, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        judge([1.0], rhythm)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.one_of(st.just(np.nan), st.floats(-1e6, 1e6)), min_size=3, max_size=3), max_size=9))
def test_medians_leave_out_what_is_missing(rows: list[list[float]]) -> None:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    for column, found in zip(table.T, median(table), strict=True):
        known = column[~np.isnan(column)]
        assert found == pytest.approx(np.median(known)) if len(known) else np.isnan(found)
