"""SJ-10: what stands alone and what was forged, from clean tables, as batch and as stream."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from chappe.errors import ConfigError
from chappe.pipeline.density import Rule
from chappe.pipeline.jobs.anomalies import Anomalies
from chappe.pipeline.spaces import analyse, spaces, states
from tests.support.frames import BEGUN, frames, table
from tests.support.ingested import ingested
from tests.support.meshrun import SLOW_MS

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

SECOND = 1_000_000_000
START = BEGUN - BEGUN % (60 * SECOND)
JOB = Anomalies(least=3, late_s=5.0, unknown_ids="auto")


def _links(begin: int, count: int = 40) -> list[dict[str, Any]]:
    """Links of about 1 ms, but one of 80 ms and one that went from 1 to 300."""
    random = np.random.default_rng(7)
    rows = []
    for link in range(count):
        for tick in range(0, 20, 5):
            latency = 80.0 if link == 0 else 300.0 if link == 1 and tick >= 10 else random.uniform(0.8, 1.2)
            rows.append({
                "node": "a", "link": f"l{link}", "created_ns": begin + tick * SECOND, "latency_ms": latency,
                "jitter": random.uniform(0.05, 0.1), "received_ns": begin + tick * SECOND + 1000,
            })  # fmt: skip
    return rows


def _stamps(variable: int, name: str, begin: int, count: int = 100, period: int = SECOND // 10) -> list[dict[str, Any]]:
    first = begin - begin % period
    return [{"variable": variable, "name": name, "created_ns": first + n * period, "value": 1.0} for n in range(count)]


def _issued(variable: int, action: str = "publish", at: int = START, **more: Any) -> dict[str, Any]:
    detail = {"variable_id": variable, "rate_num": 10, "rate_den": SECOND, **more}
    return {"action": action, "created_ns": at, "detail": json.dumps(detail)}


def _inputs() -> dict[str, list[dict[str, Any]]]:
    links = _links(START)
    malformed = [
        {"link": "empty", "created_ns": START, "latency_ms": None, "jitter": None},
        {"link": "nan", "created_ns": START, "latency_ms": float("nan"), "jitter": 0.1},
        {"link": "infinite", "created_ns": START, "latency_ms": float("inf"), "jitter": 0.1},
        {"link": "future", "created_ns": START + 900 * SECOND, "received_ns": START, "latency_ms": 9.0, "jitter": 0.1},
        {"link": "negative", "created_ns": -5, "received_ns": START, "latency_ms": 9.0, "jitter": 0.1},
    ]
    forged = [
        {"variable": 7, "name": "pmu1/frequency", "created_ns": START + SECOND + 33_000_000, "value": 9.0},
        {"variable": 7, "name": "pmu1/frequency", "created_ns": START + 3600 * SECOND, "received_ns": START + SECOND,
         "value": 9.0},
        {"variable": 99, "name": "pmu9/ghost", "created_ns": START + SECOND, "value": 9.0},
        {"variable": 8, "name": "pmu1/gone", "created_ns": START + 50 * SECOND, "value": 9.0},
    ]  # fmt: skip
    status = _stamps(7, "pmu1/frequency", START) + forged
    return {
        "measurements": links[::-1] + links[:30] + malformed,  # out of order, some twice
        "status": status[::-1] + status[:20],
        "events": [
            {"topic": "plant/alarm", "created_ns": START + 7200 * SECOND, "received_ns": START},
            {"topic": "plant/alarm", "created_ns": START, "received_ns": START},
            {"topic": "plant/plain", "created_ns": None, "received_ns": START},
        ],
        "quarantine": [
            {
                "dataset": "status",
                "received_ns": START,
                "row": json.dumps({"name": "pmu2/voltage", "variable": 9, "created_ns": START + 10**15}),
            },
            {"dataset": "events", "received_ns": START, "row": "no json"},
            {"dataset": "status", "received_ns": START, "row": json.dumps({"name": "old", "created_ns": 5})},
            {"dataset": "measurements", "received_ns": START, "row": json.dumps({"created_ns": START + 10**15})},
        ],
        "broker": [
            _issued(7),
            _issued(8),
            _issued(8, "unpublish", START + SECOND),
            _issued(0, "publish_refused"),
            {"action": "path", "created_ns": START, "detail": "no json"},
            {"action": "mode", "created_ns": START, "detail": None},
        ],
    }


@pytest.mark.spec("SJ-10")
def test_a_batch_finds_what_stands_alone_and_what_was_forged(spark: SparkSession) -> None:
    found = JOB.run(frames(spark, **_inputs()), START)
    for name, written in JOB.writes.items():
        assert found[name].columns == written.schema.names
    outliers = {row["peer"]: row for row in found["outliers"].collect()}
    assert set(outliers) == {"a/l0", "a/l1"}
    assert outliers["a/l0"]["position"][0] == 80.0
    assert outliers["a/l0"]["window_ns"] == START
    assert outliers["a/l1"]["near"] < outliers["a/l1"]["needed"]
    assert outliers["a/l1"]["topic"] == "pipeline/anomalies/links/a/l1"
    assert json.loads(outliers["a/l1"]["body"])["position"][0] == 300.0
    centroids = found["centroids"].collect()
    assert {row["cluster"] for row in centroids} == {0}
    assert sum(row["states"] for row in centroids) == 38 * 2 + 1  # two periods, and one of the link that changed
    assert all(0.8 < row["position"][0] < 1.2 and row["peers"] == 40 for row in centroids)
    forged = {(row["kind"], row["subject"]): row for row in found["forgeries"].collect()}
    assert set(forged) == {
        ("off_schedule", "pmu1/frequency"), ("far_future", "pmu1/frequency"), ("far_future", "plant/alarm"),
        ("far_future", "pmu2/voltage"), ("unknown_id", "pmu9/ghost"), ("withdrawn_id", "pmu1/gone"),
    }  # fmt: skip
    off = forged["off_schedule", "pmu1/frequency"]
    assert (off["count"], off["of"], off["first_ns"]) == (1, 101, START + SECOND + 33_000_000)
    assert off["topic"] == "pipeline/forgeries/off_schedule/pmu1/frequency"
    assert "every 100 ms" in json.loads(off["body"])["reason"]


def test_nothing_comes_of_nothing_and_ids_are_not_judged_without_a_log(spark: SparkSession) -> None:
    empty = JOB.run(frames(spark), START)
    assert {name: each.count() for name, each in empty.items()} == dict.fromkeys(JOB.writes, 0)
    unlogged = frames(spark, status=_inputs()["status"])
    kinds = {row["kind"] for row in JOB.run(unlogged, START)["forgeries"].select("kind").collect()}
    assert kinds == {"off_schedule", "far_future"}


def _streamed(
    spark: SparkSession, folder: Path, tables: Iterable[str], *parts: Mapping[str, list[dict[str, Any]]]
) -> dict[str, list[Row]]:
    """What a stream says after these parts, one a batch."""
    streams = {}
    for name in JOB.reads:
        (folder / name).mkdir()
        for number, given in enumerate(parts):
            pq.write_table(table(name, given.get(name, ())), folder / name / f"{number}.parquet")
        schema = spark.createDataFrame(table(name)).schema
        streams[name] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    written = JOB.stream(streams)
    found = {}
    for name in tables:
        query = (
            written[name].writeStream.format("memory").queryName(f"{folder.name}_{name}".replace("-", "_"))
            .option("checkpointLocation", str(folder / f"checkpoint-{name}")).outputMode("append")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        found[name] = spark.table(query.name).collect()
    return found


@pytest.mark.spec("SJ-10", "CN-106")
def test_a_stream_finds_the_same_when_its_windows_close(spark: SparkSession, tmp_path: Path) -> None:
    first = _inputs()
    later = {
        "measurements": _links(START + 60 * SECOND, 3) + _links(START, 1),  # the last are too late, and there already
        "status": _stamps(7, "pmu1/frequency", START + 120 * SECOND, 10),
        "events": [{"topic": "plant/alarm", "created_ns": START + 120 * SECOND}],
        "broker": [_issued(7, at=START + 120 * SECOND)],
    }
    found = _streamed(spark, tmp_path, JOB.writes, first, later)
    whole = JOB.run(frames(spark, **first), START)
    same = ("peer", "created_ns", "position", "near", "needed", "region", "body")
    assert sorted([tuple(row[name] for name in same) for row in found["outliers"]]) == sorted(
        [tuple(row[name] for name in same) for row in whole["outliers"].collect()]
    )
    places = sorted((row["cluster"], row["states"], row["position"]) for row in found["centroids"])
    assert places == sorted((row["cluster"], row["states"], row["position"]) for row in whole["centroids"].collect())
    forged = {(row["kind"], row["subject"], row["count"]) for row in found["forgeries"]}
    assert forged == {
        ("off_schedule", "pmu1/frequency", 1), ("far_future", "pmu1/frequency", 1), ("far_future", "plant/alarm", 1),
        ("far_future", "pmu2/voltage", 1), ("unknown_id", "pmu9/ghost", 1),
    }  # fmt: skip


def test_a_stream_of_events_alone_goes_on_without_variables(spark: SparkSession, tmp_path: Path) -> None:
    """Nobody says a value or asks for an id: time passes all the same, and windows close."""
    first = {name: _inputs()[name] for name in ("events", "quarantine")}
    later = {"events": [{"topic": "plant/alarm", "created_ns": START + 120 * SECOND}]}
    found = _streamed(spark, tmp_path, ["forgeries"], first, later)["forgeries"]
    assert {(row["kind"], row["subject"]) for row in found} == {
        ("far_future", "plant/alarm"), ("far_future", "pmu2/voltage"),
    }  # fmt: skip


@pytest.mark.spec("SJ-10")
def test_the_links_of_a_real_mesh_are_judged_as_its_archive_says(spark: SparkSession, mesh_archive: Path) -> None:
    inputs = ingested(spark, mesh_archive)
    job = Anomalies(spaces="links = measurements: latency_ms 0.01 1000 log", period_s=0.75)
    made = job.run(inputs, 0)
    found = {name: made[name].toPandas() for name in ("centroids", "outliers")}
    measured = ds.dataset(mesh_archive / "measurements", partitioning="hive").to_table().to_pandas()
    samples = measured.assign(
        peer=measured["node"] + "/" + measured["link"], attribute="latency_ms", labels="", value=measured["latency_ms"]
    )
    assert samples["peer"].nunique() == 8  # four links, by both of their ends
    space, length = spaces(job.spaces)[0], 1_500_000_000
    for window, part in samples.groupby(samples["created_ns"] // length * length):
        whole = states(part, space, length // 2)
        expected = analyse(whole, space, Rule())
        outliers = found["outliers"][found["outliers"]["window_ns"] == window]
        centroids = found["centroids"][found["centroids"]["window_ns"] == window]
        assert sorted(outliers["peer"]) == sorted(row["peer"] for row in expected.outliers)
        assert outliers["states"].sum() + centroids["states"].sum() == len(whole)
        slow = whole[whole["latency_ms"] > 0.6 * SLOW_MS]
        others = whole[~whole["peer"].isin(slow["peer"])]
        if len(set(slow["peer"])) <= 2 and slow["latency_ms"].min() > 2 * others["latency_ms"].max():
            assert set(slow["peer"]) <= set(outliers["peer"])  # the link that became slow, unless all are
    assert set(found["centroids"]["source"]) == {"plant"}


@pytest.mark.spec("SJ-10")
def test_nobody_in_a_real_mesh_is_accused_but_who_forges(spark: SparkSession, mesh_archive: Path) -> None:
    """Publishers that a busy machine held up are not; the broker knows its variable; what is put in is found."""
    inputs = ingested(spark, mesh_archive)
    status = inputs["status"]
    put = {"variable": "4242L", "name": "'turbine/ghost'"}
    stranger = status.where("name = 'turbine/speed'").limit(1)
    stranger = stranger.selectExpr(*[f"{put[name]} as {name}" if name in put else name for name in status.columns])
    ahead = status.where("name = 'pmu1/frequency'").limit(1).withColumn("created_ns", F.col("created_ns") + 5 * 10**9)
    given = {**inputs, "status": status.unionByName(stranger).unionByName(ahead)}
    told = JOB.run(given, 0)["forgeries"].collect()
    assert sorted((row["kind"], row["subject"], row["source"]) for row in told) == [
        ("far_future", "pmu1/frequency", "plant"), ("unknown_id", "turbine/ghost", "cloud"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"spaces": "links"}, "NAME = FEED"),
        ({"spaces": "a = measurements: speed 0 1"}, "no 'speed'"),
        ({"spaces": "a = counters: x 1 0"}, "below HIGH"),
        ({"spaces": "a = counters: x 0 1 log"}, "above 0"),
        ({"spaces": "a = planets: x 0 1"}, "no feed"),
        ({"periods": 1}, "2 or more"),
        ({"reach": 0.0}, "reach"),
        ({"rule": "magic"}, "cells"),
        ({"unknown_ids": "maybe"}, "auto"),
    ],
)
def test_parameters_that_cannot_be_say_why(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Anomalies(**settings)
