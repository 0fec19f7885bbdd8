"""How many samples windows of links should have, tried on the newest rows (SJ-02); without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from chappe.pipeline import minutesums, packing, periods, windowsizes
from chappe.pipeline.minutesums import NAMES, Whole
from chappe.pipeline.windowsizes import Samples

WINDOW_ADVICE = pa.schema([
    *(pa.field(name, pa.string(), nullable=False) for name in NAMES),
    *(pa.field(name, pa.int64(), nullable=False) for name in ("start_ns", "size", "tried")),
    *(pa.field(name, pa.float64(), nullable=False) for name in ("error_ms", "outliers")),
    pa.field("advised", pa.bool_(), nullable=False),
])  # fmt: skip
COLUMNS = (*NAMES, "created_ns", "latency_ms")
SHARE = 50  # one of so many rows is tried, if that is more than the least
_NEVER_NS = 1 << 62


def newest_ns(start: Whole, rounds: Whole, least: int) -> int:
    """From which minute on there are so many rows, or a share of all; minutes may stand there several times."""
    order = np.argsort(-start, kind="stable")
    start, rounds = start[order], rounds[order]
    begin = np.flatnonzero(np.diff(start, prepend=_NEVER_NS))
    start, rounds = start[begin], np.add.reduceat(rounds, begin) if len(begin) else rounds
    inside = start[np.cumsum(rounds) - rounds < max(least, int(rounds.sum()) // SHARE)]
    return int(inside[-1]) if len(inside) else _NEVER_NS


def of_rows(rows: pa.Table) -> pa.Table:
    """Advice for the ends that these rows, all of them, are about."""
    if not rows.num_rows:
        return WINDOW_ADVICE.empty_table()
    texts = [minutesums.coded(rows.column(name)) for name in NAMES]
    number = minutesums.together([code for code, _ in texts], [len(known) for _, known in texts])
    row = np.zeros(int(number.max()) + 1, np.int64)
    row[number] = np.arange(len(number))  # one that stands for an end
    created, latency = (rows.column(name).to_numpy() for name in ("created_ns", "latency_ms"))
    week = periods.number(created, periods.WEEK_NS)
    names = [known.take(pa.array(code[row])) for code, known in texts]
    found = []
    for one in np.unique(week).tolist():
        inside = week == one
        found.append(_table(one, names, windowsizes.ordered(number[inside], created[inside], latency[inside])))
    return pa.concat_tables(found)


def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same of rows that were packed, those of a bucket together."""
    for week, keys, samples in packing.unpack(batches):
        parts = zip(*(key.split(packing.BETWEEN) for key in keys), strict=True)
        yield from _table(week, [pa.array(part, pa.string()) for part in parts], samples).to_batches()


def _table(week: int, names: Sequence[pa.Array], samples: Samples) -> pa.Table:
    found = windowsizes.advice(samples)
    link: NDArray[np.intp] = found.link
    given = {name: known.take(pa.array(link)) for name, known in zip(NAMES, names, strict=True)}
    start = np.full(len(link), periods.start_ns(week, periods.WEEK_NS), dtype=np.int64)
    given |= {name: pa.array(values) for name, values in found._asdict().items() if name != "link"}
    return pa.table([given.get(name, pa.array(start)) for name in WINDOW_ADVICE.names], schema=WINDOW_ADVICE)
