from libc.stdint cimport int8_t

cdef enum:
    DEVIATES = 1
    SHIFTED = 2


cdef class Table:
    """The arrays of some `Windows`, for one row at a time."""
    cdef double[:, ::1] samples
    cdef Py_ssize_t[::1] at
    cdef Py_ssize_t[::1] count
    cdef Py_ssize_t[::1] outliers
    cdef double[::1] last
    cdef int8_t[::1] sign
    cdef double[::1] mean
    cdef double[::1] deviation
    cdef double[::1] jitter_ms
    cdef double[::1] jitter
    cdef double[::1] level
    cdef double[::1] range_ms
    cdef double z
    cdef double share
    cdef double floor_ms
    cdef Py_ssize_t size

    cdef int side(self, Py_ssize_t row, double latency_ms) noexcept
    cdef int take(self, Py_ssize_t row, double latest) noexcept
