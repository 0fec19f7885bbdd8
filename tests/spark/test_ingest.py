"""Ingest: what is bad, late or a repeat never reaches a clean table, whatever the batches are and whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from chappe.archive.schema import DATASETS, input_schema
from chappe.archive.segments import Segments
from chappe.archive.writer import Limits, Writer
from chappe.pipeline.jobs import ingest as jobs_ingest
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.repeats import KEYS
from chappe.pipeline.runner import Place, Runner
from chappe.pipeline.tables import batches
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
        "created_ns": None, "durable": False, "body": b"{}", "received_ns": received,
    }  # fmt: skip
    return {**row, **other}


class Written:
    """An archive that tests write rows to."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder / "work", str(folder / "segments"), str(folder / "log"), max_rows=100)
        self._writer = Writer(Segments(folder / "segments"), folder / "log", Limits(age_ns=1 << 62))

    def write(self, dataset: str, *rows: dict[str, Any]) -> None:
        self._writer.append(dataset, pa.RecordBatch.from_pylist(list(rows), schema=input_schema(dataset)), START_NS)
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
def test_bad_late_and_repeated_rows_never_reach_a_clean_table(
    spark: SparkSession, archive: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    monkeypatch.setattr(jobs_ingest, "FEW", 0)  # by tasks of Spark, however few there are
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

    # repeats of what came in other batches, and rows that are new; now where the driver is
    monkeypatch.undo()
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
    left_out = {"measurements": (12, 172), "events": (2, 24)}
    assert {row["dataset"]: (row["repeats"], row["of"]) for row in whole["repeats"].collect()} == left_out
    counted: dict[str, tuple[int, int]] = {}
    for row in rows(spark, archive.place, "repeats"):
        repeats, of = counted.get(row["dataset"], (0, 0))
        counted[row["dataset"]] = repeats + row["repeats"], of + row["of"]
        assert START_NS <= row["first_ns"] <= row["last_ns"]
    assert {dataset: repeats for dataset, (repeats, _) in counted.items()} == {"measurements": 12, "events": 2}
    assert all(of <= left_out[dataset][1] for dataset, (_, of) in counted.items())  # some batches had no repeat


@pytest.mark.spec("SJ-01")
def test_rows_of_a_real_mesh_pass_and_an_empty_archive_is_no_error(
    spark: SparkSession, tmp_path: Path, mesh_archive: Path
) -> None:
    place = Place(tmp_path / "work", str(mesh_archive))
    ingest(spark, place)
    clean = {name: rows(spark, place, name) for name in ("measurements", "status", "events")}
    raw = {
        name: ds.dataset(mesh_archive / name, partitioning=None)
        .to_table()
        .to_pandas()
        .groupby(list(KEYS[name]))
        .ngroups
        for name in clean
    }
    held = Counter(row["dataset"] for row in rows(spark, place, "quarantine"))
    assert {name: len(found) + held[name] for name, found in clean.items()} == raw
    assert held.total() * 20 < sum(raw.values())  # a healthy mesh has hardly a bad row
    assert {row["source"] for row in clean["measurements"]} == {"plant"}
    (tmp_path / "nothing").mkdir()
    ingest(spark, Place(tmp_path / "other", str(tmp_path / "nothing")))


@pytest.mark.timeout(900)
def test_kill_9_of_the_driver_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The driver is killed twice in the middle of its batches."""
    archive = Written(tmp_path)
    for first in range(0, 3000, 100):
        archive.write("measurements", *[measurement(number) for number in range(first, first + 100)])
    archive.write("measurements", *[measurement(number) for number in range(0, 3000, 50)])
    archive.close()
    file = tmp_path / "pipeline.toml"
    place = archive.place
    file.write_text(f'[pipeline]\narchive = "{place.archive}"\nwork = "{place.work}"\nmax_rows = 200\n')
    command = [sys.executable, "-m", "chappe.cli", "pipeline", "run", "ingest", "-f", str(file), "--master", "local[2]"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    for batch in (1, 4):
        driver = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
        while place.tables.last_batch("measurements") < batch and driver.poll() is None:
            time.sleep(0.01)  # nothing announces it but the folder
        driver.kill()
        assert driver.wait() == -signal.SIGKILL
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    files = [file for each in batches(place.tables.path("measurements").resolve()) for file in each.glob("*.parquet")]
    seen = [row["created_ns"] for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    assert sorted(seen) == [START_NS + number * SECOND_NS for number in range(3000)]
