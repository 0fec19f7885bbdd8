# What a receiving connection knows about the stream it gets: order, gaps, sizes, latency.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline uint32_t bench_get32(const char *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
    static inline uint64_t bench_get64(const char *p) { uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
    static inline void bench_put32(char *p, uint32_t v) { v = __builtin_bswap32(v); memcpy(p, &v, 4); }
    static inline void bench_put64(char *p, uint64_t v) { v = __builtin_bswap64(v); memcpy(p, &v, 8); }
    static inline int bench_bucket(uint64_t ns) {
        /* 32 linear steps in each power of two: an error below 3.2 % at any scale */
        if (ns < 64) return (int)ns;
        int shift = 58 - __builtin_clzll(ns);
        return shift * 32 + (int)(ns >> shift);
    }
    """
    uint32_t get32 "bench_get32"(const char* p) noexcept nogil
    uint64_t get64 "bench_get64"(const char* p) noexcept nogil
    void put32 "bench_put32"(char* p, uint32_t v) noexcept nogil
    void put64 "bench_put64"(char* p, uint64_t v) noexcept nogil
    int bucket_of "bench_bucket"(uint64_t ns) noexcept nogil

cdef enum:
    BUCKETS = 2048
    REPLY_ROOM = 8192
    PROBE_PUBLISHER = 0xFFFFFFFF
    HEAD = 24  # publisher 4, topic 4, sequence 8, send time 8

ctypedef struct Meter:
    uint64_t received
    uint64_t reordered  # sequence below the one expected: late or repeated
    uint64_t gaps       # sequences jumped over
    uint64_t wrong      # size or publisher nobody sent
    uint64_t probes
    uint64_t dropped    # what the broker says it dropped for this connection
    uint64_t credit     # bytes this connection may send in total, 0 = unlimited
    int64_t now_ns      # when the bytes now scanned arrived
    uint32_t publishers
    uint32_t size
    uint64_t* expected  # next sequence, by publisher
    uint64_t* histogram
    char* capture       # status records are copied here if not NULL
    Py_ssize_t captured
    Py_ssize_t capture_room
    int replies
    char reply[REPLY_ROOM]

# Scans whole messages, notes each, and returns how many bytes it used; -1 if the bytes break the protocol.
ctypedef Py_ssize_t (*Scan)(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil


cdef inline void note(Meter* meter, uint32_t publisher, uint64_t sequence, int64_t sent_ns) noexcept nogil:
    cdef uint64_t expected
    if publisher >= meter.publishers:
        if publisher == <uint32_t> PROBE_PUBLISHER:
            meter.probes += 1
        else:
            meter.wrong += 1
        return
    expected = meter.expected[publisher]
    if sequence >= expected:
        meter.gaps += sequence - expected
        meter.expected[publisher] = sequence + 1
    else:
        meter.reordered += 1
    meter.received += 1
    if meter.now_ns > sent_ns:
        meter.histogram[bucket_of(<uint64_t> (meter.now_ns - sent_ns))] += 1
    else:
        meter.histogram[0] += 1


cdef inline void note_body(Meter* meter, const char* body, Py_ssize_t length) noexcept nogil:
    if length != <Py_ssize_t> meter.size:
        meter.wrong += 1
        return
    note(meter, get32(body), get64(body + 8), <int64_t> get64(body + 16))


cdef inline void answer(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    # A reply that does not fit is left out: the peers repeat what they want answered.
    if meter.replies + length <= REPLY_ROOM:
        memcpy(meter.reply + meter.replies, bytes, <size_t> length)
        meter.replies += <int> length
