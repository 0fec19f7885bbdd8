"""What others measured of an own link, mixed into what this node measured itself (MR-079)."""

from __future__ import annotations

import math

from chappe.measure.cost import Metrics
from chappe.measure.messages import Advice

OLD_NS = 600_000_000_000  # advice that is older counts no more


def mix_advice(own: Metrics | None, advice: Advice, now_ns: int) -> Metrics | None:
    """The metrics to use in a cost: ours with theirs by weight, or theirs where we have none; None if there is nothing.

    Theirs alone are used as they are: where nobody of us measures, somebody else's measurement is the best there is.
    """
    if now_ns - advice.stamp_ns > OLD_NS:
        return own
    if own is None:
        if advice.latency_ms is None:
            return None
        own = Metrics(latency_ms=advice.latency_ms)
    return own._replace(
        latency_ms=_mix(own.latency_ms, advice.latency_ms, advice.weight),
        jitter=_mix(own.jitter, advice.jitter, advice.weight),
        loss=_mix(own.loss, advice.loss, advice.weight),
        bandwidth=_mix(own.bandwidth, advice.bandwidth, advice.weight),
    )


def _mix(own: float, other: float | None, weight: float) -> float:
    if other is None or not math.isfinite(other) or other < 0:
        return own
    return other if math.isnan(own) else (1 - weight) * own + weight * other
