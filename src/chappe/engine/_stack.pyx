"""The one interface between compiled sockets and compiled protocol objects.

`feed_bytes` takes what a stream delivered (it may modify the buffer), `gather` lists the bytes to write next,
`written` says how many of them the socket took. `next_dirty` pops one port that has something to send, or -1.
"""

cdef class Stack:
    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        raise NotImplementedError

    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        raise NotImplementedError

    cdef int gather(self, int port, iovec* vectors, int limit) noexcept:
        return 0

    cdef void written(self, int port, Py_ssize_t count) noexcept:
        pass

    cdef int gather_datagrams(self, int port, iovec* frames, int limit) noexcept:
        return 0

    cdef void datagrams_written(self, int port, int count) noexcept:
        pass

    cdef int next_dirty(self) noexcept:
        return -1

    def clock(self, int64_t mono_ns, int64_t wall_ns):
        """Set both clocks; called before feeding."""
        self.clocks.mono_ns = mono_ns
        self.clocks.wall_ns = wall_ns

    @property
    def mono_ns(self):
        return self.clocks.mono_ns

    @property
    def wall_ns(self):
        return self.clocks.wall_ns
