"""Values that come by several paths."""

from libc.stdint cimport int64_t

cdef enum:
    RECENT = 256             # creation times that tell copies apart

cdef class Copies:
    cdef int64_t recent[RECENT]
    cdef int at
    cdef bint repeated(self, int64_t created) noexcept
