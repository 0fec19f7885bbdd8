"""Rows of the clean tables as a test needs them: what it does not say has a harmless value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from chappe.archive.schema import OFFSET, RECEIVED, RECEIVED_NS, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_NS = 1_800_000_000_000_000_000
SECOND_NS = 1_000_000_000

_PLAIN: dict[pa.DataType, Any] = {
    pa.string(): "", pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False, pa.binary(): b"", pa.int8(): 0,
}  # fmt: skip


def clean_table(dataset: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows with all columns of a clean table; `received_ns` is the creation if nothing is said."""
    schema = schema_of(dataset).append(pa.field("source", pa.string(), nullable=False))
    whole = []
    for number, row in enumerate(rows):
        unknown = set(row) - set(schema.names)
        assert not unknown, f"{dataset} has no {unknown}"
        received = row.get(RECEIVED_NS, row.get("created_ns") or 0)
        given = {OFFSET: number, "source": "archive", RECEIVED_NS: received, RECEIVED: received // 1000, **row}
        whole.append(
            {each.name: given.get(each.name, None if each.nullable else _PLAIN.get(each.type)) for each in schema}
        )
    return pa.Table.from_pylist(whole, schema=schema)


def clean(spark: SparkSession, dataset: str, rows: Iterable[Mapping[str, Any]] = ()) -> DataFrame:
    """The same as Spark has it."""
    return spark.createDataFrame(clean_table(dataset, rows))
