from __future__ import annotations

import numpy as np
import pytest

from chappe.pipeline import periods
from chappe.pipeline.baselines import baseline

QUARTER = periods.HOUR_NS // 4
MONDAY = periods.start_ns(2960, periods.WEEK_NS) // QUARTER


def of_days(days: float) -> np.ndarray:
    """Hours of a busy week before a Monday: at day 40, at night 10, a tenth of that at the weekend."""
    at = np.arange(MONDAY - int(days * 96), MONDAY) * QUARTER
    hour = periods.hour_of_week(at)
    usual = np.where(hour % 24 >= 8, 40.0, 10.0)
    return np.where(hour >= 120, usual / 10, usual)


def test_hours_of_the_week_are_told_apart_with_two_weeks() -> None:
    values = of_days(14)
    values[::50] = 900.0  # spikes move no median
    usual = baseline(values, MONDAY, QUARTER)
    assert [each.basis for each in usual] == ["week"] * 168
    assert [each.latency_ms for each in usual[6:10]] == [10, 10, 40, 40]
    assert [each.latency_ms for each in usual[126:130]] == [1, 1, 4, 4]
    assert {each.intervals for each in usual} == {8}
    assert all(each.spread_ms == 0 for each in usual)


def test_hours_of_the_day_with_two_days() -> None:
    usual = baseline(of_days(5), MONDAY, QUARTER)
    assert {each.basis for each in usual} == {"day"}
    assert (usual[3].latency_ms, usual[9].latency_ms) == (usual[27].latency_ms, usual[33].latency_ms) == (10, 40)


def test_everything_together_with_less() -> None:
    usual = baseline(of_days(1.5), MONDAY, QUARTER)
    assert len(usual) == 168
    assert set(usual) == {usual[0]}
    assert (usual[0].basis, usual[0].intervals) == ("all", 144)


def test_an_hour_that_was_never_measured_has_that_of_other_days_or_of_all() -> None:
    values = of_days(14)
    hour = periods.hour_of_week(np.arange(MONDAY - len(values), MONDAY) * QUARTER)
    values[(hour == 9) | (hour % 24 == 20)] = np.nan
    usual = baseline(values, MONDAY, QUARTER)
    assert (usual[9].basis, usual[9].latency_ms) == ("day", 40)
    assert usual[20].basis == "all"
    assert usual[10].basis == "week"


def test_the_spread_is_that_of_normal_values() -> None:
    values = 50 + np.random.default_rng(1).normal(0, 3, 28 * 96)
    usual = baseline(values, MONDAY, QUARTER)
    assert np.mean([each.spread_ms for each in usual]) == pytest.approx(3, rel=0.15)
    assert baseline(np.full(200, np.nan), MONDAY, QUARTER) == []
