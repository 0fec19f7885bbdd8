"""The sending end of a flow: messages in, parcels out, acknowledgements in.

Messages are cut into parcels when there is room for one. A parcel is kept until it is confirmed, and sent again when
one that was sent later has arrived and it is older than parcels usually need by any path, or when nothing has been
confirmed for long. Times are nanoseconds of any clock that goes forward; nothing here reads one.

A flow delivers each message exactly once and in order while its receiver lives. A receiver that was started anew does
not know the flow (RESET): then it begins again under another number, and every message that was not confirmed whole is
sent once more, though the receiver may have had it: at least once over a restart of the receiver.
"""

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.string cimport memcpy

from chappe.cells._frames cimport BEGINNING, FIRST, HEAD, LAST, OVERHEAD, put_head, WINDOW
from chappe.cells._outgoing cimport Outgoing
from chappe.engine._bytes cimport get32, get64

from chappe.cells._frames import encode_names
from chappe.errors import ProtocolError, RefusedError, UnreachableError

cdef enum:
    ACK_VERSION = 1
    RESET = 1                # flags of acknowledgements
    REFUSED = 2
    UNREACHABLE = 4
    ACK_HEAD = 27
    RANGES = 32
    FLYING = 0               # states of parcels
    ARRIVED = 1
    LOST = 2
    RENEWALS = 8             # beginnings anew without anything confirmed between them, before it fails
    TIMEOUTS = 4             # after so many without progress nothing counts as arrived that is not confirmed in order

cdef int64_t LAST_SEQUENCE = 0xFFFFFFFF
cdef int64_t NEVER_NS = 1 << 62
cdef int64_t MS = 1_000_000
cdef int64_t SECOND = 1_000_000_000
cdef int64_t CHECK_NS = 200 * MS
cdef int64_t FIRST_NS = 500 * MS             # until something is sent again that nobody has answered
cdef int64_t SILENCE_NS = 30 * SECOND       # of a receiver that was heard before
cdef int64_t LONGEST_NS = 10 * SECOND       # until something is sent again

NEVER = NEVER_NS
PARCEL_BYTES = 32768
LIMIT = 16 << 20


