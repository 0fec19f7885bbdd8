"""Forwarding of events through the mesh: what was decided about source routes, and the events that wait.

A source route is bytes to the engine. Those who can read it are asked once per definition and whenever routes change;
between two questions a whole run of events is copied to each neighbour, its topic numbers rewritten.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from chappe.engine cimport _output
from chappe.engine._acknowledgements cimport Acknowledgements
from chappe.engine._bytes cimport frame_size, get32, put32
from chappe.engine._delivery cimport Delivery, Run
from chappe.engine._intervals cimport class_of
from chappe.engine._memory cimport memory_give, memory_resize, resize_or_raise
from chappe.engine._ports cimport (
    DROP_INCAPABLE,
    DROP_NO_MEMORY,
    DROP_NO_ROUTE,
    DROP_NOT_PERMITTED,
    DROP_WAITED,
    EVENT,
    EVENTS_OUT,
    HELD,
    HELD_EARLY,
    NOWHERE,
    OF_TOPIC,
    OPEN,
    PARKED,
    REROUTED,
    ROUTE_ERRORS,
    ROUTED_OUT,
    UNROUTED,
    Port,
    Ports,
    knows_topic,
)
from chappe.engine._queue cimport Segment, count_add
from chappe.engine._topics cimport ROUTED_TOPIC, Route, Topic
from chappe.engine._topics_names cimport topic_fault

from chappe.engine.routes import ForwardingDecision, Undelivered
from chappe.errors import ChappeError

cdef enum:
    ROUTE_LIMIT = 0xFFFF           # bytes of one source route
    FIRST_MARK = 1024
    HELD_LIMIT = 4194304           # bytes that wait, all entries together
    UNDELIVERABLE_LIMIT = 8388608  # bytes without a route until somebody takes them
    UNDELIVERABLE_EACH = 256       # what the object of an event takes besides its bytes
    TAKEN = 0                      # kind of a frame that was taken out: no other part of the engine looks at it

# not in the enum: C makes an int of its members, and this is more than one holds
cdef const int64_t HOLD_LIMIT_NS = 10_000_000_000
cdef int64_t RECYCLE_PAUSE_NS = 100_000_000


@cython.final
cdef class Forwarding:
    """The forwarding entries of an engine, and the events that wait in front of them or lost their next hop."""

    def __cinit__(self, Ports ports not None, Delivery delivery not None, Acknowledgements acks not None, plan_route,
                  forward_route, bint limited):
        self.ports = ports
        self.topics = ports.topics
        self.issuers = ports.issuers
        self.delivery = delivery
        self.acks = acks
        self.plan_route = plan_route
        self.forward_route = forward_route
        self.meshed = plan_route is not None
        self.limited = limited
        self.nentries = 1
        self.spare_entries = []
        self.chosen_groups = {}
        self.unreachable_routes = {}
        self.undeliverable = []
        self.recycle_at = FIRST_MARK

    def __dealloc__(self):
        cdef uint32_t i
        cdef Held* held
        for i in range(self.nholding):
            while self.holding[i].first != NULL:
                held = self.holding[i].first
                self.holding[i].first = held.next
                free(held)
        free(self.holding)
        for i in range(1, self.nentries):
            if self.entries[i] != NULL:
                free(self.entries[i].source_route)
                free(self.entries[i].next_hops)
                free(self.entries[i].allow)
                free(self.entries[i])
        free(self.entries)
        free(self.published)

    # --- entries

    cdef ForwardingEntry* new_entry(self, uint32_t topic, int port) except NULL:
        cdef uint32_t place, room
        cdef ForwardingEntry* entry
        if not self.spare_entries and self.nentries >= self.entries_room:
            room = max(self.entries_room * 2, <uint32_t> 16)
            self.entries = <ForwardingEntry**> resize_or_raise(self.ports.memory, self.entries,
                                                               room * sizeof(ForwardingEntry*))
            memset(self.entries + self.entries_room, 0, (room - self.entries_room) * sizeof(ForwardingEntry*))
            self.entries_room = room
        entry = <ForwardingEntry*> resize_or_raise(self.ports.memory, NULL, sizeof(ForwardingEntry))
        if self.spare_entries:
            place = self.spare_entries.pop()
        else:
            place = self.nentries
            self.nentries += 1
        memset(entry, 0, sizeof(ForwardingEntry))
        entry.topic = topic
        entry.place = place
        entry.port = port
        self.entries[place] = entry
        return entry

    cdef int free_entry(self, ForwardingEntry* entry) except -1:
        self._drop_next_hops(entry.next_hops, entry.nhops)
        self._free_held(entry)
        self.chosen_groups.pop(entry.place, None)
        self.unreachable_routes.pop(entry.place, None)
        self.entries[entry.place] = NULL
        self.spare_entries.append(entry.place)
        memory_give(self.ports.memory, entry.source_route)
        memory_give(self.ports.memory, entry.allow)
        memory_give(self.ports.memory, entry)
        return 0

    cdef ForwardingEntry* entry_of(self, uint32_t topic) except NULL:
        """The entry of events that clients of this node publish to a topic, made if it has none."""
        cdef uint32_t room
        if topic >= self.npublished:
            room = max(topic + 1, self.npublished * 2, <uint32_t> 16)
            self.published = <uint32_t*> resize_or_raise(self.ports.memory, self.published, room * sizeof(uint32_t))
            memset(self.published + self.npublished, 0, (room - self.npublished) * sizeof(uint32_t))
            self.npublished = room
        if self.published[topic] == 0:
            self.published[topic] = self.new_entry(topic, -1).place
        return self.entries[self.published[topic]]

    cdef int _forget_topic(self, uint32_t topic) except -1:
        """The number gets another meaning."""
        if topic < self.npublished and self.published[topic]:
            self.free_entry(self.entries[self.published[topic]])
            self.published[topic] = 0
        return 0

    # --- decisions

    cdef int ask(self, Port* p, ForwardingEntry* entry) except -1:
        """Where events of a entry go now; what the answer cannot be used for is counted, and ends here."""
        cdef uint64_t asked = self.topics.forwarding_stamp
        cdef uint64_t* errors = &self.ports.past[ROUTE_ERRORS] if p == NULL else &p.counters[ROUTE_ERRORS]
        cdef int64_t hold_ns
        cdef list next_hops = []
        cdef bint deliver_here, failed = False, may_return = False
        cdef uint32_t by_rules = 0, for_capability = 0
        cdef bytes unreachable = b""
        if self.limited:
            self.questions += 1
        kind, name, _ = self.topics.name(entry.topic)
        try:
            if entry.port < 0:
                decision = self.plan_route(kind, name)
            elif self.forward_route is None:
                decision = ForwardingDecision(False)
            else:
                decision = self.forward_route(entry.port, (<char*> entry.source_route)[:entry.route_size], kind, name)
            if not isinstance(decision, ForwardingDecision):
                raise TypeError(f"the answer is a ForwardingDecision, not {decision!r}")
            deliver_here = bool(decision.deliver_here)
            hold_ns = min(max(int(decision.hold_ns), 0), HOLD_LIMIT_NS)
            unreachable, may_return = decision.unreachable, decision.may_return
            by_rules, for_capability = decision.withheld_by_rules, decision.withheld_for_capability
            for target, source_route in decision.next_hops:
                if not isinstance(target, int) or not isinstance(source_route, bytes):
                    raise TypeError(f"a next hop is (port, source route as bytes), not ({target!r}, {source_route!r})")
                next_hops.append((target, source_route))
            chosen = None if decision.groups is None else frozenset(decision.groups)
        except Exception as error:
            self.route_error = error
            errors[0] += 1
            # who subscribed at this node is known without the mesh
            deliver_here = entry.port < 0
            chosen, hold_ns, failed = None, 0, True
            next_hops, unreachable = [], b""
            by_rules = for_capability = 0
        entry.withheld_by_rules = by_rules
        entry.withheld_for_capability = for_capability
        entry.deliver_here = deliver_here
        entry.may_return = may_return
        entry.unreachable = len(unreachable) > 0
        if entry.unreachable:
            self.unreachable_routes[entry.place] = unreachable
        else:
            self.unreachable_routes.pop(entry.place, None)
        entry.unusable = failed or (not deliver_here and not next_hops and not entry.unreachable and not by_rules
                                    and not for_capability)
        try:
            self._set_next_hops(entry, next_hops)
        except MemoryError as error:
            self.route_error = error
            errors[0] += 1
            entry.unusable += <uint32_t> len(next_hops)
            entry.nhops = 0
        entry.chosen = deliver_here and chosen is not None
        entry.allow_stamp = 0
        if entry.chosen:
            self.chosen_groups[entry.place] = chosen
        else:
            self.chosen_groups.pop(entry.place, None)
        if hold_ns and entry.port < 0:
            entry.hold_until = max(entry.hold_until, self.ports.clocks.mono_ns + hold_ns)
        entry.plain = (deliver_here and not entry.chosen and entry.nhops == 0 and entry.unusable == 0
                       and entry.first == NULL and not entry.unreachable and not by_rules and not for_capability)
        entry.asked = asked
        return 0

    cdef int _set_next_hops(self, ForwardingEntry* entry, list next_hops) except -1:
        """Numbers for every next hop, known to its port; those of the last answer are given back afterwards."""
        cdef NextHop* old = entry.next_hops
        cdef uint32_t nold = entry.nhops, n = 0, pair
        cdef NextHop* fresh = NULL
        cdef Topic* topic
        cdef Port* q
        # what the last answer held is given back whatever happens: without memory there are no next_hops at all
        entry.next_hops = NULL
        entry.nhops = 0
        try:
            if next_hops:
                fresh = <NextHop*> resize_or_raise(self.ports.memory, NULL, len(next_hops) * sizeof(NextHop))
        except MemoryError:
            self._drop_next_hops(old, nold)
            raise
        for target, source_route in next_hops:
            pair = 0
            if ((target != entry.port or entry.may_return) and 0 <= target < self.ports.ntable and self._usable(target)
                    and 0 < len(source_route) <= ROUTE_LIMIT):
                topic = &self.topics.topics[entry.topic]
                self.topics.charging = topic.account
                pair = self._pair_number(topic.name, topic.length, topic.kind, source_route)
            if pair:
                q = self.ports.table[<int> target]
                if not knows_topic(q, pair):
                    if not self.ports.define_topic(target, q, pair):
                        pair = 0  # asked again when that port has room for definitions
            if pair == 0:
                entry.unusable += 1
                continue
            self.topics.topics[pair].refs += 1
            fresh[n].port = target
            fresh[n].pair = pair
            n += 1
        entry.next_hops = fresh
        entry.nhops = n
        self._drop_next_hops(old, nold)
        return 0

    cdef void _drop_next_hops(self, NextHop* next_hops, uint32_t count) noexcept:
        cdef uint32_t i
        for i in range(count):
            self.topics.topics[next_hops[i].pair].refs -= 1
            self.topics.released += 1
        memory_give(self.ports.memory, next_hops)

    cdef bint _usable(self, int port) noexcept:
        """Whether events with a source route can be sent there: a peer's stream that is there or may come back."""
        cdef Port* q = self.ports.table[port]
        return q != NULL and (q.state == OPEN or q.state == PARKED) and q.peer and not q.datagram

    cdef uint32_t _pair_number(self, const uint8_t* name, uint32_t size, int kind, bytes source_route) except? 0:
        """Number of a (topic, source route) pair, or 0; numbers that nobody holds are looked for now and then."""
        cdef uint32_t pair
        if self.topics.routed_topics >= self.recycle_at:
            self.recycle()
            self.recycle_at = max(<uint32_t> FIRST_MARK, self.topics.routed_topics * 2)
        pair = self.topics.intern_routed(name, size, kind, source_route)
        if pair == 0:
            self.recycle()
            pair = self.topics.intern_routed(name, size, kind, source_route)
        return pair

    # --- sending

    cdef void forward(self, int arrival, Port* p, Run* run, ForwardingEntry* entry, bint again) noexcept:
        """Copy a run to the subscribers of this node, then to each next hop under its number there."""
        cdef Route* route = run.route
        cdef uint32_t size = <uint32_t> (run.end - run.start), j
        cdef int i, b = 0, port
        cdef bint back, is_next_hop
        for i in range(route.n):
            port = <int> route.ports[i]
            back = b < route.nback and route.back[b] == <uint32_t> port
            if back:
                b += 1
            is_next_hop = port == arrival and p.peer
            for j in range(entry.nhops):
                is_next_hop = is_next_hop or entry.next_hops[j].port == port
            if is_next_hop:
                continue
            self.ports.put_events(port, self.ports.table[port], run.cls, run.start, size, run.count, run.issuer,
                                  run.topic, back and p.window != 0)
            if back:
                _output.hold(self.ports, arrival, p, port, self.ports.table[port])
        if route.ngroups:
            if not entry.chosen or self._choose_groups(entry, route):
                self.delivery.deliver_to_groups(arrival, p, run, entry.allow if entry.chosen else NULL)
            else:
                self.ports.count_drop(p, DROP_NO_MEMORY, OF_TOPIC, run.topic, run.count)
        if entry.withheld_by_rules and not again:
            self.ports.count_drop(p, DROP_NOT_PERMITTED, OF_TOPIC, run.topic,
                            <uint64_t> entry.withheld_by_rules * run.count)
        if entry.withheld_for_capability and not again:
            self.ports.count_drop(p, DROP_INCAPABLE, OF_TOPIC, run.topic,
                            <uint64_t> entry.withheld_for_capability * run.count)
        if entry.unusable and not again:
            self.ports.count_drop(p, DROP_NO_ROUTE, OF_TOPIC, run.topic, <uint64_t> entry.unusable * run.count)
        elif (route.n == 0 and route.ngroups == 0 and entry.nhops == 0 and not again and not entry.unreachable
                and not entry.withheld_by_rules and not entry.withheld_for_capability):
            p.counters[UNROUTED] += run.count
        if (entry.nhops or entry.unreachable) and not self._hold_back(p, entry, run):
            self._send(entry, run.start, size, run.count, run.issuer, run.cls)
            if entry.unreachable:
                self._keep(entry, run.start, size, run.count)

    cdef void _send(self, ForwardingEntry* entry, uint8_t* start, uint32_t size, uint32_t count, uint32_t issuer,
                    int cls) noexcept:
        """A run to each next hop; its topic numbers are overwritten."""
        cdef uint32_t i, position, pair
        cdef uint64_t before
        cdef Port* q
        for i in range(entry.nhops):
            q = self.ports.table[entry.next_hops[i].port]
            pair = entry.next_hops[i].pair
            position = 0
            while position < size:
                put32(start + position + 4, pair)
                position += frame_size(start + position)
            before = q.counters[EVENTS_OUT]
            self.ports.put_events(entry.next_hops[i].port, q, cls, start, size, count, issuer, pair, False)
            q.counters[ROUTED_OUT] += q.counters[EVENTS_OUT] - before
            if entry.port >= 0:
                self.acks.mark_onward(entry.port, entry.next_hops[i].port, cls)

    cdef bint _choose_groups(self, ForwardingEntry* entry, Route* route) except -1:
        """Which groups of the route are served here, looked up once per change of them; False without memory."""
        cdef int g
        cdef void* block
        if entry.allow_stamp != self.topics.stamp:
            chosen = self.chosen_groups[entry.place]
            block = memory_resize(self.ports.memory, entry.allow, route.ngroups)
            if block == NULL:
                return False
            entry.allow = <uint8_t*> block
            for g in range(route.ngroups):
                entry.allow[g] = self.topics.group_table.name(route.groups[g].group) in chosen
            entry.allow_stamp = self.topics.stamp
        return True

    # --- waiting until nothing older can be overtaken

    cdef bint _hold_back(self, Port* p, ForwardingEntry* entry, Run* run) noexcept:
        """Whether a run waits before it enters the mesh."""
        cdef uint32_t size = <uint32_t> (run.end - run.start)
        cdef Held* held = NULL
        if entry.hold_until == 0:
            return False
        if self.ports.clocks.mono_ns < entry.hold_until and self.held_bytes + size <= HELD_LIMIT:
            held = self._new_held(entry, size)
        if held == NULL:
            if self.ports.clocks.mono_ns < entry.hold_until:
                p.counters[HELD_EARLY] += entry.nheld + run.count
            entry.hold_until = 0
            self._send_held(entry)
            return False
        held.next = NULL
        held.size = size
        held.count = run.count
        held.issuer = run.issuer
        held.cls = run.cls
        memcpy(held + 1, run.start, size)
        if entry.first == NULL:
            entry.first = held
            self.holding[self.nholding] = entry
            self.nholding += 1
        else:
            entry.last.next = held
        entry.last = held
        entry.nheld += run.count
        self.held_bytes += size
        p.counters[HELD] += run.count
        return True

    cdef Held* _new_held(self, ForwardingEntry* entry, uint32_t size) noexcept:
        """Room for a run, and for its entry in the list of those that hold some; NULL without memory."""
        cdef void* block
        if entry.first == NULL and self.nholding == self.holding_room:
            block = memory_resize(self.ports.memory, self.holding,
                                  (self.holding_room * 2 + 16) * sizeof(ForwardingEntry*))
            if block == NULL:
                return NULL
            self.holding = <ForwardingEntry**> block
            self.holding_room = self.holding_room * 2 + 16
        return <Held*> memory_resize(self.ports.memory, NULL, sizeof(Held) + size)

    cdef void _free_held(self, ForwardingEntry* entry) noexcept:
        """Forget what waits."""
        cdef Held* held = entry.first
        cdef Held* following
        while held != NULL:
            following = held.next
            self.held_bytes -= held.size
            memory_give(self.ports.memory, held)
            held = following
        entry.first = entry.last = NULL
        entry.nheld = 0

    cdef int _send_held(self, ForwardingEntry* entry) except -1:
        """What waits goes out by the next_hops of now, in order."""
        cdef uint32_t i
        cdef Held* held = entry.first
        if held == NULL:
            return 0
        if entry.nhops == 0 and not entry.unreachable:
            self.ports.past[DROP_NO_ROUTE if entry.unusable else UNROUTED] += entry.nheld
            if entry.unusable:
                count_add(&self.ports.address_counts, (<uint64_t> OF_TOPIC << 40) | (<uint64_t> DROP_NO_ROUTE << 32)
                          | entry.topic, entry.nheld)
        while held != NULL:
            self._send(entry, <uint8_t*> (held + 1), held.size, held.count, held.issuer, held.cls)
            if entry.unreachable:
                self._keep(entry, <uint8_t*> (held + 1), held.size, held.count)
            held = held.next
        self._free_held(entry)
        for i in range(self.nholding):
            if self.holding[i] == entry:
                self.nholding -= 1
                self.holding[i] = self.holding[self.nholding]
                break
        return 0

    cdef uint64_t release_held(self) except? 0:
        """Send on what waited long enough; how many events."""
        cdef uint32_t i = 0
        cdef uint64_t released = 0
        cdef ForwardingEntry* entry
        while i < self.nholding:
            entry = self.holding[i]
            if entry.hold_until > self.ports.clocks.mono_ns:
                i += 1
                continue
            if entry.asked != self.topics.forwarding_stamp:
                self.ask(NULL, entry)
                if entry.hold_until > self.ports.clocks.mono_ns:
                    i += 1
                    continue
            released += entry.nheld
            self._send_held(entry)
            entry.hold_until = 0
        return released

    cdef int64_t held_ns(self) noexcept:
        """Time until release_held has something to do (0 = now), -1 if nothing waits."""
        cdef uint32_t i
        cdef int64_t first = 0
        if self.nholding == 0:
            return -1
        for i in range(self.nholding):
            if i == 0 or self.holding[i].hold_until < first:
                first = self.holding[i].hold_until
        return max(first - self.ports.clocks.mono_ns, <int64_t> 0)

    # --- what has no route now, or another one

    cdef int _keep(self, ForwardingEntry* entry, uint8_t* start, uint32_t size, uint32_t count) except -1:
        """Keep a run for the destinations of its entry that cannot be reached now."""
        cdef uint32_t position = 0, length
        cdef uint8_t* frame
        if self.undeliverable_bytes + size + count * UNDELIVERABLE_EACH > UNDELIVERABLE_LIMIT:
            self._count_lost(DROP_NO_ROUTE, entry.topic, count)
            return 0
        self.undeliverable_bytes += size + count * UNDELIVERABLE_EACH
        kind, name, _ = self.topics.name(entry.topic)
        source_route = self.unreachable_routes[entry.place]
        while position < size:
            frame = start + position
            length = frame_size(frame)
            publisher, epoch = self.issuers.sessions[get32(frame + 8) & 0xFFFFFF]
            self.undeliverable.append(
                Undelivered(publisher, epoch, get32(frame + 12), kind, name, source_route, (<char*> frame)[:length]))
            position += length
        if entry.port >= 0:
            self.acks.mark_onward(entry.port, NOWHERE, class_of(start[8] & 7))
        return 0

    cdef list take_undeliverable(self):
        """Events for which there was no route, with the source route of what could not be reached."""
        cdef list events = self.undeliverable
        if events:
            self.undeliverable = []
            self.undeliverable_bytes = 0
        return events

    cdef int forget_undelivered(self, int port) except -1:
        """None of the events that were to go to that port, or by default of those without a route, is kept any more."""
        if port != NOWHERE or not self.undeliverable:
            self.acks.drop_marks(port)
        return 0

    cdef int drop_undelivered(self, object event, bint waited) except -1:
        """Count an event that nobody will send on any more: it waited for too long, or there was no room for it."""
        cdef bytes name = event.topic
        cdef int kind = ord(event.kind)
        cdef uint32_t number = 0
        self.topics.charging = 0
        if not topic_fault(name, len(name), kind, False):
            number = self.topics.intern(name, len(name), kind, 0)
        self._count_lost(DROP_WAITED if waited else DROP_NO_ROUTE, number, 1)
        return 0

    cdef void _count_lost(self, int reason, uint32_t topic, uint64_t amount) noexcept:
        self.ports.past[reason] += amount
        count_add(&self.ports.address_counts, (<uint64_t> OF_TOPIC << 40) | (<uint64_t> reason << 32) | topic, amount)

    cdef list take_unconfirmed(self, int port, Port* p, int limit):
        """Take up to so many events with a source route, not confirmed by that peer, out of its queues."""
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
                    if not self.topics.topics[number].group & ROUTED_TOPIC:
                        continue
                    if len(found) >= limit:
                        return found
                    if number not in names:
                        names[number] = (*self.topics.name(number)[:2], self.topics.source_route(number))
                    publisher, epoch = self.issuers.sessions[get32(frame + 8) & 0xFFFFFF]
                    found.append(Undelivered(publisher, epoch, get32(frame + 12), *names[number],
                                             (<char*> frame)[:length], end <= p.queues[cls].received))
                    frame[0] = TAKEN
                    p.counters[REROUTED] += 1
                segment = segment.next
        return found

    cdef int reroute(self, object event, object next_hops) except -1:
        """Queue such an event for other next_hops under its own identity; for how many."""
        cdef bytes name = event.topic, publisher = event.issuer
        cdef bytearray copy = bytearray(event.frame)
        cdef uint8_t* frame = <uint8_t*> <char*> copy
        cdef uint32_t size = <uint32_t> len(copy), issuer, pair
        cdef int kind = ord(event.kind)
        cdef Port* q
        cdef uint64_t before
        if (size < 16 or frame[0] != EVENT or frame_size(frame) != size or frame[8] & 7 == 7 or len(publisher) != 16
                or topic_fault(name, len(name), kind, False)):
            raise ChappeError("reroute takes what take_unconfirmed gave")
        issuer = self.issuer_number(publisher, event.epoch)
        self.topics.charging = 0
        frame[8] |= 0x20  # the neighbour may have passed it on before it was lost
        frame[9] = <uint8_t> (issuer >> 16)
        frame[10] = <uint8_t> (issuer >> 8)
        frame[11] = <uint8_t> issuer
        cdef int queued = 0
        for target, source_route in next_hops:
            pair = 0
            if 0 <= target < self.ports.ntable and self._usable(target) and 0 < len(source_route) <= 0xFFFF:
                pair = self._pair_number(name, <uint32_t> len(name), kind, source_route)
            if pair == 0:
                self.ports.past[DROP_NO_ROUTE] += 1
                continue
            q = self.ports.table[<int> target]
            if not knows_topic(q, pair):
                self.ports.define_topic(target, q, pair)
            put32(frame + 4, pair)
            before = q.counters[EVENTS_OUT]
            self.ports.put_events(target, q, class_of(frame[8] & 7), frame, size, 1, issuer, pair, False)
            q.counters[ROUTED_OUT] += q.counters[EVENTS_OUT] - before
            queued += q.counters[EVENTS_OUT] - before
            self.acks.move_marks(target, class_of(frame[8] & 7))
        self.issuers.release(issuer)
        return queued

    # --- numbers that nobody uses any more

    cdef bint _may_recycle(self) noexcept:
        """Looking for free numbers costs as much as the tables are large: only when much was released, or now and then.

        So whoever asks for numbers that there are none of cannot keep the engine busy.
        """
        if (self.topics.released > self.topics.used // 64
                or self.ports.clocks.mono_ns - self.recycled_at >= RECYCLE_PAUSE_NS):
            self.recycled_at = self.ports.clocks.mono_ns
            return True
        return self.ports.clocks.mono_ns == 0  # an engine without a clock

    cdef int recycle(self) except -1:
        """Reuse numbers that nobody holds and nothing queued carries.

        A port that is stalled or down keeps the numbers in its queues from being reused, and no others.
        """
        cdef uint32_t number, i, topic_words = (self.topics.used >> 6) + 1, issuer_words = (self.issuers.room >> 6) + 1
        cdef uint64_t* topics
        cdef uint64_t* issuers
        cdef Held* held
        if not self._may_recycle():
            return 0
        topics = <uint64_t*> memory_resize(self.ports.memory, NULL,
                                           (topic_words + issuer_words) * sizeof(uint64_t))
        if topics == NULL:
            return 0
        issuers = topics + topic_words
        memset(topics, 0, (topic_words + issuer_words) * sizeof(uint64_t))
        try:
            self.topics.sweep()
            if self.issuers.full():
                self.issuers.sweep()
            self.ports.find_queued(topics, issuers)
            for i in range(self.nholding):
                topics[self.holding[i].topic >> 6] |= <uint64_t> 1 << (self.holding[i].topic & 63)
                held = self.holding[i].first
                while held != NULL:
                    issuers[held.issuer >> 6] |= <uint64_t> 1 << (held.issuer & 63)
                    held = held.next
            for number in self.topics.recycle_unless(topics):
                self.ports.forget_topic(number)
                self.delivery.forget_topic(number)
                self._forget_topic(number)
            for number in self.issuers.recycle(issuers):
                self.ports.forget_issuer(number)
        finally:
            memory_give(self.ports.memory, topics)
        return 0

    cdef uint32_t issuer_number(self, bytes issuer, uint32_t epoch) except 0:
        """Number of an issuer with one more holder; too many are a reason to look for numbers that nobody uses."""
        if self.issuers.crowded(issuer, epoch):
            self.recycle()
        return self.issuers.number(issuer, epoch)
