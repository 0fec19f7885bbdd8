"""Measurements summed by end of a link and minute, over Arrow columns; NumPy only.

Sums of parts are merged by whoever has them: the squares are those of differences from the mean of the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from chappe.pipeline import periods

NAMES = ("node", "link", "peer", "transport", "realm")
MEANS = ("jitter", "loss", "bandwidth")
COLUMNS = (*NAMES, "created_ns", "latency_ms", "jitter_ms", *MEANS, "outliers", "window")
ROWS = 1 << 18  # summed together: what is in a cache is summed in half the time
_WIDE, _SHORT = 1 << 40, 1 << 16
_TABLE = 1 << 21  # numbers that are looked up in a table, which is small enough for a cache
_BEFORE = np.int64(-(1 << 63))

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Mask = NDArray[np.bool_]
Codes = NDArray[Any]  # whole numbers of any width

SUMS = pa.schema([
    *((name, pa.string()) for name in NAMES), ("start_ns", pa.int64()), ("rounds", pa.int64()), ("samples", pa.int64()),
    *((name, pa.float64()) for name in ("total_ms", "squares", "least_ms", "most_ms")), ("most_ns", pa.int64()),
    ("jitter_ms", pa.float64()), ("jitter_ns", pa.int64()),
    *((f"{name}_{what}", kind) for name in MEANS for what, kind in (("total", pa.float64()), ("count", pa.int64()))),
    ("outliers", pa.int64()), ("tested", pa.int64()),
])  # fmt: skip


def of_files(paths: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Sums of the rows of Parquet files, some row groups at a time."""
    for path in paths:
        with pq.ParquetFile(path, read_dictionary=list(NAMES)) as file:
            for groups in turns(file):
                yield from summed(file.read_row_groups(groups, list(COLUMNS), use_threads=False)).to_batches()


def turns(file: pq.ParquetFile) -> Iterator[list[int]]:
    """Row groups of a file to be summed together, so that there are not many more rows than is good; none is empty."""
    rows = np.array([file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)], np.int64)
    turn = np.cumsum(rows) // ROWS
    for one in np.unique(turn[rows > 0]).tolist():
        yield np.flatnonzero((turn == one) & (rows > 0)).tolist()


def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sums of rows as they come."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= ROWS:
            yield from summed(pa.Table.from_batches(held)).to_batches()
            held = []
    if held:
        yield from summed(pa.Table.from_batches(held)).to_batches()


def summed(rows: pa.Table) -> pa.Table:
    """One row for each end and minute that has any."""
    if not rows.num_rows:
        return SUMS.empty_table()
    created: Whole = rows.column("created_ns").to_numpy()
    minute = periods.number(created, periods.MINUTE_NS)
    first = int(minute.min())
    texts = [coded(rows.column(name)) for name in NAMES]
    codes = [code for code, _ in texts]
    number = together([*codes, minute - first], [*(len(known) for _, known in texts), int(minute.max()) - first + 1])
    # Short numbers are sorted by counting.
    order = np.argsort(number.astype(np.uint16) if number.max() < _SHORT else number, kind="stable")
    parts = Parts(order, np.flatnonzero(np.diff(number[order], prepend=-1)))
    row = order[parts.begin]  # one that stands for its part
    latency, known = parts.floats(rows.column("latency_ms"))
    jitter_ms, told = parts.floats(rows.column("jitter_ms"))
    at = created[order]
    samples, total, most = parts.add(known), parts.add(latency), parts.most(np.where(known, latency, np.nan))
    away = latency - parts.each(total / np.maximum(samples, 1))
    jitter_ns = parts.last(np.where(told, at, _BEFORE))
    newest = told & (at == parts.each(jitter_ns))
    named = zip(NAMES, texts, strict=True)
    columns: dict[str, Any] = {name: known.take(pa.array(code[row])) for name, (code, known) in named}
    columns |= {
        "start_ns": periods.start_ns(minute[row], periods.MINUTE_NS),
        "rounds": parts.size,
        "samples": samples,
        "total_ms": _if(samples, total),
        "squares": _if(samples, parts.add(np.where(known, away * away, 0.0))),
        "least_ms": _if(samples, parts.least(np.where(known, latency, np.nan))),
        "most_ms": _if(samples, most),
        "most_ns": _if(samples, parts.last(np.where(known & (latency == parts.each(most)), at, _BEFORE))),
        "jitter_ms": _if(parts.add(told), parts.most(np.where(newest, jitter_ms, np.nan))),
        "jitter_ns": _if(parts.add(told), jitter_ns),
        "outliers": parts.add(pc.fill_null(rows.column("outliers"), 0).to_numpy()[order]),
        "tested": parts.add(pc.fill_null(rows.column("window"), 0).to_numpy()[order]),
    }
    for name in MEANS:
        values, there = parts.floats(rows.column(name))
        count = parts.add(there)
        columns |= {f"{name}_total": _if(count, parts.add(values)), f"{name}_count": count}
    return pa.table([pa.array(columns[name]) for name in SUMS.names], schema=SUMS)


class Parts:
    """Rows in an order in which those that belong together follow each other, each part from where it begins."""

    def __init__(self, order: NDArray[np.intp], begin: NDArray[np.intp]) -> None:
        self.order, self.begin = order, begin
        self.size: Whole = np.diff(np.append(begin, len(order))).astype(np.int64)

    def floats(self, column: pa.ChunkedArray) -> tuple[Floats, Mask]:
        """A column in this order, 0 where it is empty, and where it is not."""
        values: Floats = column.to_numpy()[self.order]
        there = ~np.isnan(values)
        return values if there.all() else np.where(there, values, 0.0), there

    def each(self, figures: NDArray[Any]) -> NDArray[Any]:
        """For every row the figure of its part."""
        return np.repeat(figures, self.size)

    def add(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(values, self.begin, dtype=np.int64 if values.dtype == bool else None)

    def least(self, values: Floats) -> Floats:
        return np.fmin.reduceat(values, self.begin)

    def most(self, values: Floats) -> Floats:
        return np.fmax.reduceat(values, self.begin)

    def last(self, values: Whole) -> Whole:
        return np.maximum.reduceat(values, self.begin)


def coded(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """A number for each text, and the texts by number; one that is not there is empty."""
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = coded.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # as some versions give it
        whole = whole.chunk(0)
    known, nothing = whole.dictionary, pc.index(whole.dictionary, "").as_py()
    if nothing < 0:
        known, nothing = pa.concat_arrays([known, pa.array([""], pa.string())]), len(known)
    codes = pc.fill_null(whole.indices, nothing) if whole.null_count else whole.indices
    return codes.to_numpy(), known


def together(columns: Sequence[Codes], sizes: Sequence[int]) -> Codes:
    """One number for each combination, small where there are few."""
    number, size = columns[0], sizes[0]
    for column, many in zip(columns[1:], sizes[1:], strict=True):
        number, size = number.astype(np.int64, copy=False) * many + column, size * many
        if size > _SHORT:
            number, size = _dense(number, size)
        assert size < _WIDE  # not more than rows
    return number


def _dense(number: Codes, size: int) -> tuple[Codes, int]:
    """Numbers without those that nobody has."""
    if size > _TABLE:
        number, distinct = pd.factorize(number)
        return number, len(distinct)
    there = np.zeros(size, bool)
    there[number] = True
    places = np.cumsum(there, dtype=np.int32)
    places -= 1
    return places[number], int(places[-1]) + 1


def _if(count: Whole, figures: NDArray[Any]) -> pa.Array:
    """Figures of parts that have any."""
    return pa.array(figures, mask=count == 0)
