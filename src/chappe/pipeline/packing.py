"""Latencies packed by link and week: one row with arrays instead of thousands, so that little is left to shuffle.

Between two Python functions Spark moves rows one by one; here a row carries the samples of a link as bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chappe.pipeline import periods
from chappe.pipeline.windowsizes import Samples, ordered

ROWS = 400_000  # taken together
BUCKETS = 1024
BETWEEN = "\x1f"  # of the names that make a key; no name has it
_ARRAYS = ("created_ns", "latency_ms")

PACKED = pa.schema([
    pa.field("bucket", pa.int32()), pa.field("week", pa.int64()), pa.field("key", pa.string()),
    *(pa.field(name, pa.binary()) for name in _ARRAYS),
])  # fmt: skip


def pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with a key, a time and a latency, by key and week."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= ROWS:
            yield _packed(pa.Table.from_batches(held))
            held = []
    if any(each.num_rows for each in held):
        yield _packed(pa.Table.from_batches(held))


def unpack(batches: Iterable[pa.RecordBatch], rows: int = ROWS) -> Iterator[tuple[int, list[str], Samples]]:
    """A week, names of keys and their samples, some links at a time; rows of a bucket must follow each other, and in it
    those of a week."""
    held: list[pa.RecordBatch] = []
    samples = 0
    now: tuple[int, int] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        groups = np.stack([batch.column(name).to_numpy() for name in ("week", "bucket")])
        begin = np.flatnonzero(np.append(True, np.any(np.diff(groups) != 0, axis=0))).tolist()
        for start, end in zip(begin, [*begin[1:], batch.num_rows], strict=True):
            week, bucket = groups[:, start].tolist()
            if now is not None and (week != now[0] or (bucket != now[1] and samples >= rows)):
                yield now[0], *_unpacked(pa.Table.from_batches(held))
                held, samples = [], 0
            now = week, bucket
            held.append(batch.slice(start, end - start))
            samples += pc.sum(pc.binary_length(held[-1].column("created_ns"))).as_py() // 8
    if now is not None:
        yield now[0], *_unpacked(pa.Table.from_batches(held))


def _packed(table: pa.Table) -> pa.RecordBatch:
    keys = table.column("key").combine_chunks().dictionary_encode()
    at = table.column("created_ns").to_numpy()
    week = periods.number(at, periods.WEEK_NS)
    first = int(week.min())
    number = (week - first) * len(keys.dictionary) + keys.indices.to_numpy()
    # Short numbers are sorted by counting; rows of a key stay in their order.
    order = np.argsort(number.astype(np.uint16) if number.max() < 1 << 16 else number, kind="stable")
    number = number[order]
    begin = np.flatnonzero(np.diff(number, prepend=-1))
    weeks, places = np.divmod(number[begin], len(keys.dictionary))
    buckets = np.array([zlib.crc32(name.encode()) % BUCKETS for name in keys.dictionary.to_pylist()], dtype=np.int32)
    columns = [pa.array(buckets[places]), pa.array(weeks + first), keys.dictionary.take(pa.array(places))]
    columns += [_bytes(column.to_numpy()[order], begin) for column in map(table.column, _ARRAYS)]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED)


def _unpacked(table: pa.Table) -> tuple[list[str], Samples]:
    keys = table.column("key").combine_chunks().dictionary_encode()
    lengths = pc.binary_length(table.column("created_ns")).to_numpy() // 8
    link = np.repeat(keys.indices.to_numpy().astype(np.intp), lengths)
    at, latency = (
        _numbers(table.column(name), kind) for name, kind in zip(_ARRAYS, (np.int64, np.float64), strict=True)
    )
    return keys.dictionary.to_pylist(), ordered(link, at, latency)


def _bytes(values: NDArray[Any], begin: NDArray[np.intp]) -> pa.Array:
    """Numbers of eight bytes, cut where each row begins."""
    offsets = (np.append(begin, len(values)) * 8).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.binary(), len(begin), buffers)


def _numbers(column: pa.ChunkedArray, kind: type) -> NDArray[Any]:
    """All numbers of a column of bytes."""
    parts = []
    for chunk in column.chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
        parts.append(np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else np.zeros(0, np.uint8))
    return np.concatenate(parts).view(kind) if parts else np.zeros(0, kind)
