"""A byte queue in segments that never move, so that sockets can read them in place."""

from libc.stdint cimport int64_t

cdef struct Segment:
    Segment* next
    int64_t start            # queue offset of the first byte
    Py_ssize_t used
    Py_ssize_t capacity

cdef inline unsigned char* bytes_of(Segment* segment) noexcept:
    return <unsigned char*> (segment + 1)

cdef class SegmentQueue:
    cdef Segment* first
    cdef Segment* last
    cdef Segment* spare      # free list of segments of the usual size
    cdef Py_ssize_t spare_count
    cdef Py_ssize_t spare_limit
    cdef Py_ssize_t usual
    cdef int64_t head        # offset behind the newest byte
    cdef int64_t tail        # offset of the oldest byte that is kept
    cdef int64_t allocations
    cdef unsigned char* reserve(self, Py_ssize_t size) except NULL
    cdef unsigned char* grow(self, Py_ssize_t size) except NULL
    cdef void release(self, int64_t offset) noexcept
    cdef void clear(self) noexcept
