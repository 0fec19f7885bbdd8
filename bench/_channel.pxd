# One connection of the load generator: its descriptor, what was read and not yet scanned, and its meter.
from libc.stdint cimport int64_t, uint64_t

from bench._meter cimport Meter, Scan

cdef extern from "time.h" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* at)
    int nanosleep(const timespec* span, timespec* left)
    enum: CLOCK_REALTIME
    enum: CLOCK_MONOTONIC

cdef enum:
    IN_ROOM = 262144
    LINE = 8          # words a cache line: counters of two processes never share one
    PHASE = 0         # line 0: what all workers shall do now
    SENT = 8          # line 1: messages written, by the publisher process
    FAULT = 16        # line 2: 1 when a worker gave up
    SLOTS = 32        # lines 4 …: one a subscribing connection: received, probes
    RUN = 1
    STOP = 2
    END = 3

ctypedef struct Channel:
    int fd
    Py_ssize_t used
    bint writing  # a message is half out: an answer now would land inside it
    uint64_t sent
    uint64_t sent_bytes
    Meter meter
    char* inbox

cdef inline int64_t clock_ns(int clock) noexcept nogil:
    cdef timespec at
    clock_gettime(clock, &at)
    return <int64_t> at.tv_sec * 1000000000 + at.tv_nsec

cdef inline void pause_ns(long span_ns) noexcept nogil:
    cdef timespec span
    span.tv_sec = 0
    span.tv_nsec = span_ns
    nanosleep(&span, NULL)

cdef Scan scanner(str protocol) except NULL
cdef Channel* open_channels(int count, int publishers, int size, uint64_t* histogram) except NULL
cdef void close_channels(Channel* channels, int count) noexcept
cdef int absorb(Channel* channel, Scan scan) noexcept nogil
cdef int send_replies(Channel* channel) noexcept nogil
cdef int read_some(Channel* channel, Scan scan) noexcept nogil
cdef int preload(Channel* channel, Scan scan, bytes head) except -1
cdef void sharpen_timers() noexcept nogil
