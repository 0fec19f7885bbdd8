from libc.stdint cimport int64_t, uint8_t

from chappe.measure._windows cimport Table

cdef enum:
    MOST_PROFILES = 8
    FIGURES = 6
    BAND = 3


cdef struct Coefficients:
    double overall
    double latency
    double loss
    double jitter
    double bandwidth


cdef class Evaluation:
    cdef object _links           # the rows as Python sees them
    cdef object _settings
    cdef object _pace
    cdef Table windows
    # of the pace
    cdef double[::1] interval_ns
    cdef double[::1] rtt_ns
    cdef double[::1] _exact_ns
    cdef double[::1] _asked_ns
    cdef double[::1] _capacity
    cdef double[::1] _slowest
    cdef double[::1] _reference
    cdef Py_ssize_t[::1] _step
    cdef Py_ssize_t[::1] _steady
    cdef double[::1] _steps
    # of the links
    cdef uint8_t[:, ::1] _on
    cdef double[::1] _bandwidth
    cdef int64_t[::1] _sequence
    cdef int64_t[::1] _lost
    cdef uint8_t[:, ::1] _past   # entries as bytes
    cdef Py_ssize_t[::1] _past_count
    # costs that are no news, by link and profile
    cdef Py_ssize_t _profiles    # how many there are
    cdef Coefficients _formulas[MOST_PROFILES]
    cdef object _bands
    # of each profile the cost that was advertised, how far from it is no news, and what of it was not made of samples
    cdef double[:, ::1] _band
    cdef uint8_t[::1] _quiet
    # for one evaluation
    cdef uint8_t[::1] _marks
    cdef Py_ssize_t[::1] _fresh
    cdef double[:, ::1] _seen
    cdef object _figures
    cdef double[::1] _costs
    # settings
    cdef bint _adaptive
    cdef bint _plain             # the profile of the settings has coefficients
    cdef Coefficients _own
    cdef double _threshold
    cdef double _floor_ms
    cdef double _certainty
    cdef double _rtt_factor
    cdef double _longest_ns
    cdef double _probe_ns        # interval of a link of one byte a second
    cdef Py_ssize_t _steady_rounds
    cdef Py_ssize_t _history

    cdef void _look(self, Py_ssize_t row, double* seen) noexcept
    cdef bint _round(self, Py_ssize_t row, double cost, bint disturbed, double low_ms, double high_ms) noexcept
    cdef void _pace_of(self, Py_ssize_t row, double central_ns) noexcept
    cdef bint _news(self, Py_ssize_t row, const double* seen) noexcept
    cdef void _remember(self, Py_ssize_t row, const double* seen, double cost, int64_t now_ns) noexcept
