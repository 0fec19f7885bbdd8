from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._ports cimport Port, Ports
from chappe.engine._status cimport PortList, StatusTable
from chappe.engine._topics cimport Route

cdef struct Issuer:
    uint32_t last              # highest sequence seen (32 bits)
    bint seen
    uint64_t* window           # one bit for each of the last 4,096 sequences; NULL while only a client's own port feeds it

cdef struct Run:               # consecutive EVENT frames for the same subscribers
    Route* route
    uint8_t* start
    uint8_t* end
    uint32_t count
    uint32_t issuer
    int cls

cdef class Engine(Ports):
    cdef readonly StatusTable status
    cdef object authorize
    cdef Issuer* issuers
    cdef uint32_t nissuers
    cdef dict issuer_numbers   # session + epoch -> number
    cdef uint64_t* defined     # by topic number: stamp at which every port of its route knew the number
    cdef uint32_t ndefined
    cdef list control_inbox
    cdef list parcel_inbox
    cdef list echo_inbox
    cdef dict freeing          # port -> where the slice-wise removal stands
    cdef list sweep_marks      # (port, class, position) that must be written before swept topic numbers are reused
    cdef int fault(self, int port, Port* p, str reason) except -1
    cdef Py_ssize_t frames(self, int port, Port* p, uint8_t* data, Py_ssize_t size) except -1
    cdef int other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1
    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef void send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size, uint32_t count) noexcept
    cdef int topic_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef int issuer_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef uint32_t issuer_number(self, bytes session, uint32_t epoch) except 0
    cdef bint repeated(self, Issuer* issuer, uint32_t sequence, bint peer) noexcept
    cdef int extension_verdict(self, const uint8_t* body, uint32_t size) noexcept
    cdef void send_run(self, int arrival, Port* p, Run* run) noexcept
    cdef void send_group(self, int arrival, Port* p, Run* run) noexcept
    cdef void define_route(self, uint32_t number, Route* route) noexcept
    cdef int limit_frames(self, Port* p, uint64_t events) noexcept
    cdef void try_recycle(self)
    cdef uint32_t _frame_need(self, int port, Port* p, const uint8_t* head) except 0
    cdef int _grow_carry(self, Port* p, uint32_t need) except -1
    cdef tuple _address(self, uint64_t key)
