"""Forwarding of events through the mesh: what was decided about source routes, and the events that wait."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._acknowledgements cimport Acknowledgements
from chappe.engine._delivery cimport Delivery, Run
from chappe.engine._issuers cimport Issuers
from chappe.engine._ports cimport Port, Ports
from chappe.engine._topics cimport Route, TopicTable

cdef struct NextHop:           # a neighbour that gets events of a forwarding entry
    int port
    uint32_t pair              # number of the (topic, source route) pair there

cdef struct Held:              # a run that waits before it enters the mesh; its frames follow
    Held* next
    uint32_t size
    uint32_t count
    uint32_t issuer
    int cls

cdef struct ForwardingEntry:   # where events of a topic go that came by a source route, or from clients of this node
    uint32_t topic             # plain number
    uint32_t place             # in the list of entries
    int port                   # where the source route came from; -1 for events of clients
    uint8_t* source_route
    uint32_t route_size
    uint64_t asked             # topics.forwarding_stamp when it was decided; 0 = never
    bint deliver_here          # subscribers of this node get them
    bint plain                 # nothing but that: such events are handled as if there were no source routes
    bint chosen                # only some queue groups are served here
    uint8_t* allow             # by place in the route's groups, while allow_stamp == topics.stamp
    uint64_t allow_stamp
    uint32_t unusable          # next hops that cannot be used
    uint32_t withheld_by_rules         # destinations that may not get them
    uint32_t withheld_for_capability   # destinations that lack a capability, or all routes to which do
    bint may_return            # a next hop may be the port that the source route came from
    bint unreachable           # for some of the destinations there is no route now: events are kept for them
    uint32_t nhops
    NextHop* next_hops
    int64_t hold_until
    Held* first
    Held* last
    uint64_t nheld             # events that wait

cdef class Forwarding:
    cdef Ports ports
    cdef TopicTable topics
    cdef Issuers issuers
    cdef Delivery delivery
    cdef Acknowledgements acks
    cdef object plan_route
    cdef object forward_route
    cdef bint meshed           # plan_route is there
    cdef bint limited          # questions to Python are counted: those of one buffer are bounded
    cdef int questions         # that Python was asked since the last buffer was fed
    cdef object route_error    # the last one that was raised by whom was asked
    cdef ForwardingEntry** entries   # by place, from 1; an entry never moves
    cdef uint32_t nentries
    cdef uint32_t entries_room
    cdef list spare_entries
    cdef uint32_t* published   # by topic number: place of the entry of events of clients
    cdef uint32_t npublished
    cdef dict chosen_groups    # place -> names of the queue groups served here
    cdef dict unreachable_routes     # place -> source route to the destinations that cannot be reached now
    cdef ForwardingEntry** holding   # entries with events that wait: their numbers are in no queue yet
    cdef uint32_t nholding
    cdef uint32_t holding_room
    cdef uint64_t held_bytes
    cdef list undeliverable    # events without a route that nobody has taken yet
    cdef uint64_t undeliverable_bytes
    cdef uint32_t recycle_at   # routed topics at which numbers that nobody holds are looked for
    cdef int64_t recycled_at   # when they were

    cdef ForwardingEntry* new_entry(self, uint32_t topic, int port) except NULL
    cdef int free_entry(self, ForwardingEntry* entry) except -1
    cdef ForwardingEntry* entry_of(self, uint32_t topic) except NULL
    cdef int ask(self, Port* p, ForwardingEntry* entry) except -1
    cdef void forward(self, int arrival, Port* p, Run* run, ForwardingEntry* entry, bint again) noexcept
    cdef uint64_t release_held(self) except? 0
    cdef int64_t held_ns(self) noexcept
    cdef list take_undeliverable(self)
    cdef int forget_undelivered(self, int port) except -1
    cdef int drop_undelivered(self, object event, bint waited) except -1
    cdef list take_unconfirmed(self, int port, Port* p, int limit)
    cdef int reroute(self, object event, object next_hops) except -1
    cdef uint32_t issuer_number(self, bytes issuer, uint32_t epoch) except 0
    cdef int recycle(self) except -1

    cdef int _forget_topic(self, uint32_t topic) except -1
    cdef int _set_next_hops(self, ForwardingEntry* entry, list next_hops) except -1
    cdef void _drop_next_hops(self, NextHop* next_hops, uint32_t count) noexcept
    cdef bint _usable(self, int port) noexcept
    cdef uint32_t _pair_number(self, const uint8_t* name, uint32_t size, int kind, bytes source_route) except? 0
    cdef void _send(self, ForwardingEntry* entry, uint8_t* start, uint32_t size, uint32_t count, uint32_t issuer,
                    int cls) noexcept
    cdef bint _choose_groups(self, ForwardingEntry* entry, Route* route) except -1
    cdef bint _hold_back(self, Port* p, ForwardingEntry* entry, Run* run) noexcept
    cdef Held* _new_held(self, ForwardingEntry* entry, uint32_t size) noexcept
    cdef void _free_held(self, ForwardingEntry* entry) noexcept
    cdef int _send_held(self, ForwardingEntry* entry) except -1
    cdef int _keep(self, ForwardingEntry* entry, uint8_t* start, uint32_t size, uint32_t count) except -1
    cdef void _count_lost(self, int reason, uint32_t topic, uint64_t amount) noexcept
    cdef bint _may_recycle(self) noexcept
