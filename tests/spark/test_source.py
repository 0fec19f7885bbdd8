"""The source: every row of an archive once, whether closed or live, in one go or by micro-batches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from chappe.archive.segments import Segments
from chappe.errors import ConfigError
from chappe.pipeline.source import Archive, Options, bounded
from tests.support.archives import START_NS
from tests.support.counted import Written


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Written]:
    written = Written(tmp_path)
    written.write(700, close=True)
    written.write(300)
    yield written
    written.leave()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_closed_and_live_rows_are_read_once(spark: SparkSession, archive: Written) -> None:
    frame = spark.read.format("chappe").options(**archive.options()).load()
    assert numbers(frame) == list(range(1000))
    assert frame.columns[0] == "offset"
    assert {row.source for row in frame.select("source").distinct().collect()} == {"archive"}


def stream(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> tuple[list[int], list[int]]:
    """What a stream sees until all that is there now is read: its values, and the rows of each batch."""
    seen: list[int] = []
    sizes: list[int] = []

    def take(rows: DataFrame, batch: int) -> None:
        found = numbers(rows)
        seen.extend(found)
        sizes.append(len(found))

    query = (
        spark.readStream.format("chappe")
        .options(**options)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(seen), sizes


def test_a_range_of_time_and_an_archive_are_looked_for_in_the_source(
    spark: SparkSession, tmp_path: Path, archive: Written
) -> None:
    other = Written(tmp_path, "north")
    other.write(50, close=True)
    other.leave()
    both = f"archive={archive.log},north={other.log}"
    frame = spark.read.format("chappe").options(**archive.options(log=both)).load()
    assert frame.count() == 1050
    begin, end = START_NS + 600_000_000, START_NS + 800_000_000
    limited = frame.where(f"received_ns >= {begin} and received_ns < {end} and source = 'archive' and value > 610")
    assert numbers(limited) == list(range(611, 800))
    plan = limited._jdf.queryExecution().executedPlan().toString()
    left = plan.partition("Filter")[2].partition("\n")[0]  # what is left to Spark
    assert "value" in left
    assert not re.search(r"(received_ns|source)#\d+L? [<>=]", left)
    few = spark.read.format("chappe").options(**archive.options(columns="value, node", from_ns=begin, to_ns=end)).load()
    assert (few.columns, numbers(few)) == (["value", "node"], list(range(600, 800)))


def test_a_stream_goes_on_after_the_last_row_wherever_it_lies_by_now(
    spark: SparkSession, tmp_path: Path, archive: Written
) -> None:
    options = archive.options(max_rows=400)
    seen, sizes = stream(spark, options, tmp_path / "checkpoint")
    assert (seen, sizes) == (list(range(1000)), [400, 400, 200])
    archive.write(100, close=True)  # what was live is in a segment now
    archive.write(10)
    Segments(archive.path).compact("counters", 1 << 62)
    assert stream(spark, options, tmp_path / "checkpoint") == (list(range(1000, 1110)), [110])
    replayed = {**options, "start": '{"archive": 650}', "stop": '{"archive": 720}'}
    assert numbers(spark.read.format("chappe").options(**replayed).load()) == list(range(650, 720))


def test_rows_that_are_gone_are_not_passed_over_in_silence(
    spark: SparkSession, tmp_path: Path, archive: Written
) -> None:
    Segments(archive.path).expire("counters", START_NS + 10_000_000_000)
    frame = spark.read.format("chappe").options(**archive.options(start='{"archive": 10}')).load()
    with pytest.raises(Exception, match="rows 10 to 699 of counters are gone"):
        frame.count()
    assert numbers(spark.read.format("chappe").options(**archive.options()).load()) == list(range(700, 1000))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"path": "a"}, "dataset is missing; there are status"),
        ({"dataset": "status"}, "path is missing"),
        ({"dataset": "statuses", "path": "a"}, "no dataset 'statuses'"),
        ({"dataset": "status", "path": "a", "columns": "node,size"}, "status has no 'size'; there are offset"),
        ({"dataset": "status", "path": "a", "max_rows": "0"}, "max_rows must be a whole number of at least 1"),
        ({"dataset": "status", "path": "a", "from_ns": "now"}, "from_ns must be a whole number of at least 0"),
    ],
)
def test_a_wrong_option_is_told_by_name(given: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Options.parse(given)


def test_offsets_that_are_none_are_told(tmp_path: Path) -> None:
    options = Options.parse({"path": str(tmp_path), "dataset": "status", "start": "now"})
    with pytest.raises(ConfigError, match="earliest, latest or offsets like"):
        Archive(options).at(options.start)


def test_a_log_says_whose_it_is(tmp_path: Path) -> None:
    options = Options.parse(
        {"path": str(tmp_path / "segments"), "log": str(tmp_path / "log-north"), "dataset": "counters"}
    )
    reading = Archive(options)
    assert reading.end() == {}  # the archive has not begun
    north = Written(tmp_path, "north")
    north.write(5)
    assert reading.end() == Archive(options).end() == {"north": 5}
    north.write(2, close=True)  # its rows are in a segment now, under the same name
    assert (reading.begin(), reading.end()) == ({"north": 0}, {"north": 7})
    assert [each.source for each in reading.pieces({}, {"north": 7})] == ["north"]
    north.leave()
    for wrong in ({"log": f"archive={north.log}"}, {"log": str(north.log), "source": "archive"}):
        given = {"path": str(north.path), "dataset": "counters", **wrong}
        with pytest.raises(ConfigError, match="is that of the archive 'north', not of 'archive'"):
            Archive(Options.parse(given)).end()
    (north.log / "name").unlink()
    with pytest.raises(ConfigError, match="does not say whose it is: give NAME="):
        Archive(options).end()
    assert Archive(replace(options, source="north")).end() == {"north": 7}


def test_a_path_that_is_not_there_is_told_where_nothing_else_has_rows(spark: SparkSession, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "gone"), "dataset": "counters"}
    with pytest.raises(Exception, match=f"there is no folder {tmp_path / 'gone'}"):
        spark.read.format("chappe").options(**options).load().count()
    with pytest.raises(Exception, match=f"there is no folder {tmp_path / 'gone'}"):
        stream(spark, options, tmp_path / "checkpoint")
    live = {**options, "log": str(tmp_path / "log")}
    assert spark.read.format("chappe").options(**live).load().count() == 0


@examples(
    start=st.dictionaries(st.sampled_from("abc"), st.integers(0, 50)),
    new=st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50)),
    rows=st.none() | st.integers(1, 60),
)
def test_a_limit_is_shared_and_used_up(start: dict[str, int], new: dict[str, int], rows: int | None) -> None:
    end = {name: start.get(name, 0) + more for name, more in new.items()}
    reached = bounded(start, end, rows)
    taken = {name: offset - start.get(name, 0) for name, offset in reached.items()}
    assert all(0 <= taken[name] <= new.get(name, 0) for name in taken)
    assert sum(taken.values()) == min(sum(new.values()), sum(new.values()) if rows is None else rows)
