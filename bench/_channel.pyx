"""What all loops of the load generator do with one connection."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove

from bench._meter cimport BUCKETS, Scan
from bench._scan_chappe cimport scan_chappe
from bench._scan_mqtt cimport scan_mqtt
from bench._scan_nats cimport scan_nats
from bench._scan_resp cimport scan_resp
from bench._scan_zmtp cimport scan_zmtp

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t length, int flags)
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL

cdef extern from "sys/prctl.h" nogil:
    int prctl(int option, unsigned long value)
    enum: PR_SET_TIMERSLACK

PROTOCOLS = ("chappe", "nats", "mqtt", "resp", "zmtp")


cdef Scan scanner(str protocol) except NULL:
    if protocol == "chappe" or protocol == "status":
        return scan_chappe
    if protocol == "nats":
        return scan_nats
    if protocol == "mqtt":
        return scan_mqtt
    if protocol == "resp":
        return scan_resp
    if protocol == "zmtp":
        return scan_zmtp
    raise ValueError(f"the load generator does not speak {protocol!r}; it knows {', '.join(PROTOCOLS)}")


cdef Channel* open_channels(int count, int publishers, int size, uint64_t* histogram) except NULL:
    cdef Channel* channels = <Channel*> calloc(count, sizeof(Channel))
    cdef int i
    if channels == NULL:
        raise MemoryError
    for i in range(count):
        channels[i].inbox = <char*> calloc(1, IN_ROOM)
        channels[i].meter.expected = <uint64_t*> calloc(publishers if publishers else 1, sizeof(uint64_t))
        if channels[i].inbox == NULL or channels[i].meter.expected == NULL:
            close_channels(channels, count)
            raise MemoryError
        channels[i].meter.publishers = publishers
        channels[i].meter.size = size
        channels[i].meter.histogram = histogram
    return channels


cdef void close_channels(Channel* channels, int count) noexcept:
    cdef int i
    if channels == NULL:
        return
    for i in range(count):
        free(channels[i].inbox)
        free(channels[i].meter.expected)
        free(channels[i].meter.capture)
    free(channels)


cdef int absorb(Channel* channel, Scan scan) noexcept nogil:
    """Scan what is in the inbox and keep the cut message at its end; -1 if the bytes break the protocol."""
    cdef Py_ssize_t used
    channel.meter.now_ns = clock_ns(CLOCK_REALTIME)
    used = scan(&channel.meter, channel.inbox, channel.used)
    if used < 0 or (used == 0 and channel.used == IN_ROOM):
        channel.meter.wrong += 1
        return -1
    channel.used -= used
    if channel.used and used:
        memmove(channel.inbox, channel.inbox + used, <size_t> channel.used)
    if channel.fd >= 0 and not channel.writing:
        return -1 if send_replies(channel) < 0 else 0
    return 0


cdef int send_replies(Channel* channel) noexcept nogil:
    """Bytes of answers that still wait, because the socket is full; -1 if the connection ended."""
    cdef ssize_t wrote
    if channel.meter.replies:
        wrote = send(channel.fd, channel.meter.reply, channel.meter.replies, MSG_DONTWAIT | MSG_NOSIGNAL)
        if wrote < 0:
            return channel.meter.replies if errno == EAGAIN or errno == EINTR else -1
        channel.meter.replies -= <int> wrote
        if channel.meter.replies:
            memmove(channel.meter.reply, channel.meter.reply + wrote, channel.meter.replies)
    return channel.meter.replies


cdef int read_some(Channel* channel, Scan scan) noexcept nogil:
    """One recv and its scan: bytes read, 0 if there were none, -1 at the end of the stream or a broken one."""
    cdef ssize_t got = recv(channel.fd, channel.inbox + channel.used, <size_t> (IN_ROOM - channel.used), MSG_DONTWAIT)
    if got > 0:
        channel.used += got
        return -1 if absorb(channel, scan) < 0 else <int> got
    if got < 0 and (errno == EAGAIN or errno == EINTR):
        return 0
    return -1


cdef int preload(Channel* channel, Scan scan, bytes head) except -1:
    """Bytes that the handshake read beyond its own answers."""
    if len(head) > IN_ROOM:
        raise ValueError("the handshake read more than the inbox holds")
    memcpy(channel.inbox, <const char*> head, len(head))
    channel.used = len(head)
    if absorb(channel, scan) < 0:
        raise ValueError("the handshake left bytes that break the protocol")
    return 0


cdef void sharpen_timers() noexcept nogil:
    # Default slack is 50 us, as much as the pauses of a publisher themselves.
    prctl(PR_SET_TIMERSLACK, 1)


def quantile(histogram, double share):
    """The value in ns below which that share of all noted latencies lies (upper edge of its bucket)."""
    cdef uint64_t total = sum(histogram), seen = 0
    cdef int index, shift
    if total == 0:
        return 0
    for index in range(BUCKETS):
        seen += histogram[index]
        if seen >= share * total:
            if index < 64:
                return index
            shift = index // 32 - 1
            return (<uint64_t> (index - shift * 32 + 1)) << shift
    return 0
