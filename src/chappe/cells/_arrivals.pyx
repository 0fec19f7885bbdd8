"""The receiving end of a flow: parcels in, messages and acknowledgements out.

Parcels that arrive before others wait in a bounded buffer. What has arrived counts against the room that the sender
was told of, until somebody takes it: a slow reader stops the sender. Nothing that arrives twice is delivered twice.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.string cimport memcpy

from chappe.cells._frames cimport ACK, BEGINNING, FIRST, HEAD, LAST, OVERHEAD, WINDOW, put_head
from chappe.engine._bytes cimport put32, put64

from chappe.cells._frames import encode_names
from chappe.errors import LinkError

cdef enum:
    ACK_VERSION = 1
    ACK_HEAD = 27
    RANGES = 32
    TOGETHER = 65536         # bytes that are acknowledged at once
    LARGE = 1048576          # a message of more is handed over before all of it has arrived

cdef int64_t NEVER_NS = 1 << 62
cdef int64_t SOON_NS = 5_000_000

NEVER = NEVER_NS
LARGE_BYTES = LARGE


cdef class Incoming:
    """A message that arrives: complete, or a large one whose pieces come one by one."""

    def __init__(self, ReceiveFlow flow, str source, str destination, bytes body=None):
        """body: all of it, of a message without a flow."""
        self.flow = flow
        self.source, self.destination = source, destination
        self.chunks = []
        if body is not None:
            self.chunks.append(body)
            self.size = len(body)
            self.complete = True

    cdef int add(self, bytes chunk, int64_t cost) except -1:
        self.size += PyBytes_GET_SIZE(chunk)
        self.cost += cost
        self.chunks.append(chunk)
        if self.skipped:
            self.take()
        return 0

    cdef int cut_off(self, object failure) except -1:
        """The rest of it does not come."""
        self.failure = failure
        self.take()
        if self.notify is not None:
            self.notify()
        return 0

    def take(self):
        """The pieces that have come and were not taken; their room is free again."""
        chunks, self.chunks = self.chunks, []
        if self.flow is not None:
            self.flow.free(self.cost)
        self.cost = 0
        return chunks

    def skip(self):
        """Nobody wants the rest of it."""
        self.skipped = True
        self.take()

    @property
    def waiting(self):
        """Whether there are pieces to take."""
        return len(self.chunks) > 0


cdef class ReceiveFlow:
    """What one sender sends from one name to another; see the module."""

    def __cinit__(self):
        self.ring = NULL

    def __init__(self, uint64_t id, str source not None, str destination not None, *, int64_t limit=8 << 20):
        """limit: bytes that wait to be taken, with 64 for each parcel."""
        if limit < BEGINNING:
            raise ValueError(f"a flow may begin with {BEGINNING} bytes, there must be room for them: limit is {limit}")
        self.id = id
        self.source, self.destination = source, destination
        self.names, self.to_size = encode_names(destination, source)
        self.limit = limit
        self.room = self.room_said = BEGINNING
        self.ack_at_ns = NEVER_NS
        self.published = []
        self.grown = []

    def __dealloc__(self):
        cdef int64_t at
        for at in range(self.capacity):
            if self.ring[at].body != NULL:
                Py_DECREF(<object> self.ring[at].body)
        PyMem_RawFree(self.ring)

    def go_on(self, int64_t following, int64_t taken):
        """Continue a flow that was forgotten while nothing of it was here; see `place`."""
        self.following = self.highest = following
        self.taken = taken
        self.room = self.room_said = taken + BEGINNING

    @property
    def place(self):
        """(next sequence, offset): what `go_on` needs; only while it is `idle`."""
        return self.following, self.taken

    @property
    def begun(self):
        """Whether its first parcel has come: a flow that does not begin is one of before this receiver."""
        return self.following > 0

    @property
    def idle(self):
        """Whether nothing of it is here: no piece of a message, and nothing to say."""
        return self.held == 0 and self.current is None and self.ack_at_ns == NEVER_NS

    def resize(self, int64_t limit):
        """Another bound; what the sender was told before stays true."""
        self.limit = max(limit, BEGINNING)

    # --- parcels in

    cdef int arrive(self, int64_t sequence, int flags, const unsigned char* body, Py_ssize_t size, int64_t now_ns,
                    bint crowded) except -1:
        """Take in a parcel; 1: it was new, 0: it was here before, or has no room (`crowded`: nor have others)."""
        cdef int64_t cost = size + OVERHEAD
        cdef bint ahead = sequence > self.following
        cdef bytes piece
        if self.opened_ns == 0:
            self.opened_ns = now_ns
        self.active_ns = now_ns
        if sequence < self.following or (ahead and sequence < self.highest and self.capacity
                                         and self.ring[sequence & (self.capacity - 1)].body != NULL):
            self.duplicates += 1
            self.ack_at_ns = now_ns
            return 0
        if crowded or sequence - self.following >= WINDOW or self.held + cost > self.room - self.taken:
            self.overflows += 1
            self.ack_at_ns = min(self.ack_at_ns, now_ns + SOON_NS)
            return 0
        self.newest = sequence
        self.newest_ns = now_ns
        self.highest = max(self.highest, sequence + 1)
        self.held += cost
        self.unsaid += cost
        piece = PyBytes_FromStringAndSize(<const char*> body, size)
        if ahead:
            self.hold(sequence, flags, piece)
        else:
            self.following += 1
            self.deliver(flags, piece)
            if self.capacity:
                self.release()
        if self.unsaid >= TOGETHER or (flags & LAST and self.following == self.highest):
            self.ack_at_ns = now_ns
        else:
            self.ack_at_ns = min(self.ack_at_ns, now_ns + SOON_NS)
        return 1

    def receive(self, int64_t sequence, int flags, bytes body not None, int64_t now_ns, bint crowded=False):
        """Take in a parcel; False: it was here before, or has no room."""
        return self.arrive(sequence, flags, <const unsigned char*> PyBytes_AS_STRING(body), len(body), now_ns,
                           crowded) == 1

    cdef int hold(self, int64_t sequence, int flags, bytes body) except -1:
        """Keep a parcel until those before it have come."""
        cdef int64_t capacity = max(64, self.capacity), at
        cdef Held* ring
        cdef Held* place
        while sequence - self.following >= capacity:
            capacity *= 2
        if capacity > self.capacity:
            ring = <Held*> PyMem_RawCalloc(capacity, sizeof(Held))
            if ring == NULL:
                raise MemoryError("no memory to bring the parcels of a flow in order")
            for at in range(self.capacity):
                if self.ring[at].body != NULL:
                    # its sequence is the one of these in the window of the old ring
                    ring[(self.following + ((at - self.following) & (self.capacity - 1))) & (capacity - 1)] = (
                        self.ring[at])
            PyMem_RawFree(self.ring)
            self.ring = ring
            self.capacity = capacity
        place = &self.ring[sequence & (self.capacity - 1)]
        Py_INCREF(body)
        place.body = <PyObject*> body
        place.flags = flags
        return 0

    cdef int release(self) except -1:
        """Deliver what had waited for the parcel that came now."""
        cdef Held* place
        cdef bytes body
        while self.following < self.highest:
            place = &self.ring[self.following & (self.capacity - 1)]
            if place.body == NULL:
                return 0
            body = <bytes> place.body
            Py_DECREF(body)
            place.body = NULL
            self.following += 1
            self.deliver(place.flags, body)
        PyMem_RawFree(self.ring)
        self.ring = NULL
        self.capacity = 0
        return 0

    cdef int deliver(self, int flags, bytes body) except -1:
        """The next parcel in order."""
        cdef int64_t cost = PyBytes_GET_SIZE(body) + OVERHEAD
        cdef Incoming message = self.current
        if flags & FIRST:
            if message is not None:
                message.cut_off(LinkError(f"{self.source!r} gave this message up before its end"))
                self.current = message = None
            if flags & LAST or PyBytes_GET_SIZE(body):
                self.current = message = Incoming(self, self.source, self.destination)
        elif message is None:
            self.invalid += 1
        if message is None:
            return self.free(cost)
        message.add(body, cost)
        if flags & LAST:
            message.complete = True
            self.current = None
        if message.published:
            self.grown.append(message)
        elif message.complete or message.size > LARGE:
            message.published = True
            self.published.append(message)
        return 0

    def take_messages(self):
        """(messages that begin here, those of before that have more): since it was last asked."""
        published, self.published = self.published, []
        grown, self.grown = self.grown, []
        return published, grown

    def end(self, failure):
        """Nobody reads any more: what has not come of a message does not come."""
        if self.current is not None:
            self.current.cut_off(failure)
            self.current = None

    # --- room

    cdef int64_t offer(self) noexcept:
        """How far into the flow the sender may send now; never less than it was told before."""
        return max(self.room, self.taken + self.limit)

    cdef int free(self, int64_t cost) except -1:
        """Something was taken."""
        if cost == 0:
            return 0
        self.held -= cost
        self.taken += cost
        if self.offer() - self.room_said >= self.limit // 4:
            self.ack_at_ns = 0
            if self.on_room is not None:
                self.on_room(self)
        return 0

    # --- acknowledgements

    cdef bytes acknowledge(self, int64_t now_ns):
        """The frame of an acknowledgement; nothing more is due after it."""
        cdef unsigned char ranges[8 * RANGES]
        cdef int count = 0
        cdef int64_t sequence, begin = -1
        cdef bytes frame
        cdef unsigned char* place
        cdef Py_ssize_t size
        if self.capacity:
            for sequence in range(self.following, self.highest + 1):
                if sequence < self.highest and self.ring[sequence & (self.capacity - 1)].body != NULL:
                    if begin < 0:
                        begin = sequence
                elif begin >= 0:
                    put32(ranges + 8 * count, <uint32_t> begin)
                    put32(ranges + 8 * count + 4, <uint32_t> sequence)
                    begin = -1
                    count += 1
                    if count == RANGES:
                        break
        self.room = self.room_said = self.offer()
        self.ack_at_ns = NEVER_NS
        self.unsaid = 0
        size = HEAD + PyBytes_GET_SIZE(self.names)
        frame = PyBytes_FromStringAndSize(NULL, size + ACK_HEAD + 8 * count)
        place = <unsigned char*> PyBytes_AS_STRING(frame)
        put_head(place, size - 4 + ACK_HEAD + 8 * count, ACK | FIRST | LAST, self.names, self.to_size, self.id, 0)
        place += size
        place[0] = ACK_VERSION
        place[1] = 0
        put32(place + 2, <uint32_t> self.following)
        put64(place + 6, <uint64_t> self.room)
        put32(place + 14, <uint32_t> self.newest)
        put64(place + 18, <uint64_t> self.newest_ns)
        place[26] = count
        memcpy(place + ACK_HEAD, ranges, 8 * count)
        return frame

    def acknowledgement(self, int64_t now_ns):
        """The frame of an acknowledgement, if one is due; else None."""
        return self.acknowledge(now_ns) if self.ack_at_ns <= now_ns else None


def answer(uint64_t flow, str source not None, str destination not None, int flags, str text=""):
    """The frame of an acknowledgement that says only why: RESET (1) or REFUSED (2), to who sends at `destination`."""
    names, to_size = encode_names(source, destination)
    cdef bytes reason = text.encode()[:512]
    cdef Py_ssize_t head = HEAD + len(names)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, head + ACK_HEAD + len(reason))
    cdef unsigned char* place = <unsigned char*> PyBytes_AS_STRING(frame)
    put_head(place, len(frame) - 4, ACK | FIRST | LAST, names, to_size, flow, 0)
    for index in range(ACK_HEAD):
        place[head + index] = 0
    place[head] = ACK_VERSION
    place[head + 1] = flags
    memcpy(place + head + ACK_HEAD, PyBytes_AS_STRING(reason), len(reason))
    return frame
