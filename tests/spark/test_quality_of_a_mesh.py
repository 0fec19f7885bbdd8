"""Compliance, load, snapshots and replay over what archives kept of a real mesh and a real cloud, through ingest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from chappe.archive.reader import Reader
from chappe.archive.schema import DATASETS, schema_of
from chappe.archive.segments import Segments
from chappe.pipeline.clocks import Basis
from chappe.pipeline.job import RAW, Job
from chappe.pipeline.jobs.compliance import Compliance
from chappe.pipeline.jobs.ingest import Ingest
from chappe.pipeline.jobs.load import Load
from chappe.pipeline.jobs.replay import Replay
from chappe.pipeline.jobs.snapshots import Snapshots
from chappe.pipeline.source import SOURCE
from tests.support.meshrun import FLOATS, RATE_HZ, REST_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MS = 1_000_000
ARCHIVES = ("plant", "cloud")
SETS = "pmus = pmu*/frequency, pmu*/voltage every 0.5 at 50 of 4"

Rows = list[dict[str, Any]]


class Made:
    """The tables that the jobs make of an archive; each is computed when it is asked for, and kept."""

    def __init__(self, spark: SparkSession, archive: Path) -> None:
        tables = {dataset: _kept(archive, dataset) for dataset in DATASETS}
        # When the run ended: what the archive had subscribed to is allocated for as long as nobody logs its end.
        self._now_ns = 1 + max(pc.max(table["created_ns"]).as_py() or 0 for table in tables.values())
        raw = {f"{RAW}{dataset}": spark.createDataFrame(table) for dataset, table in tables.items()}
        clean = Ingest().run(raw, self._now_ns)
        self._frames: dict[str, DataFrame] = {**raw, **{name: frame.localCheckpoint() for name, frame in clean.items()}}
        self._known: dict[str, Rows] = {}

    def run(self, job: Job) -> None:
        self._frames.update(job.run({name: self._frames[name] for name in job.reads}, self._now_ns))

    def __call__(self, table: str) -> Rows:
        if table not in self._known:
            self._known[table] = [row.asDict(recursive=True) for row in self._frames[table].collect()]
        return self._known[table]


def _kept(archive: Path, dataset: str) -> pa.Table:
    """A dataset of all archives in a folder, by the names of its segments."""
    found = []
    for name in ARCHIVES:
        reader = Reader(Segments(archive, name))
        rows = pa.Table.from_batches(reader.read(dataset, 0, reader.end(dataset)), schema_of(dataset))
        found.append(rows.append_column(pa.field(SOURCE, pa.string(), nullable=False), pa.repeat(name, len(rows))))
    return pa.concat_tables(found)


@pytest.fixture(scope="module")
def made(spark: SparkSession, mesh_archive: Path) -> Made:
    tables = Made(spark, mesh_archive)
    for job in (Compliance(), Load(lasting_s=1.0), Snapshots(sets=SETS), Replay(slice_s=1.0)):
        tables.run(job)
    return tables


@pytest.mark.spec("SJ-07")
def test_the_subscription_of_the_desk_is_judged_by_what_came_beside_it(made: Made) -> None:
    (desk,) = [row for row in made("compliance") if row["entity"] == "desk" and row["expected"]][:1]
    assert (desk["broker"], desk["subject"], desk["edge"], desk["mode"]) == ("leaf", "turbine/speed", "z", 0)
    assert (desk["interval_ms"], desk["bound_ms"], desk["redundancy"]) == (1000 / RATE_HZ, 50.0, 2)
    hours = [row for row in made("compliance") if row["entity"] == "desk"]
    expected = sum(row["expected"] for row in hours if row["expected"])
    received = sum(row["received"] for row in hours if row["received"])
    assert 0 < received <= expected - REST_S * RATE_HZ / 2  # it rested, and a busy machine publishes unevenly
    assert max(row["longest_gap_ms"] or 0 for row in hours) >= REST_S * 1000 / 2
    assert sum(row["reported_missed"] for row in hours) > 0
    assert all(
        0 < row["latency_p50_ms"] <= row["latency_p99_ms"] <= row["latency_max_ms"] for row in hours if row["received"]
    )
    assert desk["segments"] == ["w>x", "w>y", "x>z", "y>z"]
    assert desk["paths"] == 2

    sla = {(row["entity"], row["promise"]): row for row in made("sla")}
    assert sla["desk", "interval"]["kept"] is False
    assert "reported missed" in sla["desk", "interval"]["evidence"]
    assert sla["desk", "redundancy"]["kept"] is True
    segments = {(row["from_node"], row["to_node"]): row for row in made("segments")}
    assert segments["x", "z"]["received"] > 100
    assert segments["x", "z"]["sent"] is None  # the archive hears no counters of x


@pytest.mark.spec("SJ-08")
def test_the_load_of_the_cloud_stands_beside_what_its_broker_allocated(made: Made) -> None:
    loads = {row["resource"]: row for row in sorted(made("loads"), key=lambda row: row["samples"])}  # the longer hour
    edge = loads["router/z"]
    assert 0 < edge["mean_per_s"] <= 2.5 * RATE_HZ
    assert edge["allocated_per_s"] == pytest.approx(2 * RATE_HZ, rel=0.2)  # over two ways
    assert edge["used"] == pytest.approx(edge["mean_per_s"] / edge["allocated_per_s"])
    arrivals = {row["name"]: row for row in made("arrivals")}
    assert {*FLOATS, "turbine/speed"} <= set(arrivals)
    assert arrivals["turbine/speed"]["longest_s"] >= REST_S / 2
    functions = {row["name"]: row for row in made("extrapolators")}
    assert functions["pmu1/frequency"]["trials"] > 50
    assert functions["pmu1/frequency"]["gain"] > 0.2  # a slow sine
    proposals = [(row["topic"], json.loads(row["body"])) for row in made("load_proposals")]
    assert {topic for topic, _ in proposals} == {"pipeline/proposals/extrapolator"}  # one subscriber is no evidence
    assert {"pmu1/frequency", "pmu2/voltage"} <= {body["subject"] for _, body in proposals}
    assert made("mode_changes") == []


@pytest.mark.spec("SJ-09")
def test_snapshots_hold_values_of_one_instant(made: Made) -> None:
    snapshots = sorted(made("snapshots"), key=lambda row: row["number"])
    assert len(snapshots) >= 8
    for row in snapshots:
        assert row["instant_ns"] == row["number"] * 500 * MS
        assert all(abs(each["created_ns"] - row["instant_ns"]) <= 10 * MS for each in row["values"])
        assert row["complete"] == (len(row["values"]) == 4)
        assert row["sum"] == pytest.approx(sum(each["value"] for each in row["values"]))
    whole = [row for row in snapshots if row["complete"]]
    assert whole
    assert all(4 * 49 <= row["sum"] <= 4 * 51 for row in whole)
    totals = {row["created_ns"]: row["value"] for row in made("totals") if row["name"] == "pipeline/pmus.sum"}
    assert totals == {row["instant_ns"]: row["sum"] for row in whole}


@pytest.mark.spec("SJ-11")
def test_events_are_ready_to_be_replayed_in_the_order_in_which_they_were_made(made: Made) -> None:
    replay = sorted(made("replay"), key=lambda row: row["position"])
    assert [row["position"] for row in replay] == list(range(len(made("events"))))
    assert {row["topic"] for row in replay} == {"plant/alarm", "plant/reading"}
    numbers = [json.loads(row["body"])["number"] for row in replay]
    assert numbers == sorted(set(numbers))
    stamps = [row["corrected_ns"] for row in replay]
    assert stamps == sorted(stamps)
    told = [json.loads(row["body"])["at"] for row in replay]
    assert all(abs(stamp - at) < 5000 * MS for stamp, at in zip(stamps, told, strict=True))
    assert {row["basis"] for row in made("replay_clocks")} <= {str(each) for each in Basis}
    assert sum(row["events"] for row in made("replay_slices")) == len(replay)
