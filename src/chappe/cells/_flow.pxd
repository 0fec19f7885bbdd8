"""The sending end of a flow between two names, without a socket and without a clock."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.cells._outgoing cimport Outgoing

cdef struct Sent:
    PyObject* message        # an Outgoing
    PyObject* chunk          # bytes
    Py_ssize_t start         # of the body in the chunk
    int64_t end              # of the parcel in the flow, with its overhead
    int64_t sent_ns          # last
    uint32_t size
    uint8_t flags
    uint8_t state
    uint8_t copies           # how often it was sent; 255: at least so often

cdef class SendFlow:
    cdef readonly uint64_t id
    cdef readonly str source
    cdef readonly str destination
    cdef readonly object failure     # why nothing more can be sent here
    cdef readonly int64_t resent     # parcels
    cdef readonly int64_t renewed    # times that the receiver had to begin anew
    cdef readonly int64_t active_ns  # when something was last sent or heard
    cdef public bint queued          # the owner will ask it for parcels
    cdef bytes names                 # destination and source, as headers have them
    cdef Py_ssize_t to_size          # of the destination
    cdef object draw
    cdef object waiting              # deque of messages that are not cut to the end
    cdef list finished
    cdef Py_ssize_t parcel_bytes
    cdef int64_t limit
    cdef int64_t patience_ns
    cdef Sent* ring
    cdef int64_t capacity
    cdef int64_t acked               # the sequence up to which all have arrived
    cdef int64_t cut                 # the next new one
    cdef int64_t flying              # parcels that are on their way
    cdef int64_t lost                # parcels that are to be sent again
    cdef int64_t lost_from           # none of them is below
    cdef int64_t base                # offset of `acked`
    cdef int64_t offset              # of `cut`
    cdef int64_t room
    cdef uint64_t credit
    cdef uint64_t spent
    cdef int64_t chosen              # what `write` writes
    cdef bint probing
    cdef bint paused
    cdef bint starved
    cdef int64_t starved_ns
    cdef int probes
    # time
    cdef bint heard
    cdef int64_t heard_ns
    cdef int64_t outstanding_ns
    cdef int64_t progress_ns
    cdef int backoff
    cdef int timeouts
    cdef int fruitless               # beginnings anew without anything confirmed between
    cdef int64_t rtt_ns
    cdef int64_t deviation_ns
    cdef int64_t peak_ns
    cdef int64_t least_ns
    cdef int64_t latest_ns           # when the latest of those that have arrived was sent

    cdef Sent* parcel(self, int64_t sequence) noexcept
    cdef int grow(self) except -1
    cdef void pop(self)
    cdef void arrived(self, Sent* parcel, int64_t now_ns)
    cdef int64_t patience(self) noexcept
    cdef int64_t timeout(self) noexcept
    cdef void sample(self, int64_t rtt_ns) noexcept
    cdef void detect(self, int64_t now_ns) noexcept
    cdef void expire(self) noexcept
    cdef void lose(self, int64_t sequence) noexcept
    cdef int renew(self) except -1
    cdef Py_ssize_t prepare(self, int64_t now_ns) except -1
    cdef Py_ssize_t prepare_new(self, int64_t now_ns) except -1
    cdef int write(self, unsigned char* place, int64_t now_ns) except -1
    cdef int write_new(self, unsigned char* place, int64_t now_ns) except -1
    cdef bint wants(self) noexcept
