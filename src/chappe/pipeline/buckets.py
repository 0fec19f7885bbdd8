"""Files of rows in an order of hashes, between tasks: one that needs some of the hashes reads these rows alone."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from chappe.pipeline.repeats import hashed

BUCKETS = 1024
ROWS = 1 << 17  # for one task, about
_PLACES = b"places"  # where each bucket begins, and the last one ends
_BITS = np.uint64(64 - (BUCKETS - 1).bit_length())


class Range(NamedTuple):
    """Buckets from the first up to the last, which does not belong to it."""

    first: int
    last: int


ALL = Range(0, BUCKETS)


def ranges(rows: int, most: int = 0) -> list[Range]:
    """All buckets, in ranges that have about as many rows as a task may hold."""
    many = min(max(-(-rows // (most or ROWS)), 1), BUCKETS)
    return [Range(at * BUCKETS // many, (at + 1) * BUCKETS // many) for at in range(many)]


def numbers(rows: pa.Table, names: Sequence[str]) -> np.ndarray:
    """The bucket of each row, by what these columns say."""
    return (hashed(rows, names) >> _BITS).astype(np.int16)


def write(rows: pa.Table, names: Sequence[str], folder: Path) -> str:
    """Write rows by their buckets; the name of the file."""
    bucket = numbers(rows, names)
    places = np.append(0, np.cumsum(np.bincount(bucket, minlength=BUCKETS)))
    rows = rows.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks()
    rows = rows.replace_schema_metadata({_PLACES: places.astype(np.int64).tobytes()})
    name = f"{uuid.uuid4().hex}.arrow"
    with ipc.new_file(folder / name, rows.schema) as file:
        file.write_table(rows)
    return name


def read(paths: Sequence[Path], wanted: Range) -> list[pa.RecordBatch]:
    """Rows of some buckets, copied from files that are mapped: of others nothing is read."""
    found = []
    for path in paths:
        with pa.memory_map(str(path)) as source:
            file = ipc.open_file(source)
            places = np.frombuffer(file.schema.metadata[_PLACES], np.int64)
            first, last = int(places[wanted.first]), int(places[wanted.last])
            if first < last:
                rows = file.get_batch(0).slice(first, last - first).take(pa.array(np.arange(last - first)))
                found.append(rows.replace_schema_metadata(None))
    return found
