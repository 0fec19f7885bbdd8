"""What came by ways and has not been passed on yet: the node before keeps it, too."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._events cimport Events
from chappe.engine._ports cimport Mark, Passing, Port

cdef class Marks(Events):
    cdef int* tracked          # ports on which events with ways came that went on to others
    cdef int ntracked
    cdef int tracked_room
    cdef void mark_onward(self, int arrival, int port, int cls) noexcept
    cdef void defer_echo(self, int port, Port* p, uint8_t* frame) noexcept
    cdef void move_marks(self, int port, int cls) noexcept
    cdef void drop_marks(self, int port) noexcept
    cdef void strand_marks(self, int port) noexcept
    cdef void renew_marks(self, int port) noexcept
    cdef void forget_echoes(self, int port, Port* p) noexcept
    cdef bint _open(self, Mark* mark) noexcept
    cdef bint _room_for_mark(self, Passing* passing) noexcept
    cdef uint32_t _without(self, Mark* marks, uint32_t count, int port) noexcept
    cdef void _raise(self, Port* p, int port, int cls, uint64_t position) noexcept
    cdef bint _waits(self, Mark* marks, uint64_t count, int port, int cls) noexcept
