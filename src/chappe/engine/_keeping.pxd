from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._events cimport Course
from chappe.engine._ports cimport Port
from chappe.engine._ways cimport Ways

cdef class Keeping(Ways):
    cdef Course** holding      # courses with events that wait
    cdef uint32_t holding_room
    cdef uint64_t held_bytes
    cdef int send_held(self, Course* course) except -1
    cdef list _taken(self, int port, Port* p, int limit)
