"""Closed-loop ping-pong: one message in flight, out by one connection and back by another."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from bench._channel cimport (
    CLOCK_MONOTONIC, CLOCK_REALTIME, Channel, clock_ns, close_channels, open_channels, preload, read_some, scanner,
)
from bench._meter cimport BUCKETS, Scan, bucket_of, put32, put64

cdef extern from "sys/socket.h" nogil:
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    enum: MSG_NOSIGNAL

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    enum: POLLIN

cdef enum:
    FRAME_ROOM = 4096


def ping_pong(str protocol, int out_fd, int back_fd, bytes frame, tuple places, int size, uint64_t rounds,
              uint64_t warm, list heads):
    """Histogram of the times from writing a message to having it back; ConnectionError after 5 s of silence."""
    cdef Scan scan = scanner(protocol)
    cdef uint64_t histogram[BUCKETS]
    cdef uint64_t unused[BUCKETS]
    cdef Channel* pair
    cdef char message[FRAME_ROOM]
    cdef int publisher_at, sequence_at, time_at, header_at, silent = 0
    cdef uint64_t i
    cdef int64_t start
    cdef pollfd wait[2]
    cdef Py_ssize_t length = len(frame)
    if length > FRAME_ROOM:
        raise ValueError(f"a ping-pong message has at most {FRAME_ROOM} bytes")
    publisher_at, sequence_at, time_at, header_at = places
    memcpy(message, <const char*> frame, length)
    for i in range(BUCKETS):
        histogram[i] = 0
    pair = open_channels(2, 1, size, unused)
    try:
        pair[0].fd, pair[1].fd = out_fd, back_fd
        preload(&pair[0], scan, heads[0])
        preload(&pair[1], scan, heads[1])
        wait[0].fd = back_fd
        wait[0].events = POLLIN
        wait[1].fd = out_fd
        wait[1].events = POLLIN
        with nogil:
            for i in range(rounds + warm):
                if publisher_at >= 0:
                    put32(message + publisher_at, 0)
                put64(message + sequence_at, i)
                put64(message + time_at, <uint64_t> clock_ns(CLOCK_REALTIME))
                if header_at >= 0:
                    put32(message + header_at, <uint32_t> (i + 1))
                start = clock_ns(CLOCK_MONOTONIC)
                if send(out_fd, message, <size_t> length, MSG_NOSIGNAL) != length:
                    silent = 1
                while pair[1].meter.received <= i and not silent:
                    if poll(wait, 2, 5000) <= 0:
                        silent = 1
                    if wait[0].revents and read_some(&pair[1], scan) < 0:
                        silent = 1
                    if wait[1].revents and read_some(&pair[0], scan) < 0:
                        silent = 1
                if silent:
                    break
                if i >= warm:
                    histogram[bucket_of(<uint64_t> (clock_ns(CLOCK_MONOTONIC) - start))] += 1
        if silent:
            raise ConnectionError(f"message {i} of the ping-pong did not come back within 5 s")
        if pair[1].meter.gaps or pair[1].meter.reordered or pair[1].meter.wrong:
            raise ConnectionError("the ping-pong came back out of order or damaged")
        return [histogram[i] for i in range(BUCKETS)]
    finally:
        close_channels(pair, 2)
