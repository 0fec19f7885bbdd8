"""What is usual at each hour of the week: median and spread of the intervals of a link; NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chappe.pipeline import periods
from chappe.pipeline.forecasting import median

WEEKS, DAYS = 2, 2  # of history without which hours of the week, or of the day, are not told apart
NORMAL = 1.4826  # the standard deviation of normal values, of the median of their distances from their median


class Usual(NamedTuple):
    """Of one hour; basis: `week` if it was compared with the same hour of other weeks, `day` of other days, `all`."""

    basis: str
    latency_ms: float
    spread_ms: float
    intervals: int


def baseline(values: NDArray[np.float64], end: int, length_ns: int) -> list[Usual]:
    """One entry an hour of the week, of intervals of that length before number `end`; nothing without any value.

    An hour that was not measured, or not often enough for its basis, is taken with the other days, or with all.
    """
    at_ns = (np.arange(end - len(values), end)) * length_ns
    hour = periods.hour_of_week(at_ns)
    known = np.isfinite(values)
    if not known.any():
        return []
    seen = at_ns[known]
    span_ns = int(seen[-1] - seen[0]) + length_ns
    found: dict[tuple[str, int], Usual | None] = {}
    usual = []
    for number in range(168):
        tried = []
        if span_ns >= WEEKS * periods.WEEK_NS:
            tried.append(("week", number, hour == number))
        if span_ns >= DAYS * periods.DAY_NS:
            tried.append(("day", number % 24, hour % 24 == number % 24))
        for basis, place, inside in (*tried, ("all", 0, known)):
            if (basis, place) not in found:
                found[basis, place] = _usual(basis, values[inside & known])
            entry = found[basis, place]
            if entry is not None:
                usual.append(entry)
                break
    return usual


def _usual(basis: str, values: NDArray[np.float64]) -> Usual | None:
    if not len(values):
        return None
    middle = median(values[:, None])[0]
    spread = NORMAL * median(np.abs(values - middle)[:, None])[0]
    return Usual(basis, float(middle), float(spread), len(values))
