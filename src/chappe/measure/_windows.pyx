# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""`Windows.absorb`, compiled: a node with few links spends more on calling NumPy than on the numbers.

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


def absorb(windows, Py_ssize_t[::1] rows, double[::1] latency_ms):
    """One more sample in each of these rows, none of them twice; which deviate, and which restarted."""
    cdef double[:, ::1] samples = windows._samples
    cdef Py_ssize_t[::1] at = windows._at
    cdef Py_ssize_t[::1] count = windows.count
    cdef Py_ssize_t[::1] outliers = windows.outliers
    cdef double[::1] last = windows._last
    cdef int8_t[::1] sign = windows._sign
    cdef double[::1] mean = windows.latency_ms
    cdef double[::1] deviation = windows.deviation_ms
    cdef double[::1] jitter_ms = windows.jitter_ms
    cdef double[::1] jitter = windows.jitter
    cdef double[::1] level = windows._level_ms
    cdef double[::1] range_ms = windows._range_ms
    cdef double z = windows._z, share = windows._share, floor_ms = windows._floor_ms
    cdef Py_ssize_t size = windows.size, n = rows.shape[0], i, row
    found = np.zeros((2, n), dtype=np.bool_)
    cdef uint8_t[:, ::1] marks = found.view(np.uint8)
    cdef double latest, apart, told[4]
    cdef int8_t side
    cdef bint shift
    for i in range(n):
        row, latest = rows[i], latency_ms[i]
        apart = latest - level[row]
        side = 0
        if fabs(apart) > range_ms[row] and count[row] >= SHIFT_MINIMUM:
            side = 1 if apart > 0 else -1
        shift = side * sign[row] > 0
        if isnan(last[row]):
            jitter_ms[row] = 0.0
        else:
            jitter_ms[row] += (fabs(latest - last[row]) - jitter_ms[row]) / SMOOTHING
        if shift:
            # A round trip that was under way when the level changed has some of both: it is no sample of the new one.
            samples[row, 0] = last[row]
            count[row] = at[row] = fabs(last[row] - latest) <= max(share * latest, floor_ms)
        sign[row] = 0 if shift else side
        last[row] = latest
        samples[row, at[row]] = latest
        at[row] = (at[row] + 1) % size
        count[row] = min(count[row] + 1, size)
        _summary(&samples[row, 0], count[row], z, told)
        outliers[row] = <Py_ssize_t> told[3]
        if side == 0 or shift:
            mean[row] = level[row] = told[0]
            deviation[row] = told[1]
            jitter[row] = told[2]
            range_ms[row] = max(max(SHIFT_Z * (1 + 4.0 / max(count[row], 1)) * told[1], share * told[0]), floor_ms)
        marks[0, i] = side != 0
        marks[1, i] = shift
    return found


cdef void _summary(const double* samples, Py_ssize_t count, double z, double* told) noexcept nogil:
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
    told[3] = count - kept
    if kept == 0:
        told[0] = told[1] = told[2] = NAN
        return
    told[0] = total / kept
    squares = 0.0
    for at in range(count):
        if limit < 0 or fabs(samples[at] - middle) <= limit:
            apart = samples[at] - told[0]
            squares += apart * apart
            absolute += fabs(apart)
    told[1] = sqrt(squares / kept)
    told[2] = absolute / kept / (1.0 if told[0] == 0 else told[0])
