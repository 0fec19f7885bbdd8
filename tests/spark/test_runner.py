"""The runner: jobs in order, each row once, what fails is named and the rest goes on."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from chappe.errors import ConfigError
from chappe.pipeline import batches, catalogue
from chappe.pipeline.job import RAW, Desk, Frames, Job, Publish, StepJob, StreamJob, Table, parameter
from chappe.pipeline.runner import Place, Runner, Told, brief
from tests.support.archives import START_NS
from tests.support.counted import Written

NUMBERS = pa.schema([pa.field("value", pa.float64()), pa.field("name", pa.string())])
TOLD = pa.schema([pa.field("topic", pa.string()), pa.field("body", pa.string())])


@dataclass(frozen=True)
class Taking(StepJob):
    """Even numbers of the archive."""

    id: ClassVar[str] = "SJ-97"
    name: ClassVar[str] = "taking"
    line: ClassVar[str] = "takes"
    reads: ClassVar[tuple[str, ...]] = (f"{RAW}counters",)
    writes: ClassVar[dict[str, Table]] = {"taken": Table(NUMBERS)}

    def step(self, name: str, rows: DataFrame, desk: Desk) -> Frames:
        assert all(each.rows for each in desk.written("taken"))
        return {"taken": rows.where("value % 2 = 0").select("value", "name")}

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        raise NotImplementedError


@dataclass(frozen=True)
class Doubling(StreamJob):
    """Each taken number doubled, told to the mesh."""

    id: ClassVar[str] = "SJ-98"
    name: ClassVar[str] = "doubling"
    line: ClassVar[str] = "doubles"
    reads: ClassVar[tuple[str, ...]] = ("taken",)
    writes: ClassVar[dict[str, Table]] = {"doubled": Table(TOLD, publish=Publish.EVENTS)}

    def stream(self, inputs: Frames) -> Frames:
        return {
            "doubled": inputs["taken"].select(
                F.lit("numbers").alias("topic"), (F.col("value") * 2).cast("string").alias("body")
            )
        }

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        return self.stream(inputs)


@dataclass(frozen=True)
class Summing(Job):
    """The sum of what was taken."""

    id: ClassVar[str] = "SJ-99"
    name: ClassVar[str] = "summing"
    line: ClassVar[str] = "sums"
    reads: ClassVar[tuple[str, ...]] = ("taken",)
    writes: ClassVar[dict[str, Table]] = {"sums": Table(TOLD, publish=Publish.EVENTS)}
    every_s: ClassVar[float] = 0.5
    most: float = parameter(1e9, "fails above it")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        total = inputs["taken"].agg(F.coalesce(F.sum("value"), F.lit(0.0)).alias("sum"))
        if total.first()["sum"] > self.most:
            raise ConfigError("that is too much")
        return {"sums": total.select(F.lit("sum").alias("topic"), F.col("sum").cast("string").alias("body"))}


class Heard:
    """A mesh that keeps what it hears."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.rows: list[tuple[str, bytes]] = []

    def events(self, session: bytes, after: int, resent: bool, rows: list[tuple[str, bytes]]) -> None:
        self.bodies += [body.decode() for _, body in rows]
        self.rows += rows


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """What goes to the node `heard`."""
    mesh = Heard()
    monkeypatch.setitem(batches._nodes, "heard", mesh)  # type: ignore[arg-type]
    mine = {"taken": Taking, "doubled": Doubling, "sums": Summing}
    monkeypatch.setattr(catalogue, "writer", lambda table: mine.get(table))
    return mesh


def values(spark: SparkSession, place: Place, table: str, column: str) -> list[float]:
    return sorted(float(row[column]) for row in place.tables.read(spark, table).select(column).collect())


