"""Ports of an engine: what is put into their queues, in four classes, bounded, counted.

Everything per message here works on runs: the input side hands over whole runs of frames or records for one port.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from chappe.engine._bytes cimport frame_size, get32, put32, put_header, record_size
from chappe.engine._memory cimport MemoryBudget, memory_give, memory_resize, raise_no_memory, resize_or_raise
from chappe.engine._queue cimport (
    SEGMENT_BYTES,
    Segment,
    count_add,
    count_clear,
    count_init,
    count_take,
    pool_admits,
    pool_clear,
    queue_clear,
    queue_put,
    queue_put_status,
    queue_reserve,
)
from chappe.engine._topics cimport ROUTED_TOPIC, Topic, TopicTable
from chappe.engine._topics_hash cimport hash_pair

from chappe.errors import ChappeError, ProtocolError

NAMES = (
    "bytes_in", "frames_in", "status_in", "events_in", "parcels_in", "probes_in", "control_in",
    "bytes_out", "status_out", "events_out", "control_out", "filtered", "conflated", "resent", "unrouted",
    "routed_in", "routed_out", "held", "held_early", "rerouted", "route_errors", "trains_in", "trains_out",
    "parcels_out", "parcels_returned", "parcel_questions", "throttled", "bad_frames",
    "drop_unknown", "drop_not_in_mode", "drop_not_permitted", "drop_duplicate", "drop_stale", "drop_future",
    "drop_expired", "drop_no_room", "drop_queue_full", "drop_no_memory", "drop_closed", "drop_no_route",
    "drop_waited", "drop_incapable", "drop_bad_parcel", "drop_hops", "drop_credit", "drop_blocked", "released_early",
)  # fmt: skip

cdef enum:
    STREAM_FRAME = 16384           # largest STATUS frame a stream port packs
    DATAGRAM_FRAME = 1400          # largest STATUS frame a datagram port packs, unless one record is larger
    PENDING_COST = 32              # of keeping the newest record of one variable, besides its bytes
    PENDING_IDLE = 65536           # bytes of records that a conflating port keeps the memory of
    SHORTEST_EVENT = 16


cdef void _free_port(Port* p) noexcept:
    """The end of an engine, whose memory may not be counted any more: what counts it may be gone already."""
    cdef int cls
    cdef uint32_t i
    cdef Segment* segment
    cdef Segment* following
    for cls in range(4):
        segment = p.queues[cls].head
        while segment != NULL:
            following = segment.next
            free(segment)
            segment = following
        free(p.passing[cls].marks)
    for i in range(p.pending_capacity):
        free(p.pending[i].record)
    free(p.pending)
    free(p.pending_index)
    free(p.carry)
    free(p.aliases)
    free(p.issuers_in)
    free(p.topics_out)
    free(p.issuers_out)
    free(p.waiting)
    free(p.onward)
    free(p.refused)
    free(p)


cdef int fault(Port* p, str reason) except -1:
    p.failed = True
    p.counters[BAD_FRAMES] += 1
    raise ProtocolError(reason)


@cython.final
cdef class Ports:
    """The ports by number, what waits in their queues, and what was dropped."""

    def __cinit__(self, MemoryBudget budget not None, TopicTable topics not None, Issuers issuers not None, seed,
                  account_bytes):
        self.budget = budget
        self.memory = &budget.memory
        self.topics = topics
        self.issuers = issuers
        self.seed = seed
        self.pool.keep = 256
        self.pool.memory = self.memory
        self.pool.account_limit = account_bytes
        if count_init(&self.address_counts, self.memory, 1 << 21, self.seed) < 0:
            raise_no_memory(self.memory, "an empty engine")

    def __dealloc__(self):
        cdef int port
        for port in range(self.ntable):
            if self.table[port] != NULL:
                _free_port(self.table[port])
        free(self.table)
        free(self.dirty_ports)
        free(self.starved_ports)
        free(self.topic_full)
        pool_clear(&self.pool)
        count_clear(&self.address_counts)

    cdef Port* port_at(self, int port) except NULL:
        if port < 0 or port >= self.ntable or self.table[port] == NULL or self.table[port].state == FREE:
            raise ChappeError(f"there is no port {port}")
        return self.table[port]

    cdef int new_port(self) except -1:
        """A free number with a zeroed Port."""
        cdef int port, cls, known = self.ntable
        cdef bint dirty
        cdef Port* p
        for port in range(self.ntable):
            if self.table[port] != NULL and self.table[port].state == FREE:
                break
        else:
            # one after the other: each is larger than needed at worst
            port = self.ntable
            self.dirty_ports = <int*> resize_or_raise(self.memory, self.dirty_ports, (port + 1) * sizeof(int))
            self.starved_ports = <int*> resize_or_raise(self.memory, self.starved_ports, (port + 1) * sizeof(int))
            self.table = <Port**> resize_or_raise(self.memory, self.table, (port + 1) * sizeof(Port*))
            self.table[port] = <Port*> resize_or_raise(self.memory, NULL, sizeof(Port))
            self.ntable = port + 1
        p = self.table[port]
        dirty = port < known and p.dirty  # it is still in the list of those
        memset(p, 0, sizeof(Port))
        p.dirty = dirty
        for cls in range(4):
            p.queues[cls].holding = &p.holding
        p.data_port = p.partner = p.sticky = -1
        p.last_heard = self.clocks.mono_ns
        p.tokens_at = self.clocks.mono_ns
        return port

    cdef void release(self, Port* p) noexcept:
        """Give back everything a port holds."""
        cdef int cls
        for cls in range(4):
            queue_clear(&self.pool, &p.queues[cls])
        p.npending = 0
        self.clear_pending(p)
        memory_give(self.memory, p.pending)
        memory_give(self.memory, p.pending_index)
        memory_give(self.memory, p.carry)
        memory_give(self.memory, p.aliases)
        memory_give(self.memory, p.issuers_in)
        memory_give(self.memory, p.topics_out)
        memory_give(self.memory, p.issuers_out)
        memory_give(self.memory, p.waiting)
        memory_give(self.memory, p.onward)
        memory_give(self.memory, p.refused)
        for cls in range(4):
            memory_give(self.memory, p.passing[cls].marks)

    cdef int next_dirty(self) noexcept:
        cdef int port
        while self.ndirty:
            self.ndirty -= 1
            port = self.dirty_ports[self.ndirty]
            self.table[port].dirty = False
            if self.table[port].state == OPEN:
                return port
        return -1

    cdef void forget_topic(self, uint32_t number) noexcept:
        """The number gets another meaning."""
        cdef int port
        self.forget_topic_drops(number)
        for port in range(self.ntable):
            if knows_topic(self.table[port], number):
                self.table[port].topics_out[number >> 6] &= ~(<uint64_t> 1 << (number & 63))

    cdef void forget_issuer(self, uint32_t number) noexcept:
        cdef int port
        cdef Port* p
        for port in range(self.ntable):
            p = self.table[port]
            if known(p.issuers_out, p.issuers_words, number):
                p.issuers_out[number >> 6] &= ~(<uint64_t> 1 << (number & 63))

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

    # --- drops

    cdef void count_drop(self, Port* p, int reason, int kind, uint32_t address, uint64_t amount) noexcept:
        cdef uint64_t key = (<uint64_t> kind << 40) | (<uint64_t> reason << 32) | address
        p.counters[reason] += amount
        if reason == DROP_UNKNOWN and self.address_counts.used >= self.address_counts.limit // 2:
            key = 1  # strangers choose these numbers: they must not take the place of all others
        if kind == OF_TOPIC and reason == DROP_QUEUE_FULL:
            self._count_full(address, amount)
        else:
            count_add(&self.address_counts, key, amount)

    cdef void _count_full(self, uint32_t topic, uint64_t amount) noexcept:
        """A stuck subscriber makes millions of these a second: an array costs the others less than a hash."""
        cdef uint32_t capacity
        cdef void* block
        if topic >= self.ntopic_full:
            capacity = max(topic + 1, self.ntopic_full * 2)
            block = memory_resize(self.memory, self.topic_full, capacity * sizeof(uint64_t))
            if block == NULL:
                count_add(&self.address_counts, 1, amount)
                return
            self.topic_full = <uint64_t*> block
            memset(self.topic_full + self.ntopic_full, 0, (capacity - self.ntopic_full) * sizeof(uint64_t))
            self.ntopic_full = capacity
        self.topic_full[topic] += amount

    cdef void forget_topic_drops(self, uint32_t topic) noexcept:
        """The number gets another meaning: what was dropped under it is counted for topics that are gone (number 0)."""
        cdef int reason
        cdef uint64_t key, count
        for reason in range(DROP_UNKNOWN, COUNTERS):
            key = (<uint64_t> OF_TOPIC << 40) | (<uint64_t> reason << 32)
            count = count_take(&self.address_counts, key | topic)
            if count:
                count_add(&self.address_counts, key, count)
        if topic < self.ntopic_full and self.topic_full[topic]:
            self._count_full(0, self.topic_full[topic])
            self.topic_full[topic] = 0

    cdef void _drop_run(self, Port* p, int reason, const uint8_t* frames, uint32_t size) noexcept:
        """Count every EVENT frame of a run as dropped."""
        cdef uint32_t position = 0
        while position < size:
            self._drop_event(p, reason, frames + position)
            position += frame_size(frames + position)

    cdef void _drop_all(self, Port* p, const uint8_t* run, uint32_t size, uint32_t count, uint32_t topic) noexcept:
        """A queue that takes nothing at all loses a whole run."""
        cdef uint32_t position = 0
        if topic:
            self._count_full(topic, count)
            position = size
        while position < size:
            topic = get32(run + position + 4)
            if topic < self.ntopic_full:
                self.topic_full[topic] += 1
            else:
                self._count_full(topic, 1)
            position += frame_size(run + position)
        self._dropped(p, count)

    cdef void _dropped(self, Port* p, uint32_t count) noexcept:
        """So many EVENT frames of a run found no room."""
        p.counters[DROP_QUEUE_FULL] += count
        p.lost_events += count

    cdef void _put_each(self, Port* p, int cls, const uint8_t* run, uint32_t size) noexcept:
        """What fits of a run: the loop that a stuck subscriber, whose queue has a little room, costs the others."""
        cdef uint32_t position = 0, length, topic, dropped = 0
        while position < size:
            length = frame_size(run + position)
            if not has_room(p, cls, length):
                topic = get32(run + position + 4)
                if topic < self.ntopic_full:
                    self.topic_full[topic] += 1
                else:
                    self._count_full(topic, 1)
                dropped += 1
            elif queue_put(&self.pool, &p.queues[cls], run + position, length) == 0:
                p.counters[EVENTS_OUT] += 1
            else:
                self._drop_event(p, DROP_NO_MEMORY, run + position)
            position += length
        if dropped:
            self._dropped(p, dropped)

    cdef void _drop_event(self, Port* p, int reason, const uint8_t* frame) noexcept:
        self.count_drop(p, reason, OF_TOPIC, get32(frame + 4), 1)
        p.lost_events += 1

    cdef void _drop_status(self, Port* p, int reason, const uint8_t* record) noexcept:
        self.count_drop(p, reason, OF_VARIABLE, get32(record + 8), 1)
        p.lost_status += 1

    # --- putting frames into queues

    cdef int put_frame(self, int port, Port* p, int cls, const uint8_t* frame, uint32_t size, bint bounded) noexcept:
        """0, or the counter of the reason why not, negative."""
        if p.state != OPEN and p.state != PARKED:
            return -DROP_CLOSED
        if bounded and not has_room(p, cls, size):
            return -DROP_QUEUE_FULL
        if queue_put(&self.pool, &p.queues[cls], frame, size) < 0:
            return -DROP_NO_MEMORY
        mark_dirty(self, port, p)
        return 0

    cdef void put_events(self, int port, Port* p, int cls, const uint8_t* run, uint32_t size, uint32_t count,
                         uint32_t issuer, uint32_t topic, bint unbounded) noexcept:
        """A run of EVENT frames of one issuer (and one topic, if not 0) for one port; what does not fit is dropped."""
        if p.state != OPEN and p.state != PARKED:
            self._drop_run(p, DROP_CLOSED, run, size)
            return
        if not known(p.issuers_out, p.issuers_words, issuer):
            self.define_issuer(port, p, issuer)
        if p.starved:
            # the other side may not know this number: nothing may go out before its definition can
            self._drop_run(p, p.starved, run, size)
            return
        if unbounded or has_room(p, cls, size):
            if queue_put(&self.pool, &p.queues[cls], run, size) < 0:
                self._drop_run(p, DROP_NO_MEMORY, run, size)
                return
            p.counters[EVENTS_OUT] += count
        elif not has_room(p, cls, SHORTEST_EVENT):
            self._drop_all(p, run, size, count, topic)
        else:
            self._put_each(p, cls, run, size)
        p.queues[cls].keep = p.queues[cls].enqueued
        mark_dirty(self, port, p)

    cdef void put_status(self, int port, Port* p, int cls, const uint8_t* records, uint32_t size,
                         uint32_t count) noexcept:
        """A run of records for one port; a datagram port beside it carries them if there is one."""
        cdef uint32_t position = 0, length, frame_limit, done
        if p.data_port >= 0 and self.table[p.data_port].state == OPEN:
            port = p.data_port
            p = self.table[port]
        if p.state != OPEN:
            while position < size:
                self._drop_status(p, DROP_CLOSED, records + position)
                position += record_size(records + position)
            return
        if p.conflate and cls != 0:
            while position < size:
                length = record_size(records + position)
                self._conflate(p, records + position, length)
                position += length
            mark_dirty(self, port, p)
            return
        frame_limit = DATAGRAM_FRAME if p.datagram else STREAM_FRAME
        if has_room(p, cls, size + 4 * <uint64_t> count):
            done = queue_put_status(&self.pool, &p.queues[cls], records, size, count, p.packing, frame_limit)
            if done == size:
                p.counters[STATUS_OUT] += count
            else:
                while position < size:
                    if position < done:
                        p.counters[STATUS_OUT] += 1
                    else:
                        self._drop_status(p, DROP_NO_MEMORY, records + position)
                    position += record_size(records + position)
        else:
            while position < size:
                length = record_size(records + position)
                if not has_room(p, cls, length + 4):
                    self._drop_status(p, DROP_QUEUE_FULL, records + position)
                elif queue_put_status(&self.pool, &p.queues[cls], records + position, length, 1, p.packing,
                                      frame_limit) == length:
                    p.counters[STATUS_OUT] += 1
                else:
                    self._drop_status(p, DROP_NO_MEMORY, records + position)
                position += length
        mark_dirty(self, port, p)

    # --- conflation: newest value of a variable wins

    cdef void _conflate(self, Port* p, const uint8_t* record, uint32_t size) noexcept:
        cdef uint32_t variable = get32(record + 8)
        cdef uint32_t mask, place
        cdef uint64_t before
        cdef Pending* slot
        cdef void* block
        if (p.npending + 1) * 2 > p.index_capacity and not self._grow_pending(p):
            self._drop_status(p, DROP_NO_MEMORY, record)
            return
        mask = p.index_capacity - 1
        place = hash_pair(self.seed, variable, 0) & mask
        while p.pending_index[place] and p.pending[p.pending_index[place] - 1].variable != variable:
            place = (place + 1) & mask
        slot = &p.pending[p.pending_index[place] - 1 if p.pending_index[place] else p.npending]
        before = PENDING_COST + slot.size if p.pending_index[place] else 0
        if p.pending_bytes - before + PENDING_COST + size > p.limit:
            self._drop_status(p, DROP_QUEUE_FULL, record)
            return
        if slot.capacity < size or slot.capacity > 4 * size:
            block = memory_resize(self.memory, slot.record, size)
            if block == NULL:
                self._drop_status(p, DROP_NO_MEMORY, record)
                return
            slot.record = <uint8_t*> block
            slot.capacity = size
        if p.pending_index[place]:
            p.counters[CONFLATED] += 1
        else:
            p.npending += 1
            p.pending_index[place] = p.npending
            slot.variable = variable
        memcpy(slot.record, record, size)
        slot.size = size
        p.pending_bytes += PENDING_COST + size - before

    cdef bint _grow_pending(self, Port* p) noexcept:
        """Room for twice as many; False without memory."""
        cdef uint32_t capacity = p.index_capacity * 2 if p.index_capacity else 64
        cdef uint32_t place, i
        cdef void* block = memory_resize(self.memory, p.pending, (capacity // 2 + 1) * sizeof(Pending))
        if block == NULL:
            return False
        p.pending = <Pending*> block
        if capacity // 2 + 1 > p.pending_capacity:
            memset(&p.pending[p.pending_capacity], 0, (capacity // 2 + 1 - p.pending_capacity) * sizeof(Pending))
            p.pending_capacity = capacity // 2 + 1
        block = memory_resize(self.memory, p.pending_index, capacity * sizeof(uint32_t))
        if block == NULL:
            return False
        p.pending_index = <uint32_t*> block
        memset(p.pending_index, 0, capacity * sizeof(uint32_t))
        p.index_capacity = capacity
        for i in range(p.npending):
            place = hash_pair(self.seed, p.pending[i].variable, 0) & (capacity - 1)
            while p.pending_index[place]:
                place = (place + 1) & (capacity - 1)
            p.pending_index[place] = i + 1
        return True

    cdef void _flush_pending(self, Port* p) noexcept:
        """Move conflated records to the queue once everything before them was written."""
        cdef uint32_t i, moved = 0
        if p.queues[2].sent != p.queues[2].enqueued:
            return
        for i in range(p.npending):
            if queue_put_status(&self.pool, &p.queues[2], p.pending[i].record, p.pending[i].size, 1, p.packing,
                                DATAGRAM_FRAME if p.datagram else STREAM_FRAME) == 0:
                break
            moved += 1
        p.counters[STATUS_OUT] += moved
        if moved < p.npending:
            self._keep_pending(p, moved)
            return
        p.npending = 0
        memset(p.pending_index, 0, p.index_capacity * sizeof(uint32_t))
        if p.pending_bytes > PENDING_IDLE:
            self.clear_pending(p)
        p.pending_bytes = 0

    cdef void _keep_pending(self, Port* p, uint32_t moved) noexcept:
        """There was memory for the first ones only: the others stay the newest of their variables."""
        cdef uint32_t i, place, mask = p.index_capacity - 1
        cdef Pending swap
        memset(p.pending_index, 0, p.index_capacity * sizeof(uint32_t))
        p.npending -= moved
        p.pending_bytes = 0
        for i in range(p.npending):
            swap = p.pending[i]
            p.pending[i] = p.pending[i + moved]
            p.pending[i + moved] = swap
            p.pending_bytes += PENDING_COST + p.pending[i].size
            place = hash_pair(self.seed, p.pending[i].variable, 0) & mask
            while p.pending_index[place]:
                place = (place + 1) & mask
            p.pending_index[place] = i + 1

    cdef void clear_pending(self, Port* p) noexcept:
        """Give back the memory of records that do not wait."""
        cdef uint32_t i
        for i in range(p.npending, p.pending_capacity):
            memory_give(self.memory, p.pending[i].record)
            p.pending[i].record = NULL
            p.pending[i].capacity = 0

    # --- definitions

    cdef bint define_topic(self, int port, Port* p, uint32_t number) noexcept:
        """Tell the other side what this number means, once; False if that found no room and events may not follow."""
        cdef uint32_t size
        cdef uint8_t* frame
        cdef uint64_t* words
        cdef Topic* topic = &self.topics.topics[number]
        cdef bytes group = b""
        cdef bint routed = (topic.group & ROUTED_TOPIC) != 0
        words = self._known_words(p.topics_out, &p.topics_words, number)
        if words == NULL:
            self.starve(port, p, DROP_NO_MEMORY)
            return False
        p.topics_out = words
        if p.state == OPEN or p.state == PARKED:
            if routed:
                group = self.topics.source_route(number)
            elif topic.group:
                group = self.topics.name(number)[2].encode()
            size = (12 if routed else 10) + <uint32_t> len(group) + topic.length
            frame = self._definition(port, p, size)
            if frame == NULL:
                return False
            put_header(frame, ROUTE if routed else TOPIC, size - 4)
            put32(frame + 4, number)
            frame[8] = topic.kind
            frame[9] = 0 if routed else <uint8_t> len(group)
            if routed:
                frame[10] = <uint8_t> (len(group) >> 8)
                frame[11] = <uint8_t> len(group)
            memcpy(frame + size - topic.length - len(group), <const char*> group, len(group))
            memcpy(frame + size - topic.length, topic.name, topic.length)
        p.topics_out[number >> 6] |= <uint64_t> 1 << (number & 63)
        return True

    cdef bint define_issuer(self, int port, Port* p, uint32_t number) noexcept:
        cdef uint8_t* frame
        cdef bytes session
        cdef uint64_t* words = self._known_words(p.issuers_out, &p.issuers_words, number)
        if words == NULL:
            self.starve(port, p, DROP_NO_MEMORY)
            return False
        p.issuers_out = words
        frame = self._definition(port, p, 28)
        if frame == NULL:
            return False
        session = self.issuers.sessions[number][0]
        put_header(frame, ISSUER, 24)
        put32(frame + 4, number)
        put32(frame + 8, self.issuers.sessions[number][1])
        memcpy(frame + 12, <const char*> session, 16)
        p.issuers_out[number >> 6] |= <uint64_t> 1 << (number & 63)
        return True

    cdef uint64_t* _known_words(self, uint64_t* known, uint32_t* words, uint32_t number) noexcept:
        """The bits of the numbers that the other side knows, with one for this number; NULL without memory."""
        cdef uint32_t more
        cdef void* block
        if number < words[0] * 64:
            return known
        more = max(words[0] * 2, (number >> 6) + 1)
        block = memory_resize(self.memory, known, more * sizeof(uint64_t))
        if block != NULL:
            memset(<uint64_t*> block + words[0], 0, (more - words[0]) * sizeof(uint64_t))
            words[0] = more
        return <uint64_t*> block

    cdef uint8_t* _definition(self, int port, Port* p, uint32_t size) noexcept:
        """Room in class 0, within its bound; NULL: the port is starved."""
        cdef uint8_t* frame = NULL
        if not self.pool.forced and not has_room(p, 0, size):
            self.starve(port, p, DROP_QUEUE_FULL)
            return NULL
        frame = queue_reserve(&self.pool, &p.queues[0], size)
        if frame == NULL:
            self.starve(port, p, DROP_NO_MEMORY)
        else:
            mark_dirty(self, port, p)
        return frame

    cdef void starve(self, int port, Port* p, int reason) noexcept:
        if not p.starved:
            self.starved_ports[self.nstarved] = port
            self.nstarved += 1
        p.starved = reason

    cdef void feed_starved(self) noexcept:
        """Ports that have room for definitions again take events again; called before a buffer is looked at."""
        cdef int i = 0
        cdef Port* p
        while i < self.nstarved:
            p = self.table[self.starved_ports[i]]
            if (p.state == OPEN or p.state == PARKED) and (
                    not has_room(p, 0, p.limit // 2) or not pool_admits(&self.pool, &p.holding, SEGMENT_BYTES)):
                i += 1
                continue
            p.starved = 0
            self.nstarved -= 1
            self.starved_ports[i] = self.starved_ports[self.nstarved]
            if p.peer:
                self.topics.forwarding_changed()  # those whose definitions failed count as missing

    cdef void forget_starved(self, int port) noexcept:
        cdef int i
        for i in range(self.nstarved):
            if self.starved_ports[i] == port:
                self.nstarved -= 1
                self.starved_ports[i] = self.starved_ports[self.nstarved]
                return
