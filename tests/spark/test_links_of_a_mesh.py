"""Statistics, forecasts and alerts (SJ-02, SJ-03, SJ-04) of what a real mesh measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from chappe.aggregation.alerts import Alerts as Aggregator
from chappe.measure import metrics
from chappe.measure.cost import cost
from chappe.pipeline import forecasting
from chappe.pipeline.alerting import records, rules
from chappe.pipeline.forecasting import Rhythm
from chappe.pipeline.jobs.alerts import Alerts
from chappe.pipeline.jobs.forecast import Forecast
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.jobs.links import Links
from chappe.pipeline.runner import Place, Runner
from tests.support.meshrun import RING, SLOW_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = f"""
[[alert]]
name = "slow"
when = "latency_ms > {SLOW_MS / 2}"
"""
SECOND_NS = 1_000_000_000
ENDS = sorted([*RING, *((b, a) for a, b in RING)])


@pytest.fixture(scope="module")
def tables(
    spark: SparkSession, mesh_archive: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pd.DataFrame]:
    place = Place(tmp_path_factory.mktemp("work"), str(mesh_archive))
    runner = Runner(spark, place, [Ingest(), Links(), Forecast(interval_s=1, horizon=3, days=1), Alerts(rules=RULES)])
    assert runner.once(), runner.failures
    names = ("measurements", "link_statistics", "group_statistics", "forecasts", "baselines", "alerts")
    return {name: place.tables.read(spark, name).toPandas() for name in names}


@pytest.mark.spec("SJ-02")
def test_statistics_are_those_of_what_each_end_told(tables: dict[str, pd.DataFrame]) -> None:
    statistics = tables["link_statistics"]
    weeks = statistics[statistics["period"] == "week"]
    assert set(ENDS) <= set(zip(weeks["node"], weeks["peer"], strict=True))
    told = tables["measurements"].sort_values("created_ns")
    assert weeks["rounds"].sum() == len(told)
    for _, row in weeks.iterrows():
        mine = told[(told["node"] == row["node"]) & (told["link"] == row["link"])]
        mine = mine[(mine["created_ns"] >= row["start_ns"]) & (mine["transport"] == row["transport"])]
        series = mine["latency_ms"].dropna().to_numpy()
        assert row["latency_ms"] == pytest.approx(metrics.mean(series))
        assert row["deviation_ms"] == pytest.approx(metrics.deviation(series), abs=1e-6)
        assert row["jitter_ms"] == pytest.approx(mine["jitter_ms"].dropna().iloc[-1])
        expected = cost("default", row["latency_ms"], mine["jitter"].mean(), mine["loss"].mean())
        assert row["cost"] == pytest.approx(expected)
    slow = weeks[(weeks["node"] == "a") & (weeks["peer"] == "b")]
    assert slow["most_ms"].max() > SLOW_MS / 2 > slow["least_ms"].min()
    groups = tables["group_statistics"]
    every = groups[(groups["period"] == "week") & (groups["by"] == "transport")]
    assert every["rounds"].sum() == len(told)


@pytest.mark.spec("SJ-04")
def test_the_slow_link_raises_an_alert_as_an_aggregator_would(tables: dict[str, pd.DataFrame]) -> None:
    expected = []
    for _, mine in tables["measurements"].groupby(["node", "link"]):
        alerts = Aggregator(rules(RULES))
        for record in records({name: mine[name].tolist() for name in mine.columns}):
            expected += [(each.link, each.node, each.state, each.stamp_ns) for each in alerts.record(record)]
    found = tables["alerts"]
    assert sorted(zip(found["link"], found["node"], found["state"], found["stamp_ns"], strict=True)) == sorted(expected)
    raised = found[found["state"] == "raised"]
    assert ("a", "b") in set(zip(raised["node"], raised["peer"], strict=True))
    for topic, body in zip(found["topic"], found["body"], strict=True):
        assert topic == f"pipeline/alerts/slow/{json.loads(body)['link']}"


@pytest.mark.spec("SJ-03")
def test_forecasts_are_made_of_the_seconds_before(tables: dict[str, pd.DataFrame]) -> None:
    told = tables["measurements"].dropna(subset="latency_ms")
    seconds = (
        told.assign(number=told["created_ns"] // SECOND_NS).groupby(["node", "link", "number"])["latency_ms"].mean()
    )
    for (node, link), said in tables["forecasts"].groupby(["node", "link"]):
        end = int(said["start_ns"].min()) // SECOND_NS
        mine = seconds.loc[node, link]
        values = np.full(end - mine.index.min(), np.nan)
        values[mine.index - mine.index.min()] = mine.to_numpy()
        rhythm = Rhythm(86_400, 3)
        expected = [each.value for each in forecasting.forecasts(forecasting.judge(values, rhythm), rhythm)]
        assert said.sort_values("step")["latency_ms"].tolist() == pytest.approx(expected)
    assert len(tables["forecasts"]) == 3 * len(told.groupby(["node", "link"]))
    assert set(tables["baselines"]["basis"]) == {"all"}
