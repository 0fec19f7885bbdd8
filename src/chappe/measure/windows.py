"""The last samples of many links side by side, one array a field: what the formulas of `metrics` run over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chappe.measure import metrics
from chappe.measure.metrics import Floats, Mask

Rows = NDArray[np.intp]


class Absorbed(NamedTuple):
    """What new samples were to their rows."""

    deviates: Mask  # outside the usual range
    shifted: Mask  # the second of one sign: the window restarted


class Windows:
    """One window of latencies a row; all rows that got a sample are evaluated at once.

    Outliers stay in their window and are left out of what is computed from it. A sample outside the usual range changes
    nothing until the next one says what it means: a level shift restarts the window with the two that showed it, or by
    the second alone if they differ.
    """

    def __init__(self, size: int = metrics.WINDOW, z: float = metrics.Z, share: float = metrics.SHARE,
                 floor_ms: float = metrics.FLOOR_MS, rows: int = 1) -> None:  # fmt: skip
        self.size = size
        self._z = z
        self._share = share
        self._floor_ms = floor_ms
        self._samples: Floats = np.zeros((rows, size))
        self._at: NDArray[np.intp] = np.zeros(rows, dtype=np.intp)
        self._last: Floats = np.full(rows, np.nan)
        self._sign: NDArray[np.int8] = np.zeros(rows, dtype=np.int8)
        self.count: NDArray[np.intp] = np.zeros(rows, dtype=np.intp)
        self.outliers: NDArray[np.intp] = np.zeros(rows, dtype=np.intp)
        self.latency_ms: Floats = np.full(rows, np.nan)  # mean without outliers
        self.deviation_ms: Floats = np.full(rows, np.nan)
        self.jitter_ms: Floats = np.full(rows, np.nan)
        self.jitter: Floats = np.full(rows, np.nan)
        # What the next sample is compared with: the mean of the samples before the last, if that one deviates.
        self._level_ms: Floats = np.full(rows, np.nan)
        self._range_ms: Floats = np.full(rows, np.inf)

    def grow(self, rows: int) -> None:
        """Room for more rows."""
        more = rows - len(self.count)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                empty = {"_range_ms": np.inf}.get(name, np.nan if value.ndim == 1 and value.dtype.kind == "f" else 0)
                room = np.full((more, *value.shape[1:]), empty, dtype=value.dtype)
                setattr(self, name, np.concatenate((value, room)))

    def clear(self, row: int) -> None:
        """Forget the samples of a row."""
        self.count[row] = self.outliers[row] = self._at[row] = self._sign[row] = 0
        for values in (self._last, self._level_ms, self.latency_ms, self.deviation_ms, self.jitter_ms, self.jitter):
            values[row] = np.nan
        self._range_ms[row] = np.inf

    def side(self, row: int, latency_ms: float) -> int:
        """As `metrics.deviates`, for one sample that was not absorbed yet."""
        apart = latency_ms - self._level_ms.item(row)
        if abs(apart) <= self._range_ms.item(row) or self.count.item(row) < metrics.SHIFT_MINIMUM:
            return 0
        return 1 if apart > 0 else -1

    def absorb(self, rows: Rows, latency_ms: Floats) -> Absorbed:
        """One more sample in each of these rows, none of them twice."""
        sign = metrics.deviates(latency_ms, self._level_ms[rows], self._range_ms[rows], self.count[rows])
        shift = metrics.level_shift(self._sign[rows], sign)
        last = self._last[rows]
        first = np.isnan(last)
        self.jitter_ms[rows] = np.where(first, 0.0, metrics.rtp_jitter_step(self.jitter_ms[rows], last, latency_ms))
        if shift.any():
            again = rows[shift]
            # A round trip that was under way when the level changed has some of both: it is no sample of the new one.
            alike = np.abs(last - latency_ms) <= np.maximum(self._share * latency_ms, self._floor_ms)
            self._samples[again, 0] = last[shift]
            self.count[again] = self._at[again] = alike[shift]
        self._sign[rows] = np.where(shift, 0, sign)
        self._last[rows] = latency_ms
        self._samples[rows, self._at[rows]] = latency_ms
        self._at[rows] = (self._at[rows] + 1) % self.size
        self.count[rows] = np.minimum(self.count[rows] + 1, self.size)
        self._evaluate(rows, (sign == 0) | shift)
        return Absorbed(sign != 0, shift)

    def _evaluate(self, rows: Rows, usual: Mask) -> None:
        samples = self._samples[rows]
        valid = metrics.filled(self.count[rows], self.size)
        outliers, middle, spread, jitter = metrics.summary(samples, valid, self._z)
        self.outliers[rows] = outliers
        for values, now in ((self.latency_ms, middle), (self.deviation_ms, spread), (self.jitter, jitter)):
            values[rows] = np.where(usual, now, values[rows])
        within = metrics.usual_range_ms(middle, spread, self.count[rows], share=self._share, floor_ms=self._floor_ms)
        self._level_ms[rows] = np.where(usual, middle, self._level_ms[rows])
        self._range_ms[rows] = np.where(usual, within, self._range_ms[rows])


def replay(series: ArrayLike, size: int = metrics.WINDOW, z: float = metrics.Z) -> dict[str, Floats]:
    """What a link's metrics were after each latency (ms) of a recorded series: the same computation as on a node."""
    latencies = np.atleast_1d(np.asarray(series, dtype=np.float64))
    windows = Windows(size, z)
    row = np.zeros(1, dtype=np.intp)
    names: Sequence[str] = ("latency_ms", "deviation_ms", "jitter_ms", "jitter", "outliers", "count")
    found = {name: np.full(len(latencies), np.nan) for name in names}
    for at in range(len(latencies)):
        windows.absorb(row, latencies[at : at + 1])
        for name in names:
            found[name][at] = getattr(windows, name)[0]
    return found
