"""Alerts (SJ-04): the same from a stream and from a batch, those of an aggregator, for each end of each link."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from chappe.aggregation.alerts import Alerts as Aggregator
from chappe.errors import ConfigError
from chappe.pipeline.alerting import records, rules
from chappe.pipeline.batches import Telling
from chappe.pipeline.job import Publish
from chappe.pipeline.jobs.alerts import ALERTS, Alerts
from chappe.pipeline.keyed import Keyed
from chappe.pipeline.tables import Tables
from tests.support.cleanrows import SECOND_NS, START_NS, clean, clean_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULES = """
[[alert]]
name = "slow"
when = "latency_ms > 80"
for_s = 2
clear_s = 1
severity = "critical"
[[alert]]
name = "lossy and slow"
when = "loss > 0.1 and latency_ms > 50"
"""
SILENT = '[[alert]]\nname = "silent"\nwhen = "age_s > 10"\n'
COLUMNS = ["rule", "state", "link", "node", "stamp_ns", "since_ns", "text", "topic"]


def measured(ends: int = 4, seconds: int = 60) -> list[dict[str, Any]]:
    """Both ends of some links; each has a bad time of its own, and nothing is measured now and then."""
    noise = random.Random(17)
    rows = []
    for number in range(ends):
        bad = range(10 + 5 * number, 25 + 5 * number)
        for second in range(seconds):
            row = {
                "node": "ab"[number % 2], "peer": "ba"[number % 2], "link": f"link{number // 2}", "transport": "tcp",
                "created_ns": START_NS + second * SECOND_NS + number,
                "latency_ms": None if noise.random() < 0.1 else noise.uniform(85, 120) if second in bad else 20.0,
                "loss": 0.3 if second in bad and second % 3 else 0.0,
            }  # fmt: skip
            rows.append(row)
    return rows


def told(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in COLUMNS) for row in frame.collect())


def by_an_aggregator(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    found = []
    for node, link in sorted({(row["node"], row["link"]) for row in rows}):
        mine = [at for at, row in enumerate(rows) if (row["node"], row["link"]) == (node, link)]
        alerts = Aggregator(rules(RULES))
        for record in records({name: [values[at] for at in mine] for name, values in columns.items()}):
            found += alerts.record(record)
    return sorted(
        (each.rule, each.state, each.link, each.node, each.stamp_ns, each.since_ns, each.text,
         f"pipeline/alerts/{each.rule.replace(' ', '-')}/{each.link}") for each in found
    )  # fmt: skip


def streamed(spark: SparkSession, folder: Path, pieces: list[list[dict[str, Any]]], job: Alerts) -> DataFrame:
    """Each piece as a batch of the table, and a batch of the job; another process goes on in the middle."""
    tables = Tables(folder)
    for number, piece in enumerate(pieces):
        tables.append("measurements", number, clean_table("measurements", piece), part="measurements")
        if number % 3 == 0:
            keyed = Keyed(spark, tables, Telling(folder), job, folder / "checkpoint", lambda: START_NS)
        assert (keyed.step(), keyed.step()) == (len(piece), None)
    return tables.read(spark, "alerts")


@pytest.mark.spec("SJ-04")
def test_a_batch_and_a_stream_give_the_alerts_of_an_aggregator(spark: SparkSession, tmp_path: Path) -> None:
    rows = measured()
    expected = by_an_aggregator(rows)
    assert {state for _, state, *_ in expected} == {"raised", "cleared"}
    mixed = [*rows, *rows[::5]]
    random.Random(3).shuffle(mixed)
    job = Alerts(rules=RULES)
    batch = job.run({"measurements": clean(spark, "measurements", mixed)}, START_NS)["alerts"]
    assert batch.columns == ALERTS.names
    assert told(batch) == expected
    for row in batch.collect():
        assert json.loads(row["body"])["link"] == row["link"]
        assert json.loads(row["body"])["state"] == row["state"]

    by_time = sorted(rows, key=lambda row: row["created_ns"])
    pieces = [by_time[at : at + 80] for at in range(0, len(by_time), 80)]
    for piece in pieces:
        random.Random(4).shuffle(piece)
    pieces[2] += pieces[0][:20]  # late and known
    assert told(streamed(spark, tmp_path / "here", pieces, job)) == expected
    half = [by_time[:130], by_time[130:]]
    assert told(streamed(spark, tmp_path / "by spark", half, replace(job, few=0))) == expected
    assert Alerts.writes["alerts"].publish is Publish.EVENTS


def test_silence_is_told_in_a_batch(spark: SparkSession) -> None:
    rows = [{"node": "a", "link": "x", "created_ns": START_NS + second * SECOND_NS} for second in (0, 5, 30)]
    made = Alerts(rules=SILENT).run({"measurements": clean(spark, "measurements", rows)}, START_NS + 90 * SECOND_NS)
    seconds = [
        (row["state"], round((row["stamp_ns"] - START_NS) / SECOND_NS))
        for row in made["alerts"].orderBy("stamp_ns").collect()
    ]
    assert seconds == [("raised", 15), ("cleared", 30), ("raised", 40)]


def test_nothing_comes_of_nothing_and_bad_rules_are_refused(spark: SparkSession) -> None:
    empty = clean(spark, "measurements")
    assert Alerts().run({"measurements": empty}, START_NS)["alerts"].count() == 0
    with pytest.raises(ConfigError, match="'speed' is no metric"):
        Alerts(rules='[[alert]]\nname = "a"\nwhen = "speed > 1"').run({"measurements": empty}, START_NS)
    assert pa.types.is_string(ALERTS.field("body").type)
