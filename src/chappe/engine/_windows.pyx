"""Windows of paths: how many bytes may be in flight, by the delay that queues on the path add.

A window follows that delay, as LEDBAT does: it grows while it is below a target and shrinks above. The least delay,
which it is compared with, is looked for anew every 10 s, while the window is smaller for four round trips: else a queue
that never empties would pass for the length of the path.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

cdef enum:
    FIRST = 65536
    MOST = 16777216
    UP = 16                    # it grows by one part in so many a round trip at most,
    DOWN = 8                   # and shrinks by one in so many

cdef int64_t MS = 1_000_000
cdef int64_t TARGET_NS = 50 * MS       # delay in queues on a path
cdef int64_t SPAN_NS = 10_000 * MS
cdef int64_t DRAIN_MOST_NS = 2_000 * MS
cdef int64_t DELAY_MOST_NS = 60_000 * MS
cdef double DRAINED = 0.75             # of what the path alone holds: so its queue gets empty
cdef double DRAINED_LEAST = 0.1


cdef void window_begin(Window* window) noexcept nogil:
    """Of a path that nothing is known of."""
    memset(window, 0, sizeof(Window))
    window.bytes = FIRST
    window.starting = True


cdef void window_sample(Window* window, int64_t now, int64_t sent_at, uint64_t arrival) noexcept nogil:
    """What the way of one parcel says of its path: the difference of two clocks, compared with the least one."""
    cdef int64_t round_trip = now - sent_at
    cdef int64_t one_way = <int64_t> (arrival - <uint64_t> sent_at), least
    if window.round_trip_ns:
        window.round_trip_ns = (7 * window.round_trip_ns + round_trip) // 8
    else:
        window.round_trip_ns = round_trip
    if window.span_at == 0:
        window.least = window.least_before = one_way
        window.span_at = max(now, 1)
    elif now - window.span_at >= SPAN_NS:
        window.least_before = window.least
        window.least = one_way
        window.span_at = now
        window.drain_until = now + min(4 * window.round_trip_ns, DRAIN_MOST_NS)
        window.drained = DRAINED_LEAST
        if window.round_trip_ns > window.delay_ns:
            window.drained = max(DRAINED_LEAST, DRAINED * <double> (window.round_trip_ns - window.delay_ns)
                                 / <double> window.round_trip_ns)
    else:
        window.least = min(window.least, one_way)
    least = min(window.least, window.least_before)
    window.delay_ns = <int64_t> min(<uint64_t> one_way - <uint64_t> least, <uint64_t> DELAY_MOST_NS)


cdef void window_adjust(Window* window, int64_t now, uint64_t in_flight) noexcept nogil:
    """Follow a new sample, and what was acknowledged since the one before."""
    cdef double off = max(-1.0, <double> (TARGET_NS - window.delay_ns) / <double> TARGET_NS)
    cdef double fresh = min(<double> window.fresh, window.bytes)
    cdef bint used = 2 * <double> (in_flight + window.fresh) >= window.bytes
    window.fresh = 0
    if window.drain_until and now < window.drain_until + window.round_trip_ns:
        return
    if window.delay_ns > TARGET_NS // 2:
        window.starting = False
    if off < 0:
        window.bytes += off * fresh / DOWN
    elif used and window.starting:
        window.bytes += fresh
    elif used:
        window.bytes += off * fresh * max(1.0 / UP, 2.0 * window.parcel / window.bytes)
    window.bytes = min(max(window.bytes, 2.0 * window.parcel), <double> MOST)


cdef void window_halve(Window* window, int64_t now) noexcept nogil:
    """The path is full: at most once a round trip."""
    if now - window.cut_at > window.round_trip_ns:
        window.bytes = max(window.bytes / 2, 2.0 * window.parcel)
        window.starting = False
        window.cut_at = now


cdef void window_restart(Window* window) noexcept nogil:
    """The path was silent: it begins anew, small."""
    window.bytes = 2.0 * window.parcel
    window.starting = True
