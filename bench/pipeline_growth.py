"""Where two lines of time over rows cross, or would."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Line:
    """Seconds before the first row, and seconds a row."""

    start_s: float
    row_s: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Line:
        """The line that is off least in proportion: a second counts more at a million rows than at a hundred."""
        rows, seconds = np.array([x for x, _ in points]), np.array([y for _, y in points])
        slope, start = np.polyfit(rows, seconds, 1, w=1 / seconds)
        return cls(max(float(start), 0.0), float(slope))

    def meets(self, other: Line) -> float:
        """The rows from which on this one takes less time; 0 if from the first, infinite if never."""
        if self.row_s >= other.row_s:
            return float("inf")
        return max(0.0, (self.start_s - other.start_s) / (other.row_s - self.row_s))


def crossing(name: str, mine: Line, peer: str, other: Line, cores: int) -> str:
    """In words: where, or what it would take."""
    at = mine.meets(other)
    if at == 0:
        return f"{name} is faster than {peer} from the first row on"
    if at != float("inf"):
        return f"{name} and {peer} take the same time at {at:,.0f} rows; beyond, {name} is faster"
    times = mine.row_s / other.row_s
    wider = Line(mine.start_s, mine.row_s / (2 * times))  # twice what is needed to be level
    return (
        f"{name} does not catch up with {peer} on {cores} cores: a row takes it {times:.1f} times as long. Spread over "
        f"{2 * times * cores:,.0f} cores, if it grows with them, they would cross at {wider.meets(other):,.0f} rows"
    )
