"""What people read of links, made of sums: the tables of SJ-02 over Arrow columns, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chappe.measure.cost import Formula, priced
from chappe.pipeline import linkperiods, minutesums
from chappe.pipeline.linkperiods import Sums
from chappe.pipeline.minutesums import MEANS, NAMES

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()


def _fields(kind: pa.DataType, *names: str, empty: bool = False) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=empty) for name in names]


_PERIOD = [*_fields(_TEXT, "period"), *_fields(_WHOLE, "start_ns")]
_FIGURES = [
    *_fields(_WHOLE, "rounds", "samples"),
    *_fields(
        _NUMBER, "latency_ms", "deviation_ms", "least_ms", "most_ms", "jitter_ms", "jitter", "loss", "bandwidth",
        "cost", empty=True,
    ),
    *_fields(_WHOLE, "outliers", "tested"),
]  # fmt: skip
LINK_STATISTICS = pa.schema([*_PERIOD, *_fields(_TEXT, *NAMES), *_FIGURES])
GROUP_STATISTICS = pa.schema([*_PERIOD, *_fields(_TEXT, "by", "name"), *_fields(_WHOLE, "ends"), *_FIGURES])
SPIKES = pa.schema([
    *_fields(_TEXT, *NAMES), *_fields(_WHOLE, "created_ns"),
    *_fields(_NUMBER, "latency_ms", "usual_ms", "deviation_ms"),
    *_fields(_NUMBER, "times", empty=True),  # deviations from what is usual
])  # fmt: skip
_SPIKES = {"created_ns": "most_ns", "latency_ms": "most_ms", "deviation_ms": "spread_ms"}
GROUP_KEYS = ("by", "name")  # all of a group must come together

Values = NDArray[Any]


def of_ends(formula: Formula, made: pa.Table) -> pa.Table:
    """`LINK_STATISTICS` of the periods of ends."""
    given = {name: made.column(name) for name in ("period", "start_ns", *NAMES)}
    return _table(LINK_STATISTICS, given | _figures(formula, linkperiods.read(made)))


def spikes(made: pa.Table) -> pa.Table:
    """Of the periods of ends, the minutes with something unusual."""
    unusual = made.filter(pc.is_valid(made.column("usual_ms")))
    return _table(SPIKES, {name: unusual.column(_SPIKES.get(name, name)) for name in SPIKES.names})


def of_groups(formula: Formula, made: pa.Table) -> pa.Table:
    """`GROUP_STATISTICS` of periods of groups, of which several tasks may have made parts."""
    texts = {name: minutesums.coded(made.column(name)) for name in ("period", *GROUP_KEYS)}
    codes, sizes = [code for code, _ in texts.values()], [len(known) for _, known in texts.values()]
    number = minutesums.together(codes, sizes)
    sums = Sums(number, made.column("start_ns").to_numpy(), linkperiods.read(made, weighed=True))
    merged = sums.merged(sums.thing, sums.start, weighed=True)
    row = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    row[number] = np.arange(len(number))  # one that stands for a group and period
    row = row[merged.thing]
    columns = merged.columns
    weight = columns["weight"]
    columns["jitter_ms"] = np.where(weight > 0, columns["weighted_ms"] / np.maximum(weight, 1), np.nan)
    given = {name: known.take(pa.array(code[row])) for name, (code, known) in texts.items()}
    given |= {"start_ns": merged.start, "ends": columns["ends"]}
    return _table(GROUP_STATISTICS, given | _figures(formula, columns))


def each_end(formula: Formula, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same as `of_ends`, of rows as they come."""
    for batch in batches:
        yield from of_ends(formula, pa.Table.from_batches([batch])).to_batches()


def each_spike(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same as `spikes`, of rows as they come."""
    for batch in batches:
        yield from spikes(pa.Table.from_batches([batch])).to_batches()


def each_group(formula: Formula, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same as `of_groups`, of all rows of some groups."""
    held = [batch for batch in batches if batch.num_rows]
    if held:
        yield from of_groups(formula, pa.Table.from_batches(held)).to_batches()


def _figures(formula: Formula, sums: linkperiods.Columns) -> dict[str, Any]:
    """By name, from sums; empty where there is nothing to say."""
    samples = sums["samples"]
    silent = samples == 0
    latency = sums["total_ms"] / np.maximum(samples, 1)
    means = {name: _mean(sums[f"{name}_total"], sums[f"{name}_count"]) for name in MEANS}
    cost = priced(formula, np.where(silent, np.nan, latency), *(means[name] for name in MEANS))
    figures: dict[str, Values] = {
        "latency_ms": latency,
        "deviation_ms": np.sqrt(np.maximum(sums["squares"], 0.0) / np.maximum(samples, 1)),
        "least_ms": sums["least_ms"],
        "most_ms": sums["most_ms"],
    }
    told = means | {"jitter_ms": sums["jitter_ms"], "cost": cost}
    return {
        **{name: sums[name] for name in ("rounds", "samples", "outliers", "tested")},
        **{name: pa.array(values, mask=silent) for name, values in figures.items()},
        **{name: pa.array(values, mask=np.isnan(values)) for name, values in told.items()},
    }


def _mean(total: Values, count: Values) -> Values:
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _table(schema: pa.Schema, columns: dict[str, Any]) -> pa.Table:
    arrays = [each if isinstance(each, pa.ChunkedArray) else pa.array(each) for each in map(columns.get, schema.names)]
    return pa.table(arrays, schema=schema)
