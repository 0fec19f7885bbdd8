# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""`Windows.absorb`, compiled, row by row: a node with few links spends more on calling NumPy than on the numbers.

The formulas are those of `metrics`, which is what everything else uses; a property test holds both together.
"""

from libc.math cimport NAN, fabs, isnan, sqrt
from libc.stdint cimport int8_t, uint8_t

from chappe.measure import metrics

import numpy as np

cdef double SMOOTHING = metrics.SMOOTHING
cdef double SHIFT_Z = metrics.SHIFT_Z
cdef Py_ssize_t SHIFT_MINIMUM = metrics.SHIFT_MINIMUM
cdef Py_ssize_t OUTLIER_MINIMUM = metrics.OUTLIER_MINIMUM


cdef class Table:
    def __init__(self, windows):
        self.samples = windows._samples
        self.at = windows._at
        self.count = windows.count
        self.outliers = windows.outliers
        self.last = windows._last
        self.sign = windows._sign
        self.mean = windows.latency_ms
        self.deviation = windows.deviation_ms
        self.jitter_ms = windows.jitter_ms
        self.jitter = windows.jitter
        self.level = windows._level_ms
        self.range_ms = windows._range_ms
        self.z = windows._z
        self.share = windows._share
        self.floor_ms = windows._floor_ms
        self.size = windows.size

    cdef int side(self, Py_ssize_t row, double latency_ms) noexcept:
        """As `metrics.deviates`, of a sample that was not taken yet."""
        cdef double apart = latency_ms - self.level[row]
        if fabs(apart) > self.range_ms[row] and self.count[row] >= SHIFT_MINIMUM:
            return 1 if apart > 0 else -1
        return 0

    cdef int take(self, Py_ssize_t row, double latest) noexcept:
        """One more sample: DEVIATES, SHIFTED, both or neither."""
        cdef double figures[4]
        cdef int side = self.side(row, latest)
        cdef bint shift = side * self.sign[row] > 0
        if isnan(self.last[row]):
            self.jitter_ms[row] = 0.0
        else:
            self.jitter_ms[row] += (fabs(latest - self.last[row]) - self.jitter_ms[row]) / SMOOTHING
        if shift:
            # A round trip that was under way when the level changed has some of both: it is no sample of the new one.
            self.samples[row, 0] = self.last[row]
            self.at[row] = fabs(self.last[row] - latest) <= max(self.share * latest, self.floor_ms)
            self.count[row] = self.at[row]
        self.sign[row] = 0 if shift else <int8_t> side
        self.last[row] = latest
        self.samples[row, self.at[row]] = latest
        self.at[row] = (self.at[row] + 1) % self.size
        self.count[row] = min(self.count[row] + 1, self.size)
        _summary(&self.samples[row, 0], self.count[row], self.z, figures)
        self.outliers[row] = <Py_ssize_t> figures[3]
        if side == 0 or shift:
            self.mean[row] = self.level[row] = figures[0]
            self.deviation[row] = figures[1]
            self.jitter[row] = figures[2]
            self.range_ms[row] = max(
                max(SHIFT_Z * (1 + 4.0 / max(self.count[row], 1)) * figures[1], self.share * figures[0]), self.floor_ms)
        return (DEVIATES if side else 0) | (SHIFTED if shift else 0)


def absorb(windows, Py_ssize_t[::1] rows, double[::1] latency_ms):
    """One more sample in each of these rows, none of them twice; which deviate, and which restarted."""
    cdef Table table = Table(windows)
    cdef Py_ssize_t i
    cdef int what
    found = np.zeros((2, rows.shape[0]), dtype=np.bool_)
    cdef uint8_t[:, ::1] marks = found.view(np.uint8)
    for i in range(rows.shape[0]):
        what = table.take(rows[i], latency_ms[i])
        marks[0, i] = what & DEVIATES != 0
        marks[1, i] = what & SHIFTED != 0
    return found


cdef void _summary(const double* samples, Py_ssize_t count, double z, double* figures) noexcept nogil:
    """Mean, deviation and relative jitter without outliers, and how many of these there are."""
    cdef double middle, spread, limit, total = 0.0, squares = 0.0, absolute = 0.0, apart
    cdef Py_ssize_t at, kept = 0
    for at in range(count):
        total += samples[at]
    middle = total / count
    for at in range(count):
        squares += (samples[at] - middle) * (samples[at] - middle)
    spread = sqrt(squares / count)
    limit = z * spread
    if count < OUTLIER_MINIMUM or spread <= 0:
        limit = -1.0  # no outliers
    total = 0.0
    for at in range(count):
        if limit < 0 or fabs(samples[at] - middle) <= limit:
            total += samples[at]
            kept += 1
    figures[3] = count - kept
    if kept == 0:
        figures[0] = figures[1] = figures[2] = NAN
        return
    figures[0] = total / kept
    squares = 0.0
    for at in range(count):
        if limit < 0 or fabs(samples[at] - middle) <= limit:
            apart = samples[at] - figures[0]
            squares += apart * apart
            absolute += fabs(apart)
    figures[1] = sqrt(squares / kept)
    figures[2] = absolute / kept / (1.0 if figures[0] == 0 else figures[0])
