"""Columns of every dataset: what the archive writes and whoever reads it expects, said in one place.

Times are whole nanoseconds since 1970 (UTC), exact and the same for every reader; `received` repeats the arrival as a
timestamp for people. `offset` counts the rows of a dataset that one archive wrote, from 0 and without gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.errors import ConfigError

OFFSET: Final = "offset"
RECEIVED_NS: Final = "received_ns"
RECEIVED: Final = "received"
_SHOWN: Final = pa.timestamp("us", "UTC")

_TEXT: Final = pa.string()
_WHOLE: Final = pa.int64()
_NUMBER: Final = pa.float64()
_FIRST: Final = [pa.field(OFFSET, _WHOLE, nullable=False)]
_LAST: Final = [
    pa.field(RECEIVED_NS, _WHOLE, nullable=False),
    pa.field(RECEIVED, _SHOWN, nullable=False),
]


def _dataset(*columns: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool]) -> pa.Schema:
    """Columns that must have a value, unless a third item says True: may be empty."""
    fields = [pa.field(column[0], column[1], nullable=len(column) == 3 and column[2]) for column in columns]
    return pa.schema([*_FIRST, *fields, *_LAST])


DATASETS: Final[dict[str, pa.Schema]] = {
    # values of variables; a value is in `value`, an integer exactly in `whole`, a user's type in `content`
    "status": _dataset(
        ("node", _TEXT),
        ("variable", _WHOLE),
        ("name", _TEXT),
        ("created_ns", _WHOLE),
        ("value", _NUMBER, True),
        ("whole", _WHOLE, True),
        ("content", pa.binary(), True),
        ("mode", pa.int8(), True),
        ("extrapolated", pa.bool_()),
        ("path", _TEXT, True),
    ),
    # events of topics; (issuer, epoch, sequence) is their identity
    "events": _dataset(
        ("node", _TEXT),
        ("topic", _TEXT),
        ("kind", _TEXT),
        ("issuer", pa.binary()),
        ("epoch", _WHOLE),
        ("sequence", _WHOLE),
        ("created_ns", _WHOLE, True),
        ("body", pa.binary()),
        ("durable", pa.bool_(), True),  # its publisher gets a confirmation when it is stored
    ),
    # what a node measured of a link in one round
    "measurements": _dataset(
        ("node", _TEXT),
        ("link", _TEXT),
        ("peer", _TEXT),
        ("transport", _TEXT),
        ("realm", _TEXT, True),
        ("created_ns", _WHOLE),
        ("latency_ms", _NUMBER, True),
        ("deviation_ms", _NUMBER, True),
        ("jitter_ms", _NUMBER, True),
        ("jitter", _NUMBER, True),
        ("loss", _NUMBER, True),
        ("bandwidth", _NUMBER, True),
        ("cost", _NUMBER, True),
        ("outliers", _WHOLE, True),
        ("window", _WHOLE, True),
    ),
    # counters of nodes as they stood, with their labels as written for Prometheus
    "counters": _dataset(
        ("node", _TEXT), ("name", _TEXT), ("labels", _TEXT), ("created_ns", _WHOLE), ("value", _NUMBER)
    ),
    # what brokers did: publications, subscriptions, paths, modes, failures
    "broker": _dataset(
        ("broker", _TEXT),
        ("action", _TEXT),
        ("subject", _TEXT),
        ("created_ns", _WHOLE),
        ("detail", _TEXT, True),  # JSON
    ),
    # promises that were not kept: violations, extrapolations, incomplete sets
    "quality": _dataset(
        ("client", _TEXT),
        ("subject", _TEXT),
        ("kind", _TEXT),
        ("created_ns", _WHOLE),
        ("latency_ns", _WHOLE, True),
        ("count", _WHOLE),
        ("detail", _TEXT, True),  # JSON
    ),
}


def schema_of(dataset: str) -> pa.Schema:
    """The columns of a dataset; ConfigError names those there are."""
    try:
        return DATASETS[dataset]
    except KeyError:
        raise ConfigError(f"no dataset {dataset!r}; there are {', '.join(DATASETS)}") from None


@cache
def input_schema(dataset: str) -> pa.Schema:
    """The columns of rows that are appended to a dataset: without its offset and the timestamp for people."""
    return pa.schema([field for field in schema_of(dataset) if field.name not in (OFFSET, RECEIVED)])


def for_people(received_ns: Any) -> Any:
    """The column `received` of times of receipt; the exact time stands in the column before."""
    return pc.divide(received_ns, 1000).cast(_SHOWN)


Rows: TypeAlias = pa.RecordBatch | Sequence[Mapping[str, Any]]
"""Rows as whoever appends gives them: columns, or a few rows each of which has its values by column."""


def complete(dataset: str, rows: Rows, first: int) -> pa.RecordBatch:
    """Rows with all columns of their dataset, numbered from `first`; ConfigError names a column that does not fit.

    A durable event waits for this: each column that is made alone costs as much as all of a few rows together.
    """
    if not isinstance(rows, pa.RecordBatch):
        return _complete_few(dataset, rows, first)
    schema = input_schema(dataset)
    columns = rows.columns if rows.schema.equals(schema) else _fitted(dataset, rows)
    for column, (name, nullable) in zip(columns, _nullable(dataset), strict=True):
        if not nullable and column.null_count:
            raise ConfigError(f"dataset {dataset}: column {name!r} has no value in {column.null_count} rows")
    offsets = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([offsets, *columns, for_people(columns[-1])], schema=schema_of(dataset))


def _complete_few(dataset: str, rows: Sequence[Mapping[str, Any]], first: int) -> pa.RecordBatch:
    full = []
    for offset, row in enumerate(rows, first):
        if row.keys() != _names(dataset):
            raise _misfit(dataset, row)
        for name, nullable in _nullable(dataset):
            if not nullable and row[name] is None:
                raise ConfigError(f"dataset {dataset}: column {name!r} has no value in a row")
        full.append({OFFSET: offset, **row, RECEIVED: row[RECEIVED_NS] // 1000})
    return pa.RecordBatch.from_struct_array(pa.array(full, _row(dataset)))


@cache
def _row(dataset: str) -> pa.StructType:
    return pa.struct(list(schema_of(dataset)))


@cache
def _nullable(dataset: str) -> tuple[tuple[str, bool], ...]:
    """Names of the columns that are given, and whether each may be empty: a schema makes these anew when asked."""
    return tuple((field.name, field.nullable) for field in input_schema(dataset))


@cache
def _names(dataset: str) -> frozenset[str]:
    return frozenset(input_schema(dataset).names)


def _misfit(dataset: str, names: Iterable[str]) -> ConfigError:
    there = set(names)
    column = min(_names(dataset).symmetric_difference(there))
    return ConfigError(f"dataset {dataset}: column {column!r} is {'unknown' if column in there else 'missing'}")


def _fitted(dataset: str, rows: pa.RecordBatch) -> list[pa.Array]:
    """The columns that are given, in their order and of their types."""
    schema, names = input_schema(dataset), rows.schema.names
    if set(names) != _names(dataset):
        raise _misfit(dataset, names)
    columns = []
    for field in schema:
        try:
            columns.append(rows.column(names.index(field.name)).cast(field.type))
        except pa.ArrowInvalid as error:
            raise ConfigError(f"dataset {dataset}: column {field.name!r}: {error}") from None
    return columns
