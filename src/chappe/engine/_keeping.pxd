from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._events cimport Course, Held
from chappe.engine._ports cimport Port
from chappe.engine._ways cimport Ways

cdef class Keeping(Ways):
    cdef Course** holding      # courses with events that wait
    cdef uint32_t holding_room
    cdef uint64_t held_bytes
    cdef list stranded_inbox   # events without a way that nobody has taken yet
    cdef uint64_t stranded_bytes
    cdef Held* _new_held(self, Course* course, uint32_t size) noexcept
    cdef int send_held(self, Course* course) except -1
    cdef void count_lost(self, int reason, uint32_t topic, uint64_t amount) noexcept
    cdef list _taken(self, int port, Port* p, int limit)
