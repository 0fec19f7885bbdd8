"""Flows that begin at clients of this node: which path carries which parcel, and the credit of clients."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._memory cimport Meter
from chappe.engine._paths cimport Destination, Path, Paths
from chappe.engine._ports cimport Port, Ports
from chappe.engine._queue cimport Queue
from chappe.engine._topics_hash cimport Hash, Store

cdef struct Sent:              # a parcel that is not acknowledged
    int64_t at
    uint32_t size              # of its frame as the client sent it
    uint8_t path
    uint8_t state
    uint8_t again              # sent more than once: it says nothing about delay

cdef struct Flow:
    uint64_t id
    int port
    Destination* destination
    uint8_t* source
    uint32_t source_size
    uint64_t received          # bytes of frames from the client,
    uint64_t granted           # and how many it may send
    Queue waiting              # frames
    Sent* ring                 # by sequence
    uint32_t room
    uint32_t base              # lowest sequence that is not acknowledged
    uint32_t next              # after the highest
    uint64_t in_flight
    int64_t used_at
    bint allowed               # the rules are still those that allowed it
    uint32_t number
    uint32_t next_of_port
    uint32_t following         # of those to the same destination, in a ring
    uint32_t before

cdef class Flows:
    cdef Ports ports
    cdef Paths paths
    cdef Meter meter
    cdef Hash hash
    cdef Flow** items          # by number, from 1
    cdef uint32_t room
    cdef uint32_t used
    cdef uint32_t hint         # no number below is free
    cdef uint32_t nflows
    cdef uint32_t* heads       # first flow by port
    cdef uint32_t* counts
    cdef uint32_t nports
    cdef uint64_t in_flight    # of all
    cdef uint32_t waiting      # flows that wait
    cdef int64_t ticked_at
    cdef Flow* find(self, int port, uint64_t id) noexcept
    cdef Flow* begin(self, int port, uint64_t id, const uint8_t* source, uint32_t size, Destination* d,
                     uint32_t sequence) noexcept
    cdef void send(self, Flow* flow, const uint8_t* frame, uint32_t size) noexcept
    cdef void acknowledge(self, Flow* flow, const uint8_t* body) noexcept
    cdef bint returned(self, Flow* flow, const uint8_t* payload, uint32_t size) noexcept
    cdef void forget_port(self, int port) noexcept
    cdef void forget_permits(self) noexcept
    cdef void end(self, Flow* flow) noexcept
    cdef void tick(self) noexcept
    cdef int64_t next_ns(self) noexcept
    cdef list rows(self)
    cdef uint32_t _hash(self, int port, uint64_t id) noexcept
    cdef bint _room_for(self, int port) noexcept
    cdef bint _spare_of(self, int port) noexcept
    cdef bint _cover(self, Flow* flow, uint32_t ahead) noexcept
    cdef int _forward(self, Flow* flow, Sent* sent, const uint8_t* frame, uint32_t size) noexcept
    cdef void _under_way(self, Flow* flow, Sent* sent, int place) noexcept
    cdef void _repeat(self, Flow* flow, const uint8_t* frame, uint32_t size) noexcept
    cdef void _keep(self, Flow* flow, Sent* sent, const uint8_t* frame, uint32_t size) noexcept
    cdef void _shift(self, Flow* flow, uint32_t size) noexcept
    cdef bint _send_waiting(self, Flow* flow) noexcept
    cdef void _drain(self, Destination* d) noexcept
    cdef void _drop_waiting(self, Flow* flow, int reason) noexcept
    cdef void _grant(self, Flow* flow) noexcept
    cdef void _lose(self, Flow* flow, Sent* sent, bint cut) noexcept
    cdef void _resend(self, Flow* flow, Sent* sent, const uint8_t* payload, uint32_t size, int place) noexcept
    cdef void _lose_path(self, Destination* d, Path* path) noexcept
    cdef void _done(self, Flow* flow, Sent* sent) noexcept
    cdef void _pass_before(self, Flow* flow, Sent* newest) noexcept
    cdef void _exclude_silent(self, Destination* d) noexcept
    cdef void _give_up(self, Destination* d) noexcept

# Queue an acknowledgement for a client that this node itself made.
cdef void answer(Ports ports, int port, uint64_t id, const uint8_t* destination, uint32_t to, const uint8_t* source,
                 uint32_t by, int flags, uint32_t expected, const char* text) noexcept
