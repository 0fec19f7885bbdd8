"""What enters an engine: every frame of a buffer parsed, routed and filtered in one call.

The hot path rewrites topic and issuer numbers in the receive buffer and merges consecutive frames for the same
subscribers into runs, so that a run costs one copy a port.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from os import urandom

from chappe.engine._accounts cimport Accounts
from chappe.engine._bytes cimport get32, get64, payload_size, put32, put64, put_header, record_size
from chappe.engine._events cimport COURSE, DENIED, EXPIRED, KEEP, MALFORMED, NO_ROOM, WINDOW, Course, Issuer, Run
from chappe.engine._memory cimport MemoryBudget
from chappe.engine._ports cimport *
from chappe.engine._queue cimport RUN_BYTES, count_init
from chappe.engine._status cimport PortList, StatusTable
from chappe.engine._topics cimport Route, Topic, TopicTable
from chappe.engine._trains cimport Trains

from chappe.errors import ProtocolError

cdef enum:
    CARRY_START = 512
    DEFERRED_MAX = 4194304     # bytes of one port; it is not read meanwhile: only what is under way comes on top

cdef uint8_t[8] CLASS_OF = [0, 1, 1, 2, 2, 3, 3, 3]


cdef inline bint known_kind(int kind) noexcept nogil:
    return (kind == EVENT or kind == STATUS or kind == TOPIC or kind == ISSUER or kind == PARCEL or kind == PROBE
            or kind == ECHO or kind == CONTROL or kind == LOSS or kind == CREDIT or kind == ROUTE or kind == TRAIN
            or kind == TRAINED or kind == DENIAL)


cdef inline bint next_in_order(Issuer* issuer, uint32_t sequence, bint peer) noexcept nogil:
    """Whether this is the sequence after the last one, as nearly all are; then it is remembered."""
    if not issuer.seen or sequence != <uint32_t> (issuer.last + 1):
        return False
    if issuer.peered:
        issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
    elif peer:
        return False
    issuer.last = sequence
    return True


cdef class Input(Trains):
    def __init__(self, *, str layout="sparse", bint edge=True, max_topics=1 << 20, max_issuers=1 << 17,
                 max_ways=1 << 16, authorize=None, publish_way=None, forward_way=None, seed=None, memory_bytes=0,
                 account_topics=0, account_ways=0, account_bytes=0):
        self.memory = MemoryBudget(memory_bytes)
        self.seed = (int.from_bytes(urandom(8), "big") if seed is None else seed) & 0xFFFFFFFFFFFFFFFF
        self.accounts = Accounts(self.memory, account_topics, account_ways, account_bytes)
        self.pool.memory = &self.memory.memory
        self.pool.account_limit = account_bytes
        if count_init(&self.address_counts, &self.memory.memory, 1 << 21, self.seed) < 0:
            raise MemoryError("no memory for an empty engine")
        self.status = StatusTable(layout=layout, edge=edge, seed=self.seed, budget=self.memory)
        self.topics = TopicTable(max_topics=max_topics, max_ways=max_ways, seed=self.seed, budget=self.memory)
        self.topics.accounts = self.accounts
        self.authorize = authorize
        self.publish_way = publish_way
        self.forward_way = forward_way
        self.meshed = publish_way is not None
        self.max_issuers = max_issuers
        self.control_inbox = []
        self.echo_inbox = []
        self.freeing = {}
        self.deferred_ports = []
        self.asked_ports = []
        self.most = -1

    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        cdef Port* p = self.port_at(port)
        cdef Py_ssize_t used = 0, take
        cdef uint32_t need
        if p.state != OPEN or p.failed:
            return 0
        p.last_heard = self.mono_ns
        p.counters[BYTES_IN] += size
        if p.deferred:
            return self.defer(port, p, data, size)
        self.questions = self.messages = 0
        self.waits = False
        self.allowed = self.most if self.most >= 0 else 0 if p.patient else QUESTIONS
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
            if self.waits:
                p.carry_size = need
                return self.defer(port, p, data + used, size - used)
        used += self.frames(port, p, data + used, size - used)
        if self.questions:
            if not p.asked:
                self.asked_ports.append(port)
            p.asked += self.questions
            self.attention = True
        if self.waits:
            self.defer(port, p, data + used, size - used)
        elif used < size:
            take = size - used
            if not known_kind(data[used]):
                self.fault(port, p, f"unknown frame kind 0x{data[used]:02x}")
            if p.carry_capacity < take:
                self._grow_carry(p, max(<uint32_t> take, CARRY_START))
            memcpy(p.carry, data + used, take)
            p.carry_size = take
            if p.train_in.size and p.train_in.half == self.mono_ns and data[used] == TRAIN:
                # bytes of the next frame came together with those that the first half ends with
                p.train_in.after = min(p.train_in.done + <uint32_t> take, p.train_in.size)
        if p.window:
            self.grant_credit(port, p)
        return 0

    cdef int defer(self, int port, Port* p, const uint8_t* data, Py_ssize_t size) except -1:
        """Keep bytes for `feed_deferred`."""
        if p.carry_size + size > DEFERRED_MAX:
            self.fault(port, p, f"more than {DEFERRED_MAX} bytes wait for definitions of topics to be looked at")
        if p.carry_capacity < p.carry_size + size:
            self._grow_carry(p, <uint32_t> (p.carry_size + size))
        memcpy(p.carry + p.carry_size, data, size)
        p.carry_size += size
        if not p.deferred:
            p.deferred = True
            self.deferred_ports.append(port)
            self.attention = True
        return 0

    cdef uint32_t _frame_need(self, int port, Port* p, const uint8_t* head) except 0:
        cdef uint32_t length = payload_size(head)
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
        cdef Course* course
        cdef bint peer = p.peer, again, meshed = self.meshed and not peer
        cdef str wrong = None
        cdef uint64_t stamp
        if self.nstarved:
            self.feed_starved()
        stamp = self.topics.stamp
        run.count = 0
        run.allow = NULL
        run.route = NULL
        run.end = NULL
        while size - position >= 4:
            frame = data + position
            kind = frame[0]
            length = payload_size(frame)
            if length > p.max_frame or not known_kind(kind):
                break
            total = length + 4
            if <Py_ssize_t> total > size - position:
                break
            if kind != EVENT:
                if ((self.questions >= self.allowed and (kind == TOPIC or kind == ROUTE))
                        or (kind == CONTROL and self.messages >= (MESSAGES_PATIENT if p.patient else MESSAGES))):
                    self.waits = True
                    break
                position += total
                nframes += 1
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
                if p.rate > 0 and kind != STATUS:
                    self.limit_frames(p, 1)  # of STATUS each record counts
                self.other_frame(port, p, frame, length)
                stamp = self.topics.stamp
                continue
            position += total
            nframes += 1
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
            course = NULL
            if COURSE < number < NO_ROOM:
                course = self.courses[number & ~COURSE]
                number = course.topic
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
            if number >= NO_ROOM:  # before it is remembered: sent again it is refused again
                if not peer:
                    self.refuse(port, p, get32(payload), number == DENIED)
                self.count_drop(port, p, DROP_NOT_PERMITTED if number == DENIED else DROP_NO_ROOM, OF_TOPIC, 0, 1)
                continue
            if self.questions >= self.allowed and self.would_ask(number, course, meshed):
                self.waits = True
                position -= total
                nframes -= 1
                nevents -= 1
                event_bytes -= total
                break
            sequence = get32(payload + 8)
            if course != NULL:
                p.counters[ROUTED_IN] += 1
                if course.asked != self.topics.ways_stamp:
                    if run.count:
                        self.send_run(port, p, &run)
                    self.ask(p, course)
                    stamp = self.topics.stamp
            # identity is remembered where events are delivered: who only passes one on may deliver another copy
            again = ((course == NULL or course.local) and not next_in_order(&self.issuers[issuer], sequence, peer)
                     and self.repeated(&self.issuers[issuer], sequence, peer))
            if again:
                self.count_drop(port, p, DROP_DUPLICATE, OF_TOPIC, number, 1)
                if course == NULL or verdict == EXPIRED:
                    continue
            if verdict == EXPIRED:
                self.count_drop(port, p, DROP_EXPIRED, OF_TOPIC, number, 1)
                continue
            if meshed:
                if number >= self.npublished or self.published[number] == 0:
                    try:
                        self.course_of(number)
                    except MemoryError:
                        self.count_drop(port, p, DROP_NO_MEMORY, OF_TOPIC, number, 1)
                        continue
                course = self.courses[self.published[number]]
                if course.asked != self.topics.ways_stamp:
                    if run.count:
                        self.send_run(port, p, &run)
                    self.ask(p, course)
                    stamp = self.topics.stamp
            if course != NULL:
                if course.plain and not again:
                    course = NULL
                elif again and course.nbranches == 0 and not course.rest:
                    continue
            if course == NULL or (course.local and not again):
                topic = &self.topics.topics[number]
                if topic.stamp != stamp:
                    if run.count:
                        self.send_run(port, p, &run)
                    if self.topics.resolve(number) == NULL:
                        self.count_drop(port, p, DROP_NO_MEMORY, OF_TOPIC, number, 1)
                        continue
                    topic = &self.topics.topics[number]
                route = topic.route
                if number >= self.ndefined or self.defined[number] != stamp:
                    if run.count:
                        self.send_run(port, p, &run)
                    self.define_route(number, route)
            else:
                route = self.topics.empty
            put32(payload, number)
            payload[5] = <uint8_t> (issuer >> 16)
            payload[6] = <uint8_t> (issuer >> 8)
            payload[7] = <uint8_t> issuer
            if (run.count and route == run.route and frame == run.end and CLASS_OF[flags & 7] == run.cls
                    and issuer == run.issuer and run.end - run.start + total <= RUN_BYTES and route.ngroups == 0
                    and course == run.course and again == run.again):
                run.end += total
                run.count += 1
                if number != run.topic:
                    run.topic = 0
                continue
            if run.count:
                self.send_run(port, p, &run)
            run.course = course
            run.again = again
            run.route = route
            run.start = frame
            run.end = frame + total
            run.count = 1
            run.cls = CLASS_OF[flags & 7]
            run.issuer = issuer
            run.topic = number
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

    cdef bint would_ask(self, uint32_t number, Course* course, bint meshed) noexcept:
        """Whether Python has to say where an event goes."""
        if self.authorize is None:  # a simulated node is asked by nobody else: it defers nothing
            return False
        if course == NULL and meshed:
            if number >= self.npublished or self.published[number] == 0:
                return True
            course = self.courses[self.published[number]]
        return course != NULL and course.asked != self.topics.ways_stamp

    cdef int limit_frames(self, Port* p, uint64_t events) noexcept:
        """Token bucket of a client's port; below zero the caller stops reading for a while."""
        if p.rate <= 0:
            return 0
        p.tokens = min(p.burst, p.tokens + p.rate * 1e-9 * <double> (self.mono_ns - p.tokens_at))
        p.tokens_at = self.mono_ns
        if p.tokens >= 0 and p.tokens < <double> events:
            p.counters[THROTTLED] += 1
        p.tokens -= <double> events
        if p.tokens < 0:
            self.overdrawn = True
        return 0

    cdef int other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1:
        cdef int kind = frame[0], result
        cdef uint8_t* payload = frame + 4
        cdef uint64_t token
        if kind == STATUS:
            self.status_frame(port, p, payload, length)
        elif kind == TOPIC:
            self.topic_frame(port, p, payload, length)
        elif kind == ISSUER:
            self.issuer_frame(port, p, payload, length)
        elif kind == ROUTE:
            self.route_frame(port, p, payload, length)
        elif kind == TRAIN:
            self.train_frame(port, p, payload, length)
        elif kind == TRAINED:
            self.trained_frame(port, p, payload, length)
        elif kind == PROBE:
            if length < 16 or length > 1400:
                self.fault(port, p, f"PROBE of {length} bytes, 16 to 1400 are allowed")
            p.counters[PROBES_IN] += 1
            if p.nonward:
                self.defer_echo(port, p, frame)
            if p.refused_by_rule + p.refused_for_room != p.refused_told:
                self.tell_refused(port, p)
            frame[0] = ECHO
            result = self.put_frame(port, p, 0, frame, length + 4, True)
            if result < 0:
                p.counters[-result] += 1
        elif kind == ECHO:
            if length < 16:
                self.fault(port, p, f"ECHO of {length} bytes, at least 16 are needed")
            token = get64(payload)
            if token >> 63:
                self.released_echo(port, p, token)
            elif token:
                self.echo_inbox.append((port, token, p.probe_sent_at if token == p.probe_token else 0, self.mono_ns))
        elif kind == CONTROL:
            p.counters[CONTROL_IN] += 1
            self.messages += 1
            self.control_inbox.append((port, payload[:length]))
            self.attention = True
        elif kind == PARCEL:
            # reserved for cells: no capability asks for one, so it is counted and goes nowhere
            p.counters[PARCELS_IN] += 1
            p.counters[UNROUTED] += 1
        else:
            self.fault(port, p, f"frame kind 0x{kind:02x} is only sent by nodes to clients")
        return 0

    cdef void tell_refused(self, int port, Port* p) noexcept:
        """What was not taken of this client's events so far; it reads that before the ECHO that confirms the others."""
        cdef uint8_t frame[20]
        put_header(frame, DENIAL, 16)
        put64(frame + 4, p.refused_by_rule)
        put64(frame + 12, p.refused_for_room)
        if self.put_frame(port, p, 0, frame, 20, False) == 0:
            p.refused_told = p.refused_by_rule + p.refused_for_room

    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        """Decide and copy run by run."""
        cdef uint32_t position = 0, length = 0, count = 0, start = 0, alike = 0
        cdef uint64_t seen = 0
        cdef PortList* targets = NULL
        cdef PortList* found
        cdef int verdict, arrival = p.partner if p.partner >= 0 else port
        while position < size:
            if size - position < 24:
                self.fault(port, p, f"STATUS record cut at {size - position} of 24 bytes")
            length = record_size(payload + position)
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
            found = self.status.decide_run(arrival, payload + position, min(size - position, <uint32_t> RUN_BYTES),
                                           self.wall_ns, &verdict, &length, &alike)
            if found != targets or found == NULL or position + length - start > RUN_BYTES:
                if count:
                    self.send_records(arrival, targets, payload + start, position - start, count)
                targets = found
                start = position
                count = 0
            if found != NULL:
                count += alike
            else:
                # verdicts and counters have the same order
                self.count_drop(port, p, DROP_UNKNOWN + verdict - 1, OF_VARIABLE, get32(payload + position + 8), 1)
            position += length
        if count:
            self.send_records(arrival, targets, payload + start, position - start, count)
        return 0

    cdef void send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size,
                           uint32_t count) noexcept:
        cdef int i, port
        cdef uint32_t item
        if targets.n + targets.nfail == 0:
            self.table[arrival].counters[UNROUTED] += count
        for i in range(targets.n):
            item = targets.items[i]
            port = <int> (item >> 2)
            if port != arrival and port < self.ntable:
                self.put_status(port, self.table[port], item & 3, start, size, count)
        for i in range(targets.n, targets.n + targets.nfail):
            port = <int> (targets.items[i] >> 2)
            if port != arrival and port < self.ntable:
                self.table[port].counters[FILTERED] += count

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
            length = payload_size(data)
            if <Py_ssize_t> length + 4 != size:
                self.fault(port, p, "a datagram carries exactly one frame")
            p.counters[FRAMES_IN] += 1
            self.other_frame(port, p, data, length)
        except ProtocolError:
            p.failed = False
            return 0
        return 1
