from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._events cimport Course
from chappe.engine._ports cimport Port
from chappe.engine._status cimport PortList, StatusTable
from chappe.engine._trains cimport Trains

cdef enum:
    QUESTIONS = 64             # of one buffer to Python code, 10 to 20 us each: the rest of it waits for the next turn
    MESSAGES = 256             # control messages of one buffer, each an object for Python code: as above
    MESSAGES_PATIENT = 16      # of a port that asks no questions by itself

cdef class Input(Trains):
    cdef readonly StatusTable status
    cdef list control_inbox
    cdef list echo_inbox
    cdef dict freeing          # port -> where the slice-wise removal stands
    cdef list deferred_ports   # whose bytes wait for `feed_deferred`, in turn
    cdef list asked_ports      # that asked Python questions since `take_asked`
    cdef int most              # questions that `feed_deferred` allows now; -1 outside of it
    cdef int allowed           # questions of the buffer that is fed
    cdef int messages          # control messages of it
    cdef bint waits            # its rest waits for a later turn
    cdef bint would_ask(self, uint32_t number, Course* course, bint meshed) noexcept
    cdef bint overdrawn        # a port has gone above its rate since `throttled` was asked
    cdef Py_ssize_t frames(self, int port, Port* p, uint8_t* data, Py_ssize_t size) except -1
    cdef int other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1
    cdef void tell_refused(self, int port, Port* p) noexcept
    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef void send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size, uint32_t count) noexcept
    cdef int limit_frames(self, Port* p, uint64_t events) noexcept
    cdef uint32_t _frame_need(self, int port, Port* p, const uint8_t* head) except 0
    cdef int defer(self, int port, Port* p, const uint8_t* data, Py_ssize_t size) except -1
    cdef int _grow_carry(self, Port* p, uint32_t need) except -1