def test_once_takes_what_is_new_in_the_order_of_dependencies(spark: SparkSession, tmp_path: Path, heard: Heard) -> None:
    archive = Written(tmp_path)
    archive.write(6, close=True)
    place = Place(tmp_path / "work", str(archive.path), str(archive.log), node="heard", max_rows=4)
    told: list[Told] = []
    runner = Runner(spark, place, [Summing(most=10.0), Doubling(), Taking()], told.append)
    assert runner.once(), runner.failures
    assert [each.job for each in told if each.state == "done"] == ["taking", "summing", "doubling"]
    assert values(spark, place, "taken", "value") == [0.0, 2.0, 4.0]
    assert values(spark, place, "doubled", "body") == [0.0, 4.0, 8.0]
    assert sorted(heard.bodies) == ["0.0", "4.0", "6.0", "8.0"]

    archive.write(3)
    assert not runner.once()  # 0 + 2 + 4 + 6 + 8 is above 10: the others go on
    assert runner.failures == {"summing": "job summing (taken): that is too much"}
    assert values(spark, place, "doubled", "body") == [0.0, 4.0, 8.0, 12.0, 16.0]
    assert sorted(heard.bodies) == ["0.0", "12.0", "16.0", "4.0", "6.0", "8.0"]
    archive.leave()

    for folder in (place.work / "checkpoints" / "doubling").iterdir():
        folder.rename(tmp_path / "gone")
    again = Runner(spark, place, [Doubling()])
    assert not again.once()
    assert "remove the tables doubled" in again.failures["doubling"]


def test_continuously_until_it_is_stopped(spark: SparkSession, tmp_path: Path, heard: Heard) -> None:
    archive = Written(tmp_path)
    archive.write(4)
    place = Place(tmp_path / "work", str(archive.path), str(archive.log), node="heard", trigger_s=0.1)
    runner = Runner(spark, place, [Taking(), Doubling(), Summing()])
    stop = threading.Event()
    ended: list[bool] = []
    running = threading.Thread(target=lambda: ended.append(runner.continuous(stop)))
    running.start()
    written = threading.Event()

    def wait_for(body: str) -> None:
        for _ in range(3000):
            if body in heard.bodies or not running.is_alive():
                return
            written.wait(0.1)
        raise AssertionError(heard.bodies)

    try:
        wait_for("4.0")
        archive.write(2)
        wait_for("8.0")
        wait_for("6.0")  # the sum of 0, 2 and 4
    finally:
        stop.set()
        running.join()
        archive.leave()
    assert ended == [True], runner.failures
    assert sorted(set(heard.rows)) == sorted(heard.rows)


def test_what_cannot_run_is_told_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="job taking reads an archive: say where with --archive"):
        Runner(spark, Place(tmp_path), [Taking()])
    place = Place(tmp_path, "archive")
    with place.tables.owned(), pytest.raises(ConfigError, match="another pipeline writes tables"):
        Runner(spark, place, [Taking()]).once()


def test_of_an_error_the_line_that_says_why_is_told() -> None:
    text = "[STREAM_FAILED] Query x\nTraceback\n  File a\nchappe.errors.ChappeError: rows are gone\n\tat org.apache\n"
    assert brief(text) == "chappe.errors.ChappeError: rows are gone"
    assert brief("first\nsecond") == "first"


def test_batches_are_joined_and_those_before_stay_readable(spark: SparkSession, tmp_path: Path) -> None:
    tables = Place(tmp_path).tables
    rows = spark.range(1).withColumn("value", F.lit(START_NS)).persist()
    for batch in range(33):
        assert tables.append("ids", batch, rows, part="a")
    assert not tables.append("ids", 32, rows, part="a")
    assert tables.append("ids", 0, rows, part="b")
    before = tables.read(spark, "ids")
    assert tables.compact(spark, "ids", upto=31, part="a")
    assert (tables.last_batch("ids", "a"), tables.last_batch("ids", "b"), tables.last_batch("ids")) == (32, 0, 32)
    assert tables.read(spark, "ids").count() == before.count() == 34
    assert not tables.compact(spark, "ids", part="a")
    tables.replace("ids", tables.read(spark, "ids").limit(2))
    assert tables.read(spark, "ids").count() == 2
    assert tables.names() == ["ids"]
    with pytest.raises(ConfigError, match=r"no table 'other' in .*; there are: ids"):
        tables.read(spark, "other")
    with pytest.raises(ConfigError, match="a name has small letters"):
        tables.read(spark, "Other")
