"""The sending half of the load generator: ready-made frames, copied, stamped and written in batches."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from bench._channel cimport (
    CLOCK_MONOTONIC, CLOCK_REALTIME, END, FAULT, IN_ROOM, LINE, PHASE, RUN, SENT, SLOTS, STOP, Channel, absorb,
    clock_ns, close_channels, open_channels, pause_ns, preload, read_some, scanner, send_replies,
    sharpen_timers,
)
from bench._meter cimport BUCKETS, PROBE_PUBLISHER, Scan, put32, put64

cdef extern from "sys/socket.h" nogil:
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    enum: MSG_DONTWAIT
    enum: MSG_NOSIGNAL

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    enum: POLLIN
    enum: POLLOUT

cdef extern from *:
    """
    /* another process writes it */
    static inline unsigned long bench_peek(const void *at) { return *(const volatile unsigned long *)at; }
    """
    unsigned long peek_word "bench_peek"(const void* at) noexcept nogil

cdef enum:
    # A waiting publisher sleeps, longer each time: waking often would take CPU that the broker needs.
    SHORT_NS = 20000
    LONG_NS = 320000
    RECORD = 24  # bytes of a status record
    TICK_NS = 100000  # between the writes of a paced publisher


cdef class Publisher:
    """Connections that publish in turn; never more than `window` messages ahead of the slowest subscriber.

    `frames` are the wire bytes of one message a topic; `places` says where publisher, sequence, time and (for Chappe)
    the sequence of the header go, -1 for none. `run_head`: frames are status records that share one frame header.
    `nominal_ns`: a topic's messages are stamped exactly that far apart, whenever they are sent. `every`: a subscriber
    gets one of so many messages of a topic, so that each it gets stands for as many of the window.
    """

    cdef Channel* channels
    cdef Scan scan
    cdef int count
    cdef int subscribers
    cdef int topics
    cdef Py_ssize_t frame_size
    cdef uint64_t batch
    cdef uint64_t window
    cdef uint64_t limit
    cdef double rate
    cdef char* frames
    cdef char* outbox
    cdef uint32_t* held  # the topic whose frame each place of the outbox holds: only what changes is written again
    cdef int publisher_at, sequence_at, time_at, header_at
    cdef bint run_head
    cdef bint chatty
    cdef uint64_t* shared
    cdef object keep
    cdef uint64_t sent
    cdef int64_t nominal_ns, base_ns
    cdef uint64_t every
    cdef uint64_t histogram[BUCKETS]

    def __cinit__(self, str protocol, list fds, list frames, tuple places, unsigned long[::1] shared, int subscribers,
                  int size, Py_ssize_t batch_bytes=65536, uint64_t window=16384, double rate=0.0, uint64_t limit=0,
                  bint run_head=False, bint chatty=False, list credits=None, list heads=None,
                  int64_t nominal_ns=0, uint64_t every=1):
        cdef int i
        self.nominal_ns = nominal_ns
        self.every = every
        self.scan = scanner(protocol)
        self.count = len(fds)
        self.subscribers = subscribers
        self.topics = len(frames)
        self.frame_size = len(frames[0])
        if any(len(frame) != self.frame_size for frame in frames):
            raise ValueError("all frames of one run have the same size: give topics names of one length")
        self.publisher_at, self.sequence_at, self.time_at, self.header_at = places
        self.keep = shared
        self.shared = <uint64_t*> &shared[0]
        self.batch = max(1, batch_bytes // self.frame_size)
        self.window = max(window, <uint64_t> 1)
        if self.batch > self.window // 2:
            self.batch = max(<uint64_t> 1, self.window // 2)
        self.rate = rate
        self.limit = limit
        self.run_head = run_head
        self.chatty = chatty
        self.frames = <char*> malloc(self.frame_size * self.topics)
        self.outbox = <char*> malloc(self.batch * self.frame_size + 4)
        self.held = <uint32_t*> malloc(self.batch * sizeof(uint32_t))
        if self.frames == NULL or self.outbox == NULL or self.held == NULL:
            raise MemoryError
        memset(self.held, 0xFF, self.batch * sizeof(uint32_t))
        for i in range(self.topics):
            memcpy(self.frames + i * self.frame_size, <const char*> <bytes> frames[i], self.frame_size)
        self.channels = open_channels(self.count, 0, size, self.histogram)
        for i in range(self.count):
            self.channels[i].fd = fds[i]
            if credits:
                self.channels[i].meter.credit = credits[i]
            if heads:
                preload(&self.channels[i], self.scan, heads[i])

    def __dealloc__(self):
        close_channels(self.channels, self.count)
        free(self.frames)
        free(self.outbox)
        free(self.held)

    cdef uint64_t room(self) noexcept nogil:
        """Messages that may be sent now: the window, less what the slowest subscriber has not yet received."""
        cdef uint64_t slowest = self.sent, received
        cdef int i
        for i in range(self.subscribers):
            received = self.every * peek_word(self.shared + SLOTS + LINE * i)
            if received < slowest:
                slowest = received
        return self.window - (self.sent - slowest) if self.sent - slowest < self.window else 0

    cdef Py_ssize_t fill(self, int publisher, uint64_t messages) noexcept nogil:
        """Write that many messages of one publisher into the outbox; their bytes."""
        cdef Channel* channel = &self.channels[publisher]
        cdef char* at = self.outbox
        cdef int64_t now = clock_ns(CLOCK_REALTIME), stamp = now
        cdef uint64_t _i, sequence = channel.sent
        cdef uint64_t topic = (sequence + <uint64_t> publisher) % <uint64_t> self.topics
        if self.run_head:
            put32(at, 0x01000000 | <uint32_t> (messages * self.frame_size))
            at += 4
        if self.nominal_ns and self.base_ns == 0:
            self.base_ns = now // self.nominal_ns * self.nominal_ns
        if self.run_head and self.frame_size == RECORD and self.nominal_ns == 0:
            return self.fill_records(channel, at, messages, topic, now) - self.outbox
        for _i in range(messages):
            if self.nominal_ns:
                stamp = self.base_ns + <int64_t> (sequence // <uint64_t> self.topics) * self.nominal_ns
            if self.held[_i] != <uint32_t> topic:
                memcpy(at, self.frames + topic * self.frame_size, self.frame_size)
                self.held[_i] = <uint32_t> topic
            if self.publisher_at >= 0:
                put32(at + self.publisher_at, <uint32_t> publisher)
                put32(at + self.publisher_at + 4, <uint32_t> topic)
            put64(at + self.sequence_at, sequence)
            put64(at + self.time_at, <uint64_t> stamp)
            if self.header_at >= 0:
                put32(at + self.header_at, <uint32_t> (sequence + 1))
            at += self.frame_size
            sequence += 1
            topic += 1
            if topic == <uint64_t> self.topics:
                topic = 0
        channel.sent = sequence
        return at - self.outbox

    cdef char* fill_records(self, Channel* channel, char* at, uint64_t messages, uint64_t topic,
                            int64_t now) noexcept nogil:
        """The same for status records, whose size the compiler knows: a generator must not be what is measured."""
        cdef uint64_t sequence = channel.sent, _i
        for _i in range(messages):
            memcpy(at, self.frames + topic * RECORD, RECORD)
            put64(at + self.sequence_at, sequence)
            put64(at + self.time_at, <uint64_t> now)
            at += RECORD
            sequence += 1
            topic += 1
            if topic == <uint64_t> self.topics:
                topic = 0
        channel.sent = sequence
        return at

    cdef bint limited(self, Channel* channel) noexcept nogil:
        # Credits count events, not status records.
        return channel.meter.credit != 0 and not self.run_head

    cdef int drain(self, Channel* channel) noexcept nogil:
        cdef int got = read_some(channel, self.scan)
        while got > 65536:
            got = read_some(channel, self.scan)
        return got

    cdef int write_all(self, Channel* channel, Py_ssize_t length) noexcept nogil:
        """The outbox, whole, within the connection's credit; -1 if the connection ended or STOP found it stuck.

        Answers to the peer go out before it or after it, never between its bytes.
        """
        cdef Py_ssize_t done = 0
        cdef ssize_t wrote
        cdef pollfd wait
        cdef int stuck = 0, waiting
        wait.fd = channel.fd
        while done < length:
            waiting = send_replies(channel) if done == 0 else 0
            if waiting < 0:
                return -1
            wait.events = POLLIN | POLLOUT
            wrote = 0
            if waiting:
                pass
            elif self.limited(channel) and channel.sent_bytes + <uint64_t> (length - done) > channel.meter.credit:
                # Credit counts whole frames at the node, so a batch waits until all of it fits.
                wait.events = POLLIN
            else:
                wrote = send(channel.fd, self.outbox + done, length - done, MSG_DONTWAIT | MSG_NOSIGNAL)
                if wrote < 0 and errno != EAGAIN and errno != EINTR:
                    return -1
            if wrote > 0:
                done += wrote
                channel.sent_bytes += wrote
                channel.writing = done < length
                stuck = 0
                continue
            wait.revents = 0
            poll(&wait, 1, 100)
            stuck += 1
            if wait.revents & POLLIN and self.drain(channel) < 0:
                return -1
            if stuck > 100 and peek_word(self.shared + PHASE) >= STOP:
                return -1
        if send_replies(channel) < 0:
            return -1
        if self.chatty and self.drain(channel) < 0:
            return -1
        return 0

    def run(self):
        """Publish while the phase is RUN, until STOP or the limit; False if a connection ended before."""
        cdef int turn = 0, failed = 0, idle = 0
        cdef uint64_t room, wanted, due, before = 0
        cdef int64_t start = 0
        cdef long wait = SHORT_NS
        sharpen_timers()
        with nogil:
            while peek_word(self.shared + PHASE) < STOP and not failed:
                if peek_word(self.shared + PHASE) < RUN:
                    start = 0
                    pause_ns(200000)
                    continue
                if start == 0:
                    start = clock_ns(CLOCK_MONOTONIC)
                    before = self.sent
                room = self.room()
                wanted = self.batch
                if self.limit and self.limit - self.sent < wanted:
                    wanted = self.limit - self.sent
                    if wanted == 0:
                        break
                if self.rate > 0:
                    due = before + <uint64_t> (self.rate * 1e-9 * <double> (clock_ns(CLOCK_MONOTONIC) - start))
                    if due <= self.sent:
                        pause_ns(TICK_NS)
                        continue
                    if due - self.sent < wanted:
                        wanted = due - self.sent
                if room < wanted:
                    idle += 1
                    # Publishers that only write still have to answer heartbeats.
                    if idle & 1023 == 0:
                        for turn in range(self.count):
                            if self.drain(&self.channels[turn]) < 0:
                                failed = 1
                        turn = 0
                    pause_ns(wait)
                    wait = min(wait * 2, <long> LONG_NS)
                    continue
                wait = SHORT_NS
                if self.write_all(&self.channels[turn], self.fill(turn, wanted)) < 0:
                    failed = 1
                    break
                self.sent += wanted
                self.shared[SENT] = self.sent
                turn += 1
                if self.rate > 0 and wanted < self.batch:
                    pause_ns(TICK_NS)
                if turn == self.count:
                    turn = 0
                    idle += 1
                    if idle & 255 == 0 and self.drain(&self.channels[0]) < 0:
                        failed = 1
            if failed and peek_word(self.shared + PHASE) < STOP:
                self.shared[FAULT] = 1
        return not failed

    def linger(self):
        """Read what comes back until END: a connection closed with unread answers would take messages with it."""
        cdef int turn
        with nogil:
            while peek_word(self.shared + PHASE) != END:
                for turn in range(self.count):
                    self.drain(&self.channels[turn])
                pause_ns(1000000)

    def next_batch(self, int turn, uint64_t due):
        """Bytes to send now on that connection by another transport (TLS): at most `due` messages in all so far.

        Empty while the window, the credit or the rate says wait.
        """
        cdef uint64_t wanted = self.batch
        cdef Py_ssize_t length
        cdef Channel* channel = &self.channels[turn]
        if due <= self.sent:
            return b""
        wanted = min(wanted, due - self.sent)
        if self.room() < wanted:
            return b""
        if self.limited(channel) and channel.sent_bytes + wanted * self.frame_size + 4 > channel.meter.credit:
            return b""
        length = self.fill(turn, wanted)
        channel.sent_bytes += length
        self.sent += wanted
        self.shared[SENT] = self.sent
        return <bytes> self.outbox[:length]

    def feed(self, int turn, const unsigned char[::1] chunk):
        """Bytes that came back on that connection; returns what has to be answered."""
        cdef Channel* channel = &self.channels[turn]
        cdef Py_ssize_t at = 0, room
        cdef bytes reply
        while at < chunk.shape[0]:
            room = min(IN_ROOM - channel.used, chunk.shape[0] - at)
            memcpy(channel.inbox + channel.used, &chunk[at], room)
            channel.used += room
            at += room
            if absorb(channel, self.scan) < 0:
                raise ValueError("the stream breaks its protocol")
        reply = channel.meter.reply[:channel.meter.replies]
        channel.meter.replies = 0
        return reply

    def probe(self):
        """One message on the last topic from no publisher, to see whether subscriptions have arrived."""
        cdef Py_ssize_t last = (self.topics - 1) * self.frame_size
        cdef bytearray frame = bytearray(self.frames[last:last + self.frame_size])
        frame[self.publisher_at:self.publisher_at + 4] = (<uint32_t> PROBE_PUBLISHER).to_bytes(4, "big")
        return bytes(frame)

    def result(self):
        """What was sent, by all connections together."""
        return {
            "sent": self.sent, "bytes": sum(self.channels[i].sent_bytes for i in range(self.count)),
            "base_ns": self.base_ns,
        }
