from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from bench import pipeline_rows
from bench.pipeline_growth import Line, crossing
from bench.pipeline_others import same
from chappe.archive import log as archive_log
from chappe.archive.reader import Reader
from chappe.archive.schema import schema_of
from chappe.archive.segments import Segments
from chappe.errors import ChappeError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Rows of a chunk, small enough for a test."""
    monkeypatch.setattr(pipeline_rows, "CHUNK", pipeline_rows.LINKS * 20)
    return pipeline_rows.CHUNK


def test_an_archive_made_for_the_bench_is_one_and_says_what_is_in_it(tmp_path: Path, small: int) -> None:
    made = pipeline_rows.make(tmp_path, 3 * small)
    table = pa.Table.from_batches(Reader(Segments(tmp_path)).read(pipeline_rows.DATASET, 0, made.rows))
    assert table.schema == schema_of(pipeline_rows.DATASET)
    assert table.num_rows == made.rows == 3 * small
    kept = table.filter(pc.greater_equal(table["latency_ms"], 0)).group_by(["node", "link", "created_ns"]).aggregate([])
    assert kept.num_rows == made.clean < made.rows


def test_a_part_of_an_archive_shares_its_files(tmp_path: Path, small: int) -> None:
    whole, less = tmp_path / "whole", tmp_path / "less"
    pipeline_rows.make(whole, 3 * small)
    made = pipeline_rows.part(whole, less, 2 * small)
    assert ds.dataset(less, format="parquet").count_rows() == made.rows == 2 * small
    assert {each.stat().st_nlink for each in less.rglob("*.parquet")} == {2}


def test_the_log_for_the_live_source_is_synced_and_not_closed(tmp_path: Path, small: int) -> None:
    rows = pipeline_rows.log(tmp_path, small)
    (part,) = archive_log.parts(tmp_path / "log", pipeline_rows.DATASET)
    assert archive_log.Tail(part).look() == rows == small
    assert Segments(tmp_path / "segments").find(pipeline_rows.DATASET) == []


def test_lines_cross_where_the_slower_start_is_made_up_for() -> None:
    spark, other = Line(3.0, 1e-7), Line(0.0, 4e-7)
    assert spark.meets(other) == pytest.approx(1e7)
    assert "10,000,000 rows" in crossing("links", spark, "DuckDB", other, 2)
    assert other.meets(spark) == float("inf")
    assert "4.0 times as long" in crossing("DuckDB", other, "links", spark, 2)
    assert Line.through([(1e6, 1.1), (1e7, 2.0), (1e8, 11.0)]) == Line(pytest.approx(1.0), pytest.approx(1e-7))


@pytest.mark.parametrize(
    ("column", "values"), [("link", ["a", "c"]), ("minute", [1, 3]), ("cost", [1.0, 2.1])], ids=lambda value: str(value)
)
def test_answers_that_differ_are_no_measure_of_each_other(column: str, values: list[object]) -> None:
    right = pa.table({"link": ["a", "b"], "minute": [1, 2], "cost": [1.0, 2.0]})
    same(right, right.take([1, 0]), "other")
    at = right.schema.names.index(column)
    with pytest.raises(ChappeError, match=f"other: its {column}"):
        same(right, right.set_column(at, column, pa.array(values)), "other")
    with pytest.raises(ChappeError, match="1 groups where 2 are right"):
        same(right, right.slice(1), "other")
