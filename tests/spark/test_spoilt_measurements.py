"""Jobs about links over an archive with malformed, repeated, late and shuffled rows: as if these had never been."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from chappe.archive.schema import input_schema
from chappe.archive.segments import Segments
from chappe.archive.writer import Limits, Writer
from chappe.pipeline.jobs.forecast import Forecast
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.jobs.links import Links
from chappe.pipeline.runner import Place, Runner
from tests.support.cleanrows import SECOND_NS, START_NS, clean, clean_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE_S = 900.0
NOW_NS = START_NS + 7200 * SECOND_NS
FORECAST = Forecast(interval_s=300, horizon=3, judged_days=1)


def _told() -> list[dict[str, Any]]:
    """Two hours of two ends of a link, a round every ten seconds."""
    noise = random.Random(23)
    return [
        {"node": node, "peer": peer, "link": "ab", "transport": "tcp", "created_ns": at, "received_ns": at + 5,
         "latency_ms": noise.uniform(9.0, 11.0), "jitter": 0.1, "loss": 0.0, "window": 10, "outliers": 0}
        for at in range(START_NS, NOW_NS, 10 * SECOND_NS) for node, peer in (("a", "b"), ("b", "a"))
    ]  # fmt: skip


def _spoilt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same in another order, some twice, among rows that must not count."""
    wrong = [
        {"latency_ms": float("nan")}, {"latency_ms": float("inf")}, {"latency_ms": -1.0}, {"loss": 7.0}, {"link": ""},
        {"created_ns": -5}, {"created_ns": NOW_NS + 10**15},
        {"created_ns": START_NS + 1, "received_ns": START_NS + 1 + int((LATE_S + 5) * SECOND_NS), "latency_ms": 5000.0},
    ]  # fmt: skip
    later = [{**row, "received_ns": row["received_ns"] + SECOND_NS, "latency_ms": 4000.0} for row in rows[::11]]
    mixed = [*rows, *rows[::7], *[{**rows[500], **each} for each in wrong]]
    random.Random(4).shuffle(mixed)
    return mixed + later  # whoever told the same before stays


def _frame(frame: Any, *keys: str) -> pd.DataFrame:
    found: pd.DataFrame = frame.toPandas()
    return found.sort_values(list(keys)).reset_index(drop=True)


@pytest.mark.spec("SJ-02", "SJ-03")
def test_what_is_malformed_repeated_late_or_out_of_order_changes_no_statistics_and_no_forecast(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = _told()
    place = Place(tmp_path / "work", str(tmp_path / "segments"), str(tmp_path / "log"))
    writer = Writer(Segments(tmp_path / "segments"), tmp_path / "log", Limits(age_ns=1 << 62))
    spoilt = clean_table("measurements", _spoilt(rows)).select(input_schema("measurements").names)
    for batch in spoilt.cast(input_schema("measurements")).combine_chunks().to_batches():
        writer.append("measurements", batch, START_NS)
    writer.sync()
    writer.close()
    runner = Runner(spark, place, [Ingest(late_s=LATE_S), Links(), FORECAST], clock_ns=lambda: NOW_NS)
    assert runner.once(), runner.failures

    measured = {"measurements": clean(spark, "measurements", rows).cache()}
    for job in (Links(), FORECAST):
        expected = job.run(measured, NOW_NS)
        for name in ("link_statistics", "spikes") if job.name == "links" else ("forecasts", "forecast_errors"):
            keys = job.writes[name].keys
            found = _frame(place.tables.read(spark, name), *keys)
            pd.testing.assert_frame_equal(found, _frame(expected[name], *keys), rtol=1e-9)
    held = place.tables.read(spark, "quarantine").groupBy("reason").count().collect()
    assert sum(row["count"] for row in held) == 8
