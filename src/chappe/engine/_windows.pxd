"""Windows of paths: how many bytes may be in flight, by the delay that queues on the path add."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef struct Window:
    double bytes
    bint starting              # it doubles each round trip
    uint32_t parcel            # longest that took the path
    uint64_t fresh             # acknowledged since the last sample of its delay
    int64_t cut_at             # it was halved
    int64_t round_trip_ns
    int64_t least              # one-way delays, by two clocks: in this span of 10 s,
    int64_t least_before       # and in the one before
    int64_t span_at
    int64_t delay_ns           # of the last parcel, beyond the least
    int64_t drain_until        # it is smaller until then, so that the least delay can be seen
    double drained             # and so much smaller

cdef void window_begin(Window* window) noexcept nogil
cdef void window_sample(Window* window, int64_t now, int64_t sent_at, uint64_t arrival) noexcept nogil
cdef void window_adjust(Window* window, int64_t now, uint64_t in_flight) noexcept nogil
cdef void window_halve(Window* window, int64_t now) noexcept nogil
cdef void window_restart(Window* window) noexcept nogil


cdef inline double window_open(const Window* window, int64_t now) noexcept nogil:
    return window.bytes if now >= window.drain_until else window.bytes * window.drained
