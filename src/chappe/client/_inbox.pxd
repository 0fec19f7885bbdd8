"""Messages and the bounded queues they wait in."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.client._segments cimport Segment, SegmentQueue
from chappe.client._waiting cimport Waitable

cdef class TopicEntry:
    cdef readonly object topic       # str, int, Long or Address
    cdef readonly str kind
    cdef readonly str group
    cdef object text                 # what patterns are matched against
    cdef Py_ssize_t mark             # number of the Arrow batch that `index` belongs to
    cdef int index

cdef class Window:
    cdef uint64_t bits[64]
    cdef uint32_t highest
    cdef bint started
    cdef bint seen(self, uint32_t sequence, bint resent) noexcept

cdef class IssuerEntry:
    cdef readonly bytes issuer
    cdef readonly uint32_t epoch
    cdef Window window
    cdef dict groups                 # group -> Window
    cdef Py_ssize_t mark
    cdef int index
    cdef bint repeated(self, str group, uint32_t sequence, bint resent) except -1

cdef struct Record:
    PyObject* topic
    PyObject* issuer
    uint32_t size                    # of the record with this head, a multiple of 8
    uint32_t sequence
    uint32_t extension
    uint32_t body
    uint8_t flags

cdef class Message:
    cdef TopicEntry entry
    cdef IssuerEntry source
    cdef Subscription subscription
    cdef readonly bytes body
    cdef bytes extension
    cdef readonly uint32_t sequence
    cdef uint8_t flags
    cdef object decoded
    cdef bytes item(self, int tag)

cdef class Subscription(Waitable):
    cdef public str pattern          # of an inbox: its address, another one at another node
    cdef readonly str kind
    cdef readonly str group
    cdef readonly bint backpressure
    cdef readonly bint blocking
    cdef public object owner
    cdef readonly Py_ssize_t max_queue
    cdef readonly Py_ssize_t max_bytes
    cdef readonly int64_t received
    cdef readonly int64_t dropped
    cdef public int64_t since_ns     # events made before are not for it; 0: all are
    cdef readonly int64_t older      # how many were
    cdef bint drop_reported         # the client was notified that it drops
    cdef bint holding                # asked the client to stop reading
    cdef bint touched                # got something in the buffer that is being fed
    cdef Py_ssize_t count
    cdef SegmentQueue queue
    cdef int64_t cursor
    cdef Segment* segment
    cdef bint offer(self, TopicEntry topic, IssuerEntry issuer, uint32_t sequence, uint8_t flags,
                    const unsigned char* extension, Py_ssize_t extension_size,
                    const unsigned char* body, Py_ssize_t body_size) except -1
    cdef bint before(self, const unsigned char* extension, Py_ssize_t size) noexcept
    cdef Record* front(self) noexcept
    cdef void next(self, Record* record) noexcept
    cdef Message pop(self)
    cdef list pop_list(self, Py_ssize_t limit)
    cdef object pop_arrow(self, Py_ssize_t limit)
    cdef int after_take(self) except -1
    cdef void forget(self) noexcept
