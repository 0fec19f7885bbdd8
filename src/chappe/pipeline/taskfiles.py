"""Files that tasks of Spark write themselves, and the tasks: one for each piece of work, told in what it returns.

Names are never used twice. What a task has written lies among tries until the driver, which knows the tasks that count,
takes it; what a lost or doubled one has left is removed.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS, BYTES = pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int32(), pa.binary())
_TRIES = ".tries"  # inside a room: what tasks began and nobody needed

W = TypeVar("W")
R = TypeVar("R")


def spread(spark: SparkSession, works: Sequence[W], do: Callable[[W], R]) -> list[R]:
    """What came of each piece of work, by one task each."""

    def tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pa.set_cpu_count(1)  # the tasks are what runs at once
        for batch in batches:
            done = [pickle.dumps(do(works[at])) for at in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"done": done})

    if not works:
        return []
    numbers = spark.range(0, len(works), 1, numPartitions=len(works))
    return [pickle.loads(row["done"]) for row in numbers.mapInArrow(tasks, "done binary").collect()]


def tries(room: Path) -> Path:
    """Where tasks write what may come to be taken into a room."""
    (room / _TRIES).mkdir(exist_ok=True)
    return room / _TRIES


def taken(room: Path, names: Iterable[str]) -> bool:
    """Whether any file was made; those that a task began and another one finished are left behind."""
    found = [name for name in names if name]
    for name in found:
        (room / _TRIES / name).rename(room / name)
    for left in (room / _TRIES).iterdir():
        left.unlink()
    (room / _TRIES).rmdir()
    return bool(found)


class Written:
    """A file of rows that is there once it has a row; the name of one that was begun is never used again."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder, self._schema = folder, schema
        self._writer: pq.ParquetWriter | None = None
        self.name, self.rows = "", 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        if self._writer is None:
            self.name = f"{uuid.uuid4().hex}.parquet"
            self._writer = pq.ParquetWriter(self._folder / self.name, self._schema, **_settings(self._schema))
        self._writer.write_table(rows.cast(self._schema), row_group_size=rows.num_rows)
        self.rows += rows.num_rows


def _settings(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written: whatever costs a task least, as writing is most of its work.

    Times and counts are near the one before: their differences are a fraction of their size, so that a light codec
    is enough. Measured values have like first bytes and unlike last ones: with each byte apart, where Spark can read
    that, the same codec takes half the time, there and back, and leaves half as much. Only whole numbers get
    statistics: footers say when rows were made and received, and nobody asks them for the least of a text or a
    measured value, which cost as much as writing the column.
    """
    texts = [field.name for field in schema if field.type in (pa.string(), pa.binary(), TEXTS, BYTES)]
    whole = [field.name for field in schema if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)]
    measured = [field.name for field in schema if pa.types.is_floating(field.type) and _splits()]
    encoding = dict.fromkeys(whole, "DELTA_BINARY_PACKED") | dict.fromkeys(measured, "BYTE_STREAM_SPLIT")
    return {
        "compression": "lz4", "use_dictionary": texts, "column_encoding": encoding, "write_statistics": whole,
        "store_schema": False,
    }  # fmt: skip


def _splits() -> bool:
    """Whether the Spark of this process reads columns whose bytes stand apart: it does from 4.3 on."""
    try:
        import pyspark
    except ImportError:
        return False
    major, minor = pyspark.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (4, 3)
