"""Baselines and forecasts (SJ-03): those of the pure functions, over what Spark made of the measurements."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bench.forecast_traces import SAMPLE_S, traces
from chappe.errors import ConfigError
from chappe.pipeline import forecasting, periods
from chappe.pipeline.baselines import baseline
from chappe.pipeline.forecasting import Rhythm
from chappe.pipeline.job import configured
from chappe.pipeline.jobs.forecast import Forecast
from tests.support.cleanrows import SECOND_NS, clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS = 16
HOUR_NS = periods.HOUR_NS
NOW_NS = periods.start_ns(2960, periods.WEEK_NS) + 10 * HOUR_NS + 1234
JOB = Forecast(interval_s=3600, horizon=5, days=20, judged_days=3)
RHYTHM = Rhythm(24, 5)


def history(kinds: tuple[str, ...] = ("daily", "random walk")) -> dict[str, np.ndarray]:
    """Samples of links that end in the hour of now."""
    return {each.kind: each.samples for each in traces(1, DAYS, 9) if each.kind in kinds}


def rows(samples: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    end = NOW_NS // HOUR_NS * HOUR_NS
    return [
        {"node": "a", "link": link, "created_ns": end - (len(values) - at) * SAMPLE_S * SECOND_NS,
         "latency_ms": None if np.isnan(value) else value}
        for link, values in samples.items() for at, value in enumerate(values.tolist())
    ]  # fmt: skip


def spoilt(given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Out of order, with rows of the interval that is under way, of the future and of a time too long ago."""
    mixed = [*given]
    for off in (-1, HOUR_NS, -30 * 24 * HOUR_NS):
        mixed += [{"node": "a", "link": "daily", "created_ns": NOW_NS + off, "latency_ms": 5000.0}]
    random.Random(2).shuffle(mixed)
    return mixed


@pytest.mark.spec("SJ-03")
def test_the_tables_are_what_the_functions_say_of_whole_intervals(spark: SparkSession) -> None:
    samples = history()
    made = JOB.run({"measurements": clean(spark, "measurements", spoilt(rows(samples)))}, NOW_NS)
    for name, table in Forecast.writes.items():
        assert made[name].columns == table.schema.names
    found = {name: frame.toPandas().set_index("link") for name, frame in made.items()}
    end = NOW_NS // HOUR_NS
    for link, values in samples.items():
        hourly = np.nanmean(values.reshape(-1, 3600 // SAMPLE_S), axis=1)
        judged = forecasting.judge(hourly, RHYTHM)
        ahead = forecasting.forecasts(judged, RHYTHM)
        said = found["forecasts"].loc[link].sort_values("step")
        assert said["latency_ms"].tolist() == pytest.approx([each.value for each in ahead])
        assert said["low_ms"].tolist() == pytest.approx([each.low for each in ahead])
        assert said["high_ms"].tolist() == pytest.approx([each.high for each in ahead])
        assert said["start_ns"].tolist() == [(end + step) * HOUR_NS for step in range(5)]
        off = found["forecast_errors"].loc[link].sort_values("step")
        expected = forecasting.errors(judged, 3 * 24)
        assert off["judged"].tolist() == [each.judged for each in expected]
        for column, name in (("error_ms", "mean"), ("naive_ms", "naive"), ("seasonal_ms", "seasonal")):
            assert off[column].tolist() == pytest.approx([getattr(each, name) for each in expected])
        usual = found["baselines"].loc[link].sort_values("hour")
        assert usual["latency_ms"].tolist() == pytest.approx(
            [each.latency_ms for each in baseline(hourly, end, HOUR_NS)]
        )
        assert usual["basis"].unique().tolist() == ["week"]
        assert usual["hour"].tolist() == list(range(168))


def test_of_a_young_link_little_and_of_nothing_nothing_is_said(spark: SparkSession) -> None:
    young = [{"node": "a", "link": "young", "created_ns": NOW_NS - 2 * HOUR_NS, "latency_ms": 7.0}]
    young.append({"node": "a", "link": "silent", "created_ns": NOW_NS - 2 * HOUR_NS, "latency_ms": None})
    made = JOB.run({"measurements": clean(spark, "measurements", young)}, NOW_NS)
    said = made["forecasts"].collect()
    assert [(row["link"], row["latency_ms"], row["low_ms"], row["method"]) for row in said] == [
        ("young", 7.0, None, "last")
    ] * 5
    assert {(row["link"], row["basis"], row["latency_ms"]) for row in made["baselines"].collect()} == {
        ("young", "all", 7.0)
    }
    assert made["forecast_errors"].count() == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"interval_s": 1000}, "a day is no multiple"), ({"horizon": 96}, "give 1 to 94"), ({"days": 0}, "1 or more")],
)
def test_bad_parameters_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        configured(Forecast, settings).run({}, NOW_NS)
