"""The engine: every frame of a buffer parsed, routed and filtered in one call.

The hot path rewrites topic and issuer numbers in the receive buffer and merges consecutive frames for the same
subscribers into runs, so that a run costs one copy a port.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from chappe.engine._ports cimport *
from chappe.engine._queue cimport RUN_BYTES, queue_clear
from chappe.engine._stack cimport iovec
from chappe.engine._status cimport FLOODED, FORWARD, PortList, StatusTable
from chappe.engine._topics cimport GroupRef, Route, Topic, TopicTable
from chappe.engine._topics_names cimport fault_text, topic_fault

from chappe.engine._ports import NAMES
from chappe.errors import ChappeError, ProtocolError

cdef enum:
    WINDOW = 4096              # sequences remembered per issuer between nodes
    NO_ROOM = 0xFFFFFFFE       # an input alias whose topic found no number
    MAX_CARRY_START = 512
    KEEP = 0
    EXPIRED = 1
    MALFORMED = 2

cdef uint8_t[8] CLASS_OF = [0, 1, 1, 2, 2, 3, 3, 3]


cdef inline uint32_t get32(const uint8_t* place) noexcept nogil:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]


cdef inline uint64_t get64(const uint8_t* place) noexcept nogil:
    return (<uint64_t> get32(place) << 32) | get32(place + 4)


cdef inline void put32(uint8_t* place, uint32_t value) noexcept nogil:
    place[0] = <uint8_t> (value >> 24)
    place[1] = <uint8_t> (value >> 16)
    place[2] = <uint8_t> (value >> 8)
    place[3] = <uint8_t> value


cdef inline bint known_kind(int kind) noexcept nogil:
    return (kind == EVENT or kind == STATUS or kind == TOPIC or kind == ISSUER or kind == PARCEL or kind == PROBE
            or kind == ECHO or kind == CONTROL or kind == LOSS or kind == CREDIT)


cdef class Engine(Ports):
    def __init__(self, *, str layout="sparse", bint edge=True, max_topics=1 << 20, authorize=None):
        self.status = StatusTable(layout=layout, edge=edge)
        self.topics = TopicTable(max_topics=max_topics)
        self.authorize = authorize
        self.issuer_numbers = {}
        self.control_inbox = []
        self.parcel_inbox = []
        self.echo_inbox = []
        self.freeing = {}

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.nissuers):
            free(self.issuers[i].window)
        free(self.issuers)
        free(self.defined)

    # --- bytes in

    cdef int fault(self, int port, Port* p, str reason) except -1:
        """The one place where bad bytes end."""
        p.failed = True
        p.counters[BAD_FRAMES] += 1
        raise ProtocolError(reason)

    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        cdef Port* p = self.port_at(port)
        cdef Py_ssize_t used = 0, take
        cdef uint32_t need
        if p.state != OPEN or p.failed:
            return 0
        p.last_heard = self.mono_ns
        p.counters[BYTES_IN] += size
        if p.carry_size:
            # complete the frame that the last buffer cut
            if p.carry_size < 4:
                take = min(4 - <Py_ssize_t> p.carry_size, size)
                memcpy(p.carry + p.carry_size, data, take)
                p.carry_size += take
                used = take
                if p.carry_size < 4:
                    if not known_kind(p.carry[0]):
                        self.fault(port, p, f"unknown frame kind 0x{p.carry[0]:02x}")
                    return 0
            need = self._frame_need(port, p, p.carry)
            if p.carry_capacity < need:
                self._grow_carry(p, need)
            take = min(<Py_ssize_t> (need - p.carry_size), size - used)
            memcpy(p.carry + p.carry_size, data + used, take)
            p.carry_size += take
            used += take
            if p.carry_size < need:
                return 0
            p.carry_size = 0
            self.frames(port, p, p.carry, need)
        used += self.frames(port, p, data + used, size - used)
        if used < size:
            take = size - used
            if not known_kind(data[used]):
                self.fault(port, p, f"unknown frame kind 0x{data[used]:02x}")
            if p.carry_capacity < take:
                self._grow_carry(p, max(<uint32_t> take, MAX_CARRY_START))
            memcpy(p.carry, data + used, take)
            p.carry_size = take
        if p.window:
            self.grant_credit(port, p)
        return 0

    cdef uint32_t _frame_need(self, int port, Port* p, const uint8_t* head) except 0:
        cdef uint32_t length = (<uint32_t> head[1] << 16) | (<uint32_t> head[2] << 8) | head[3]
        if not known_kind(head[0]):
            self.fault(port, p, f"unknown frame kind 0x{head[0]:02x}")
        if length > p.max_frame:
            self.fault(port, p, f"frame of {length} bytes, this link accepts at most {p.max_frame}")
        return 4 + length

    cdef int _grow_carry(self, Port* p, uint32_t need) except -1:
        p.carry = <uint8_t*> self.take_memory(p.carry, need)
        p.carry_capacity = need
        return 0

    cdef Py_ssize_t frames(self, int port, Port* p, uint8_t* data, Py_ssize_t size) except -1:
        """Process whole frames; the number of bytes used."""
        cdef Py_ssize_t position = 0
        cdef uint32_t length, number, sequence, issuer, total
        cdef uint64_t nframes = 0, nevents = 0, event_bytes = 0
        cdef uint8_t* frame
        cdef uint8_t* payload
        cdef int kind, flags, verdict
        cdef Run run
        cdef Topic* topic
        cdef Route* route
        cdef bint peer = p.peer
        cdef str wrong = None
        cdef uint64_t stamp = self.topics.stamp
        run.count = 0
        run.route = NULL
        run.end = NULL
        while size - position >= 4:
            frame = data + position
            kind = frame[0]
            length = (<uint32_t> frame[1] << 16) | (<uint32_t> frame[2] << 8) | frame[3]
            if length > p.max_frame or not known_kind(kind):
                break
            total = length + 4
            if <Py_ssize_t> total > size - position:
                break
            position += total
            nframes += 1
            if kind != EVENT:
                if run.count:
                    self.send_run(port, p, &run)
                # counts must be exact when this frame turns out to be bad
                p.counters[FRAMES_IN] += nframes
                nframes = 0
                if nevents:
                    p.counters[EVENTS_IN] += nevents
                    p.event_bytes += event_bytes
                    self.limit_frames(p, nevents)
                    nevents = event_bytes = 0
                self.other_frame(port, p, frame, length)
                stamp = self.topics.stamp
                continue
            nevents += 1
            event_bytes += total
            payload = frame + 4
            if length < 12:
                wrong = f"EVENT of {length} bytes, the header alone has 12"
                break
            number = get32(payload)
            if number >= p.naliases or p.aliases[number] == 0:
                wrong = f"EVENT uses topic number {number} that was never defined on this link"
                break
            number = p.aliases[number]
            flags = payload[4]
            if flags & 0xC0 or (flags & 7) == 7:
                wrong = f"EVENT with flags 0x{flags:02x}: bits 6-7 must be zero and priority at most 6"
                break
            issuer = (<uint32_t> payload[5] << 16) | (<uint32_t> payload[6] << 8) | payload[7]
            if peer:
                if issuer >= p.nissuers_in or p.issuers_in[issuer] == 0:
                    wrong = f"EVENT uses issuer number {issuer} that was never defined on this link"
                    break
                issuer = p.issuers_in[issuer]
            else:
                issuer = p.issuer
            if flags & 8:
                verdict = self.extension_verdict(payload + 12, length - 12)
                if verdict == MALFORMED:
                    wrong = "EVENT extension reaches past the frame or is not a list of items"
                    break
            else:
                verdict = KEEP
            sequence = get32(payload + 8)
            if self.repeated(&self.issuers[issuer], sequence, peer):
                self.count_drop(port, p, DROP_DUPLICATE, 2, number if number < NO_ROOM else 0, 1)
                continue
            if number >= NO_ROOM:
                self.count_drop(port, p, DROP_NOT_PERMITTED if number == DENIED else DROP_NO_ROOM, 2, 0, 1)
                continue
            if verdict == EXPIRED:
                self.count_drop(port, p, DROP_EXPIRED, 2, number, 1)
                continue
            topic = &self.topics.topics[number]
            if topic.stamp != stamp:
                if run.count:
                    self.send_run(port, p, &run)
                self.topics.resolve(number)
                topic = &self.topics.topics[number]
            route = topic.route
            if number >= self.ndefined or self.defined[number] != stamp:
                if run.count:
                    self.send_run(port, p, &run)
                self.define_route(number, route)
            put32(payload, number)
            payload[5] = <uint8_t> (issuer >> 16)
            payload[6] = <uint8_t> (issuer >> 8)
            payload[7] = <uint8_t> issuer
            if (run.count and route == run.route and frame == run.end and CLASS_OF[flags & 7] == run.cls
                    and issuer == run.issuer and run.end - run.start + total <= RUN_BYTES and route.ngroups == 0):
                run.end += total
                run.count += 1
                continue
            if run.count:
                self.send_run(port, p, &run)
            run.route = route
            run.start = frame
            run.end = frame + total
            run.count = 1
            run.cls = CLASS_OF[flags & 7]
            run.issuer = issuer
        if run.count:
            self.send_run(port, p, &run)
        p.counters[FRAMES_IN] += nframes
        p.counters[EVENTS_IN] += nevents
        p.event_bytes += event_bytes
        if nevents:
            self.limit_frames(p, nevents)
        if wrong is not None:
            self.fault(port, p, wrong)
        if size - position >= 4:
            self._frame_need(port, p, data + position)
        return position

    cdef bint repeated(self, Issuer* issuer, uint32_t sequence, bint peer) noexcept:
        """Whether this sequence was seen before; remembers it."""
        cdef int32_t ahead = <int32_t> (sequence - issuer.last)
        cdef uint32_t i
        if not issuer.seen:
            issuer.seen = True
            issuer.last = sequence
            ahead = 0
            if not peer and issuer.window == NULL:
                return False
        elif issuer.window == NULL and not peer:
            if ahead <= 0:
                return True
            issuer.last = sequence
            return False
        if issuer.window == NULL:
            issuer.window = <uint64_t*> self.take_memory(NULL, WINDOW // 8)
            # a client's own port takes sequences in order, so everything before the last one was seen there
            memset(issuer.window, 0 if ahead == 0 else 0xFF, WINDOW // 8)
            if ahead == 0:
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
        """Make sure that every port of the route knows this topic number."""
        cdef uint32_t capacity
        cdef int i
        cdef Port* p
        if number >= self.ndefined:
            capacity = max(number + 1, self.ndefined * 2)
            self.defined = <uint64_t*> self.take_memory(self.defined, capacity * sizeof(uint64_t))
            memset(self.defined + self.ndefined, 0, (capacity - self.ndefined) * sizeof(uint64_t))
            self.ndefined = capacity
        for i in range(route.n):
            p = self.table[route.ports[i]]
            if number >= p.topics_words * 64 or not (p.topics_out[number >> 6] >> (number & 63)) & 1:
                self.define_topic(<int> route.ports[i], p, number)
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
            self.put_events(port, self.table[port], run.cls, run.start, size, run.count, run.issuer,
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
            self.put_events(port, member, run.cls, run.start, size, 1, run.issuer, held and p.window != 0)
            put32(run.start + 4, topic)
            if held:
                self.hold(arrival, p, port, member)

    cdef int limit_frames(self, Port* p, uint64_t events) noexcept:
        """Token bucket of a client's port; below zero the caller stops reading for a while."""
        if p.rate <= 0:
            return 0
        p.tokens = min(p.burst, p.tokens + p.rate * 1e-9 * <double> (self.mono_ns - p.tokens_at))
        p.tokens_at = self.mono_ns
        p.tokens -= <double> events
        return 0

    # --- frames that are not EVENT

    cdef int other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1:
        cdef int kind = frame[0]
        cdef uint8_t* payload = frame + 4
        cdef uint64_t token
        if kind == STATUS:
            self.status_frame(port, p, payload, length)
        elif kind == TOPIC:
            self.topic_frame(port, p, payload, length)
        elif kind == ISSUER:
            self.issuer_frame(port, p, payload, length)
        elif kind == PROBE:
            if length < 16 or length > 1400:
                self.fault(port, p, f"PROBE of {length} bytes, 16 to 1400 are allowed")
            p.counters[PROBES_IN] += 1
            frame[0] = ECHO
            if self.put_frame(port, p, 0, frame, length + 4, True) < 0:
                p.counters[DROP_QUEUE_FULL] += 1
        elif kind == ECHO:
            if length < 16:
                self.fault(port, p, f"ECHO of {length} bytes, at least 16 are needed")
            token = get64(payload)
            if token >> 63:
                self.released_echo(p, token)
            elif token:
                self.echo_inbox.append((port, token, <int64_t> get64(payload + 8), self.mono_ns))
        elif kind == CONTROL:
            p.counters[CONTROL_IN] += 1
            self.control_inbox.append((port, payload[:length]))
        elif kind == PARCEL:
            p.counters[PARCELS_IN] += 1
            self.parcel_inbox.append((port, payload[:length]))
        else:
            self.fault(port, p, f"frame kind 0x{kind:02x} is only sent by nodes to clients")
        return 0

    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        """Decide record by record, copy run by run."""
        cdef uint32_t position = 0, length, count = 0, start = 0
        cdef uint64_t seen = 0
        cdef PortList* targets = NULL
        cdef PortList* found
        cdef int verdict, arrival = p.partner if p.partner >= 0 else port
        while position < size:
            if size - position < 24:
                self.fault(port, p, f"STATUS record cut at {size - position} of 24 bytes")
            length = 24 * (1 + <uint32_t> payload[position + 12])
            if length > size - position:
                self.fault(port, p, f"STATUS record with {payload[position + 12]} option blocks reaches past its frame")
            position += length
            seen += 1
        if seen == 0:
            self.fault(port, p, "STATUS frame without a record")
        p.counters[STATUS_IN] += seen
        if p.rate > 0:
            self.limit_frames(p, seen)
        position = 0
        while position < size:
            length = 24 * (1 + <uint32_t> payload[position + 12])
            found = self.status.decide(arrival, payload + position, length, self.wall_ns, &verdict)
            if found != targets or found == NULL or position + length - start > RUN_BYTES:
                if count:
                    self.send_records(arrival, targets, payload + start, position - start, count)
                targets = found
                start = position
                count = 0
            if found != NULL:
                count += 1
            else:
                # verdicts and counters have the same order
                self.count_drop(port, p, DROP_UNKNOWN + verdict - 1, 1, get32(payload + position + 8), 1)
            position += length
        if count:
            self.send_records(arrival, targets, payload + start, position - start, count)
        return 0

    cdef void send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size, uint32_t count) noexcept:
        cdef int i, port
        cdef uint32_t item
        for i in range(targets.n):
            item = targets.items[i]
            port = <int> (item >> 2)
            if port != arrival and port < self.ntable:
                self.put_status(port, self.table[port], item & 3, start, size, count)
        for i in range(targets.n, targets.n + targets.nfail):
            port = <int> (targets.items[i] >> 2)
            if port != arrival and port < self.ntable:
                self.table[port].counters[FILTERED] += count

    cdef int topic_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t alias, number, capacity, old, skip
        cdef int problem
        cdef bint allowed = True
        if size < 7:
            self.fault(port, p, f"TOPIC of {size} bytes, at least 7 are needed")
        alias = get32(payload)
        skip = 6 + <uint32_t> payload[5]
        if alias >= p.max_topics:
            self.fault(port, p, f"topic number {alias}, this link accepts numbers below {p.max_topics}")
        if skip != 6:
            self.fault(port, p, "TOPIC with a group, which only nodes send to clients")
        problem = topic_fault(payload + skip, size - skip, payload[4], False)
        if problem:
            self.fault(port, p, fault_text(problem, (<bytes> payload[skip:size])[:64]))
        if alias >= p.naliases:
            capacity = min(max(alias + 1, p.naliases * 2, <uint32_t> 16), p.max_topics)
            p.aliases = <uint32_t*> self.take_memory(p.aliases, capacity * sizeof(uint32_t))
            memset(p.aliases + p.naliases, 0, (capacity - p.naliases) * sizeof(uint32_t))
            p.naliases = capacity
        if self.authorize is not None and not p.peer:
            allowed = self.authorize(port, chr(payload[4]), <bytes> payload[skip:size])
        if allowed:
            number = self.topics.intern(payload + skip, size - skip, payload[4], 0)
            if number == 0:
                self.try_recycle()
                number = self.topics.intern(payload + skip, size - skip, payload[4], 0)
            if number:
                self.topics.hold(number)
            else:
                number = NO_ROOM
        else:
            number = DENIED
        old = p.aliases[alias]
        p.aliases[alias] = number
        if old and old < NO_ROOM:
            self.topics.release(old)
        return 0

    cdef int issuer_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t number, capacity
        if not p.peer:
            self.fault(port, p, "ISSUER from a client: a client publishes under its own session only")
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
        p.issuers_in[number] = self.issuer_number(payload[8:24], get32(payload + 4))
        return 0

    cdef uint32_t issuer_number(self, bytes session, uint32_t epoch) except 0:
        """Number of an issuer on this node, made if it is new."""
        cdef tuple key = (session, epoch)
        cdef object found = self.issuer_numbers.get(key)
        cdef uint32_t number, capacity
        if found is not None:
            return found
        number = <uint32_t> len(self.sessions)
        if number >= 1 << 24:
            raise ChappeError("this node has seen 16 million issuers; restart it to begin anew")
        self.sessions.append(key)
        self.issuer_numbers[key] = number
        if number >= self.nissuers:
            capacity = max(number + 1, self.nissuers * 2, <uint32_t> 16)
            self.issuers = <Issuer*> self.take_memory(self.issuers, capacity * sizeof(Issuer))
            memset(self.issuers + self.nissuers, 0, (capacity - self.nissuers) * sizeof(Issuer))
            self.nissuers = capacity
        return number

    cdef void try_recycle(self):
        """Reuse topic numbers nobody holds, once every port has written what was queued before they were swept."""
        cdef int port, cls
        cdef uint32_t number
        cdef Port* p
        if self.sweep_marks is None:
            self.topics.sweep()
            self.sweep_marks = [
                (port, cls, self.table[port].queues[cls].enqueued)
                for port in range(self.ntable) if self.table[port].state in (OPEN, PARKED) for cls in range(4)
            ]
        for port, cls, position in self.sweep_marks:
            p = self.table[port]
            if p.state in (OPEN, PARKED) and p.queues[cls].released < position:
                return
        self.sweep_marks = None
        for number in self.topics.recycle():
            for port in range(self.ntable):
                p = self.table[port]
                if number < p.topics_words * 64:
                    p.topics_out[number >> 6] &= ~(<uint64_t> 1 << (number & 63))
            if number < self.ndefined:
                self.defined[number] = 0

    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        """One datagram's frame: 1 if it was good. A bad one is counted and touches nothing else."""
        cdef Port* p = self.port_at(port)
        cdef uint32_t length
        if p.state != OPEN:
            return 0
        p.last_heard = self.mono_ns
        p.counters[BYTES_IN] += size
        try:
            if size < 4 or data[0] not in (STATUS, PROBE, ECHO):
                self.fault(port, p, "a datagram carries one STATUS, PROBE or ECHO frame")
            length = (<uint32_t> data[1] << 16) | (<uint32_t> data[2] << 8) | data[3]
            if <Py_ssize_t> length + 4 != size:
                self.fault(port, p, "a datagram carries exactly one frame")
            p.counters[FRAMES_IN] += 1
            self.other_frame(port, p, data, length)
        except ProtocolError:
            p.failed = False
            return 0
        return 1

    # --- the Python side: ports

    def open_port(self, *, bint peer=False, bint datagram=False, int level=0, queue_bytes=4 << 20,
                  max_frame=1 << 20, packing=0, bint conflate=False, bint retain=False, credit=0, bint loss=True,
                  max_topics=65536, bytes session=b"", epoch=1, int partner=-1):
        cdef uint32_t issuer = 0
        cdef int port
        cdef Port* p
        if not peer and not datagram:
            if len(session) != 16:
                raise ChappeError("a client's port needs its session: 16 bytes")
            issuer = self.issuer_number(session, epoch)
        if partner >= 0:
            self.port_at(partner)
        port = self.new_port()
        p = self.table[port]
        p.state = OPEN
        p.peer = peer
        p.datagram = datagram
        p.conflate = conflate
        p.retain = retain and not datagram
        p.loss = loss and not datagram and not peer
        p.limit = queue_bytes
        p.max_frame = min(max_frame, 0xFFFFFF)
        p.packing = packing or (4 if datagram else 0)
        p.max_topics = max_topics
        p.window = p.granted = credit
        p.issuer = issuer
        p.partner = partner
        if partner >= 0:
            self.table[partner].data_port = port
        if level:
            self.status.set_level(port, level)
        return port

    def close_port(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        if p.state == CLOSED:
            return
        self.count_unsent(port, p)
        p.state = CLOSED
        for cls in range(4):
            queue_clear(&self.pool, &p.queues[cls])
        p.sticky = -1
        p.carry_size = 0
        self.unhold(p)
        self.forget_publisher(port)
        if p.partner >= 0 and self.table[p.partner].data_port == port:
            self.table[p.partner].data_port = -1
        if p.data_port >= 0:
            self.table[p.data_port].partner = -1
        self.status.set_level(port, 0)

    def free_port(self, int port, int limit=10_000):
        cdef Port* p = self.port_at(port)
        cdef uint32_t i
        cdef int place
        if p.state != CLOSED:
            self.close_port(port)
        if self.topics.remove_port(port, limit):
            return False
        place = self.freeing.get(port, 0)
        place = self.status.remove_port(port, place, limit)
        if place >= 0:
            self.freeing[port] = place
            return False
        self.freeing.pop(port, None)
        for i in range(p.naliases):
            if p.aliases[i] and p.aliases[i] < NO_ROOM:
                self.topics.release(p.aliases[i])
        for i in range(COUNTERS):
            self.past[i] += p.counters[i]
        self._release(p)
        memset(p, 0, sizeof(Port))
        return True

    def park_port(self, int port):
        cdef Port* p = self.port_at(port)
        if p.state == OPEN:
            p.state = PARKED
            p.carry_size = 0

    def resume_port(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        if p.state == CLOSED:
            raise ChappeError(f"port {port} was closed, open a new one")
        p.state = OPEN
        p.failed = False
        p.carry_size = 0
        p.last_heard = self.mono_ns
        self.rebuild(port, p)

    def ports(self):
        cdef int port
        return [port for port in range(self.ntable) if self.table[port].state in (OPEN, PARKED)]

    # --- bytes, for tests and for transports that are not plain sockets

    def feed(self, int port, data):
        cdef bytearray copy = bytearray(data)
        self.feed_bytes(port, <unsigned char*> <char*> copy, len(copy))

    def feed_datagram(self, int port, data):
        cdef bytearray copy = bytearray(data)
        return bool(self.feed_datagram_bytes(port, <unsigned char*> <char*> copy, len(copy)))

    def peek(self, int port):
        cdef iovec vectors[1]
        self.port_at(port)
        if self.gather(port, vectors, 1) == 0:
            return memoryview(b"")
        return memoryview(<char[:vectors[0].iov_len]> <char*> vectors[0].iov_base).cast("B")

    def consumed(self, int port, Py_ssize_t count):
        cdef Port* p = self.port_at(port)
        cdef uint64_t planned = 0
        cdef int cls
        for cls in range(4):
            planned += p.queues[cls].plan_end - p.queues[cls].sent
        if count < 0 or <uint64_t> count > planned:
            raise ChappeError(f"{count} bytes consumed of {planned} that were peeked")
        self.written(port, count)

    def peek_datagrams(self, int port, int limit=64):
        cdef iovec frames[64]
        cdef int i, n
        self.port_at(port)
        n = self.gather_datagrams(port, frames, min(limit, 64))
        return [(<char*> frames[i].iov_base)[:frames[i].iov_len] for i in range(n)]

    def consumed_datagrams(self, int port, int count):
        self.port_at(port)
        self.datagrams_written(port, count)

    def dirty(self):
        cdef int port = self.next_dirty()
        found = []
        while port >= 0:
            found.append(port)
            port = self.next_dirty()
        return found

    def pending(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        cdef uint64_t total = <uint64_t> p.npending * 24
        for cls in range(4):
            total += p.queues[cls].enqueued - p.queues[cls].sent
        return total

    def unacknowledged(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        cdef uint64_t total = 0
        for cls in range(4):
            total += p.queues[cls].enqueued - p.queues[cls].released
        return total

    # --- control and probes

    def send(self, int port, bytes frame, int priority=0):
        cdef Port* p = self.port_at(port)
        cdef uint8_t* data = <uint8_t*> <char*> frame
        if len(frame) < 4 or 4 + ((data[1] << 16) | (data[2] << 8) | data[3]) != len(frame):
            raise ChappeError("send takes exactly one whole frame")
        if not 0 <= priority <= 3:
            raise ChappeError(f"class {priority} does not exist, use 0 to 3")
        if self.put_frame(port, p, priority, data, <uint32_t> len(frame), True) < 0:
            p.counters[DROP_QUEUE_FULL] += 1
            return False
        if data[0] == PARCEL:
            p.queues[priority].keep = p.queues[priority].enqueued
        p.counters[CONTROL_OUT] += 1
        return True

    def take_control(self):
        found = self.control_inbox
        if found:
            self.control_inbox = []
        return found

    def take_parcels(self):
        found = self.parcel_inbox
        if found:
            self.parcel_inbox = []
        return found

    def take_echoes(self):
        found = self.echo_inbox
        if found:
            self.echo_inbox = []
        return found

    def heartbeat(self, int port):
        cdef Port* p = self.port_at(port)
        cdef uint8_t frame[20]
        memset(frame, 0, 20)
        frame[0] = PROBE
        frame[3] = 16
        put32(frame + 12, <uint32_t> (<uint64_t> self.mono_ns >> 32))
        put32(frame + 16, <uint32_t> <uint64_t> self.mono_ns)
        return self.put_frame(port, p, 0, frame, 20, True) == 0

    def last_heard(self, int port):
        return self.port_at(port).last_heard

    # --- rates and credits

    def limit_rate(self, int port, double events_per_s, double burst):
        cdef Port* p = self.port_at(port)
        p.rate = events_per_s
        p.burst = p.tokens = burst
        p.tokens_at = self.mono_ns

    def throttled_ns(self, int port):
        cdef Port* p = self.port_at(port)
        if p.rate <= 0 or p.tokens >= 0:
            return 0
        return int(-p.tokens / p.rate * 1e9)

    def grant(self, int port):
        self.grant_credit(port, self.port_at(port))

    # --- subscriptions that touch queues

    def watch(self, int port, variable, path, intervals, priorities, modes):
        cdef Port* p = self.port_at(port)
        every = self.status.setup_path(variable, port, path, intervals, priorities, modes)
        cdef bytes last = self.status.last(variable) or b""
        if last:
            self.put_status(port, p, 2, <const uint8_t*> <char*> last, <uint32_t> len(last), 1)
        return every

    def publish_status(self, int port, bytes records):
        cdef bytearray copy = bytearray(records)
        self.status_frame(port, self.port_at(port), <uint8_t*> <char*> copy, <uint32_t> len(copy))

    # --- counters

    @property
    def allocations(self):
        return (self.own_allocations + self.pool.allocations + self.address_counts.allocations
                + self.status.allocations + self.topics.allocations)

    def port_counters(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int i
        counts = {name: p.counters[i] for i, name in enumerate(NAMES)}
        counts["lost_status"] = p.lost_status
        counts["lost_events"] = p.lost_events
        return counts

    def counters(self):
        cdef int i, port
        totals = [self.past[i] for i in range(COUNTERS)]
        for port in range(self.ntable):
            for i in range(COUNTERS):
                totals[i] += self.table[port].counters[i]
        return dict(zip(NAMES, totals))

    cdef tuple _address(self, uint64_t key):
        cdef uint32_t number = <uint32_t> key
        reason = NAMES[(key >> 32) & 0x1F]
        if key == 1:
            return ("other", "", "")
        if (key >> 40) & 3 == 1:
            return ("variable", number, reason)
        try:
            kind, name, group = self.topics.name(number)
        except IndexError:
            return ("topic", f"number {number}" if number else "", reason)
        return ("topic", name.decode() if kind == "s" else int.from_bytes(name, "big", signed=True), reason)

    def address_drops(self, int limit=0):
        cdef uint32_t i
        rows = []
        for i in range(self.address_counts.capacity):
            if self.address_counts.slots[i].count:
                rows.append((*self._address(self.address_counts.slots[i].key), self.address_counts.slots[i].count))
        rows.sort(key=lambda row: -row[3])
        return rows[:limit] if limit else rows

    def pair_drops(self, int limit=100):
        cdef int i
        rows = []
        for i in range(256):
            if self.pair_counts[i].count:
                key = self.pair_counts[i].key
                rows.append((key >> 44, *self._address(key & ((1 << 44) - 1)), self.pair_counts[i].count))
        rows.sort(key=lambda row: -row[4])
        return rows[:limit]

    def memory_bytes(self):
        return (self.pool.held + self.address_counts.capacity * 16 + self.ntable * sizeof(Port)
                + self.nissuers * sizeof(Issuer) + self.ndefined * 8
                + self.status.memory_bytes() + self.topics.memory_bytes())
