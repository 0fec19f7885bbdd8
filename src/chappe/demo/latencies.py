"""Latencies of the last moments and of the whole run, in bounded memory."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable

_STEP = 1.05
_FLOOR_NS = 1_000
# Upper bounds of buckets that are 5 % wide, from 1 µs to beyond a minute.
_BOUNDS = [round(_FLOOR_NS * _STEP**step) for step in range(math.ceil(math.log(1e11 / _FLOOR_NS, _STEP)))]


class Latencies:
    """Counts in buckets: percentiles to 5 %."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self.count = 0

    def add(self, latencies_ns: Iterable[int]) -> None:
        for latency_ns in latencies_ns:
            self._counts[bisect.bisect_left(_BOUNDS, latency_ns)] += 1
            self.count += 1

    def percentile_ms(self, share: float) -> float:
        """The latency that `share` of the counted ones do not exceed; 0 if there are none."""
        wanted = self.count * share
        seen = 0
        for place, count in enumerate(self._counts):
            seen += count
            if count and seen >= wanted:
                return _BOUNDS[min(place, len(_BOUNDS) - 1)] / 1e6
        return 0.0
