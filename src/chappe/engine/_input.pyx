"""What enters an engine: every frame of a buffer parsed, routed and filtered in one call.

The hot path rewrites topic and issuer numbers in the receive buffer and merges consecutive frames for the same
subscribers into runs, so that a run costs one copy a port.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from chappe.engine cimport _output
from chappe.engine._bytes cimport get32, get64, payload_size, put32, put64, put_header, record_size
from chappe.engine._definitions cimport DENIED, NO_ROOM, ROUTED, Definitions
from chappe.engine._forwarding cimport ForwardingEntry
from chappe.engine._intervals cimport class_of
from chappe.engine._issuers cimport next_in_order, seen_before
from chappe.engine._memory cimport memory_give, resize_or_raise
from chappe.engine._parcels cimport Parcels
from chappe.engine._ports cimport *
from chappe.engine._queue cimport RUN_BYTES
from chappe.engine._status cimport PortList, StatusTable
from chappe.engine._topics cimport Route, Topic
from chappe.engine._trains cimport Trains

from chappe.errors import ProtocolError

cdef enum:
    CARRY_START = 512
    DEFERRED_MAX = 4194304     # bytes of one port; it is not read meanwhile: only what is under way comes on top
    KEEP = 0                   # verdicts on an extension
    EXPIRED = 1
    MALFORMED = 2


cdef inline bint known_kind(int kind) noexcept nogil:
    return (kind == EVENT or kind == STATUS or kind == TOPIC or kind == ISSUER or kind == PARCEL or kind == PROBE
            or kind == ECHO or kind == CONTROL or kind == LOSS or kind == CREDIT or kind == ROUTE or kind == TRAIN
            or kind == TRAINED or kind == DENIAL or kind == PARCEL_CREDIT)


cdef uint32_t _frame_need(Port* p, const uint8_t* head) except 0:
    cdef uint32_t length = payload_size(head)
    if not known_kind(head[0]):
        fault(p, f"unknown frame kind 0x{head[0]:02x}")
    if length > p.max_frame:
        fault(p, f"frame of {length} bytes, this link accepts at most {p.max_frame}")
    return 4 + length


# not final: gcc would inline what is rarely called into the loop over frames, which costs it registers
cdef class Input:
    """Bytes of ports in; runs of frames to delivery and forwarding, the rest to whom it concerns."""

    def __cinit__(self, Ports ports not None, StatusTable status not None, Definitions definitions not None,
                  Trains trains not None, Parcels parcels not None):
        self.ports = ports
        self.topics = ports.topics
        self.issuers = ports.issuers
        self.status = status
        self.definitions = definitions
        self.forwarding = definitions.forwarding
        self.delivery = self.forwarding.delivery
        self.acks = self.forwarding.acks
        self.trains = trains
        self.parcels = parcels
        self.control_inbox = []
        self.echo_inbox = []
        self.deferred_ports = []
        self.asked_ports = []
        self.most = -1

    cdef int feed(self, int port, uint8_t* data, Py_ssize_t size) except -1:
        cdef Port* p = self.ports.port_at(port)
        cdef Py_ssize_t used = 0, take
        cdef uint32_t need
        if p.state != OPEN or p.failed:
            return 0
        p.last_heard = self.ports.clocks.mono_ns
        p.counters[BYTES_IN] += size
        if p.deferred:
            return self._defer(port, p, data, size)
        self.forwarding.questions = self.messages = 0
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
                        fault(p, f"unknown frame kind 0x{p.carry[0]:02x}")
                    return 0
            need = _frame_need(p, p.carry)
            if p.carry_capacity < need:
                self._grow_carry(p, need)
            take = min(<Py_ssize_t> (need - p.carry_size), size - used)
            memcpy(p.carry + p.carry_size, data + used, take)
            p.carry_size += take
            used += take
            if p.carry_size < need:
                return 0
            p.carry_size = 0
            self._frames(port, p, p.carry, need)
            if self.waits:
                p.carry_size = need
                return self._defer(port, p, data + used, size - used)
        used += self._frames(port, p, data + used, size - used)
        if self.forwarding.questions:
            if not p.asked:
                self.asked_ports.append(port)
            p.asked += self.forwarding.questions
            self.attention[0] = True
        if self.waits:
            self._defer(port, p, data + used, size - used)
        elif used < size:
            take = size - used
            if not known_kind(data[used]):
                fault(p, f"unknown frame kind 0x{data[used]:02x}")
            if p.carry_capacity < take:
                self._grow_carry(p, max(<uint32_t> take, CARRY_START))
            memcpy(p.carry, data + used, take)
            p.carry_size = take
            if p.train_in.size and p.train_in.half == self.ports.clocks.mono_ns and data[used] == TRAIN:
                # bytes of the next frame came together with those that the first half ends with
                p.train_in.after = min(p.train_in.done + <uint32_t> take, p.train_in.size)
        if p.window:
            _output.grant_credit(self.ports, port, p)
        return 0

    cdef int feed_datagram(self, int port, uint8_t* data, Py_ssize_t size) except -1:
        """One datagram's frame: 1 if it was good. A bad one is counted and touches nothing else."""
        cdef Port* p = self.ports.port_at(port)
        cdef uint32_t length
        if p.state != OPEN:
            return 0
        p.last_heard = self.ports.clocks.mono_ns
        p.counters[BYTES_IN] += size
        try:
            if size < 4 or data[0] not in (STATUS, PROBE, ECHO):
                fault(p, "a datagram carries one STATUS, PROBE or ECHO frame")
            length = payload_size(data)
            if <Py_ssize_t> length + 4 != size:
                fault(p, "a datagram carries exactly one frame")
            p.counters[FRAMES_IN] += 1
            self._other_frame(port, p, data, length)
        except ProtocolError:
            p.failed = False
            return 0
        return 1

    cdef list feed_deferred(self, object ports, int most):
        """Go on with bytes that wait; (port, error) of those that turned out to be bad."""
        cdef list turn = self.deferred_ports, failed = [], left = []
        cdef int port, asked = 0
        cdef Port* p
        cdef uint8_t* data
        cdef uint32_t size
        self.deferred_ports = []
        for port in turn:
            p = self.ports.port_at(port)
            if not p.deferred:
                continue
            if asked >= most or (p.patient if ports is None else port not in ports):
                left.append(port)
                continue
            data, size = p.carry, p.carry_size
            p.carry = NULL
            p.carry_size = p.carry_capacity = 0
            p.deferred = False
            p.counters[BYTES_IN] -= size
            self.most = most - asked
            try:
                self.feed(port, data, size)
            except ProtocolError as error:
                failed.append((port, error))
            except MemoryError as error:
                failed.append((port, ProtocolError(str(error))))
            finally:
                self.most = -1
                memory_give(self.ports.memory, data)
            asked += max(self.forwarding.questions, 1)
        self.deferred_ports = left + self.deferred_ports
        return failed

    cdef int _defer(self, int port, Port* p, const uint8_t* data, Py_ssize_t size) except -1:
        """Keep bytes for `feed_deferred`."""
        if p.carry_size + size > DEFERRED_MAX:
            fault(p, f"more than {DEFERRED_MAX} bytes wait for definitions of topics to be looked at")
        if p.carry_capacity < p.carry_size + size:
            self._grow_carry(p, <uint32_t> (p.carry_size + size))
        memcpy(p.carry + p.carry_size, data, size)
        p.carry_size += size
        if not p.deferred:
            p.deferred = True
            self.deferred_ports.append(port)
            self.attention[0] = True
        return 0

    cdef int _grow_carry(self, Port* p, uint32_t need) except -1:
        p.carry = <uint8_t*> resize_or_raise(self.ports.memory, p.carry, need)
        p.carry_capacity = need
        return 0

    # --- frames

    cdef Py_ssize_t _frames(self, int port, Port* p, uint8_t* data, Py_ssize_t size) except -1:
        """Process whole frames; the number of bytes used."""
        cdef Py_ssize_t position = 0
        cdef uint32_t length, number, sequence, issuer, total
        cdef uint64_t nframes = 0, nevents = 0, event_bytes = 0
        cdef uint8_t* frame
        cdef uint8_t* payload
        cdef int kind, flags, verdict
        cdef ForwardedRun run
        cdef Topic* topic
        cdef Route* route
        cdef ForwardingEntry* entry
        cdef bint peer = p.peer, again, meshed = self.forwarding.meshed and not peer
        cdef bint spent = self.forwarding.questions >= self.allowed  # no more questions in this buffer
        cdef str wrong = None
        cdef uint64_t stamp
        if self.ports.nstarved:
            self.ports.feed_starved()
        stamp = self.topics.stamp
        run.events.count = 0
        run.events.route = NULL
        run.events.end = NULL
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
                if ((spent and (kind == TOPIC or kind == ROUTE))
                        or (kind == CONTROL and self.messages >= (MESSAGES_PATIENT if p.patient else MESSAGES))):
                    self.waits = True
                    break
                position += total
                nframes += 1
                if run.events.count:
                    self._send(port, p, &run)
                # counts must be exact when this frame turns out to be bad
                p.counters[FRAMES_IN] += nframes
                nframes = 0
                if nevents:
                    p.counters[EVENTS_IN] += nevents
                    p.event_bytes += event_bytes
                    self._limit_frames(p, nevents)
                    nevents = event_bytes = 0
                if p.rate > 0 and kind != STATUS:
                    self._limit_frames(p, 1)  # of STATUS each record counts
                self._other_frame(port, p, frame, length)
                stamp = self.topics.stamp
                spent = self.forwarding.questions >= self.allowed
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
            entry = NULL
            if ROUTED < number < NO_ROOM:
                entry = self.forwarding.entries[number & ~ROUTED]
                number = entry.topic
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
                verdict = self._extension_verdict(payload + 12, length - 12)
                if verdict == MALFORMED:
                    wrong = "EVENT extension reaches past the frame or is not a list of items"
                    break
            else:
                verdict = KEEP
            if number >= NO_ROOM:  # before it is remembered: sent again it is refused again
                if not peer:
                    self.definitions.refuse(port, p, get32(payload), number == DENIED)
                self.ports.count_drop(p, DROP_NOT_PERMITTED if number == DENIED else DROP_NO_ROOM, OF_TOPIC, 0, 1)
                continue
            if spent and self._would_ask(number, entry, meshed):
                self.waits = True
                position -= total
                nframes -= 1
                nevents -= 1
                event_bytes -= total
                break
            sequence = get32(payload + 8)
            if entry != NULL:
                p.counters[ROUTED_IN] += 1
                if entry.asked != self.topics.forwarding_stamp:
                    if run.events.count:
                        self._send(port, p, &run)
                    self.forwarding.ask(p, entry)
                    stamp = self.topics.stamp
                    spent = self.forwarding.questions >= self.allowed
            # identity is remembered where events are delivered: who only passes one on may deliver another copy
            again = ((entry == NULL or entry.deliver_here)
                     and not next_in_order(&self.issuers.items[issuer], sequence, peer)
                     and seen_before(&self.issuers.items[issuer], sequence, peer))
            if again:
                self.ports.count_drop(p, DROP_DUPLICATE, OF_TOPIC, number, 1)
                if entry == NULL or verdict == EXPIRED:
                    continue
            if verdict == EXPIRED:
                self.ports.count_drop(p, DROP_EXPIRED, OF_TOPIC, number, 1)
                continue
            if meshed:
                if number >= self.forwarding.npublished or self.forwarding.published[number] == 0:
                    try:
                        self.forwarding.entry_of(number)
                    except MemoryError:
                        self.ports.count_drop(p, DROP_NO_MEMORY, OF_TOPIC, number, 1)
                        continue
                entry = self.forwarding.entries[self.forwarding.published[number]]
                if entry.asked != self.topics.forwarding_stamp:
                    if run.events.count:
                        self._send(port, p, &run)
                    self.forwarding.ask(p, entry)
                    stamp = self.topics.stamp
                    spent = self.forwarding.questions >= self.allowed
            if entry != NULL:
                if entry.plain and not again:
                    entry = NULL
                elif again and entry.nhops == 0 and not entry.unreachable:
                    continue
            if entry == NULL or (entry.deliver_here and not again):
                topic = &self.topics.topics[number]
                if topic.stamp != stamp:
                    if run.events.count:
                        self._send(port, p, &run)
                    if self.topics.resolve(number) == NULL:
                        self.ports.count_drop(p, DROP_NO_MEMORY, OF_TOPIC, number, 1)
                        continue
                    topic = &self.topics.topics[number]
                route = topic.route
                if number >= self.delivery.ndefined or self.delivery.defined[number] != stamp:
                    if run.events.count:
                        self._send(port, p, &run)
                    self.delivery.define_route(number, route)
            else:
                route = self.topics.empty
            put32(payload, number)
            payload[5] = <uint8_t> (issuer >> 16)
            payload[6] = <uint8_t> (issuer >> 8)
            payload[7] = <uint8_t> issuer
            if (run.events.count and route == run.events.route and frame == run.events.end
                    and class_of(flags & 7) == run.events.cls and issuer == run.events.issuer
                    and run.events.end - run.events.start + total <= RUN_BYTES and route.ngroups == 0
                    and entry == run.entry and again == run.again):
                run.events.end += total
                run.events.count += 1
                if number != run.events.topic:
                    run.events.topic = 0
                continue
            if run.events.count:
                self._send(port, p, &run)
            run.entry = entry
            run.again = again
            run.events.route = route
            run.events.start = frame
            run.events.end = frame + total
            run.events.count = 1
            run.events.cls = class_of(flags & 7)
            run.events.issuer = issuer
            run.events.topic = number
        if run.events.count:
            self._send(port, p, &run)
        p.counters[FRAMES_IN] += nframes
        p.counters[EVENTS_IN] += nevents
        p.event_bytes += event_bytes
        if nevents:
            self._limit_frames(p, nevents)
        if wrong is not None:
            fault(p, wrong)
        if size - position >= 4:
            _frame_need(p, data + position)
        return position

    cdef void _send(self, int port, Port* p, ForwardedRun* run) noexcept:
        if run.entry == NULL:
            self.delivery.deliver(port, p, &run.events)
        else:
            self.forwarding.forward(port, p, &run.events, run.entry, run.again)
        run.events.count = 0

    cdef int _extension_verdict(self, const uint8_t* body, uint32_t size) noexcept:
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
                if <int64_t> get64(body + position + 3) < self.ports.clocks.wall_ns:
                    verdict = EXPIRED
            position += 3 + item
        return verdict

    cdef bint _would_ask(self, uint32_t number, ForwardingEntry* entry, bint meshed) noexcept:
        """Whether Python has to say where an event goes."""
        if not self.forwarding.limited:
            return False
        if entry == NULL and meshed:
            if number >= self.forwarding.npublished or self.forwarding.published[number] == 0:
                return True
            entry = self.forwarding.entries[self.forwarding.published[number]]
        return entry != NULL and entry.asked != self.topics.forwarding_stamp

    cdef void _limit_frames(self, Port* p, uint64_t events) noexcept:
        """Token bucket of a client's port; below zero the caller stops reading for a while."""
        if p.rate <= 0:
            return
        p.tokens = min(p.burst, p.tokens + p.rate * 1e-9 * <double> (self.ports.clocks.mono_ns - p.tokens_at))
        p.tokens_at = self.ports.clocks.mono_ns
        if p.tokens >= 0 and p.tokens < <double> events:
            p.counters[THROTTLED] += 1
        p.tokens -= <double> events
        if p.tokens < 0:
            self.overdrawn = True

    cdef int _other_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) except -1:
        cdef int kind = frame[0], result
        cdef uint8_t* payload = frame + 4
        cdef uint64_t token
        if kind == STATUS:
            self.status_frame(port, p, payload, length)
        elif kind == TOPIC:
            self.definitions.topic_frame(port, p, payload, length)
        elif kind == ISSUER:
            self.definitions.issuer_frame(p, payload, length)
        elif kind == ROUTE:
            self.definitions.route_frame(port, p, payload, length)
        elif kind == TRAIN:
            self.trains.train_frame(port, p, payload, length)
        elif kind == TRAINED:
            self.trains.trained_frame(port, p, payload, length)
        elif kind == PROBE:
            if length < 16 or length > 1400:
                fault(p, f"PROBE of {length} bytes, 16 to 1400 are allowed")
            p.counters[PROBES_IN] += 1
            if p.nonward:
                self.acks.defer_echo(p, frame)
            if p.refused_by_rule + p.refused_for_room != p.refused_told:
                self._report_refused(port, p)
            frame[0] = ECHO
            result = self.ports.put_frame(port, p, 0, frame, length + 4, True)
            if result < 0:
                p.counters[-result] += 1
        elif kind == ECHO:
            if length < 16:
                fault(p, f"ECHO of {length} bytes, at least 16 are needed")
            token = get64(payload)
            if token >> 63:
                self.acks.released_echo(port, p, token)
            elif token:
                self.echo_inbox.append((port, token, p.probe_sent_at if token == p.probe_token else 0,
                                        self.ports.clocks.mono_ns))
        elif kind == CONTROL:
            p.counters[CONTROL_IN] += 1
            self.messages += 1
            self.control_inbox.append((port, payload[:length]))
            self.attention[0] = True
        elif kind == PARCEL:
            self.parcels.parcel_frame(port, p, frame, length)
        else:
            fault(p, f"frame kind 0x{kind:02x} is only sent by nodes to clients")
        return 0

    cdef void _report_refused(self, int port, Port* p) noexcept:
        """What was not taken of this client's events so far; it reads that before the ECHO that confirms the others."""
        cdef uint8_t frame[20]
        put_header(frame, DENIAL, 16)
        put64(frame + 4, p.refused_by_rule)
        put64(frame + 12, p.refused_for_room)
        if self.ports.put_frame(port, p, 0, frame, 20, False) == 0:
            p.refused_told = p.refused_by_rule + p.refused_for_room

    # --- status

    cdef int status_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        """Decide and copy run by run."""
        cdef uint32_t position = 0, length = 0, count = 0, start = 0, alike = 0
        cdef uint64_t seen = 0
        cdef PortList* targets = NULL
        cdef PortList* found
        cdef int verdict, arrival = p.partner if p.partner >= 0 else port
        while position < size:
            if size - position < 24:
                fault(p, f"STATUS record cut at {size - position} of 24 bytes")
            length = record_size(payload + position)
            if length > size - position:
                fault(p, f"STATUS record with {payload[position + 12]} option blocks reaches past its frame")
            position += length
            seen += 1
        if seen == 0:
            fault(p, "STATUS frame without a record")
        p.counters[STATUS_IN] += seen
        if p.rate > 0:
            self._limit_frames(p, seen)
        position = 0
        while position < size:
            found = self.status.decide_run(arrival, payload + position, min(size - position, <uint32_t> RUN_BYTES),
                                           self.ports.clocks.wall_ns, &verdict, &length, &alike)
            if found != targets or found == NULL or position + length - start > RUN_BYTES:
                if count:
                    self._send_records(arrival, targets, payload + start, position - start, count)
                targets = found
                start = position
                count = 0
            if found != NULL:
                count += alike
            else:
                # verdicts and counters have the same order
                self.ports.count_drop(p, DROP_UNKNOWN + verdict - 1, OF_VARIABLE,
                                      get32(payload + position + 8), 1)
            position += length
        if count:
            self._send_records(arrival, targets, payload + start, position - start, count)
        return 0

    cdef void _send_records(self, int arrival, PortList* targets, uint8_t* start, uint32_t size,
                            uint32_t count) noexcept:
        cdef int i, port
        cdef uint32_t item
        if targets.n + targets.nfail == 0:
            self.ports.table[arrival].counters[UNROUTED] += count
        for i in range(targets.n):
            item = targets.items[i]
            port = <int> (item >> 2)
            if port != arrival and port < self.ports.ntable:
                self.ports.put_status(port, self.ports.table[port], item & 3, start, size, count)
        for i in range(targets.n, targets.n + targets.nfail):
            port = <int> (targets.items[i] >> 2)
            if port != arrival and port < self.ports.ntable:
                self.ports.table[port].counters[FILTERED] += count

    cdef int forget_port(self, int port, Port* p) except -1:
        """The port is closed: none of its bytes wait any more."""
        p.carry_size = 0
        p.deferred = p.patient = False
        for waiting in (self.deferred_ports, self.asked_ports):
            if port in waiting:
                waiting.remove(port)
        return 0
