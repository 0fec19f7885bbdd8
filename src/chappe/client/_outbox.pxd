"""What a client has to send: control, status and events, each in order, events kept until the node has them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from chappe.client._parcels cimport Parcels
from chappe.client._segments cimport Segment, SegmentQueue
from chappe.engine._stack cimport iovec

cdef enum:
    PLAN_LIMIT = 48          # vectors of one plan
    PLAN_BYTES = 524288      # events of one plan: what is queued later waits behind at most this
    PROBES = 256             # probes in flight
    PARCEL_BYTES = 262144    # parcels that wait to be written: what is queued later waits behind at most these

cdef struct Sent:
    uint64_t token
    int64_t offset           # events before it are at the node when the echo arrives
    int64_t serial           # flushes up to it are done

cdef struct Flush:
    int64_t offset           # done when the node has the events before it
    int64_t serial

cdef inline void put32(unsigned char* place, uint32_t number) noexcept:
    place[0] = number >> 24
    place[1] = (number >> 16) & 255
    place[2] = (number >> 8) & 255
    place[3] = number & 255

cdef inline void put64(unsigned char* place, uint64_t number) noexcept:
    put32(place, <uint32_t> (number >> 32))
    put32(place + 4, <uint32_t> number)

cdef inline uint32_t get32(const unsigned char* place) noexcept:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]

cdef inline uint64_t get64(const unsigned char* place) noexcept:
    return (<uint64_t> get32(place) << 32) | get32(place + 4)

cdef class Outbox:
    cdef readonly SegmentQueue control
    cdef readonly SegmentQueue status
    cdef readonly SegmentQueue events
    cdef readonly SegmentQueue datagrams   # frames of one record each, while `separate`
    cdef readonly SegmentQueue frames      # of parcels, asked from `parcels` when all else is planned
    cdef readonly Parcels parcels
    cdef int64_t now_ns              # when the bytes that are gathered next leave
    cdef bint separate               # status leaves by datagrams
    cdef bint ready                  # Welcome has come on this connection
    cdef bint held                   # events wait, control and status do not
    cdef Py_ssize_t queue_bytes
    cdef Py_ssize_t status_bytes
    cdef Py_ssize_t max_payload
    cdef Py_ssize_t probe_after
    cdef uint64_t sequence
    cdef bint again                  # events are marked as sent before
    # topic numbers
    cdef dict numbers                # key -> number; keys are str, int or a tuple of one int, never of a subclass
    cdef set refused                 # numbers whose topics the node refused: it is asked again when they are used
    cdef list topics                 # number -> key
    cdef list encoded                # number -> its topic as in a TOPIC frame
    cdef int64_t* last_used
    cdef Py_ssize_t last_used_room
    cdef Py_ssize_t max_topics
    cdef Py_ssize_t hand
    cdef object last_topic
    cdef uint32_t last_number
    # one connection
    cdef int64_t sent                # offset of the next event to plan
    cdef int64_t ever_sent           # highest `sent` of all connections
    cdef Segment* sent_segment
    cdef bint has_credit
    cdef int64_t credit
    cdef int64_t spent
    cdef unsigned char* open_frame   # STATUS frame that still grows
    cdef iovec plan[PLAN_LIMIT]
    cdef int plan_count
    cdef int plan_next
    cdef int64_t control_planned
    cdef int64_t status_planned
    cdef int64_t frames_planned
    cdef unsigned char probe[20]
    # probes and flushes
    cdef Sent probes[PROBES]
    cdef int probes_first
    cdef int probes_count
    cdef uint64_t token
    cdef int64_t probed_offset
    cdef int64_t probed_serial
    cdef int64_t serial
    cdef readonly int64_t flushed    # serial of the newest flush that is done
    cdef Flush* flushes              # not done yet, oldest first
    cdef int flushes_count
    cdef int flushes_room
    # counters
    cdef int64_t own_allocations
    cdef int64_t out_bytes
    cdef int64_t published
    cdef int64_t status_published
    cdef int64_t refused_full
    cdef int64_t refused_status
    cdef int64_t resent

    cdef int64_t event(
        self, object topic, const unsigned char* body, Py_ssize_t size, int priority, bytes extension, int64_t created
    ) except -1
    cdef int64_t number_of(self, object topic) except -2
    cdef int refuse(self, object topic) except -1
    cdef int64_t new_number(self, object key, bytes encoded) except -2
    cdef int define(self, uint32_t number, bytes encoded) except -1
    cdef unsigned char* status_record(self, Py_ssize_t size) except? NULL
    cdef unsigned char* datagram(self, int kind, Py_ssize_t size) except? NULL
    cdef int gather_datagrams(self, iovec* frames, int limit) noexcept
    cdef void datagrams_written(self, int count) noexcept
    cdef int control_frame(self, int kind, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int _check_topics(self, Py_ssize_t max_topics) except -1
    cdef int connected(self, Py_ssize_t max_payload, Py_ssize_t max_topics, int64_t credit) except -1
    cdef void disconnected(self) noexcept
    cdef int compose(self) noexcept
    cdef int64_t plan_queue(self, SegmentQueue queue) noexcept
    cdef int64_t plan_events(self) noexcept
    cdef void plan_probe(self) noexcept
    cdef void plan_parcels(self) noexcept
    cdef int gather(self, iovec* vectors, int limit) noexcept
    cdef void written(self, Py_ssize_t count) noexcept
    cdef int echoed(self, uint64_t token) noexcept
    cdef int64_t request_flush(self) except -1
    cdef bint has_work(self) noexcept
