"""A message that is sent through a flow."""

from libc.stdint cimport int64_t

cdef class Outgoing:
    cdef readonly int64_t size       # bytes handed in so far
    cdef readonly int64_t confirmed  # bytes that have arrived
    cdef readonly bint done          # all of it has arrived
    cdef readonly bint restarted     # its beginning was lost with the receiver: add all of it again
    cdef readonly object failure
    cdef public object notify        # (): something of this has changed
    cdef list chunks
    cdef Py_ssize_t place            # in the list
    cdef Py_ssize_t start            # in the chunk there
    cdef bint whole
    cdef bint ended
    cdef bint begun
    cdef bint cancelled
    cdef bint has_piece(self) noexcept
    cdef void rewind(self)
