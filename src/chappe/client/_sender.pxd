"""The outgoing half of a client."""

from libc.stdint cimport int64_t

from chappe.client._outbox cimport Outbox
from chappe.engine._stack cimport Stack

cdef class Sender(Stack):
    cdef readonly Outbox outbox
    cdef public object schedule      # () : there is something to write; once until `scheduled` is set back
    cdef public object write         # (): write now what is queued
    cdef public object on_durable    # publishes an event of which somebody waits to hear that it is stored
    cdef public bint scheduled
    cdef public bint live_clock      # read the wall clock for each published value; else `wall_ns` as it was set
    cdef public bint stamping        # events without a stamp get one
    cdef public int64_t ahead_ns     # of the node's wall clock before ours
    cdef tuple last_reply            # (reply topic, its item in an extension)
    cdef bint datagrams_open
    cdef bint datagrams_dirty
    cdef readonly int64_t datagram_heard_ns

    cdef int mark(self) except -1
    cdef int64_t now(self) noexcept
    cdef int64_t monotonic(self) noexcept
    cdef int64_t stamp(self) noexcept
    cdef int64_t put(self, object topic, object body, int flags, object created, object expires, object reply,
                     object correlation, object content_type, object properties,
                     object origin) except -1
    cdef bytes answerable(self, object reply, object correlation)
    cdef int probe(self) except -1
