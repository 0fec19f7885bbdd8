"""Rates and intervals as users write them, in the rational terms of the wire."""

from __future__ import annotations

from fractions import Fraction

NS = 1_000_000_000


def rational_rate(rate: float | Fraction | None) -> tuple[int, int]:
    """Events a second as (events, nanoseconds); (0, 1) for alerts, which have no rate."""
    if rate is None or rate == 0:
        return 0, 1
    if rate < 0:
        raise ValueError(
            f"a rate is positive, not {rate}; None for a variable that is published when something happens"
        )
    exact = rate if isinstance(rate, Fraction) else Fraction(rate).limit_denominator(1_000_000)
    per_ns = exact / NS
    return per_ns.numerator, per_ns.denominator


def interval_ns(interval: float | Fraction | None) -> int:
    """Seconds as nanoseconds; 0 for every event."""
    if interval is None:
        return 0
    if interval < 0:
        raise ValueError(f"an interval is positive, not {interval} s; None for every event")
    return round(Fraction(interval) * NS)
