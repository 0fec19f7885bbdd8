"""What enters an engine: every frame of a buffer parsed, routed and filtered in one call."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._acknowledgements cimport Acknowledgements
from chappe.engine._definitions cimport Definitions
from chappe.engine._delivery cimport Delivery, Run
from chappe.engine._forwarding cimport Forwarding, ForwardingEntry
from chappe.engine._issuers cimport Issuers
from chappe.engine._parcels cimport Parcels
from chappe.engine._ports cimport Port, Ports
from chappe.engine._status cimport PortList, StatusTable
from chappe.engine._topics cimport TopicTable
from chappe.engine._trains cimport Trains

cdef enum:
    QUESTIONS = 64             # of one buffer to Python code, 10 to 20 us each: the rest of it waits for the next turn
    MESSAGES = 256             # control messages of one buffer, each an object for Python code: as above
    MESSAGES_PATIENT = 16      # of a port that asks no questions by itself

cdef struct ForwardedRun:
    Run events
    ForwardingEntry* entry     # NULL: the route is all there is
    bint again                 # repeats: passed on along the source route, not delivered

cdef class Input:
    cdef Ports ports
    cdef TopicTable topics
    cdef Issuers issuers
    cdef StatusTable status
    cdef Delivery delivery
    cdef Acknowledgements acks
    cdef Forwarding forwarding
    cdef Definitions definitions
    cdef Trains trains
    cdef Parcels parcels
    cdef bint* attention       # of the engine
    cdef list control_inbox
    cdef list echo_inbox
    cdef list deferred_ports   # whose bytes wait for `feed_deferred`, in turn
    cdef list asked_ports      # that asked Python questions since `take_asked`
    cdef int most              # questions that `feed_deferred` allows now; -1 outside of it
    cdef int allowed           # questions of the buffer that is fed
    cdef int messages          # control messages of it
    cdef bint waits            # its rest waits for a later turn
    cdef bint overdrawn        # a port has gone above its rate since `throttled` was asked
    cdef int feed(self, int port, uint8_t* data, Py_ssize_t size) except -1
    cdef int feed_datagram(self, int port, uint8_t* data, Py_ssize_t size) except -1
    cdef list feed_deferred(self, object ports, int most)
    cdef int forget_port(self, int port, Port* p) except -1
    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1

    cdef Py_ssize_t _frames(self, int port, Port* p, uint8_t* data, Py_ssize_t size) except -1
    cdef void _send(self, int port, Port* p, ForwardedRun* run) noexcept
    cdef int _extension_verdict(self, const uint8_t* body, uint32_t size) noexcept
    cdef bint _would_ask(self, uint32_t number, ForwardingEntry* entry, bint meshed) noexcept
    cdef int _other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1
    cdef void _report_refused(self, int port, Port* p) noexcept
    cdef void _send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size,
                            uint32_t count) noexcept
    cdef void _limit_frames(self, Port* p, uint64_t events) noexcept
    cdef int _defer(self, int port, Port* p, const uint8_t* data, Py_ssize_t size) except -1
    cdef int _grow_carry(self, Port* p, uint32_t need) except -1
