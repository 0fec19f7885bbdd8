"""The outgoing half of a client: `publish` is a plain method that copies into the outbox."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memset
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from chappe.engine._stack cimport iovec

from chappe.client.topics import encode_topic, topic_name
from chappe.wire.events import Event

cdef enum:
    PROBE = 0x04
    CONTROL = 0x05
    DURABLE = 0x10           # a flag of events
    DATAGRAMS = 1            # port of the data link


cdef class Sender(Stack):
    """What a client sends over one connection (port 0) and its datagrams (port 1)."""

    cdef int mark(self) except -1:
        if not self.scheduled and self.schedule is not None:
            self.scheduled = True
            self.schedule()
        return 0

    cdef int64_t now(self) noexcept:
        cdef timespec clock
        if not self.live_clock:
            return self.clocks.wall_ns
        clock_gettime(CLOCK_REALTIME, &clock)
        return <int64_t> clock.tv_sec * 1000000000 + clock.tv_nsec

    cdef int64_t monotonic(self) noexcept:
        cdef timespec clock
        if not self.live_clock:
            return self.clocks.mono_ns
        clock_gettime(CLOCK_MONOTONIC, &clock)
        return <int64_t> clock.tv_sec * 1000000000 + clock.tv_nsec

    cdef int64_t stamp(self) noexcept:
        """When an event is made now, by the clock of the node; 0: events are not stamped."""
        return self.now() + self.ahead_ns if self.stamping else 0

    def publish(self, topic, body, int priority=3, *, created=None, expires=None, reply=None, correlation=None,
                content_type=None, properties=None, origin=None, durable=False):
        """True: the event is in the queue and will reach the node. False: the queue is full, nothing happened.

        durable: what comes back can be awaited; it is there when an archive has stored the event.
        """
        if priority < 0 or priority > 6:
            raise ValueError(f"priority {priority} is not in 0 to 6")
        if durable:
            if self.on_durable is None:
                raise ValueError("nobody here waits for archives: publish through a client that is connected")
            return self.on_durable(
                topic, body, priority, created=created, expires=expires, reply=reply, correlation=correlation,
                content_type=content_type, properties=properties
            )
        return self.put(
            topic, body, priority, created, expires, reply, correlation, content_type, properties, origin
        ) != 0

    def publish_durable(self, topic, body, int priority=3, *, created=None, expires=None, reply=None, correlation=None,
                        content_type=None, properties=None, origin=None):
        """The sequence number of the event, marked as durable; None: the queue is full, nothing happened."""
        if priority < 0 or priority > 6:
            raise ValueError(f"priority {priority} is not in 0 to 6")
        cdef int64_t sequence = self.put(topic, body, priority | DURABLE, created, expires, reply, correlation,
                                         content_type, properties, origin)
        return sequence & 0xFFFFFFFF if sequence else None

    cdef int64_t put(self, object topic, object body, int flags, object created, object expires, object reply,
                     object correlation, object content_type, object properties,
                     object origin) except -1:
        """The sequence of the event, which is in the queue now; 0 if there is no room."""
        cdef int64_t accepted
        cdef Py_buffer view
        cdef bytes extension = None
        cdef int64_t stamp = 0
        if (created is not None or expires is not None or content_type is not None or properties is not None
                or origin is not None):
            extension = Event(
                0, 0, created=self.stamp() or None if created is None else created, expires=expires,
                correlation=correlation, reply=None if reply is None else topic_name(reply), content_type=content_type,
                properties=properties or {}, origin=origin
            ).encode()[12:]
        elif reply is not None or correlation is not None:
            extension = self.answerable(reply, correlation)
        else:
            stamp = self.stamp()
        if type(body) is bytes:
            accepted = self.outbox.event(topic, <const unsigned char*> PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
                                         flags, extension, stamp)
        elif isinstance(body, str):
            raise TypeError("a body is bytes, not str: encode it, body.encode()")
        else:
            PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
            try:
                accepted = self.outbox.event(topic, <const unsigned char*> view.buf, view.len, flags, extension,
                                             stamp)
            finally:
                PyBuffer_Release(&view)
        if accepted and not self.scheduled:
            self.mark()
        return accepted

    cdef bytes answerable(self, object reply, object correlation):
        """The extension of requests and answers: where the answer goes, and which one it is."""
        cdef bytes items = b""
        cdef int64_t stamp = self.stamp()
        if reply is not None:
            last = self.last_reply
            if last is None or reply is not last[0]:
                name = encode_topic(reply)
                self.last_reply = last = (reply, b"\x03" + len(name).to_bytes(2, "big") + name)
            items = last[1]
        if correlation is not None:
            if not 0 <= correlation < 1 << 64:
                raise ValueError(f"a correlation has 64 bits and no sign, {correlation} does not fit")
            items += b"\x04\x00\x08" + correlation.to_bytes(8, "big")
        if stamp:
            items += b"\x01\x00\x08" + (<object> stamp).to_bytes(8, "big")
        return len(items).to_bytes(2, "big") + items

    def publish_many(self, topic, bodies, int priority=3):
        """How many of the bodies, from the first on, are in the queue."""
        cdef Py_ssize_t accepted = 0
        for body in bodies:
            if not self.publish(topic, body, priority):
                break
            accepted += 1
        return accepted

    def write_now(self):
        """Write what is queued in this moment instead of at the end of the tick; for one who is about to wait."""
        if self.scheduled and self.write is not None:
            self.write()

    def go_on(self, sequence, bint resent=False):
        """Number the next events from behind this one; `resent`: some of them may have been sent by another process."""
        self.outbox.sequence = sequence
        self.outbox.again = resent

    def flush(self):
        """Ask for an echo; the serial that `flushed` reaches when the node has all that was published until now."""
        serial = self.outbox.request_flush()
        self.mark()
        return serial

    def acknowledge_soon(self):
        """Ask for an echo if sent events are still kept; called now and then, so that a quiet client keeps nothing."""
        if self.outbox.ready and self.outbox.events.head > self.outbox.probed_offset:
            self.flush()

    @property
    def flushed(self):
        return self.outbox.flushed

    @property
    def queued(self):
        """Bytes of events that the node has not confirmed."""
        return self.outbox.events.head - self.outbox.events.tail

    @property
    def has_room(self):
        """True when the queue is at most half full."""
        return 2 * (self.outbox.events.head - self.outbox.events.tail) <= self.outbox.queue_bytes

    def send_control(self, bytes payload not None):
        """Queue a CONTROL frame."""
        self.outbox.control_frame(CONTROL, <const unsigned char*> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload))
        self.mark()

    def heartbeat(self):
        """Queue a PROBE with token 0; its echo is a sign of life."""
        cdef bytes payload = bytes(16)
        self.outbox.control_frame(PROBE, <const unsigned char*> PyBytes_AS_STRING(payload), 16)
        self.mark()

    # --- parcels

    @property
    def parcels(self):
        """The flows of this client."""
        return self.outbox.parcels

    def send_parcels(self):
        """Write what flows have to send at the end of the tick."""
        if self.outbox.ready and self.outbox.parcels.has_work:
            self.mark()

    # --- datagrams

    def open_datagrams(self):
        """Port 1 carries datagrams; values use it from the first echo on, when it is known to work (GS-003)."""
        self.datagrams_open = True
        self.datagram_heard_ns = self.clocks.mono_ns
        self.probe()

    def close_datagrams(self):
        """Values use the connection again; what waited for a datagram is lost."""
        self.datagrams_open = False
        self.outbox.separate = False
        self.outbox.datagrams.clear()

    def probe_datagrams(self):
        """Ask for a sign of life by datagram."""
        self.probe()

    cdef int probe(self) except -1:
        cdef unsigned char* place = self.outbox.datagram(PROBE, 16)
        if place != NULL:
            memset(place, 0, 16)
            self.mark()
        return 0

    @property
    def by_datagrams(self):
        """True while values leave by datagrams."""
        return self.outbox.separate

    cdef int gather_datagrams(self, int port, iovec* frames, int limit) noexcept:
        return self.outbox.gather_datagrams(frames, limit)

    cdef void datagrams_written(self, int port, int count) noexcept:
        self.outbox.datagrams_written(count)

    # --- bytes out

    cdef int gather(self, int port, iovec* vectors, int limit) noexcept:
        self.outbox.now_ns = self.monotonic()
        return self.outbox.gather(vectors, limit)

    cdef void written(self, int port, Py_ssize_t count) noexcept:
        self.outbox.written(count)

    cdef int next_dirty(self) noexcept:
        if self.scheduled:
            self.scheduled = False
            self.datagrams_dirty = self.outbox.datagrams.head > self.outbox.datagrams.tail
            return 0
        if self.datagrams_dirty:
            self.datagrams_dirty = False
            return DATAGRAMS
        return -1
