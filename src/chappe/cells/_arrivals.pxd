"""The receiving end of a flow between two names, without a socket and without a clock."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef struct Held:
    PyObject* body           # bytes; NULL: it has not arrived
    uint8_t flags

cdef class Incoming:
    cdef readonly ReceiveFlow flow   # None: of a multicast
    cdef readonly str source
    cdef readonly str destination
    cdef readonly int64_t size       # bytes so far
    cdef readonly bint complete
    cdef readonly object failure     # why the rest does not come
    cdef public object notify        # (): more of it has come, or no more will
    cdef list chunks
    cdef int64_t cost                # of the chunks in the room of the flow
    cdef bint published
    cdef bint skipped
    cdef int add(self, bytes chunk, int64_t cost) except -1
    cdef int cut_off(self, object failure) except -1

cdef class ReceiveFlow:
    cdef readonly uint64_t id
    cdef readonly str source
    cdef readonly str destination
    cdef readonly int64_t held       # bytes that nobody has taken, with the overhead of their parcels
    cdef readonly int64_t duplicates
    cdef readonly int64_t overflows  # parcels without room
    cdef readonly int64_t invalid    # parcels that belong to no message
    cdef readonly int64_t opened_ns  # when its first parcel came
    cdef readonly int64_t active_ns
    cdef readonly int64_t ack_at_ns  # when an acknowledgement is due; NEVER: nothing to say
    cdef public bint queued          # the owner will ask it for an acknowledgement
    cdef public bint waiting         # the owner looks at `ack_at_ns`
    cdef public object on_room       # (flow): there is room again that the sender should know of
    cdef bytes names
    cdef Py_ssize_t to_size
    cdef int64_t limit
    cdef int64_t following           # the next sequence in order
    cdef int64_t highest             # behind the last that arrived
    cdef int64_t taken               # offset up to which everything was taken
    cdef int64_t room
    cdef int64_t room_said
    cdef int64_t newest
    cdef int64_t newest_ns
    cdef int64_t unsaid              # bytes that were not acknowledged
    cdef Held* ring
    cdef int64_t capacity
    cdef Incoming current
    cdef list published
    cdef list grown

    cdef int arrive(self, int64_t sequence, int flags, const unsigned char* body, Py_ssize_t size, int64_t now_ns,
                    bint crowded) except -1
    cdef int hold(self, int64_t sequence, int flags, bytes body) except -1
    cdef int deliver(self, int flags, bytes body) except -1
    cdef int release(self) except -1
    cdef int free(self, int64_t cost) except -1
    cdef int64_t offer(self) noexcept
    cdef bytes acknowledge(self, int64_t now_ns)
