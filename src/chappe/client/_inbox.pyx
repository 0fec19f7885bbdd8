"""Messages and the bounded queues they wait in.

A queued message is bytes in a segment and two references; the Message object and its body are made when they are taken,
and not at all when the queue is taken as Arrow.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from chappe.client._outbox cimport get64
from chappe.client._segments cimport bytes_of
from chappe.client._waiting cimport Steps

from chappe.client.columns import event_batch
from chappe.client.topics import pattern_text, public_topic
from chappe.wire.addresses import Address
from chappe.wire.events import Event

cdef enum:
    CREATED = 1
    CLOCK_SLACK_NS = 30_000_000  # clocks that NTP keeps agree about that well
    REPLY = 3                # tags of extension items
    CORRELATION = 4
    ORIGIN = 6
    EXT = 0x08
    DURABLE = 0x10
    RESENT = 0x20
    WINDOW = 4096

cdef Py_ssize_t batch_number = 0
cdef bytes last_reply = None      # most requests of a service come from few clients
cdef object last_reply_topic = None


cdef class TopicEntry:
    """What a topic number of the node stands for."""

    def __init__(self, name):
        self.topic = public_topic(name)
        self.kind = name.kind
        self.group = name.group
        self.text = str(name.name)


cdef class Window:
    """Which of the last 4,096 sequence numbers of an issuer have come."""

    cdef bint seen(self, uint32_t sequence, bint resent) noexcept:
        """True if it has come before; notes it. Older than the window: a repeat only if it is marked so."""
        cdef int32_t ahead = <int32_t> (sequence - self.highest)
        cdef uint32_t place
        cdef uint64_t bit = (<uint64_t> 1) << (sequence & 63)
        cdef uint64_t* word = &self.bits[(sequence & (WINDOW - 1)) >> 6]
        if not self.started:
            self.started = True
            self.highest = sequence
            word[0] |= bit
            return False
        if ahead > 0:
            if ahead >= WINDOW:
                memset(self.bits, 0, sizeof(self.bits))
            else:
                for place in range(self.highest + 1, sequence):
                    self.bits[(place & (WINDOW - 1)) >> 6] &= ~((<uint64_t> 1) << (place & 63))
            self.highest = sequence
            word[0] |= bit
            return False
        if ahead <= -WINDOW:
            return resent
        if word[0] & bit:
            return True
        word[0] |= bit
        return False


cdef class IssuerEntry:
    """Who publishes events, as the node named it."""

    def __init__(self, bytes issuer not None, uint32_t epoch):
        self.issuer = issuer
        self.epoch = epoch
        self.window = Window()
        self.groups = {}

    cdef bint repeated(self, str group, uint32_t sequence, bint resent) except -1:
        """True if this event has come before. A group may get two copies, for two patterns, unless one is a repeat."""
        cdef Window window
        if not self.issuer:
            return False
        if not group:
            return self.window.seen(sequence, resent)
        window = self.groups.get(group)
        if window is None:
            window = self.groups[group] = Window()
        return window.seen(sequence, resent) and resent


cdef const unsigned char* find(
    const unsigned char* items, Py_ssize_t end, int tag, Py_ssize_t* size
) noexcept:
    """Where the value of an item is, and its size; NULL if there is none."""
    cdef Py_ssize_t at = 0
    while end - at >= 3:
        size[0] = (<Py_ssize_t> items[at + 1] << 8) | items[at + 2]
        if size[0] > end - at - 3:
            return NULL
        if items[at] == tag:
            return items + at + 3
        at += 3 + size[0]
    return NULL


@cython.freelist(1024)
@cython.no_gc
@cython.final
cdef class Message:
    """One event: topic and body, and lazily what its extension says."""

    @property
    def topic(self):
        return self.entry.topic

    @property
    def issuer(self):
        """The 16 bytes that name who published it."""
        return self.source.issuer if self.source is not None else b""

    @property
    def epoch(self):
        return self.source.epoch if self.source is not None else 0

    @property
    def identifier(self):
        """(issuer, epoch, sequence): the same however often and by whichever path it arrives."""
        return self.issuer, self.epoch, self.sequence

    @property
    def priority(self):
        return self.flags & 7

    @property
    def durable(self):
        """True if its publisher waits until an archive has stored it."""
        return bool(self.flags & DURABLE)

    @property
    def resent(self):
        return bool(self.flags & RESENT)

    @property
    def group(self):
        return self.entry.group

    def _items(self):
        if self.decoded is None:
            if self.extension is None:
                self.decoded = Event(0, 0)
            else:
                head = bytes((0, 0, 0, 0, EXT | 3, 0, 0, 0, 0, 0, 0, 0))
                self.decoded = Event.decode(head + len(self.extension).to_bytes(2, "big") + self.extension)
        return self.decoded

    @property
    def created(self):
        """When it was published, in ns since 1970 by the clock of its publisher's node; None if it does not say."""
        cdef bytes item = self.item(CREATED) if self.decoded is None else None
        if item is not None and len(item) == 8:
            return int.from_bytes(item, "big", signed=True)
        return self._items().created

    @property
    def expires(self):
        return self._items().expires

    @property
    def reply(self):
        """The topic where an answer is expected, or None."""
        global last_reply, last_reply_topic
        cdef bytes item = self.item(REPLY) if self.decoded is None else None
        if item is not None and item == last_reply:
            return last_reply_topic
        name = self._items().reply
        if name is None:
            return None
        last_reply_topic = public_topic(name)
        last_reply = item
        return last_reply_topic

    @property
    def correlation(self):
        cdef bytes item = self.item(CORRELATION) if self.decoded is None else None
        if item is not None and len(item) == 8:
            return int.from_bytes(item, "big")
        return self._items().correlation

    cdef bytes item(self, int tag):
        """The value of an item of the extension, read without the others; None if it is not there."""
        cdef const unsigned char* found = NULL
        cdef Py_ssize_t size = 0
        if self.extension is not None:
            found = find(<const unsigned char*> PyBytes_AS_STRING(self.extension), len(self.extension), tag, &size)
        return None if found == NULL else PyBytes_FromStringAndSize(<const char*> found, size)

    @property
    def origin(self):
        """Of a durable event: the address of its publisher's node, where archives confirm it; else None."""
        cdef bytes item = self.item(ORIGIN) if self.decoded is None else None
        if item is not None:
            try:
                return item.decode()
            except UnicodeDecodeError:
                pass  # said where all items are read
        return self._items().origin

    @property
    def content_type(self):
        return self._items().content_type

    @property
    def properties(self):
        return self._items().properties

    def respond(self, body, **options):
        """Answer a request; awaitable. ValueError if the sender expects no answer."""
        return self.subscription.owner.respond(self, body, **options)

    def __repr__(self):
        shown = self.body if len(self.body) <= 40 else self.body[:40] + b"..."
        return f"Message(topic={self.topic!r}, body={shown!r}, sequence={self.sequence})"