cdef class SendFlow:
    """From one name to another, over as many paths as cells choose; see the module."""

    def __cinit__(self):
        self.capacity = 0
        self.ring = NULL

    def __init__(self, str source not None, str destination not None, draw, *, Py_ssize_t parcel_bytes=32768,
                 int64_t limit=16 << 20, int64_t patience_ns=5_000_000_000):
        """`draw()`: a number nobody guesses. limit: bytes that are not confirmed; patience_ns: for a first word."""
        if not 1 <= parcel_bytes <= 1 << 20 or limit < parcel_bytes + OVERHEAD:
            raise ValueError(f"parcels of {parcel_bytes} bytes do not fit into {limit} bytes or the frames of nodes")
        self.source, self.destination = source, destination
        self.names, self.to_size = encode_names(source, destination)
        self.draw = draw
        self.parcel_bytes = parcel_bytes
        self.limit = limit
        self.patience_ns = patience_ns
        self.waiting = deque()
        self.finished = []
        self.id = draw()
        self.room = self.credit = BEGINNING
        self.chosen = -1

    def __dealloc__(self):
        while self.acked < self.cut:
            self.pop()
        PyMem_RawFree(self.ring)

    # --- messages

    def send(self, Outgoing message not None):
        """The next message; the owner asks for parcels afterwards, and after every `add`."""
        if self.failure is not None:
            raise self.failure
        self.waiting.append(message)

    def cancel(self, Outgoing message not None):
        """Nobody waits for it any more: the receiver gets all of it or nothing."""
        if message.over:
            return
        message.cancelled = True
        message.chunks.clear()
        message.place = message.start = 0
        if not message.begun and message in self.waiting:
            self.waiting.remove(message)

    def fail(self, failure):
        """Every message ends with this error, and nothing is sent any more; those messages."""
        cdef Outgoing message
        cdef Sent* parcel
        if self.failure is not None:
            return []
        self.failure = failure
        ended = []
        while self.acked < self.cut:
            parcel = self.parcel(self.acked)
            message = <Outgoing> parcel.message
            if not message.over:
                message.failure = failure
                ended.append(message)
            self.pop()
        self.flying = self.lost = 0
        for message in self.waiting:
            if not message.over:
                message.failure = failure
                ended.append(message)
        self.waiting.clear()
        return ended

    def take_finished(self):
        """Messages that have arrived since it was last asked."""
        finished, self.finished = self.finished, []
        return finished

    @property
    def idle(self):
        """Whether nothing is to be sent or confirmed."""
        return self.acked == self.cut and not self.waiting

    @property
    def unconfirmed(self):
        """Bytes that were sent and are not confirmed in order, with the overhead of their parcels."""
        return self.offset - self.base

    @property
    def sequence(self):
        """Of the next new parcel."""
        return self.cut

    @property
    def reach(self):
        """How far into the flow it may send."""
        return min(self.room, self.base + self.limit)

    @property
    def sent_to(self):
        """How far into the flow it has sent."""
        return self.offset

    # --- parcels out

    cdef Sent* parcel(self, int64_t sequence) noexcept:
        return &self.ring[sequence & (self.capacity - 1)]

    cdef int grow(self) except -1:
        cdef int64_t capacity = max(64, 2 * self.capacity), sequence
        cdef Sent* ring = <Sent*> PyMem_RawMalloc(capacity * sizeof(Sent))
        if ring == NULL:
            raise MemoryError("no memory for the window of a flow")
        for sequence in range(self.acked, self.cut):
            ring[sequence & (capacity - 1)] = self.parcel(sequence)[0]
        PyMem_RawFree(self.ring)
        self.ring = ring
        self.capacity = capacity
        return 0

    cdef void pop(self):
        """Forget the oldest parcel."""
        cdef Sent* parcel = self.parcel(self.acked)
        self.base = parcel.end
        self.acked += 1
        Py_DECREF(<object> parcel.message)
        Py_DECREF(<object> parcel.chunk)
        if self.acked == self.cut and self.capacity > 1024:
            PyMem_RawFree(self.ring)
            self.ring = NULL
            self.capacity = 0

    cdef bint wants(self) noexcept:
        return self.flying > 0 or self.lost > 0 or len(self.waiting) > 0

    cdef Py_ssize_t prepare(self, int64_t now_ns) except -1:
        """Size of the frame that leaves next, which `write` writes; 0: nothing may leave now."""
        cdef Py_ssize_t size
        self.chosen = -1
        if self.failure is not None or self.paused:
            return 0
        if self.acked == self.cut and self.cut >= LAST_SEQUENCE:
            self.renew()
        if self.probing:
            size = HEAD + PyBytes_GET_SIZE(self.names)
            if self.spent + size > self.credit:
                return 0
            self.chosen = self.acked - 1
            return size
        if self.lost == 0:
            return self.prepare_new(now_ns)
        while self.parcel(self.lost_from).state != LOST:
            self.lost_from += 1
        size = HEAD + PyBytes_GET_SIZE(self.names) + self.parcel(self.lost_from).size
        if self.spent + size > self.credit:
            return 0
        self.chosen = self.lost_from
        return size

    cdef Py_ssize_t prepare_new(self, int64_t now_ns) except -1:
        cdef Outgoing message
        cdef Py_ssize_t size = 0
        while True:
            if not self.waiting or self.cut >= LAST_SEQUENCE or self.cut - self.acked >= WINDOW:
                return 0
            message = <Outgoing> self.waiting[0]
            if not message.cancelled or message.begun:
                break
            self.waiting.popleft()
        if not message.has_piece():
            return 0
        if message.place < len(message.chunks):
            size = min(self.parcel_bytes, PyBytes_GET_SIZE(<bytes> message.chunks[message.place]) - message.start)
        if self.offset + size + OVERHEAD > min(self.room, self.base + self.limit):
            if not self.starved:
                self.starved = True
                self.starved_ns = self.outstanding_ns = now_ns
                self.probes = 0
            return 0
        self.starved = False
        if self.spent + HEAD + PyBytes_GET_SIZE(self.names) + size > self.credit:
            return 0
        self.chosen = self.cut
        return HEAD + PyBytes_GET_SIZE(self.names) + size

    cdef int write(self, unsigned char* place, int64_t now_ns) except -1:
        """Write the frame that `prepare` chose, into as many bytes as it said."""
        cdef Sent* parcel
        cdef Py_ssize_t names = PyBytes_GET_SIZE(self.names)
        cdef int64_t sequence = self.chosen
        self.active_ns = now_ns
        if self.flying == 0:
            self.progress_ns = now_ns
            if self.lost == 0 and not self.probing:
                self.outstanding_ns = now_ns
        if self.probing:
            self.probing = False
            self.spent += HEAD + names
            put_head(place, HEAD - 4 + names, 0, self.names, self.to_size, self.id,
                     <uint32_t> sequence)
            return 0
        if sequence == self.cut:
            return self.write_new(place, now_ns)
        parcel = self.parcel(sequence)
        parcel.state = FLYING
        parcel.copies = min(255, parcel.copies + 1)
        parcel.sent_ns = now_ns
        self.lost -= 1
        self.flying += 1
        self.resent += 1
        self.spent += HEAD + names + parcel.size
        put_head(place, HEAD - 4 + names + parcel.size, parcel.flags, self.names, self.to_size,
                 self.id, <uint32_t> sequence)
        memcpy(place + HEAD + names, PyBytes_AS_STRING(<bytes> parcel.chunk) + parcel.start, parcel.size)
        return 0

    cdef int write_new(self, unsigned char* place, int64_t now_ns) except -1:
        cdef Outgoing message = <Outgoing> self.waiting[0]
        cdef Py_ssize_t names = PyBytes_GET_SIZE(self.names)
        cdef bytes chunk = b""
        cdef Sent* parcel
        cdef int flags
        if self.cut - self.acked == self.capacity:
            self.grow()
        parcel = self.parcel(self.cut)
        parcel.start = message.start
        parcel.size = 0
        flags = 0 if message.begun and not message.cancelled else FIRST
        if message.place < len(message.chunks):
            chunk = <bytes> message.chunks[message.place]
            parcel.size = <uint32_t> min(self.parcel_bytes, PyBytes_GET_SIZE(chunk) - message.start)
            message.start += parcel.size
            if message.start == PyBytes_GET_SIZE(chunk):
                message.start = 0
                if message.whole:
                    message.place += 1
                else:
                    message.chunks.pop(0)
        if message.ended and message.place == len(message.chunks) and not message.cancelled:
            flags |= LAST
        message.begun = True
        if flags & LAST or message.cancelled:  # one that has begun ends with an empty FIRST: nothing of it counts
            self.waiting.popleft()
        Py_INCREF(message)
        parcel.message = <PyObject*> message
        Py_INCREF(chunk)
        parcel.chunk = <PyObject*> chunk
        parcel.flags = flags
        parcel.state = FLYING
        parcel.copies = 1
        parcel.sent_ns = now_ns
        self.offset += parcel.size + OVERHEAD
        parcel.end = self.offset
        self.cut += 1
        self.flying += 1
        self.spent += HEAD + names + parcel.size
        put_head(place, HEAD - 4 + names + parcel.size, flags, self.names, self.to_size, self.id,
                 <uint32_t> (self.cut - 1))
        memcpy(place + HEAD + names, PyBytes_AS_STRING(chunk) + parcel.start, parcel.size)
        return 0

    def take(self, int64_t now_ns, Py_ssize_t limit=1 << 20):
        """The frames that may leave now, of about `limit` bytes together."""
        cdef Py_ssize_t size, total = 0
        cdef bytes frame
        frames = []
        while total < limit:
            size = self.prepare(now_ns)
            if size == 0:
                break
            frame = PyBytes_FromStringAndSize(NULL, size)
            self.write(<unsigned char*> PyBytes_AS_STRING(frame), now_ns)
            frames.append(frame)
            total += size
        return frames

    # --- what comes back

    def grant(self, uint64_t credit):
        """The node takes so many bytes of frames of this flow, all of this connection together."""
        if credit > self.credit:
            self.credit = credit

    def acknowledge(self, bytes body not None, int64_t now_ns):
        """Take in an acknowledgement; ProtocolError if it says what cannot be, and nothing has changed then."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(body), at
        cdef const unsigned char* data = <const unsigned char*> PyBytes_AS_STRING(body)
        cdef int flags, count, index
        cdef int64_t following, newest, begin, end, before, sequence
        cdef uint64_t room
        cdef Sent* parcel
        if size < ACK_HEAD or data[0] != ACK_VERSION:
            raise ProtocolError(f"an acknowledgement of {size} bytes, version {data[0] if size else 0}")
        flags, count = data[1], data[26]
        following, room, newest = get32(data + 2), get64(data + 6), get32(data + 14)
        at = ACK_HEAD + 8 * count
        if flags & ~(RESET | REFUSED | UNREACHABLE) or count > RANGES or size < at:
            raise ProtocolError(f"an acknowledgement with flags 0x{flags:02x} and {count} ranges in {size} bytes")
        if self.failure is not None:
            return
        if flags & (REFUSED | UNREACHABLE):
            self.refuse(flags, body[at:].decode("utf-8", "replace"))
            return
        if flags & RESET:
            self.begin_anew()
            return
        if following > self.cut:
            raise ProtocolError(f"{following} parcels are confirmed, {self.cut} were sent")
        before = following
        for index in range(count):
            begin, end = get32(data + ACK_HEAD + 8 * index), get32(data + ACK_HEAD + 8 * index + 4)
            if not before <= begin < end <= self.cut:
                raise ProtocolError(f"parcels {begin} to {end} behind {before} are confirmed, {self.cut} were sent")
            before = end
        self.heard = True
        self.heard_ns = self.active_ns = now_ns
        if self.acked <= newest < self.cut:
            parcel = self.parcel(newest)
            if parcel.state == FLYING and parcel.copies == 1:
                self.sample(now_ns - parcel.sent_ns)
        while self.acked < following:
            parcel = self.parcel(self.acked)
            self.arrived(parcel, now_ns)
            if parcel.flags & LAST:
                self.finish(<Outgoing> parcel.message)
            self.pop()
            self.fruitless = 0
        for index in range(count):
            begin, end = get32(data + ACK_HEAD + 8 * index), get32(data + ACK_HEAD + 8 * index + 4)
            for sequence in range(max(begin, self.acked), end):
                self.arrived(self.parcel(sequence), now_ns)
        self.lost_from = max(self.lost_from, self.acked)
        if room < <uint64_t> NEVER_NS and <int64_t> room > self.room:
            self.room = <int64_t> room
            self.probes = 0
        self.detect(now_ns)

    def refuse(self, int flags, str text not None):
        """The receiver or a cell says that nothing gets through."""
        if flags & REFUSED:
            self.failure_of(RefusedError(f"{self.destination!r}: {text or 'nobody there takes messages'}", "denied"))
        else:
            self.failure_of(UnreachableError(f"{self.destination!r} cannot be reached: {text or 'no route to it'}"))

    def failure_of(self, failure):
        """Fail, with the messages among the finished."""
        self.finished += self.fail(failure)

    def begin_anew(self):
        """The receiver does not know this flow."""
        self.fruitless += 1
        if self.fruitless > RENEWALS:
            self.failure_of(RefusedError(f"{self.destination!r} forgets every flow that begins to it", "unavailable"))
        else:
            self.renewed += 1
            self.renew()

    def finish(self, Outgoing message not None):
        """All of it has arrived."""
        if not message.over:
            message.done = True
            self.finished.append(message)

    cdef int renew(self) except -1:
        """Another flow, which begins with the messages that were not confirmed whole."""
        cdef Outgoing message
        cdef Sent* parcel
        waiting = deque()
        while self.acked < self.cut:
            parcel = self.parcel(self.acked)
            message = <Outgoing> parcel.message
            if not message.over and not (waiting and waiting[len(waiting) - 1] is message):
                waiting.append(message)
            self.pop()
        for message in self.waiting:
            if not message.over and not (waiting and waiting[len(waiting) - 1] is message):
                waiting.append(message)
        for message in waiting:  # of one that is cut in part all may be confirmed
            message.rewind()
            if message.restarted:
                self.finished.append(message)
        self.waiting = waiting
        self.id = self.draw()
        self.acked = self.cut = self.flying = self.lost = self.lost_from = self.base = self.offset = 0
        self.room = self.credit = BEGINNING
        self.spent = 0
        self.heard = self.probing = self.starved = False
        self.backoff = self.timeouts = 0
        self.latest_ns = 0
        return 0

    cdef void arrived(self, Sent* parcel, int64_t now_ns):
        """A parcel is at the receiver."""
        cdef Outgoing message = <Outgoing> parcel.message
        if parcel.state == ARRIVED:
            return
        if parcel.state == LOST:
            self.lost -= 1
        else:
            self.flying -= 1
        parcel.state = ARRIVED
        message.confirmed += parcel.size
        self.progress_ns = now_ns
        self.backoff = self.timeouts = 0
        if parcel.copies == 1 or now_ns - parcel.sent_ns >= self.least_ns:
            self.latest_ns = max(self.latest_ns, parcel.sent_ns)

    # --- time

    cdef void sample(self, int64_t rtt_ns) noexcept:
        """How long a parcel took to be acknowledged, by whichever path."""
        cdef int64_t difference
        rtt_ns = max(rtt_ns, 1)
        if self.rtt_ns == 0:
            self.rtt_ns = self.peak_ns = self.least_ns = rtt_ns
            self.deviation_ns = rtt_ns // 2
            return
        difference = rtt_ns - self.rtt_ns
        self.rtt_ns += difference // 8
        self.deviation_ns += ((difference if difference > 0 else -difference) - self.deviation_ns) // 4
        self.peak_ns = max(rtt_ns, self.peak_ns - self.peak_ns // 64)
        self.least_ns = min(rtt_ns, self.least_ns)

    cdef int64_t patience(self) noexcept:
        """The age at which a parcel is lost if one that was sent later has arrived."""
        if self.rtt_ns == 0:
            return SECOND
        return min(LONGEST_NS, max(self.rtt_ns + 4 * self.deviation_ns, self.peak_ns + self.peak_ns // 4) + 10 * MS)

    cdef int64_t timeout(self) noexcept:
        """How long nothing may be confirmed before the oldest parcel is sent again."""
        if not self.heard:
            return FIRST_NS
        return min(LONGEST_NS, max(200 * MS, self.patience()) << min(self.backoff, 6))

    cdef void lose(self, int64_t sequence) noexcept:
        """A parcel that was on its way is to be sent again."""
        self.parcel(sequence).state = LOST
        self.flying -= 1
        self.lost_from = sequence if self.lost == 0 else min(self.lost_from, sequence)
        self.lost += 1

    cdef void detect(self, int64_t now_ns) noexcept:
        """Find the parcels that must have been lost."""
        cdef int64_t sequence, patience = self.patience()
        cdef Sent* parcel
        for sequence in range(self.acked, self.cut):
            parcel = self.parcel(sequence)
            if parcel.state != FLYING:
                continue
            if parcel.sent_ns < self.latest_ns and now_ns - parcel.sent_ns >= patience:
                self.lose(sequence)
            elif parcel.copies == 1:
                return  # all that follow were sent later, or again

    cdef void expire(self) noexcept:
        """Nothing was confirmed for long: try with the oldest; what a receiver may have forgotten is lost, too."""
        cdef int64_t sequence
        cdef Sent* parcel
        cdef Outgoing message
        self.backoff += 1
        self.timeouts += 1
        if self.parcel(self.acked).state == FLYING:
            self.lose(self.acked)
        if self.timeouts < TIMEOUTS:
            return
        for sequence in range(self.acked, self.cut):
            parcel = self.parcel(sequence)
            if parcel.state == ARRIVED:
                message = <Outgoing> parcel.message
                message.confirmed -= parcel.size
                self.flying += 1
                self.lose(sequence)

    def tick(self, int64_t now_ns):
        """Find what was lost, and end what waits for too long."""
        if self.failure is not None or self.paused:
            return
        silence = now_ns - max(self.heard_ns, self.outstanding_ns)
        if (self.flying or self.lost or self.starved) and silence >= (SILENCE_NS if self.heard else self.patience_ns):
            self.failure_of(UnreachableError(
                f"{self.destination!r} has not answered for {silence / 1e9:.1f} s: nobody there has that name, or "
                "no path works; `chappe cell names` lists the names that are known"
            ))
            return
        self.detect(now_ns)
        if self.flying and now_ns - self.progress_ns >= self.timeout():
            self.expire()
            self.progress_ns = now_ns
        elif self.starved and not self.flying and not self.lost and self.acked:
            if now_ns - self.starved_ns >= min(5 * SECOND, (500 * MS) << min(self.probes, 6)):
                self.starved_ns = now_ns
                self.probes += 1
                self.probing = True

    def next_tick(self, int64_t now_ns):
        """When to call `tick`; it may be called sooner."""
        if self.failure is not None or self.paused or not self.wants():
            return NEVER
        if self.flying == 0:
            return now_ns + CHECK_NS
        return max(now_ns + MS, min(self.progress_ns + self.timeout(), now_ns + CHECK_NS))

    def pause(self):
        """The connection to the node is gone."""
        self.paused = True

    def resume(self, int64_t now_ns):
        """Another connection to a node: what was on its way may have been lost with the last one."""
        self.paused = False
        self.credit = BEGINNING
        self.spent = 0
        self.heard_ns = self.outstanding_ns = self.progress_ns = now_ns
        self.backoff = self.timeouts = 0
        if self.flying and self.parcel(self.acked).state == FLYING:
            self.lose(self.acked)
