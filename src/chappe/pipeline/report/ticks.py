"""Round numbers and times for axes, and how they are written."""

from __future__ import annotations

import math
from datetime import UTC, datetime

SECOND_NS = 1_000_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_STEPS_S = (
    1, 2, 5, 10, 30, _MINUTE_S, 2 * _MINUTE_S, 5 * _MINUTE_S, 10 * _MINUTE_S, 30 * _MINUTE_S, _HOUR_S, 2 * _HOUR_S,
    3 * _HOUR_S, 6 * _HOUR_S, 12 * _HOUR_S, _DAY_S, 2 * _DAY_S, 7 * _DAY_S, 14 * _DAY_S, 28 * _DAY_S, 56 * _DAY_S,
    112 * _DAY_S, 364 * _DAY_S, 3640 * _DAY_S,
)  # fmt: skip


def numbers(low: float, high: float, wanted: int = 5) -> list[float]:
    """About so many round numbers between two."""
    if not high > low:
        return [low]
    step = _round_up((high - low) / wanted)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(low: float, high: float) -> list[float]:
    """Powers of ten between two numbers above zero; with 2 and 5 times each, or round numbers, where those are few."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    factors = (1,) if last - first > 2 else (1, 2, 5)
    found = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
    inside = [tick for tick in found if low <= tick <= high]
    return inside if len(inside) > 1 else numbers(low, high)


def times(low_ns: float, high_ns: float, wanted: int = 6) -> list[float]:
    """About so many round times (UTC) between two."""
    span_s = (high_ns - low_ns) / SECOND_NS
    step = next((step for step in _STEPS_S if span_s / step <= wanted), _STEPS_S[-1]) * SECOND_NS
    first = math.ceil(low_ns / step)
    return [float(number * step) for number in range(first, math.floor(high_ns / step) + 1)] or [low_ns]


def number_text(value: float) -> str:
    """Three digits, with thousands apart."""
    if value != value:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def time_text(at_ns: float, span_ns: float) -> str:
    """As much of a time as tells it from its neighbours on an axis of that length."""
    at = datetime.fromtimestamp(at_ns / SECOND_NS, UTC)
    if span_ns > 2 * _DAY_S * SECOND_NS:
        return f"{at:%d %b}" if at.hour == 0 else f"{at:%d %b %H:%M}"
    if span_ns > 10 * _MINUTE_S * SECOND_NS:
        return f"{at:%H:%M}" if at.hour or at.minute else f"{at:%d %b}"
    return f"{at:%H:%M:%S}"


def moment(at_ns: float) -> str:
    """A whole time, for people."""
    return f"{datetime.fromtimestamp(at_ns / SECOND_NS, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _round_up(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))
