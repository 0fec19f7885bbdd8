"""Few rows are taken without Spark: what that finds is what Spark finds."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given as examples
from hypothesis import settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from chappe.archive.schema import DATASETS
from chappe.pipeline import repeats
from chappe.pipeline.checks import BEGIN_NS, SECOND_NS, checks, good, reason
from chappe.pipeline.repeats import Known, firsts
from chappe.pipeline.source import arrow_schema, spark_schema
from tests.support.archives import START_NS

AHEAD_NS, LATE_NS = 60 * SECOND_NS, 3600 * SECOND_NS
KEYS = ("node", "number")
ROWS = pa.schema([
    *(pa.field(name, pa.int64()) for name in ("offset", "received_ns", "number")),
    *(pa.field(name, pa.string()) for name in ("node", "source")),
])  # fmt: skip


def strange(field: pa.Field, noise: random.Random) -> Any:
    """A value that is right, wrong, on a border, or missing."""
    if noise.random() < 0.1:
        return None
    if field.name.endswith("_ns"):
        near = [START_NS, START_NS + AHEAD_NS, START_NS + AHEAD_NS + 1, START_NS - LATE_NS, START_NS - LATE_NS - 1]
        return noise.choice([*[START_NS] * 10, *near, BEGIN_NS, BEGIN_NS - 1, 0, -5])
    if field.type == pa.float64():
        return noise.choice([0.5] * 8 + [0.0, -0.0, -1e-9, 1.0, 1.0 + 1e-9, math.nan, math.inf, -math.inf])
    if field.type in (pa.int64(), pa.int8()):
        return noise.choice([3] * 8 + [0, -1])
    if field.type == pa.string():
        return noise.choice(["x"] * 8 + [""])
    return {pa.binary(): b"x", pa.bool_(): True}.get(field.type)


@pytest.mark.spec("SJ-01")
def test_spark_and_the_driver_believe_the_same_rows(spark: SparkSession) -> None:
    noise = random.Random(5)
    for dataset, schema in DATASETS.items():
        plain = [field for field in schema if field.name != "received"]
        rows = [{field.name: strange(field, noise) for field in plain} for _ in range(800)]
        for row in rows[::5]:
            row.update({field.name: None for field in plain if field.nullable})
        table = pa.Table.from_pylist(rows, arrow_schema(dataset))
        of = checks(dataset, AHEAD_NS, LATE_NS)
        frame = spark.createDataFrame(table, spark_schema(dataset)).select(reason(of).alias("reason"))
        reasons = [row["reason"] for row in frame.collect()]
        assert good(of, table).tolist() == [each is None for each in reasons]
        assert {each.reason for each in of} <= {*reasons}, dataset


def rows_of(numbers: list[tuple[int, int, str]]) -> pa.Table:
    """Rows with an identity, a time and the name of an archive, in the order of their offsets."""
    made = [
        {"offset": place, "received_ns": at, "number": number, "node": "n", "source": source}
        for place, (number, at, source) in enumerate(numbers)
    ]
    return pa.Table.from_pylist(made, ROWS)


ROW = st.tuples(st.integers(0, 8), st.integers(0, 20), st.sampled_from("ab"))


@settings(deadline=None, max_examples=60)
@examples(
    files=st.lists(st.lists(ROW, min_size=1, max_size=6), max_size=3),
    new=st.lists(ROW, max_size=12),
    span=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_the_first_of_an_identity_stays_unless_it_was_there(
    tmp_path_factory: pytest.TempPathFactory, files: list[Any], new: list[Any], span: tuple[int, int]
) -> None:
    folder = tmp_path_factory.mktemp("files")
    for place, each in enumerate(files):
        pq.write_table(rows_of(each), folder / f"{place}.parquet", row_group_size=2)
    known = Known(KEYS)
    for from_ns, to_ns in (span, span, (span[0] - 3, span[1])):  # what was read before must make no difference
        earlier = known.among(sorted(folder.iterdir()), from_ns, to_ns)
        assert earlier is not None
        left = firsts(rows_of(new), KEYS, "source", earlier)
        gone = {number for each in files for number, at, _ in each if from_ns <= at <= to_ns}
        places = {}
        for place, (number, at, source) in enumerate(new):
            if number not in gone:
                places[number] = min(places.get(number, (at, source, place)), (at, source, place))
        assert left.column("offset").to_pylist() == sorted(place for _, _, place in places.values())


def test_too_many_to_be_kept_are_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(rows_of([(number, number, "a") for number in range(20)]), tmp_path / "0.parquet")
    monkeypatch.setattr(repeats, "MANY", 15)
    known = Known(KEYS)
    assert known.among([tmp_path / "0.parquet"], 0, 100) is None
    some = known.among([tmp_path / "0.parquet"], 10, 100)
    assert some is not None
    assert some.among(repeats.hashes(rows_of([(12, 0, "a"), (3, 0, "a")]), KEYS)) == {("n", 12)}


def test_equal_identities_have_equal_hashes_in_whatever_company() -> None:
    alone = repeats.hashes(rows_of([(5, 1, "a")]), KEYS)
    among = repeats.hashes(rows_of([(4, 1, "a"), (5, 7, "b")]), KEYS)
    assert np.array_equal(alone, among[1:])
