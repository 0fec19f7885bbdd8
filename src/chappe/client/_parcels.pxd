"""The flows of a client: parcels in, messages out; messages in, parcels out."""

from libc.stdint cimport int64_t, uint64_t

from chappe.cells._arrivals cimport ReceiveFlow
from chappe.cells._flow cimport SendFlow
from chappe.client._segments cimport SegmentQueue

cdef class Parcels:
    cdef public object on_change     # (): something is in one of the lists, or `next_tick` may be another one
    cdef readonly dict boxes         # own name -> list of messages for it, or None where nobody reads
    cdef dict sending                # flow -> SendFlow
    cdef dict by_names               # (source, destination) -> SendFlow
    cdef dict receiving              # flow -> ReceiveFlow
    cdef object places               # flow -> where a flow that was forgotten goes on; OrderedDict
    cdef object strangers            # flow -> flags of the answer to each parcel of it; OrderedDict
    cdef list eager                  # SendFlows that may have a parcel to send
    cdef list due                    # ReceiveFlows that have to acknowledge
    cdef list later                  # ReceiveFlows that have to at a time
    cdef list answers                # frames that go out first
    cdef list loose                  # frames that go out last: multicasts
    cdef Py_ssize_t loose_bytes
    cdef list arrived                # (box, Incoming)
    cdef list grown                  # Incoming
    cdef list finished               # Outgoing
    cdef object draw
    cdef bint connected
    cdef bint changed
    cdef int64_t held                # bytes of all receiving flows
    cdef object failure              # of `fill`, for `tick`
    # counters
    cdef int64_t parcels_in
    cdef int64_t parcels_out
    cdef int64_t acknowledged
    cdef int64_t invalid
    cdef int64_t unwanted
    cdef int64_t crowded
    cdef int64_t resent
    cdef int64_t duplicates

    cdef int parcel(self, const unsigned char* payload, Py_ssize_t size, int64_t now_ns) except -1
    cdef int data(self, uint64_t number, int64_t sequence, int flags, str source, str destination,
                  const unsigned char* body, Py_ssize_t size, int64_t now_ns) except -1
    cdef ReceiveFlow open_flow(self, uint64_t number, int64_t sequence, str source, str destination)
    cdef int multicast(self, str source, str prefix, bytes body) except -1
    cdef int acknowledgement(self, uint64_t number, str source, bytes body, int64_t now_ns) except -1
    cdef int grant(self, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int wake(self, SendFlow flow) except -1
    cdef int settle(self, SendFlow flow, uint64_t number) except -1
    cdef int say(self, ReceiveFlow flow) except -1
    cdef int fill(self, SegmentQueue queue, Py_ssize_t bound, int64_t now_ns) noexcept
    cdef int fill_all(self, SegmentQueue queue, Py_ssize_t bound, int64_t now_ns) except -1
    cdef int put(self, SegmentQueue queue, bytes frame) except -1
