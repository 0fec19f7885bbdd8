"""Whether a series of samples levels off: a robust slope with its confidence interval, against a stated noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import theilslopes

CONFIDENCE = 0.99
SHARE = 0.02  # of the median: growth below it over half a run is no growth
NOISE = 3.0  # times the median absolute deviation of the residuals


@dataclass(frozen=True, slots=True)
class Trend:
    """What the second half of a series does; growth is what the slope makes of that half."""

    median: float
    growth: float  # by the slope
    least: float  # by the lower end of its interval
    allowed: float

    @property
    def level(self) -> bool:
        return self.least <= self.allowed


def trend(times_s: Sequence[float], values: Sequence[float], floor: float) -> Trend:
    """The second half of the samples.

    The slope is the median of the slopes between all pairs (Theil and Sen), which single bursts do not move. The
    series is level if the growth that the lower end of its 99 % interval gives over that half is at most the largest of
    `floor`, 2 % of the median, and three median absolute deviations of the residuals.
    """
    at = np.asarray(times_s, dtype=np.float64)
    half = at >= (at[0] + at[-1]) / 2
    x, y = at[half], np.asarray(values, dtype=np.float64)[half]
    span = float(x[-1] - x[0])
    slope, start, low, _ = theilslopes(y, x, CONFIDENCE)
    residuals = y - (start + slope * x)
    deviation = float(np.median(np.abs(residuals - np.median(residuals))))
    median = float(np.median(y))
    allowed = max(floor, SHARE * abs(median), NOISE * deviation)
    return Trend(median, float(slope) * span, float(low) * span, allowed)
