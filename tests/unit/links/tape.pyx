# cython: language_level=3
"""A Stack that keeps what it is fed and gives what a test queued: the other side of compiled sockets in tests."""

from libc.string cimport memchr

from chappe.engine._stack cimport Stack, iovec

from chappe.errors import ProtocolError

cdef class Tape(Stack):
    """`reject` is a byte that counts as a broken frame; `pieces` is the size of the vectors it offers."""

    cdef public dict fed          # port -> bytearray of what arrived
    cdef public dict feeds        # port -> number of calls
    cdef public dict datagrams    # port -> list of frames that arrived
    cdef public object on_feed
    cdef dict queued
    cdef dict frames
    cdef list dirty
    cdef int reject
    cdef Py_ssize_t pieces
    cdef public bint echo

    def __init__(self, int reject=-1, Py_ssize_t pieces=1000, bint echo=False):
        self.fed, self.feeds, self.datagrams, self.queued, self.frames, self.dirty = {}, {}, {}, {}, {}, []
        self.reject, self.pieces, self.echo = reject, pieces, echo

    def queue(self, int port, bytes data):
        self.queued[port] = self.queued.get(port, b"") + data
        self.dirty.append(port)

    def queue_datagrams(self, int port, list frames):
        self.frames.setdefault(port, []).extend(frames)
        self.dirty.append(port)

    def pending(self, int port):
        return len(self.queued.get(port, b"")) + len(self.frames.get(port, ()))

    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        self.feeds[port] = self.feeds.get(port, 0) + 1
        self.fed.setdefault(port, bytearray()).extend(data[:size])
        if self.reject >= 0 and memchr(data, self.reject, size) != NULL:
            raise ProtocolError(f"byte 0x{self.reject:02x} is not allowed on this tape")
        if self.echo:
            self.queue(port, data[:size])
        return 0

    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        self.datagrams.setdefault(port, []).append(data[:size])
        if self.reject >= 0 and memchr(data, self.reject, size) != NULL:
            raise ProtocolError(f"byte 0x{self.reject:02x} is not allowed on this tape")
        if self.echo:
            self.queue_datagrams(port, [data[:size]])
        return 0

    cdef int gather(self, int port, iovec* vectors, int limit) noexcept:
        cdef bytes data = self.queued.get(port, b"")
        cdef Py_ssize_t place = 0
        cdef int used = 0
        while used < limit and place < len(data):
            vectors[used].iov_base = <char*> data + place
            vectors[used].iov_len = min(self.pieces, len(data) - place)
            place += self.pieces
            used += 1
        return used

    cdef void written(self, int port, Py_ssize_t count) noexcept:
        self.queued[port] = self.queued[port][count:]

    cdef int gather_datagrams(self, int port, iovec* frames, int limit) noexcept:
        cdef list waiting = self.frames.get(port, [])
        cdef bytes frame
        cdef int used = 0
        for frame in waiting[:limit]:
            frames[used].iov_base = <char*> frame
            frames[used].iov_len = len(frame)
            used += 1
        return used

    cdef void datagrams_written(self, int port, int count) noexcept:
        del self.frames[port][:count]

    cdef int next_dirty(self) noexcept:
        return self.dirty.pop(0) if self.dirty else -1
