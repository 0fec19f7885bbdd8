"""The receiving half of the load generator: counts, verifies and times on any number of connections."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from bench._channel cimport (
    END, FAULT, IN_ROOM, LINE, PHASE, SLOTS, Channel, absorb, close_channels, open_channels, preload, read_some,
    scanner,
)
from bench._meter cimport BUCKETS, Scan

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maximum, int timeout_ms)
    enum: EPOLLIN
    enum: EPOLL_CTL_ADD

cdef extern from "unistd.h" nogil:
    int close(int fd)

cdef extern from *:
    """
    /* another process writes it */
    static inline unsigned long bench_peek(const void *at) { return *(const volatile unsigned long *)at; }
    """
    unsigned long peek_word "bench_peek"(const void* at) noexcept nogil


cdef class Subscriber:
    """Connections that receive the same stream each; `run` returns when the shared phase says END."""

    cdef Channel* channels
    cdef Scan scan
    cdef int count
    cdef int first
    cdef uint64_t* shared
    cdef object keep
    cdef uint64_t* histogram

    def __cinit__(self, str protocol, list fds, int publishers, int size, unsigned long[::1] shared, int first_slot=0,
                  list heads=None, Py_ssize_t capture=0):
        cdef int i
        self.scan = scanner(protocol)
        self.count = len(fds)
        self.first = first_slot
        self.keep = shared
        self.shared = <uint64_t*> &shared[0]
        if shared.shape[0] < SLOTS + LINE * (first_slot + self.count) + BUCKETS:
            raise ValueError(f"shared block of {shared.shape[0]} words is too small for {self.count} connections")
        # The histogram is shared, too: whoever measures an interval takes it before and after.
        self.histogram = self.shared + shared.shape[0] - BUCKETS
        self.channels = open_channels(self.count, publishers, size, self.histogram)
        for i in range(self.count):
            self.channels[i].fd = fds[i]
            if capture:
                self.channels[i].meter.capture = <char*> malloc(capture)
                if self.channels[i].meter.capture == NULL:
                    raise MemoryError
                self.channels[i].meter.capture_room = capture
            if heads:
                preload(&self.channels[i], self.scan, heads[i])

    def __dealloc__(self):
        close_channels(self.channels, self.count)

    cdef void post(self, int i) noexcept nogil:
        cdef uint64_t* slot = self.shared + SLOTS + LINE * (self.first + i)
        slot[1] = self.channels[i].meter.probes
        slot[0] = self.channels[i].meter.received

    def run(self):
        """Receive until END; False if a connection ended or broke before."""
        cdef int epoll = epoll_create1(0), i, ready, at, closed = 0
        cdef epoll_event* events = <epoll_event*> calloc(self.count, sizeof(epoll_event))
        if epoll < 0 or events == NULL:
            raise OSError("epoll is not available")
        for i in range(self.count):
            events[0].events = EPOLLIN
            events[0].data.fd = i
            epoll_ctl(epoll, EPOLL_CTL_ADD, self.channels[i].fd, events)
        with nogil:
            while peek_word(self.shared + PHASE) != END and not closed:
                ready = epoll_wait(epoll, events, self.count, 20)
                for at in range(ready):
                    i = events[at].data.fd
                    if read_some(&self.channels[i], self.scan) < 0:
                        closed = 1
                    self.post(i)
            if closed:
                self.shared[FAULT] = 1
            close(epoll)
            free(events)
        return not closed

    def feed(self, int i, const unsigned char[::1] chunk):
        """Bytes that another transport (TLS) received for connection i."""
        cdef Py_ssize_t at = 0, room
        cdef Channel* channel = &self.channels[i]
        while at < chunk.shape[0]:
            room = min(IN_ROOM - channel.used, chunk.shape[0] - at)
            memcpy(channel.inbox + channel.used, &chunk[at], room)
            channel.used += room
            at += room
            if absorb(channel, self.scan) < 0:
                raise ValueError("the stream breaks its protocol")
        self.post(i)

    def take_reply(self, int i):
        """What connection i has to answer (heartbeats), for another transport to send."""
        cdef bytes reply = self.channels[i].meter.reply[:self.channels[i].meter.replies]
        self.channels[i].meter.replies = 0
        return reply

    def captured(self, int i):
        """The status records that connection i received, in order."""
        return <bytes> self.channels[i].meter.capture[:self.channels[i].meter.captured]

    def result(self):
        """Counts of each connection and the histogram of all."""
        return {
            "connections": [
                {
                    "received": self.channels[i].meter.received,
                    "reordered": self.channels[i].meter.reordered,
                    "gaps": self.channels[i].meter.gaps,
                    "wrong": self.channels[i].meter.wrong,
                    "dropped": self.channels[i].meter.dropped,
                }
                for i in range(self.count)
            ],
            "histogram": [self.histogram[i] for i in range(BUCKETS)],
        }
