"""What a socket is bound to: a node's engine or a client's core. The engine never sees a file descriptor."""

from libc.stdint cimport int64_t

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef struct Clocks:
    int64_t mono_ns                  # monotonic, for timers
    int64_t wall_ns                  # for timestamps

cdef class Stack:
    cdef Clocks clocks               # set before feeding
    cdef public bint attention       # something was fed that Python code must look at; it resets this
    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1
    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1
    cdef int gather(self, int port, iovec* vectors, int limit) noexcept
    cdef void written(self, int port, Py_ssize_t count) noexcept
    cdef int gather_datagrams(self, int port, iovec* frames, int limit) noexcept
    cdef void datagrams_written(self, int port, int count) noexcept
    cdef int next_dirty(self) noexcept
