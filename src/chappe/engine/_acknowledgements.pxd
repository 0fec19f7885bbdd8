"""What the other side has, and what came by source routes and has not been passed on: the node before keeps it, too."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._ports cimport Mark, Passing, Port, Ports

cdef class Acknowledgements:
    cdef Ports ports
    cdef int* tracked          # ports on which events with source routes came that went on to others
    cdef int ntracked
    cdef int tracked_room
    cdef void released_echo(self, int port, Port* p, uint64_t token) noexcept
    cdef void receipt(self, int cls) noexcept
    cdef void mark_onward(self, int arrival, int port, int cls) noexcept
    cdef void defer_echo(self, Port* p, uint8_t* frame) noexcept
    cdef void move_marks(self, int port, int cls) noexcept
    cdef void drop_marks(self, int port) noexcept
    cdef void unroute_marks(self, int port) noexcept
    cdef void renew_marks(self, int port) noexcept
    cdef void forget_echoes(self, int port, Port* p) noexcept
    cdef bint _open(self, Mark* mark) noexcept
    cdef bint _room_for_mark(self, Passing* passing) noexcept
    cdef void _raise(self, Port* p, int port, int cls, uint64_t position) noexcept
    cdef bint _waits(self, Mark* marks, uint64_t count, int port, int cls) noexcept
