"""From sums by minute to those of longer periods and of groups of links, with what is unusual; NumPy only (SJ-02).

All sums of an end of a link must come together; those of a group may be spread, and are added by whoever has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chappe.measure import metrics
from chappe.pipeline import minutesums, periods
from chappe.pipeline.minutesums import MEANS, NAMES, SUMS, Parts

GROUPS = {"node": "node", "client": "peer", "transport": "transport", "realm": "realm"}
_MEANT = [f"{name}_{what}" for name in MEANS for what in ("total", "count")]
ADDED = ("rounds", "samples", *_MEANT, "outliers", "tested")
WEIGHED = ("weighted_ms", "weight", "ends")
_UNUSUAL = ("usual_ms", "spread_ms", "times")
_FIGURES = [field for field in SUMS if field.name not in NAMES]
PERIODS = pa.schema([
    ("period", pa.string()), ("by", pa.string()), ("name", pa.string()), ("ends", pa.int64()),
    *(pa.field(name, pa.string()) for name in NAMES), *_FIGURES,
    ("weighted_ms", pa.float64()), ("weight", pa.int64()),  # jitter of the ends of a group
    *((name, pa.float64()) for name in _UNUSUAL),  # of the largest latency of a minute
])  # fmt: skip

Columns = dict[str, NDArray[Any]]
_BEFORE = np.int64(-(1 << 62))


def of_batches(z: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sums of ends by minute, all that these ends have, in: all periods of them and of their groups, out."""
    held = [batch for batch in batches if batch.num_rows]
    if held:
        for table, _ in of_ends(pa.Table.from_batches(held), z):
            yield from table.to_batches()


