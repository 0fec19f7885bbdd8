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
    cdef uint64_t bits_of(self, object value) except? 0
    cdef bint put(self, int64_t created, uint64_t bits) except -1

cdef class VariableGroup:
    cdef readonly list variables
    cdef ClientCore core