@cython.no_gc_clear  # __dealloc__ still needs the queue: a collector that empties this object first would crash there
cdef class Subscription(Waitable):
    """The messages of one topic pattern, in order, in a queue bounded by messages and bytes.

    A full queue drops the newest and counts it in `dropped`, or, if `blocking`, the client stops reading its socket.
    """

    def __init__(self, pattern, *, group="", backpressure=False, max_queue=65536, max_bytes=64 << 20, on_full=None):
        self.kind, self.pattern = pattern_text(pattern)
        if max_queue < 1 or max_bytes < 1:
            raise ValueError(f"a queue holds at least one message and one byte, not {max_queue} and {max_bytes}")
        if on_full is not None and on_full not in ("drop", "block"):
            raise ValueError(f"on_full is 'drop' or 'block', not {on_full!r}")
        if len(group.encode()) > 255:
            raise ValueError(f"a group name has at most 255 bytes, {group[:40]!r}... has {len(group.encode())}")
        self.group = group
        self.backpressure = backpressure
        self.blocking = backpressure if on_full is None else on_full == "block"
        self.max_queue = max_queue
        self.max_bytes = max_bytes
        self.queue = SegmentQueue(65536, 32)

    @property
    def address(self):
        """Of an inbox: the topic to give to others, as `reply` for example; None of other subscriptions."""
        return Address(self.pattern) if self.kind == "n" else None

    def __dealloc__(self):
        self.forget()

    cdef Py_ssize_t size(self) noexcept:
        return self.count

    cdef bint offer(self, TopicEntry topic, IssuerEntry issuer, uint32_t sequence, uint8_t flags,
                    const unsigned char* extension, Py_ssize_t extension_size,
                    const unsigned char* body, Py_ssize_t body_size) except -1:
        """Queue one message; False if it was dropped. A blocking queue takes it and asks for a pause."""
        cdef Py_ssize_t size = (sizeof(Record) + extension_size + body_size + 7) & ~7
        cdef Record* record
        cdef unsigned char* place
        if self.closed:
            return True
        if extension_size and self.since_ns and self.before(extension, extension_size):
            self.older += 1
            return True
        self.received += 1
        if self.count >= self.max_queue or self.queue.head - self.queue.tail + size > self.max_bytes:
            if not self.blocking:
                self.dropped += 1
                return False
            self.holding = True
        record = <Record*> self.queue.reserve(size)
        Py_INCREF(topic)
        record.topic = <PyObject*> topic
        Py_INCREF(issuer)
        record.issuer = <PyObject*> issuer
        record.size = <uint32_t> size
        record.sequence = sequence
        record.extension = <uint32_t> extension_size
        record.body = <uint32_t> body_size
        record.flags = flags
        place = <unsigned char*> (record + 1)
        if extension_size:
            memcpy(place, extension, extension_size)
        memcpy(place + extension_size, body, body_size)
        self.count += 1
        return True

    cdef bint before(self, const unsigned char* extension, Py_ssize_t size) noexcept:
        """Whether the event was made before this subscription, by more than clocks may differ.

        An event of a group goes to one member: what the others have asked for long ago is for this one, too.
        """
        cdef Py_ssize_t length = 0
        cdef const unsigned char* stamp = find(extension, size, CREATED, &length)
        if stamp == NULL or length != 8 or self.group:
            return False
        return <int64_t> get64(stamp) < self.since_ns - CLOCK_SLACK_NS

    cdef Record* front(self) noexcept:
        """The oldest record; only if there is one."""
        if self.segment == NULL or self.cursor >= self.segment.start + self.segment.used:
            self.queue.release(self.cursor)
            self.segment = self.queue.first
        return <Record*> (bytes_of(self.segment) + (self.cursor - self.segment.start))

    cdef void next(self, Record* record) noexcept:
        """Go past the record, whose references the caller has taken over."""
        self.cursor += record.size
        self.count -= 1
        if self.count == 0:
            self.segment = NULL
            self.queue.release(self.cursor)

    cdef Message pop(self):
        cdef Record* record = self.front()
        cdef Message message = Message.__new__(Message)
        cdef char* place = <char*> (record + 1)
        message.entry = <TopicEntry> record.topic
        message.source = <IssuerEntry> record.issuer
        Py_XDECREF(record.topic)
        Py_XDECREF(record.issuer)
        message.subscription = self
        message.sequence = record.sequence
        message.flags = record.flags
        if record.extension:
            message.extension = PyBytes_FromStringAndSize(place, record.extension)
        message.body = PyBytes_FromStringAndSize(place + record.extension, record.body)
        self.next(record)
        return message

    cdef list pop_list(self, Py_ssize_t limit):
        cdef list taken = []
        cdef Py_ssize_t _number
        for _number in range(min(limit, self.count)):
            taken.append(self.pop())
        return taken

    cdef object pop_arrow(self, Py_ssize_t limit):
        """A RecordBatch of the oldest messages, from buffers that are filled here without an object a row."""
        global batch_number
        cdef Py_ssize_t rows = min(limit, self.count), row, total = 0, at = 0
        cdef Record* record
        cdef Segment* segment
        cdef int64_t cursor
        cdef TopicEntry topic
        cdef IssuerEntry issuer
        cdef list topics = [], issuers = []
        self.front()
        segment = self.segment
        cursor = self.cursor
        for row in range(rows):
            if cursor >= segment.start + segment.used:
                segment = segment.next
            record = <Record*> (bytes_of(segment) + (cursor - segment.start))
            if row and total + record.body > 0x7FFFFFFF:
                rows = row
                break
            total += record.body
            cursor += record.size
        cdef bytes topic_column = PyBytes_FromStringAndSize(NULL, rows * 4)
        cdef bytes issuer_column = PyBytes_FromStringAndSize(NULL, rows * 4)
        cdef bytes sequence_column = PyBytes_FromStringAndSize(NULL, rows * 4)
        cdef bytes offset_column = PyBytes_FromStringAndSize(NULL, rows * 4 + 4)
        cdef bytes bodies = PyBytes_FromStringAndSize(NULL, total)
        cdef int32_t* topic_out = <int32_t*> PyBytes_AS_STRING(topic_column)
        cdef int32_t* issuer_out = <int32_t*> PyBytes_AS_STRING(issuer_column)
        cdef uint32_t* sequence_out = <uint32_t*> PyBytes_AS_STRING(sequence_column)
        cdef int32_t* offset_out = <int32_t*> PyBytes_AS_STRING(offset_column)
        cdef char* body_out = PyBytes_AS_STRING(bodies)
        batch_number += 1
        for row in range(rows):
            record = self.front()
            topic = <TopicEntry> record.topic
            if topic.mark != batch_number:
                topic.mark = batch_number
                topic.index = <int> len(topics)
                topics.append(topic.text)
            issuer = <IssuerEntry> record.issuer
            if issuer.mark != batch_number:
                issuer.mark = batch_number
                issuer.index = <int> len(issuers)
                issuers.append(issuer.issuer)
            topic_out[row] = topic.index
            issuer_out[row] = issuer.index
            sequence_out[row] = record.sequence
            offset_out[row] = <int32_t> at
            memcpy(body_out + at, <char*> (record + 1) + record.extension, record.body)
            at += record.body
            Py_XDECREF(record.topic)
            Py_XDECREF(record.issuer)
            self.next(record)
        offset_out[rows] = <int32_t> at
        return event_batch(rows, topics, topic_column, issuers, issuer_column, sequence_column, offset_column, bodies)

    cdef object take(self, int form, Py_ssize_t limit):
        if form == 0:
            taken = self.pop()
        elif form == 1:
            taken = self.pop_list(limit)
        else:
            taken = self.pop_arrow(limit)
        if self.holding:
            self.after_take()
        return taken

    cdef int after_take(self) except -1:
        if self.count <= self.max_queue // 2 and self.queue.head - self.queue.tail <= self.max_bytes // 2:
            self.holding = False
            if self.owner is not None:
                self.owner.subscription_has_room(self)
        return 0

    cdef void forget(self) noexcept:
        cdef Record* record
        while self.count:
            record = self.front()
            Py_XDECREF(record.topic)
            Py_XDECREF(record.issuer)
            self.next(record)

    def take_nowait(self, Py_ssize_t limit=65536):
        """What is queued now, as a list of at most `limit` messages; never waits."""
        return self.take(1, limit) if self.count else []

    def __aiter__(self):
        return Steps(self)

    def __anext__(self):
        return Steps(self)

    def batches(self, Py_ssize_t max=65536):
        """Iterate over lists of what has come, at most `max` messages each."""
        return Steps(self, 1, max)

    def arrow(self, Py_ssize_t max_rows=65536, double max_wait=0.0):
        """Iterate over RecordBatches; with `max_wait` seconds a batch waits that long for `max_rows`."""
        return Steps(self, 2, max_rows, max_wait)

    def unsubscribe(self):
        """Stop: what is queued can still be read. Awaitable."""
        return self.owner.unsubscribe(self)