def of_ends(sums: pa.Table, z: float) -> Iterator[tuple[pa.Table, str]]:
    """`PERIODS` by period: of each end first, then of their groups, with what groups them."""
    texts = [minutesums.coded(sums.column(name)) for name in NAMES]
    number = minutesums.together([code for code, _ in texts], [len(known) for _, known in texts])
    end, ends = pd.factorize(number)
    one = np.zeros(len(ends), np.int64)
    one[end] = np.arange(len(end))  # a row that stands for an end
    names = {name: known.take(pa.array(code[one])) for name, (code, known) in zip(NAMES, texts, strict=True)}
    last = Sums(end, sums.column("start_ns").to_numpy(), read(sums))
    groups = {by: pd.factorize(names[name].to_numpy(zero_copy_only=False)) for by, name in GROUPS.items()}
    for period, length_ns in periods.LENGTHS.items():
        last = last.merged(last.thing, periods.start_ns(periods.number(last.start, length_ns), length_ns))
        unusual = last.unusual(z) if period == "minute" else {}
        named = {name: known.take(pa.array(last.thing)) for name, known in names.items()}
        yield _table(period, last, named | unusual), ""
        for by, (code, known) in groups.items():
            grouped = last.merged(code[last.thing], last.start)
            told = pa.array(known, pa.string()).take(pa.array(grouped.thing))
            weights = {name: grouped.columns[name] for name in WEIGHED}
            yield _table(period, grouped, {"name": told, **weights}, by), by


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of things (ends or groups) by the beginning of a period."""

    thing: NDArray[np.int64]
    start: NDArray[np.int64]
    columns: Columns

    def merged(self, thing: NDArray[Any], start: NDArray[Any], weighed: bool = False) -> Sums:
        """Sums of sums: of other things, or of longer periods; of parts of groups, if their ends are `weighed`."""
        order = np.lexsort((start, thing))
        thing, start = thing[order], start[order]
        begin = np.flatnonzero((np.diff(thing, prepend=-1) != 0) | (np.diff(start, prepend=start[:1] - 1) != 0))
        parts = Parts(order, begin)
        old = {name: values[order] for name, values in self.columns.items()}
        new: Columns = {name: parts.add(old[name]) for name in (*ADDED, "total_ms")}
        count = np.maximum(old["samples"], 1)
        between = parts.add(old["total_ms"] ** 2 / count) - new["total_ms"] ** 2 / np.maximum(new["samples"], 1)
        new["squares"] = parts.add(old["squares"]) + np.maximum(between, 0.0)
        new["least_ms"], new["most_ms"] = parts.least(old["least_ms"]), parts.most(old["most_ms"])
        new["most_ns"] = parts.last(np.where(old["most_ms"] == parts.each(new["most_ms"]), old["most_ns"], _BEFORE))
        new["jitter_ns"] = parts.last(old["jitter_ns"])
        newest = old["jitter_ns"] == parts.each(new["jitter_ns"])
        new["jitter_ms"] = parts.most(np.where(newest, old["jitter_ms"], np.nan))
        if weighed:
            new |= {name: parts.add(old[name]) for name in WEIGHED}
            return Sums(thing[begin], start[begin], new)
        weight = np.where(np.isnan(old["jitter_ms"]), 0, old["samples"])
        new["weight"] = parts.add(weight)
        new["weighted_ms"] = parts.add(np.where(weight > 0, old["jitter_ms"], 0.0) * weight)
        new["ends"] = parts.size
        return Sums(thing[begin], start[begin], new)

    def unusual(self, z: float) -> dict[str, pa.Array]:
        """Of minutes: what is usual in their hour, in which minutes count without their largest latency, and how many
        deviations the largest is from that; empty where a node would not find it to deviate."""
        hour = periods.number(self.start, periods.HOUR_NS)
        begin = np.flatnonzero((np.diff(self.thing, prepend=-1) != 0) | (np.diff(hour, prepend=hour[:1] - 1) != 0))
        parts = Parts(np.arange(len(hour)), begin)
        samples, total, most = (self.columns[name] for name in ("samples", "total_ms", "most_ms"))
        there = samples > 0
        largest = np.where(there, most, 0.0)
        squared = self.columns["squares"] + total**2 / np.maximum(samples, 1) - largest**2
        others = parts.each(parts.add(np.where(there, samples - 1, 0)))
        count = np.maximum(others, 1)
        usual = parts.each(parts.add(np.where(there, total - largest, 0.0))) / count
        spread = np.sqrt(np.maximum(parts.each(parts.add(np.where(there, squared, 0.0))) / count - usual**2, 0.0))
        out = metrics.deviates(largest, usual, metrics.usual_range_ms(usual, spread, others, z=z), others) > 0
        out &= there & (others >= metrics.OUTLIER_MINIMUM)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = (largest - usual) / spread
        return {
            "usual_ms": pa.array(usual, mask=~out),
            "spread_ms": pa.array(spread, mask=~out),
            "times": pa.array(times, mask=~out | (spread == 0)),
        }


def read(sums: pa.Table, weighed: bool = False) -> Columns:
    """Figures of sums, empty ones as merging needs them: nothing to add, no least, no time."""
    columns: Columns = {}
    for name in (*ADDED, "total_ms", "squares", *(WEIGHED if weighed else ())):
        columns[name] = pc.fill_null(sums.column(name), 0).to_numpy()
    for name in ("least_ms", "most_ms", "jitter_ms"):
        columns[name] = sums.column(name).to_numpy()  # NaN
    for name in ("most_ns", "jitter_ns"):
        columns[name] = pc.fill_null(sums.column(name), int(_BEFORE)).to_numpy()
    return columns


def _table(period: str, sums: Sums, given: dict[str, Any], by: str = "") -> pa.Table:
    figures, rows = sums.columns, len(sums.start)
    silent = figures["samples"] == 0
    columns: dict[str, Any] = {"start_ns": sums.start, **{name: figures[name] for name in ADDED}}
    for name in ("total_ms", "squares", "least_ms", "most_ms", "most_ns"):
        columns[name] = pa.array(figures[name], mask=silent)
    for name in ("jitter_ms", "jitter_ns"):
        columns[name] = pa.array(figures[name], mask=np.isnan(figures["jitter_ms"]))
    for name in MEANS:
        columns[f"{name}_total"] = pa.array(figures[f"{name}_total"], mask=figures[f"{name}_count"] == 0)
    columns |= given
    columns |= {"period": pa.repeat(pa.scalar(period), rows), "by": pa.repeat(pa.scalar(by), rows)}
    arrays = [pa.array(columns[each.name]) if each.name in columns else pa.nulls(rows, each.type) for each in PERIODS]
    return pa.table(arrays, schema=PERIODS)
