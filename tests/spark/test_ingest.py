"""Ingest: what is bad, late or a repeat never reaches a clean table, whatever the batches are and whoever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from chappe.archive.schema import DATASETS, given
from chappe.archive.segments import Segments
from chappe.archive.writer import Limits, Writer
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.runner import Place, Runner
from tests.support.archives import START_NS

SECOND_NS = 1_000_000_000


def measurement(number: int, **other: Any) -> dict[str, Any]:
    created = START_NS + number * SECOND_NS
    row = {
        "node": "a", "link": "a-b", "peer": "b", "transport": "tcp", "realm": None, "created_ns": created,
        "latency_ms": 1.0, "deviation_ms": 0.1, "jitter_ms": 0.1, "jitter": 0.1, "loss": 0.0, "bandwidth": None,
        "cost": 3.0, "outliers": 0, "window": 50, "received_ns": created + 1000,
    }  # fmt: skip
    return {**row, **other}


def event(number: int, **other: Any) -> dict[str, Any]:
    received = START_NS + number * SECOND_NS
    row = {
        "node": "a", "topic": "plant/alarm", "kind": "text", "issuer": b"i" * 16, "epoch": 1, "sequence": number,
        "created_ns": None, "body": b"{}", "received_ns": received,
    }  # fmt: skip
    return {**row, **other}


class Written:
    """An archive that tests write rows to."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder / "work", str(folder / "segments"), str(folder / "log"), max_rows=100)
        self._writer = Writer(Segments(folder / "segments"), folder / "log", Limits(age_ns=1 << 62))

    def write(self, dataset: str, *rows: dict[str, Any]) -> None:
        self._writer.append(dataset, pa.RecordBatch.from_pylist(list(rows), schema=given(dataset)), START_NS)
        self._writer.sync()

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path)
    yield written
    written.close()


def rows(spark: SparkSession, place: Place, table: str) -> list[dict[str, Any]]:
    if not place.tables.exists(table):
        return []
    return [row.asDict() for row in place.tables.read(spark, table).collect()]


def ingest(spark: SparkSession, place: Place, **parameters: float) -> None:
    runner = Runner(spark, place, [replace(Ingest(), **parameters)])
    assert runner.once(), runner.failures


@pytest.mark.spec("SJ-01")
def test_bad_late_and_repeated_rows_never_reach_a_clean_table(spark: SparkSession, archive: Written) -> None:
    bad = {
        "deviation_ms below zero": measurement(200, deviation_ms=-0.1),
        "latency_ms is no number": measurement(201, latency_ms=float("nan")),
        "cost is no number": measurement(202, cost=float("inf")),
        "loss above one": measurement(203, loss=1.5),
        "impossible time": measurement(204, created_ns=START_NS + 1000 * SECOND_NS),
        "no link": measurement(205, link=""),
        "late": measurement(206, received_ns=START_NS + 206 * SECOND_NS + 61 * SECOND_NS),
    }
    good = [measurement(number) for number in range(150)]
    again = measurement(7, received_ns=START_NS + 30 * SECOND_NS, transport="udp")  # the first stays
    shuffled = sorted(good, key=lambda row: row["created_ns"] % 7)
    archive.write("measurements", *shuffled[:80], again, *bad.values(), *shuffled[80:])
    archive.write("events", *[event(number) for number in range(20)], event(3), event(3, epoch=2))
    ingest(spark, archive.place, late_s=60.0)
    clean = rows(spark, archive.place, "measurements")
    assert sorted(row["created_ns"] for row in clean) == [row["created_ns"] for row in good]
    assert {row["transport"] for row in clean} == {"tcp"}
    assert list(clean[0]) == [*DATASETS["measurements"].names, "source"]
    held = rows(spark, archive.place, "quarantine")
    assert {row["reason"]: json.loads(row["row"])["created_ns"] for row in held} == {
        reason: row["created_ns"] for reason, row in bad.items()
    }
    assert sorted((row["epoch"], row["sequence"]) for row in rows(spark, archive.place, "events")) == sorted(
        [*((1, number) for number in range(20)), (2, 3)]
    )

    # repeats of what came in other batches, and rows that are new
    archive.write("measurements", *good[140:], *[measurement(number) for number in range(300, 310)], good[0])
    archive.write("events", event(5, received_ns=START_NS + 3000 * SECOND_NS), event(40))
    ingest(spark, archive.place, late_s=60.0)
    assert len(rows(spark, archive.place, "measurements")) == 160
    assert len(rows(spark, archive.place, "events")) == 22
    whole = Ingest(late_s=60.0).run(
        {f"raw/{name}": spark.read.format("chappe").options(
            path=archive.place.archive, log=archive.place.log, dataset=name).load() for name in DATASETS}, 0
    )  # fmt: skip
    assert {name: whole[name].count() for name in ("measurements", "events", "status", "quarantine")} == {
        "measurements": 160, "events": 22, "status": 0, "quarantine": 7,
    }  # fmt: skip
