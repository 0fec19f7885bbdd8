"""Snapshots (SJ-09): sets of one instant from values in any order, the same in a batch and in a stream."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from chappe.pipeline.grid import Grid
from chappe.pipeline.jobs.snapshots import SNAPSHOTS, TOTALS, Snapshots
from tests.support.cleanrows import SECOND_NS, START_NS, clean, clean_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB = Snapshots(sets="loads = plant*/load every 1 at 30 of 3; all = * every 2", latency_s=1.0)


def readings(seconds: int) -> list[dict[str, Any]]:
    """Three plants at 30 a second with jitter, and one that belongs to `all` alone; plant 2 misses second 5."""
    noise = random.Random(7)
    rows = []
    for step in range(30 * seconds):
        instant = START_NS + step * 100_000_000 // 3
        for plant in range(3):
            if plant != 2 or step != 150:
                created = instant + noise.randrange(-15_000_000, 15_000_000)
                rows.append(
                    {"name": f"plant{plant}/load", "variable": plant, "value": float(step + plant),
                     "created_ns": created, "received_ns": created + noise.randrange(1_000_000, 400_000_000)}
                )  # fmt: skip
    rows.append({"name": "mill/speed", "variable": 9, "whole": 7, "value": None, "created_ns": START_NS})
    return rows


def spoilt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same values, some twice and out of order, among others that must not count."""
    mixed = [*rows, *rows[::7]]
    mixed += [
        {"name": "plant0/load", "value": float("nan"), "created_ns": START_NS},
        {"name": "plant0/load", "value": None, "content": b"x", "created_ns": START_NS},
        {"name": "plant0/load", "value": 1e9, "created_ns": START_NS, "extrapolated": True},
        {"name": "plant0/load", "value": 1e9, "created_ns": START_NS + 90 * SECOND_NS, "received_ns": START_NS},
        {"name": "plant0/load", "value": 1e9, "created_ns": -5, "received_ns": START_NS},
        {"name": "pipeline/plant0/load", "value": 1e9, "created_ns": START_NS},
    ]
    random.Random(3).shuffle(mixed)
    return mixed


@pytest.mark.spec("SJ-09")
def test_sets_are_those_of_the_grid_whatever_the_order_and_repetition(spark: SparkSession) -> None:
    rows = readings(12)
    made = JOB.run({"status": clean(spark, "status", spoilt(rows))}, 0)
    assert made["snapshots"].columns == SNAPSHOTS.names
    snapshots = made["snapshots"].orderBy("set", "number").collect()
    loads = [row for row in snapshots if row["set"] == "loads"]
    assert [row["instant_ns"] for row in loads] == [START_NS + second * SECOND_NS for second in range(12)]
    for second, row in enumerate(loads):
        values = {each["name"]: each["value"] for each in row["values"]}
        there = [plant for plant in range(3) if (plant, second) != (2, 5)]
        assert values == {f"plant{plant}/load": 30.0 * second + plant for plant in there}
        assert row["sum"] == sum(values.values())
        assert (row["min"], row["max"]) == (30.0 * second, 30.0 * second + there[-1])
        assert row["largest"] == f"plant{there[-1]}/load"
        assert row["spread_ns"] < 33_333_333
    assert [row["instant_ns"] for row in loads if not row["complete"]] == [START_NS + 5 * SECOND_NS]
    assert loads[5]["missing"] == ["plant2/load"]
    assert loads[-1]["forecast"] is not None
    every = [row for row in snapshots if row["set"] == "all"]
    assert every[0]["present"] == 4 and not every[1]["complete"]  # noqa: PT018
    assert every[1]["missing"] == ["mill/speed"]

    published = made["totals"]
    assert published.columns == TOTALS.names
    sums = {row["created_ns"]: row["value"] for row in published.where("name = 'pipeline/loads.sum'").collect()}
    assert sums == {row["instant_ns"]: row["sum"] for row in loads if row["complete"]}
    named = published.where(F.col("created_ns") == START_NS + 11 * SECOND_NS).where("name like '%loads%'").collect()
    values = {row["name"].removeprefix("pipeline/loads."): row["value"] for row in named}
    assert values.pop("forecast") == pytest.approx(3 * 30.0 * 11 + 3, rel=0.2)
    assert values == {
        "sum": 993.0, "mean": 331.0, "min": 330.0, "max": 332.0, "largest_variable": 2.0,
    }  # fmt: skip


def test_nothing_comes_of_nothing(spark: SparkSession) -> None:
    made = JOB.run({"status": clean(spark, "status")}, 0)
    assert made["snapshots"].count() == made["totals"].count() == 0


@pytest.mark.spec("SJ-09")
def test_a_stream_closes_sets_by_the_latency_bound_and_goes_on_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Late values beyond the bound change nothing; what was closed before a restart is not closed again."""
    rows = sorted(readings(16), key=lambda row: row.get("received_ns", START_NS))
    arriving, folder = tmp_path / "in", tmp_path / "out"
    arriving.mkdir()

    def arrive(number: int, part: list[dict[str, Any]]) -> None:
        pq.write_table(clean_table("status", part), tmp_path / "part")
        (tmp_path / "part").rename(arriving / f"{number}.parquet")

    def go_on() -> None:
        status = spark.readStream.schema(clean(spark, "status").schema).option("maxFilesPerTrigger", 1)
        made = JOB.stream({"status": status.parquet(str(arriving))})
        query = (
            made["snapshots"].writeStream.format("parquet").option("path", str(folder))
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    third = len(rows) // 3
    arrive(0, rows[:third])
    arrive(1, [*rows[third : 2 * third], *rows[:third:5]])
    go_on()
    late = {"name": "plant1/load", "value": 5e9, "created_ns": START_NS, "received_ns": START_NS + 11 * SECOND_NS}
    arrive(2, [*rows[2 * third :], late])
    go_on()
    streamed = spark.read.parquet(str(folder)).where("set = 'loads'").orderBy("number").collect()
    whole = JOB.run({"status": clean(spark, "status", rows)}, 0)["snapshots"].where("set = 'loads'").orderBy("number")
    assert len(streamed) in (14, 15)  # the last ones are still open
    assert streamed == whole.collect()[: len(streamed)]


@pytest.mark.spec("SJ-09")
def test_the_grid_as_an_expression_is_the_grid(spark: SparkSession) -> None:
    numbers = random.Random(5)
    stamps = [numbers.randrange(-(10**12), 2 * 10**18) for _ in range(300)] + [0, -1, 1]
    frame = spark.createDataFrame(pa.table({"created": stamps}))
    for grid in (Grid(1, 10), Grid(3, 100_000_000, 7), Grid(30_000, 1_001_000_000_000, 2), Grid(7, 30, 3)):
        sets = grid.sets(stamps)
        found = frame.select(
            grid.column(F.col("created")).alias("period"),
            grid.instant_column(F.lit(abs(int(sets[0])))).alias("instant"),
        ).collect()
        assert [row["period"] for row in found] == grid.periods(stamps).tolist()
        assert found[0]["instant"] == grid.instant(abs(int(sets[0])))
