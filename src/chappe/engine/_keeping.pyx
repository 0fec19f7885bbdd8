"""Events that are kept: those that would overtake older ones, and those that a lost neighbour never confirmed."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from chappe.engine._bytes cimport frame_size, get32, put32
from chappe.engine._events cimport Course, Held, Run
from chappe.engine._ports cimport (
    CLOSED,
    DROP_NO_WAY,
    DROP_WAITED,
    EVENT,
    EVENTS_OUT,
    HELD,
    HELD_EARLY,
    NOWHERE,
    OPEN,
    OF_TOPIC,
    RESCUED,
    ROUTED_OUT,
    UNROUTED,
    Port,
)
from chappe.engine._queue cimport Segment, count_add
from chappe.engine._topics cimport WAY
from chappe.engine._topics_names cimport topic_fault
from chappe.engine._ways cimport Ways

from chappe.engine.rescue import Rescued
from chappe.errors import ChappeError

cdef enum:
    HELD_LIMIT = 4194304           # bytes that wait, all courses together
    STRANDED_LIMIT = 8388608       # bytes without a way until somebody takes them
    STRANDED_EACH = 256            # what the object of an event takes besides its bytes
    TAKEN = 0                      # kind of a frame that was rescued: no other part of the engine looks at it

cdef uint8_t[8] CLASS_OF = [0, 1, 1, 2, 2, 3, 3, 3]


cdef class Keeping(Ways):
    def __cinit__(self):
        self.stranded_inbox = []

    def __dealloc__(self):
        cdef uint32_t i
        cdef Held* held
        for i in range(self.nholding):
            while self.holding[i].first != NULL:
                held = self.holding[i].first
                self.holding[i].first = held.next
                free(held)
        free(self.holding)

    # --- waiting until nothing older can be overtaken

    cdef bint keep_back(self, Port* p, Course* course, Run* run) noexcept:
        cdef uint32_t size = <uint32_t> (run.end - run.start)
        cdef Held* held = NULL
        if course.hold_until == 0:
            return False
        if self.mono_ns < course.hold_until and self.held_bytes + size <= HELD_LIMIT:
            held = self._new_held(course, size)
        if held == NULL:
            if self.mono_ns < course.hold_until:
                p.counters[HELD_EARLY] += course.nheld + run.count
            course.hold_until = 0
            self.send_held(course)
            return False
        held.next = NULL
        held.size = size
        held.count = run.count
        held.issuer = run.issuer
        held.cls = run.cls
        memcpy(held + 1, run.start, size)
        if course.first == NULL:
            course.first = held
            self.holding[self.nholding] = course
            self.nholding += 1
        else:
            course.last.next = held
        course.last = held
        course.nheld += run.count
        self.held_bytes += size
        p.counters[HELD] += run.count
        return True

    cdef Held* _new_held(self, Course* course, uint32_t size) noexcept:
        """Room for a run, and for its course in the list of those that hold some; NULL without memory."""
        cdef void* block
        if course.first == NULL and self.nholding == self.holding_room:
            block = self.resize_memory(self.holding, (self.holding_room * 2 + 16) * sizeof(Course*))
            if block == NULL:
                return NULL
            self.holding = <Course**> block
            self.holding_room = self.holding_room * 2 + 16
        return <Held*> self.resize_memory(NULL, sizeof(Held) + size)

    cdef void find_queued(self, uint64_t* topics, uint64_t* issuers) noexcept:
        cdef uint32_t i
        cdef Held* held
        Ways.find_queued(self, topics, issuers)
        for i in range(self.nholding):
            topics[self.holding[i].topic >> 6] |= <uint64_t> 1 << (self.holding[i].topic & 63)
            held = self.holding[i].first
            while held != NULL:
                issuers[held.issuer >> 6] |= <uint64_t> 1 << (held.issuer & 63)
                held = held.next

    cdef void free_held(self, Course* course) noexcept:
        cdef Held* held = course.first
        cdef Held* following
        while held != NULL:
            following = held.next
            self.held_bytes -= held.size
            self.give_memory(held)
            held = following
        course.first = course.last = NULL
        course.nheld = 0

    cdef int send_held(self, Course* course) except -1:
        """What waits goes out by the branches of now, in order."""
        cdef uint32_t i
        cdef Held* held = course.first
        if held == NULL:
            return 0
        if course.nbranches == 0 and not course.rest:
            self.past[DROP_NO_WAY if course.missing else UNROUTED] += course.nheld
            if course.missing:
                count_add(&self.address_counts, (<uint64_t> OF_TOPIC << 40) | (<uint64_t> DROP_NO_WAY << 32)
                          | course.topic, course.nheld)
        while held != NULL:
            self.send_branches(course, <uint8_t*> (held + 1), held.size, held.count, held.issuer, held.cls)
            if course.rest:
                self.strand(course, <uint8_t*> (held + 1), held.size, held.count)
            held = held.next
        self.free_held(course)
        for i in range(self.nholding):
            if self.holding[i] == course:
                self.nholding -= 1
                self.holding[i] = self.holding[self.nholding]
                break
        return 0

    def release_held(self):
        """Send on what waited long enough; how many events."""
        cdef uint32_t i = 0
        cdef uint64_t released = 0
        cdef Course* course
        while i < self.nholding:
            course = self.holding[i]
            if course.hold_until > self.mono_ns:
                i += 1
                continue
            if course.asked != self.topics.ways_stamp:
                self.ask(NULL, course)
                if course.hold_until > self.mono_ns:
                    i += 1
                    continue
            released += course.nheld
            self.send_held(course)
            course.hold_until = 0
        return released

    def held_ns(self):
        """Time until release_held has something to do (0 = now), -1 if nothing waits."""
        cdef uint32_t i
        cdef int64_t first = 0
        if self.nholding == 0:
            return -1
        for i in range(self.nholding):
            if i == 0 or self.holding[i].hold_until < first:
                first = self.holding[i].hold_until
        return max(first - self.mono_ns, 0)

    # --- what has no way now

    cdef void strand(self, Course* course, uint8_t* start, uint32_t size, uint32_t count) noexcept:
        cdef uint32_t position = 0, length
        cdef uint8_t* frame
        if self.stranded_bytes + size + count * STRANDED_EACH > STRANDED_LIMIT:
            self.count_lost(DROP_NO_WAY, course.topic, count)
            return
        self.stranded_bytes += size + count * STRANDED_EACH
        kind, name, _ = self.topics.name(course.topic)
        way = self.rests[course.place]
        while position < size:
            frame = start + position
            length = frame_size(frame)
            publisher, epoch = self.sessions[get32(frame + 8) & 0xFFFFFF]
            self.stranded_inbox.append(
                Rescued(publisher, epoch, get32(frame + 12), kind, name, way, (<char*> frame)[:length]))
            position += length
        if course.port >= 0:
            self.mark_onward(course.port, NOWHERE, CLASS_OF[start[8] & 7])

    def take_stranded(self):
        """Events for which there was no way, with the way of what could not be reached."""
        found = self.stranded_inbox
        if found:
            self.stranded_inbox = []
            self.stranded_bytes = 0
        return found

    def settled(self, int port=NOWHERE):
        """None of the events that were to go to that port, or by default of those without a way, is kept any more."""
        if port != NOWHERE or not self.stranded_inbox:
            self.drop_marks(port)

    def give_up(self, rescued, bint waited):
        """Count an event that nobody will send on any more: it waited for too long, or there was no room for it."""
        cdef bytes name = rescued.topic
        cdef int kind = ord(rescued.kind)
        cdef uint32_t number = 0
        self.topics.charging = 0
        if not topic_fault(name, len(name), kind, False):
            number = self.topics.intern(name, len(name), kind, 0)
        self.count_lost(DROP_WAITED if waited else DROP_NO_WAY, number, 1)

    cdef void count_lost(self, int reason, uint32_t topic, uint64_t amount) noexcept:
        self.past[reason] += amount
        count_add(&self.address_counts, (<uint64_t> OF_TOPIC << 40) | (<uint64_t> reason << 32) | topic, amount)

    # --- another way for what a neighbour lost

    def rescue(self, int port, int limit=1000):
        """Take up to `limit` events with a way, not confirmed by that peer, out of its queues; [] when none is left."""
        cdef Port* p = self.port_at(port)
        if p.state == OPEN:
            self.park_port(port)
        return [] if p.state == CLOSED or not p.peer else self._taken(port, p, limit)

    cdef list _taken(self, int port, Port* p, int limit):
        cdef int cls
        cdef Segment* segment
        cdef uint8_t* frame
        cdef uint32_t offset, length, number
        cdef uint64_t end
        cdef list found = []
        cdef dict names = {}
        for cls in range(4):
            segment = p.queues[cls].head
            while segment != NULL:
                offset = 0
                while offset < segment.size:
                    frame = segment.bytes + offset
                    length = frame_size(frame)
                    offset += length
                    end = segment.start + offset
                    if frame[0] != EVENT or end <= (p.queues[cls].released if p.retain else p.queues[cls].sent):
                        continue
                    number = get32(frame + 4)
                    if not self.topics.topics[number].group & WAY:
                        continue
                    if len(found) >= limit:
                        return found
                    if number not in names:
                        names[number] = (*self.topics.name(number)[:2], self.topics.way(number))
                    publisher, epoch = self.sessions[get32(frame + 8) & 0xFFFFFF]
                    found.append(Rescued(publisher, epoch, get32(frame + 12), *names[number], (<char*> frame)[:length],
                                         end <= p.queues[cls].received))
                    frame[0] = TAKEN
                    p.counters[RESCUED] += 1
                segment = segment.next
        return found

    def redirect(self, rescued, outputs):
        """Queue such an event for other branches under its own identity; for how many."""
        cdef bytes name = rescued.topic, publisher = rescued.issuer
        cdef bytearray copy = bytearray(rescued.frame)
        cdef uint8_t* frame = <uint8_t*> <char*> copy
        cdef uint32_t size = <uint32_t> len(copy), issuer, pair
        cdef int kind = ord(rescued.kind)
        cdef Port* q
        cdef uint64_t before
        if (size < 16 or frame[0] != EVENT or frame_size(frame) != size or len(publisher) != 16
                or topic_fault(name, len(name), kind, False)):
            raise ChappeError("redirect takes what rescue gave")
        issuer = self.issuer_number(publisher, rescued.epoch)
        self.topics.charging = 0
        frame[8] |= 0x20  # the neighbour may have passed it on before it was lost
        frame[9] = <uint8_t> (issuer >> 16)
        frame[10] = <uint8_t> (issuer >> 8)
        frame[11] = <uint8_t> issuer
        queued = 0
        for target, way in outputs[1]:
            pair = 0
            if 0 <= target < self.ntable and self.usable(target) and 0 < len(way) <= 0xFFFF:
                pair = self.pair_number(name, <uint32_t> len(name), kind, way)
            if pair == 0:
                self.past[DROP_NO_WAY] += 1
                continue
            q = self.table[<int> target]
            if pair >= q.topics_words * 64 or not (q.topics_out[pair >> 6] >> (pair & 63)) & 1:
                self.define_topic(target, q, pair)
            put32(frame + 4, pair)
            before = q.counters[EVENTS_OUT]
            self.put_events(target, q, CLASS_OF[frame[8] & 7], frame, size, 1, issuer, pair, False)
            q.counters[ROUTED_OUT] += q.counters[EVENTS_OUT] - before
            queued += q.counters[EVENTS_OUT] - before
            self.move_marks(target, CLASS_OF[frame[8] & 7])
        self.release_issuer(issuer)
        return queued
