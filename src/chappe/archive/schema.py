"""Columns of every dataset: what the archive writes and whoever reads it expects, said in one place.

Times are whole nanoseconds since 1970 (UTC), exact and the same for every reader; `received` repeats the arrival as a
timestamp for people. `offset` counts the rows of a dataset that one archive wrote, from 0 and without gaps.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from chappe.errors import ConfigError

OFFSET: Final = "offset"
RECEIVED_NS: Final = "received_ns"
RECEIVED: Final = "received"
FEW: Final = 16  # rows
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
        ("durable", pa.bool_(), True),  # its publisher is told when it is stored
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
def given(dataset: str) -> pa.Schema:
    """The columns that whoever appends to a dataset gives: without its offset and the timestamp for people."""
    return pa.schema([field for field in schema_of(dataset) if field.name not in (OFFSET, RECEIVED)])


def for_people(received_ns: Any) -> Any:
    """The column `received` of times of receipt; the exact time stands in the column before."""
    return pc.divide(received_ns, 1000).cast(_SHOWN)


def _shown(received_ns: pa.Array) -> pa.Array:
    """The same; of a few rows without a compute kernel, which costs as much as all else of one row."""
    if len(received_ns) > FEW:
        return for_people(received_ns)
    return pa.array([value // 1000 for value in received_ns.to_pylist()], _SHOWN)


class _Column(NamedTuple):
    """What `complete` asks of a column; a schema makes these anew whenever it is asked."""

    name: str
    type: pa.DataType
    nullable: bool


@cache
def _columns(dataset: str) -> tuple[_Column, ...]:
    return tuple(_Column(field.name, field.type, field.nullable) for field in schema_of(dataset))


@cache
def _given_names(dataset: str) -> frozenset[str]:
    return frozenset(given(dataset).names)


def complete(dataset: str, rows: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """Rows with all columns of their dataset, numbered from `first`; ConfigError names a column that does not fit.

    A durable event waits for this: what does not depend on the rows is computed once.
    """
    names = rows.schema.names
    wrong = sorted(_given_names(dataset).symmetric_difference(names))
    if wrong:
        column = wrong[0]
        raise ConfigError(f"dataset {dataset}: column {column!r} is {'unknown' if column in names else 'missing'}")
    columns: list[pa.Array] = []
    for name, kind, nullable in _columns(dataset):
        if name == OFFSET:
            columns.append(pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64)))
            continue
        if name == RECEIVED:
            columns.append(_shown(columns[-1]))
            continue
        column = rows.column(names.index(name))
        if column.type != kind:
            try:
                column = column.cast(kind)
            except pa.ArrowInvalid as error:
                raise ConfigError(f"dataset {dataset}: column {name!r}: {error}") from None
        if not nullable and column.null_count:
            raise ConfigError(f"dataset {dataset}: column {name!r} has no value in {column.null_count} rows")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(dataset))
