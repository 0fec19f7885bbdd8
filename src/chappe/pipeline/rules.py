"""What a row of the archive must be to be believed, over Arrow columns: the one place that says so (SJ-01)."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from chappe.archive.schema import DATASETS, OFFSET, RECEIVED, RECEIVED_NS

SOURCE = "source"  # the column with the name of the archive
SECOND_NS = 1_000_000_000
BEGIN_NS = 946_684_800 * SECOND_NS  # 2000: no clock of a mesh was set before
CREATED_NS = "created_ns"
QUARANTINE = pa.schema([
    pa.field("dataset", pa.string(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field(SOURCE, pa.string()),
    pa.field(OFFSET, pa.int64()),
    pa.field(RECEIVED_NS, pa.int64()),
    pa.field("row", pa.string(), nullable=False),  # JSON
])  # fmt: skip

# What may not be below zero, beside NaN and infinity, and what is a share.
_NOT_NEGATIVE: Mapping[str, tuple[str, ...]] = {
    "status": ("variable",),
    "events": ("epoch", "sequence"),
    "measurements": (
        "latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost", "outliers", "window",
    ),
    "counters": ("value",),
    "broker": (),
    "quality": ("latency_ns", "count"),
}  # fmt: skip
_SHARES: Mapping[str, tuple[str, ...]] = {"measurements": ("loss",)}
_MOST, _LAST_NS = sys.float_info.max, (1 << 63) - 1
_NAMES: Mapping[str, tuple[str, ...]] = {
    "status": ("node",), "events": ("topic",), "measurements": ("node", "link"), "counters": ("node", "name"),
    "broker": ("broker", "action"), "quality": ("subject", "kind"),
}  # fmt: skip


class Limits(NamedTuple):
    """How long before, and how far after its arrival a row may have been made."""

    late_ns: int
    ahead_ns: int


class Verdict(NamedTuple):
    """The number of the first rule that each row breaks, 0 for none, and what the rules are called."""

    broken: NDArray[np.int16]
    reasons: list[str]


def judged(dataset: str, rows: pa.Table, limits: Limits) -> Verdict:
    """Which rows break a rule."""
    broken = np.zeros(rows.num_rows, np.int16)
    reasons = [""]
    for reason, wrong in _rules(dataset, rows, limits):
        if wrong is not None and pc.any(wrong).as_py():
            found = pc.fill_null(wrong, False).to_numpy(zero_copy_only=False)
            broken[found & (broken == 0)] = len(reasons)
            reasons.append(reason)
    return Verdict(broken, reasons)


def quarantined(dataset: str, rows: pa.Table, verdict: Verdict) -> pa.Table:
    """The rows that break a rule, as they were."""
    places = np.flatnonzero(verdict.broken)
    bad = rows.take(pa.array(places))
    reasons = [verdict.reasons[number] for number in verdict.broken[places].tolist()]
    columns = {
        "dataset": [dataset] * len(places),
        "reason": reasons,
        SOURCE: bad.column(SOURCE).cast(pa.string()),
        OFFSET: bad.column(OFFSET),
        RECEIVED_NS: bad.column(RECEIVED_NS),
        "row": [_json(row) for row in bad.to_pylist()],
    }
    return pa.table(columns, schema=QUARANTINE)


def _rules(dataset: str, rows: pa.Table, limits: Limits) -> Iterator[tuple[str, Any]]:
    """What is wrong, and where; None where a look at the column shows that it is nowhere."""
    schema = DATASETS[dataset]
    for field in schema:
        if not field.nullable and field.name not in (OFFSET, RECEIVED):
            column = rows.column(field.name)
            yield f"no {field.name}", pc.is_null(column) if column.null_count else None
    for name in _NAMES[dataset]:
        yield f"no {name}", _empty(rows.column(name))
    for field in schema:
        column = rows.column(field.name)
        number, positive = field.type == pa.float64(), field.name in _NOT_NEGATIVE[dataset]
        share = field.name in _SHARES.get(dataset, ())
        if not (number or positive or share) or _within(column, 0 if positive else -_MOST, 1 if share else _MOST):
            continue
        if number:
            yield f"{field.name} is no number", pc.invert(pc.is_finite(column))
        if positive:
            yield f"{field.name} below zero", pc.less(column, 0)
        if share:
            yield f"{field.name} above one", pc.greater(column, 1)
    if dataset == "status":
        value, whole, content = (pc.is_null(rows.column(name)) for name in ("value", "whole", "content"))
        yield "no value", pc.and_(pc.and_(value, whole), content)
    created, received = rows.column(CREATED_NS), rows.column(RECEIVED_NS)
    possible = _within(created, BEGIN_NS, _LAST_NS) and _within(received, BEGIN_NS, _LAST_NS)
    if possible and _within(pc.subtract(received, created), -limits.ahead_ns, limits.late_ns):
        return
    yield "impossible time of receipt", pc.less(received, BEGIN_NS)
    beyond = pc.greater(created, pc.add(received, limits.ahead_ns))
    yield "impossible time", pc.or_kleene(pc.less(created, BEGIN_NS), beyond)
    yield "late", pc.greater(pc.subtract(received, created), limits.late_ns)


def _within(column: pa.ChunkedArray, least: float, most: float) -> bool:
    """Whether all values are there and none is outside or NaN, which no comparison lets through."""
    if column.null_count:
        return False
    chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks if len(chunk)]
    return all(bool(least <= chunk.min() and chunk.max() <= most) for chunk in chunks)


def _empty(column: pa.ChunkedArray) -> Any:
    """Where a text is empty; names repeat, so that a look at the distinct ones is mostly enough."""
    if pa.types.is_dictionary(column.type):
        if all(pc.index(chunk.dictionary, "").as_py() < 0 for chunk in column.chunks):
            return None
        column = column.cast(column.type.value_type)
    return pc.equal(column, "")


def _json(row: dict[str, Any]) -> str:
    """A row as JSON without what it has not, as Spark would write it."""
    return json.dumps({name: _told(value) for name, value in row.items() if value is not None}, ensure_ascii=False)


def _told(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
