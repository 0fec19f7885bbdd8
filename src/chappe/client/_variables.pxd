"""Variables that a client publishes."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from chappe.client._core cimport ClientCore

cdef class Variable:
    cdef ClientCore core
    cdef public object owner
    cdef readonly str publisher
    cdef readonly str name
    cdef readonly str type
    cdef readonly object rate
    cdef readonly int priority
    cdef readonly int options
    cdef readonly uint32_t id
    cdef public bint active
    cdef int code
    cdef readonly int64_t slowest_ns
    cdef readonly int64_t minimum_ns
    cdef readonly tuple derived       # computed from each value and sent with it
    cdef object encoder               # value -> bytes, of user types
    cdef readonly int64_t early       # alerts that came too soon after the last
    cdef bint special                 # one of these makes publishing more than a copy
    cdef int64_t last_ns              # monotonic time of the last alert
    cdef int64_t mono(self) noexcept
    cdef object publish_special(self, object value, int64_t stamp)
    cdef uint64_t bits_of(self, object value) except? 0
    cdef bint put(self, int64_t created, uint64_t bits) except -1

cdef class VariableGroup:
    cdef readonly list variables
    cdef ClientCore core
