"""Ports of an engine: what leaves it, in four classes, bounded, counted."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._accounts cimport Holding
from chappe.engine._issuers cimport Issuers
from chappe.engine._memory cimport Memory, MemoryBudget
from chappe.engine._queue cimport CountSlot, CountTable, Pool, Queue
from chappe.engine._stack cimport Clocks
from chappe.engine._topics cimport TopicTable

cdef enum:
    STATUS = 0x01
    EVENT = 0x02
    TOPIC = 0x12
    ISSUER = 0x22
    ROUTE = 0x32
    PARCEL = 0x03
    PROBE = 0x04
    ECHO = 0x14
    TRAIN = 0x24
    TRAINED = 0x34
    CONTROL = 0x05
    LOSS = 0x15
    CREDIT = 0x25
    DENIAL = 0x35
    PARCEL_CREDIT = 0x45

cdef enum:
    FREE = 0
    OPEN = 1
    PARKED = 2
    CLOSED = 3

# Counter places; names are in _ports.pyx in the same order.
cdef enum:
    BYTES_IN = 0
    FRAMES_IN
    STATUS_IN
    EVENTS_IN
    PARCELS_IN
    PROBES_IN
    CONTROL_IN
    BYTES_OUT
    STATUS_OUT
    EVENTS_OUT
    CONTROL_OUT
    FILTERED
    CONFLATED
    RESENT
    UNROUTED
    ROUTED_IN
    ROUTED_OUT
    HELD
    HELD_EARLY
    REROUTED
    ROUTE_ERRORS
    TRAINS_IN
    TRAINS_OUT
    PARCELS_OUT
    PARCELS_RETURNED
    PARCEL_QUESTIONS
    THROTTLED
    BAD_FRAMES
    DROP_UNKNOWN
    DROP_NOT_IN_MODE
    DROP_NOT_PERMITTED
    DROP_DUPLICATE
    DROP_STALE
    DROP_FUTURE
    DROP_EXPIRED
    DROP_NO_ROOM
    DROP_QUEUE_FULL
    DROP_NO_MEMORY
    DROP_CLOSED
    DROP_NO_ROUTE
    DROP_WAITED
    DROP_INCAPABLE
    DROP_BAD_PARCEL
    DROP_HOPS
    DROP_CREDIT
    DROP_BLOCKED
    RELEASED_EARLY
    COUNTERS

cdef struct Pending:            # a conflating port's newest record of one variable
    uint32_t variable
    uint32_t size
    uint32_t capacity
    uint8_t* record

cdef struct Train:              # bytes sent, or expected, to measure a link
    uint64_t token
    uint32_t size               # of all its frames; 0 = none under way
    uint32_t done
    int64_t first               # arrivals: of its first byte,
    int64_t half                # of the last one of its first half,
    uint32_t after              # and how much had come by then

cdef struct Mark:               # a place in a queue that events with a source route have been passed on to
    int port                    # -1: they have no route now
    int cls
    uint64_t position

cdef struct Passing:            # a probe that is answered when what came before it has been passed on
    uint64_t token              # 0 = none
    uint64_t clock
    Mark* marks
    uint32_t nmarks
    uint32_t room

cdef struct Port:
    int state
    bint peer
    bint datagram
    bint conflate
    bint retain
    bint loss
    int data_port               # datagram port that carries this port's STATUS, or -1
    int partner                 # of a datagram port: the port of its control connection, or -1
    uint64_t limit              # bytes a class
    uint32_t account            # of its identity, 0 = none
    Holding holding             # segments in its queues
    int starved                 # the reason why a definition did not get out: no event may follow it; 0 = none
    uint32_t max_frame
    uint32_t packing
    Queue queues[4]
    int sticky                  # class whose half-written segment must be finished first, or -1
    uint64_t sticky_end
    bint dirty
    # input side
    bint deferred               # `carry` holds bytes that wait for a later turn: they ask Python too many questions
    bint patient                # its questions to Python are asked by `feed_deferred` alone
    uint32_t asked              # questions to Python that nobody has taken notice of
    uint8_t* carry              # a frame that has not arrived completely
    uint32_t carry_size
    uint32_t carry_capacity
    uint32_t* aliases           # topic number of the other side -> ours or ROUTED and a place; 0 undefined, DENIED
    uint32_t naliases
    uint32_t max_topics
    uint64_t route_bytes          # of source routes that ROUTE frames of the other side brought
    uint32_t* issuers_in        # issuer number of the other side -> ours
    uint32_t nissuers_in
    uint32_t issuer             # of a client port
    bint failed                 # a bad frame arrived: nothing more is read
    uint32_t* refused           # by topic number of the other side: events that a rule refused and nobody counted yet
    uint32_t nrefused
    bint refusing               # there are some
    uint64_t refused_by_rule    # events of this client, in all
    uint64_t refused_for_room
    uint64_t refused_told       # of both
    Mark* onward                # where events went on that came here by source routes and that others may not have yet
    uint32_t nonward
    uint32_t onward_room
    bint tracked                # in the list of ports that have some
    bint unmarked[4]            # by class: some could not be noted, so that none counts as passed on
    Passing passing[4]          # by class
    # output side definitions
    uint64_t* topics_out
    uint32_t topics_words
    uint64_t* issuers_out
    uint32_t issuers_words
    # credits
    uint64_t window
    uint64_t granted
    uint64_t event_bytes
    int holds                   # backpressure subscribers that keep this client waiting
    uint32_t* waiting           # publishers that wait for this subscriber
    uint32_t nwaiting
    uint32_t waiting_capacity
    # rate limit
    double rate
    double burst
    double tokens
    int64_t tokens_at
    # conflation
    Pending* pending
    uint32_t npending
    uint32_t pending_capacity
    uint32_t* pending_index     # open addressing over pending, +1
    uint32_t index_capacity
    uint64_t pending_bytes      # of the records that wait, with what keeping one costs
    Train train_out
    Train train_in
    double train_spent          # bytes of trains that came lately, less what is answered meanwhile
    int64_t train_spent_at
    uint64_t riding_token       # of a probe that leaves with what is written next, 0 = none
    uint64_t probe_token        # of the last probe that left, and when
    int64_t probe_sent_at
    int64_t last_heard
    int64_t loss_sent_at
    uint64_t lost_status
    uint64_t lost_events
    uint64_t lost_told
    uint64_t counters[64]

cdef enum:
    OF_VARIABLE = 1             # kinds of addresses in drop counts
    OF_TOPIC = 2

cdef enum:
    NOWHERE = -1                # port of a mark: events are kept until they have a route

cdef class Ports:
    cdef Clocks* clocks         # of the engine
    cdef Port** table
    cdef int ntable
    cdef int* dirty_ports
    cdef int ndirty
    cdef int* starved_ports     # as long as the table, as dirty_ports is
    cdef int nstarved
    cdef Pool pool
    cdef CountTable address_counts
    cdef uint64_t* topic_full   # by topic number: events dropped because a queue was full, the one frequent reason
    cdef uint32_t ntopic_full
    cdef MemoryBudget budget
    cdef Memory* memory         # of the budget
    cdef uint64_t seed          # of hashes over what strangers choose
    cdef uint64_t past[64]
    cdef uint64_t tokens_made
    cdef TopicTable topics
    cdef Issuers issuers
    cdef Port* port_at(self, int port) except NULL
    cdef int next_dirty(self) noexcept
    cdef void count_drop(self, Port* p, int reason, int kind, uint32_t address, uint64_t amount) noexcept
    cdef int put_frame(self, int port, Port* p, int cls, const uint8_t* frame, uint32_t size, bint bounded) noexcept
    cdef void put_events(self, int port, Port* p, int cls, const uint8_t* run, uint32_t size, uint32_t count,
                         uint32_t issuer, uint32_t topic, bint unbounded) noexcept
    cdef void put_status(self, int port, Port* p, int cls, const uint8_t* records, uint32_t size,
                         uint32_t count) noexcept
    cdef bint define_topic(self, int port, Port* p, uint32_t number) noexcept
    cdef bint define_issuer(self, int port, Port* p, uint32_t number) noexcept
    cdef uint8_t* _definition(self, int port, Port* p, uint32_t size) noexcept
    cdef uint64_t* _known_words(self, uint64_t* known, uint32_t* words, uint32_t number) noexcept
    cdef void starve(self, int port, Port* p, int reason) noexcept
    cdef void feed_starved(self) noexcept
    cdef void forget_starved(self, int port) noexcept
    cdef void _count_full(self, uint32_t topic, uint64_t amount) noexcept
    cdef void forget_topic_drops(self, uint32_t topic) noexcept
    cdef void forget_topic(self, uint32_t number) noexcept
    cdef void forget_issuer(self, uint32_t number) noexcept
    cdef void find_queued(self, uint64_t* topics, uint64_t* issuers) noexcept
    cdef int new_port(self) except -1
    cdef void release(self, Port* p) noexcept
    cdef void _drop_run(self, Port* p, int reason, const uint8_t* frames, uint32_t size) noexcept
    cdef void _drop_all(self, Port* p, const uint8_t* run, uint32_t size, uint32_t count, uint32_t topic) noexcept
    cdef void _dropped(self, Port* p, uint32_t count) noexcept
    cdef void _put_each(self, Port* p, int cls, const uint8_t* run, uint32_t size) noexcept
    cdef void _drop_event(self, Port* p, int reason, const uint8_t* frame) noexcept
    cdef void _drop_status(self, Port* p, int reason, const uint8_t* record) noexcept
    cdef void _conflate(self, Port* p, const uint8_t* record, uint32_t size) noexcept
    cdef bint _grow_pending(self, Port* p) noexcept
    cdef void clear_pending(self, Port* p) noexcept
    cdef void _flush_pending(self, Port* p) noexcept
    cdef void _keep_pending(self, Port* p, uint32_t moved) noexcept

# The one place where bad bytes end.
cdef int fault(Port* p, str reason) except -1


cdef inline bint has_room(Port* p, int cls, uint64_t size) noexcept nogil:
    return p.queues[cls].enqueued - p.queues[cls].released + size <= p.limit


cdef inline bint known(const uint64_t* words, uint32_t nwords, uint32_t number) noexcept nogil:
    """Whether a bit is set in so many words."""
    return number < nwords * 64 and (words[number >> 6] >> (number & 63)) & 1


cdef inline bint knows_topic(Port* p, uint32_t number) noexcept nogil:
    """Whether the other side was given the meaning of a topic number."""
    return known(p.topics_out, p.topics_words, number)


cdef inline void mark_dirty(Ports ports, int port, Port* p) noexcept:
    """The port has something to write."""
    if p.dirty:
        return
    p.dirty = True
    ports.dirty_ports[ports.ndirty] = port
    ports.ndirty += 1
