"""Events on their way: who issued them, whether they are repeats, who gets them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from chappe.engine._bytes cimport frame_size, get32, get64, put32
from chappe.engine._ports cimport BAD_FRAMES, EVENT, OPEN, UNROUTED, Port
from chappe.engine._queue cimport Segment
from chappe.engine._topics cimport GroupRef, Route

from chappe.errors import ChappeError, ProtocolError

cdef int64_t RECYCLE_PAUSE_NS = 100_000_000


cdef class Events(Output):
    def __cinit__(self):
        self.issuer_numbers = {}
        self.idle_issuers = {}
        self.spare_issuers = []
        self.swept_issuers = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.nissuers):
            free(self.issuers[i].window)
        free(self.issuers)
        free(self.defined)

    cdef int fault(self, int port, Port* p, str reason) except -1:
        """The one place where bad bytes end."""
        p.failed = True
        p.counters[BAD_FRAMES] += 1
        raise ProtocolError(reason)

    cdef bint repeated(self, Issuer* issuer, uint32_t sequence, bint peer) noexcept:
        """Whether this sequence was seen before; remembers it."""
        cdef int32_t ahead = <int32_t> (sequence - issuer.last)
        cdef uint32_t i
        cdef bint first = not issuer.seen
        if first:
            issuer.seen = True
            issuer.last = sequence
            ahead = 0
            if not peer and not issuer.peered:
                return False
        elif not issuer.peered and not peer:
            if ahead <= 0:
                return True
            issuer.last = sequence
            return False
        if not issuer.peered:
            issuer.peered = True
            # a client's own port takes sequences in order, so everything before the last one was seen there
            memset(issuer.window, 0 if first else 0xFF, WINDOW // 8)
            if first:
                issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
                return False
        if ahead > 0:
            if ahead >= WINDOW:
                memset(issuer.window, 0, WINDOW // 8)
            else:
                for i in range(issuer.last + 1, issuer.last + <uint32_t> ahead):
                    issuer.window[(i % WINDOW) >> 6] &= ~(<uint64_t> 1 << (i & 63))
            issuer.last = sequence
        elif ahead <= -WINDOW:
            return True
        elif (issuer.window[(sequence % WINDOW) >> 6] >> (sequence & 63)) & 1:
            return True
        issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
        return False

    cdef int extension_verdict(self, const uint8_t* body, uint32_t size) noexcept:
        cdef uint32_t length, position = 2, item
        cdef int verdict = KEEP
        if size < 2:
            return MALFORMED
        length = 2 + ((<uint32_t> body[0] << 8) | body[1])
        if length > size:
            return MALFORMED
        while position < length:
            if length - position < 3:
                return MALFORMED
            item = (<uint32_t> body[position + 1] << 8) | body[position + 2]
            if item > length - position - 3:
                return MALFORMED
            if body[position] == 2:
                if item != 8:
                    return MALFORMED
                if <int64_t> get64(body + position + 3) < self.wall_ns:
                    verdict = EXPIRED
            position += 3 + item
        return verdict

    cdef void define_route(self, uint32_t number, Route* route) noexcept:
        """Make sure that every port of the route knows this topic number; one that has no room for it is starved."""
        cdef uint32_t capacity
        cdef int i
        cdef Port* p
        cdef void* block
        cdef bint known = True
        if number >= self.ndefined:
            capacity = max(number + 1, self.ndefined * 2)
            block = self.resize_memory(self.defined, capacity * sizeof(uint64_t))
            if block != NULL:
                self.defined = <uint64_t*> block
                memset(self.defined + self.ndefined, 0, (capacity - self.ndefined) * sizeof(uint64_t))
                self.ndefined = capacity
        for i in range(route.n):
            p = self.table[route.ports[i]]
            if number >= p.topics_words * 64 or not (p.topics_out[number >> 6] >> (number & 63)) & 1:
                known = self.define_topic(<int> route.ports[i], p, number) and known
        if known and number < self.ndefined:
            self.defined[number] = self.topics.stamp

    cdef void send_run(self, int arrival, Port* p, Run* run) noexcept:
        """Copy a run to every subscriber but the port it came from."""
        cdef Route* route = run.route
        cdef uint32_t size = <uint32_t> (run.end - run.start)
        cdef int i, b = 0
        cdef int port
        cdef bint held
        for i in range(route.n):
            port = <int> route.ports[i]
            held = b < route.nback and route.back[b] == <uint32_t> port
            if held:
                b += 1
            if port == arrival and p.peer:
                continue
            self.put_events(port, self.table[port], run.cls, run.start, size, run.count, run.issuer, run.topic,
                            held and p.window != 0)
            if held:
                self.hold(arrival, p, port, self.table[port])
        if route.ngroups:
            self.send_group(arrival, p, run)
        elif route.n == 0:
            p.counters[UNROUTED] += run.count
        run.count = 0

    cdef void send_group(self, int arrival, Port* p, Run* run) noexcept:
        """One member of each group gets the message: the next one in turn that has room."""
        cdef int g, step, tried, port
        cdef uint32_t turn, topic = get32(run.start + 4)
        cdef uint32_t size = <uint32_t> (run.end - run.start)
        cdef GroupRef* group
        cdef Port* member
        cdef bint held
        for g in range(run.route.ngroups):
            if run.allow != NULL and not run.allow[g]:
                continue
            group = &run.route.groups[g]
            turn = self.topics.cursors[group.group]
            port = -1
            tried = 0
            for step in range(group.n):
                tried = step
                port = <int> group.ports[(turn + <uint32_t> step) % <uint32_t> group.n]
                member = self.table[port]
                if (member.state == OPEN and (port != arrival or not p.peer)
                        and self.has_room(member, run.cls, size)):
                    break
            self.topics.cursors[group.group] = turn + <uint32_t> tried + 1
            member = self.table[port]
            if (group.pair >= member.topics_words * 64
                    or not (member.topics_out[group.pair >> 6] >> (group.pair & 63)) & 1):
                self.define_topic(port, member, group.pair)
            held = False
            for step in range(group.nback):
                held = held or group.back[step] == <uint32_t> port
            put32(run.start + 4, group.pair)
            self.put_events(port, member, run.cls, run.start, size, 1, run.issuer, group.pair,
                            held and p.window != 0)
            put32(run.start + 4, topic)
            if held:
                self.hold(arrival, p, port, member)

    cdef int issuer_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t number, capacity, old, found
        if not p.peer:
            self.fault(port, p, "ISSUER from a client: a client publishes in its own name only")
        if size != 24:
            self.fault(port, p, f"ISSUER of {size} bytes instead of 24")
        number = get32(payload)
        if number >= 1 << 24 or number >= p.nissuers_in + (1 << 20):
            self.fault(port, p, f"issuer number {number} is out of range")
        if number >= p.nissuers_in:
            capacity = max(number + 1, p.nissuers_in * 2, <uint32_t> 16)
            p.issuers_in = <uint32_t*> self.take_memory(p.issuers_in, capacity * sizeof(uint32_t))
            memset(p.issuers_in + p.nissuers_in, 0, (capacity - p.nissuers_in) * sizeof(uint32_t))
            p.nissuers_in = capacity
        old = p.issuers_in[number]
        found = self.issuer_number(payload[8:24], get32(payload + 4))
        if self.issuers[found].window == NULL:
            try:
                self.issuers[found].window = <uint64_t*> self.take_memory(NULL, WINDOW // 8)
            except MemoryError:
                self.release_issuer(found)
                raise
        p.issuers_in[number] = found
        if old:
            self.release_issuer(old)
        return 0

    cdef uint32_t issuer_number(self, bytes issuer, uint32_t epoch) except 0:
        """Number of an issuer on this node, made if it is new; counts one more holder."""
        cdef tuple key = (issuer, epoch)
        cdef object found = self.issuer_numbers.get(key)
        cdef uint32_t number, capacity
        if found is None:
            if len(self.issuer_numbers) >= self.max_issuers:
                self.try_recycle()
            number = self.spare_issuers.pop() if self.spare_issuers else <uint32_t> len(self.sessions)
            if number >= 1 << 24:
                raise ChappeError("16 million issuers publish through this node at once; spread them over more nodes")
            if number >= self.nissuers:
                capacity = max(number + 1, self.nissuers * 2, <uint32_t> 16)
                self.issuers = <Issuer*> self.take_memory(self.issuers, capacity * sizeof(Issuer))
                memset(self.issuers + self.nissuers, 0, (capacity - self.nissuers) * sizeof(Issuer))
                self.nissuers = capacity
            if number == <uint32_t> len(self.sessions):
                self.sessions.append(key)
            else:
                self.sessions[number] = key
            self.issuer_numbers[key] = number
        else:
            number = found
            self.idle_issuers.pop(number, None)
        self.issuers[number].refs += 1
        return number

    cdef void release_issuer(self, uint32_t number):
        """One holder less; an issuer that nobody holds is remembered until its number is needed."""
        self.issuers[number].refs -= 1
        if self.issuers[number].refs == 0:
            self.idle_issuers[number] = None

    cdef void forget_course(self, uint32_t topic):
        """The number of a topic gets another meaning."""

    cdef bint may_recycle(self) noexcept:
        """Looking for free numbers costs as much as the tables are large: only when much was released, or now and then.

        So whoever asks for numbers that there are none of cannot keep the engine busy.
        """
        if self.topics.released > self.topics.used // 64 or self.mono_ns - self.recycled_at >= RECYCLE_PAUSE_NS:
            self.recycled_at = self.mono_ns
            return True
        return self.mono_ns == 0  # an engine that was told no time

    cdef int try_recycle(self) except -1:
        """Reuse numbers that nobody holds and nothing queued carries.

        A port that is stalled or down keeps the numbers in its queues from being reused, and no others.
        """
        cdef uint32_t number, topic_words = (self.topics.used >> 6) + 1, issuer_words = (self.nissuers >> 6) + 1
        cdef uint64_t* queued
        cdef int port
        cdef Port* p
        cdef list waiting = []
        if not self.may_recycle():
            return 0
        queued = <uint64_t*> self.resize_memory(NULL, (topic_words + issuer_words) * sizeof(uint64_t))
        if queued == NULL:
            return 0
        memset(queued, 0, (topic_words + issuer_words) * sizeof(uint64_t))
        try:
            self.topics.sweep()
            if len(self.issuer_numbers) >= self.max_issuers:
                # the longest idle ones, so that a client that comes back soon is still recognised
                for number in list(self.idle_issuers)[:len(self.idle_issuers) // 2 + 1]:
                    del self.idle_issuers[number]
                    del self.issuer_numbers[self.sessions[number]]
                    self.swept_issuers.append(number)
            self.find_queued(queued, queued + topic_words)
            for number in self.topics.recycle_unless(queued):
                self.forget_topic_drops(number)
                self.forget_course(number)
                for port in range(self.ntable):
                    p = self.table[port]
                    if number < p.topics_words * 64:
                        p.topics_out[number >> 6] &= ~(<uint64_t> 1 << (number & 63))
                if number < self.ndefined:
                    self.defined[number] = 0
            for number in self.swept_issuers:
                if (queued[topic_words + (number >> 6)] >> (number & 63)) & 1:
                    waiting.append(number)
                    continue
                for port in range(self.ntable):
                    p = self.table[port]
                    if number < p.issuers_words * 64:
                        p.issuers_out[number >> 6] &= ~(<uint64_t> 1 << (number & 63))
                self.give_memory(self.issuers[number].window)
                memset(&self.issuers[number], 0, sizeof(Issuer))
                self.sessions[number] = None
                self.spare_issuers.append(number)
            self.swept_issuers = waiting
        finally:
            self.give_memory(queued)
        return 0

    cdef void find_queued(self, uint64_t* topics, uint64_t* issuers) noexcept:
        """Set the bits of all topic and issuer numbers of events that are queued, or kept to be sent again."""
        cdef int port, cls
        cdef uint32_t number, offset
        cdef Segment* segment
        cdef uint8_t* frame
        for port in range(self.ntable):
            for cls in range(4):
                segment = self.table[port].queues[cls].head
                while segment != NULL:
                    offset = 0
                    while offset < segment.size:
                        frame = segment.bytes + offset
                        offset += frame_size(frame)
                        if frame[0] == EVENT:
                            number = get32(frame + 4)
                            topics[number >> 6] |= <uint64_t> 1 << (number & 63)
                            number = get32(frame + 8) & 0xFFFFFF
                            issuers[number >> 6] |= <uint64_t> 1 << (number & 63)
                    segment = segment.next
