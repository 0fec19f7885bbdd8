"""What became of a promise: instants that were served, gaps, latencies and repetitions, from the stamps of values.

Values are judged on the grid of the routers (`chappe.pipeline.grid`): an instant on which the subscription was to get a
value, and on which the archive takes one too, is served if such a value was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chappe.pipeline.grid import Grid

PERCENTILES = (50, 95, 99)
SPARSE = 1 << 32  # publishing periods between two values of an archive that nobody asks for

Whole = NDArray[np.int64]


class Promise(NamedTuple):
    """One value in `every`, within the bound, in a span of time."""

    from_ns: int
    to_ns: int
    rate_num: int
    rate_den: int
    every: int
    bound_ns: int  # 0: none


@dataclass(frozen=True, slots=True)
class Kept:
    """How a promise was kept; what cannot be said is None."""

    expected: int | None
    received: int
    gaps: int | None
    longest_gap_ns: int | None
    latencies_ns: Whole
    late: int | None
    duplicates: int

    def row(self) -> dict[str, Any]:
        """As columns; latencies in milliseconds."""
        told = self.latencies_ns / 1e6
        marks = np.percentile(told, PERCENTILES) if len(told) else [None] * len(PERCENTILES)
        return {
            "expected": self.expected,
            "received": self.received,
            "gaps": self.gaps,
            "longest_gap_ms": None if self.longest_gap_ns is None else self.longest_gap_ns / 1e6,
            **{f"latency_p{mark}_ms": value for mark, value in zip(PERCENTILES, marks, strict=True)},
            "latency_max_ms": float(told.max()) if len(told) else None,
            "late": self.late,
            "duplicates": self.duplicates,
        }


def archived_every(created_ns: Whole, rate_num: int, rate_den: int) -> int:
    """One of how many published values is in an archive, as far as these show: 0 for none."""
    if rate_num == 0 or not len(created_ns):
        return 1 if len(created_ns) else 0
    return int(np.gcd.reduce(Grid(rate_num, rate_den).periods(created_ns)))


class Values(NamedTuple):
    """Values of one variable as archives at one node noted them; `source` numbers the archives."""

    created_ns: Whole
    received_ns: Whole
    source: Whole

    def where(self, chosen: NDArray[np.bool_]) -> Values:
        return Values(*(column[chosen] for column in self))


def kept(values: Values, promises: Sequence[Promise], archived: int) -> Kept:
    """How successive promises of one subscription were kept; archives have one of `archived` published values."""
    parts = [_one(values, promise, archived) for promise in promises]
    counted = [part for part in parts if part.expected is not None]
    bounded = [part for part in parts if part.late is not None]
    return Kept(
        sum(part.expected or 0 for part in counted) if counted else None,
        sum(part.received for part in parts),
        sum(part.gaps or 0 for part in counted) if counted else None,
        max((part.longest_gap_ns or 0 for part in counted), default=None),
        np.concatenate([part.latencies_ns for part in parts]) if parts else np.empty(0, np.int64),
        sum(part.late or 0 for part in bounded) if bounded else None,
        sum(part.duplicates for part in parts),
    )


def _one(values: Values, promise: Promise, archived: int) -> Kept:
    created = values.created_ns
    if promise.rate_num == 0:  # an alert: nobody knows when it is due
        inside = (created >= promise.from_ns) & (created < promise.to_ns)
        return _told(None, values.where(inside), promise)
    every = lcm(promise.every, max(archived, 1))
    if every > SPARSE:  # so few values that nothing shows how many there should be
        inside = (created >= promise.from_ns) & (created < promise.to_ns)
        return _told((0, 0, 0, 0), values.where(inside), promise)
    grid = Grid(promise.rate_num, promise.rate_den, every)
    step = grid.every * grid.den
    first, end = -(-promise.from_ns * grid.num // step), -(-promise.to_ns * grid.num // step)
    numbers = grid.sets(created)
    inside = grid.counts(created) & (numbers >= first) & (numbers < end)
    there = np.unique(numbers[inside])
    missing = np.diff(np.concatenate([[first - 1], there, [end]])) - 1  # before, between and after what came
    longest = int(missing.max()) if end > first else 0
    gaps = int((missing > 0).sum()) if end > first else 0
    longest_ns = (longest + 1) * step // grid.num if longest else 0
    return _told((max(end - first, 0), len(there), gaps, longest_ns), values.where(inside), promise)


def _told(counted: tuple[int, int, int, int] | None, values: Values, promise: Promise) -> Kept:
    created, received, source = values
    order = np.argsort(received, kind="stable")
    _, places = np.unique(created[order], return_index=True)  # of copies the first to come counts
    latencies = (received - created)[order][places]
    late = int((latencies > promise.bound_ns).sum()) if promise.bound_ns else None
    copies = len(created) - len(np.unique(np.stack([created, source]), axis=1).T)
    expected, served, gaps, longest = counted or (None, len(places), None, None)
    return Kept(expected, served, gaps, longest, latencies, late, copies)
