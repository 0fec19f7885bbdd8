"""Flows that begin at clients of this node: which path carries which parcel, and the credit of clients."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strlen

from chappe.engine._bytes cimport frame_size, get32, get64, put32, put64, put_header
from chappe.engine._memory cimport memory_give, memory_resize, memory_take
from chappe.engine._names cimport NOBODY
from chappe.engine._paths cimport BLOCKED, HEAD, PARCEL_ABSENT, PARCEL_ACK, PATHLESS, Destination, Path, Paths
from chappe.engine._ports cimport (
    DROP_BLOCKED,
    DROP_CLOSED,
    DROP_CREDIT,
    DROP_DUPLICATE,
    DROP_NO_MEMORY,
    DROP_WAITED,
    OPEN,
    PARCEL,
    PARCEL_CREDIT,
    PARCELS_OUT,
    Port,
    Ports,
)
from chappe.engine._queue cimport Segment, pool_admits, queue_advance, queue_front, queue_put
from chappe.engine._topics_hash cimport K1, fold, hash_drop, hash_first, hash_init, hash_put, hash_reserve
from chappe.engine._windows cimport window_adjust, window_halve, window_restart, window_sample

from chappe.engine.routes import FlowRow

cdef enum:
    NEW = 0                    # states of a parcel: never sent
    WAITING = 1
    SENT = 2
    LOST = 3
    DONE = 4                   # acknowledged, with one before it that is not
    PASSED = 5                 # the receiver had no room to say so, but its path is free of it

cdef enum:
    MOST_FLOWS = 64            # of a client
    MOST_OUTSTANDING = 65536   # parcels of a flow, from the first that is not acknowledged
    FIRST_RING = 64
    CREDIT_BYTES = 1048576     # that a client may send ahead of what has left
    START_CREDIT = 262144      # before it has heard of any
    RESET = 1                  # flags of an acknowledgement
    UNREACHABLE = 4
    RANGES_MOST = 32           # in one
    SILENCES = 2               # of all paths, after which the third one is an end

cdef int64_t MS = 1_000_000
cdef int64_t CORRECTION_NS = 500 * MS
cdef int64_t SILENCE_NS = 1_000 * MS
cdef int64_t PATHLESS_NS = 4_000 * MS
cdef int64_t TICK_NS = 100 * MS
cdef int64_t IDLE_TICK_NS = 5_000 * MS
cdef int64_t FORGOTTEN_NS = 360_000 * MS


@cython.final
cdef class Flows:
    """The flows of clients by port and number, and what they have under way."""

    def __cinit__(self, Paths paths not None):
        self.paths = paths
        self.ports = paths.ports
        self.meter.memory = self.ports.memory
        hash_init(&self.hash, &self.meter)
        self.used = self.hint = 1

    def __dealloc__(self):
        cdef uint32_t number
        cdef Segment* segment
        cdef Segment* following
        for number in range(1, self.used):
            if self.items[number] != NULL:
                segment = self.items[number].waiting.head
                while segment != NULL:
                    following = segment.next
                    free(segment)
                    segment = following
                free(self.items[number].source)
                free(self.items[number].ring)
                free(self.items[number])
        free(self.items)
        free(self.heads)
        free(self.counts)
        free(self.hash.heads)
        free(self.hash.links)

    # --- the flows of a client

    cdef uint32_t _hash(self, int port, uint64_t id) noexcept:
        return <uint32_t> fold(id ^ self.ports.seed, K1 ^ (<uint64_t> port << 1))

    cdef Flow* find(self, int port, uint64_t id) noexcept:
        cdef uint32_t h = self._hash(port, id)
        cdef uint32_t number = hash_first(&self.hash, h)
        while number:
            if self.items[number].id == id and self.items[number].port == port:
                return self.items[number]
            number = self.hash.links[number].next
        return NULL

    cdef Flow* begin(self, int port, uint64_t id, const uint8_t* source, uint32_t size, Destination* d,
                     uint32_t sequence) noexcept:
        """A flow that is not there yet; NULL if the client has too many under way, or without memory."""
        cdef uint32_t number = self.used
        cdef Flow* flow
        cdef Flow* last
        if not self._room_for(port) or (self.counts[port] >= MOST_FLOWS and not self._spare_of(port)):
            return NULL
        for number in range(self.hint, self.used):
            if self.items[number] == NULL:
                break
        else:
            number = self.used
        self.hint = number
        if hash_reserve(&self.hash, &self.meter, number) < 0:
            return NULL
        flow = <Flow*> memory_take(self.ports.memory, sizeof(Flow))
        if flow == NULL:
            return NULL
        memset(flow, 0, sizeof(Flow))
        flow.source = <uint8_t*> memory_take(self.ports.memory, size)
        if flow.source == NULL:
            memory_give(self.ports.memory, flow)
            return NULL
        memcpy(flow.source, source, size)
        flow.source_size = size
        flow.id = id
        flow.port = port
        flow.base = flow.next = sequence
        flow.granted = START_CREDIT
        flow.waiting.holding = &self.ports.table[port].holding
        flow.used_at = self.ports.clocks.mono_ns
        flow.number = number
        flow.next_of_port = self.heads[port]
        self.heads[port] = number
        self.counts[port] += 1
        self.items[number] = flow
        self.used = max(self.used, number + 1)
        self.nflows += 1
        hash_put(&self.hash, &self.meter, self._hash(port, id), number)
        flow.destination = d
        if d.flows == 0:
            d.turn = flow.following = flow.before = number
        else:
            last = self.items[self.items[d.turn].before]
            flow.before = last.number
            flow.following = d.turn
            last.following = self.items[d.turn].before = number
        d.flows += 1
        return flow

    cdef bint _room_for(self, int port) noexcept:
        """Whether one more flow, of that port, finds a place in the tables."""
        cdef uint32_t room
        cdef void* block
        if self.used >= self.room:
            room = self.room + (self.room >> 1) + 16
            block = memory_resize(self.ports.memory, self.items, room * sizeof(Flow*))
            if block == NULL:
                return False
            self.items = <Flow**> block
            memset(self.items + self.room, 0, (room - self.room) * sizeof(Flow*))
            self.room = room
        if <uint32_t> port >= self.nports:
            room = <uint32_t> port + 16
            block = memory_resize(self.ports.memory, self.heads, room * sizeof(uint32_t))
            if block == NULL:
                return False
            self.heads = <uint32_t*> block
            block = memory_resize(self.ports.memory, self.counts, room * sizeof(uint32_t))
            if block == NULL:
                return False
            self.counts = <uint32_t*> block
            memset(self.heads + self.nports, 0, (room - self.nports) * sizeof(uint32_t))
            memset(self.counts + self.nports, 0, (room - self.nports) * sizeof(uint32_t))
            self.nports = room
        return True

    cdef bint _spare_of(self, int port) noexcept:
        """End the flow of a client that was idle for longest; False if all have something under way."""
        cdef uint32_t number = self.heads[port]
        cdef Flow* oldest = NULL
        cdef Flow* flow
        while number:
            flow = self.items[number]
            if (flow.in_flight == 0 and flow.waiting.enqueued == flow.waiting.sent
                    and (oldest == NULL or flow.used_at < oldest.used_at)):
                oldest = flow
            number = flow.next_of_port
        if oldest == NULL:
            return False
        self.end(oldest)
        return True

    cdef void end(self, Flow* flow) noexcept:
        cdef Port* p = self.ports.table[flow.port]
        cdef Destination* d = flow.destination
        cdef uint32_t* place = &self.heads[flow.port]
        cdef uint32_t sequence = flow.base
        cdef uint64_t cost = flow.room * sizeof(Sent)
        while sequence != flow.next:
            if flow.ring[sequence & (flow.room - 1)].state == SENT:
                self._lose(flow, &flow.ring[sequence & (flow.room - 1)], False)
            sequence += 1
        self._drop_waiting(flow, DROP_CLOSED)
        while place[0] != flow.number:
            place = &self.items[place[0]].next_of_port
        place[0] = flow.next_of_port
        self.counts[flow.port] -= 1
        self.items[flow.before].following = flow.following
        self.items[flow.following].before = flow.before
        d.flows -= 1
        if d.turn == flow.number:
            d.turn = flow.following
        hash_drop(&self.hash, &self.meter, self._hash(flow.port, flow.id), flow.number)
        self.items[flow.number] = NULL
        self.hint = min(self.hint, flow.number)
        self.nflows -= 1
        p.holding.bytes -= cost
        if p.holding.account != NULL:
            p.holding.account.bytes -= cost
        memory_give(self.ports.memory, flow.ring)
        memory_give(self.ports.memory, flow.source)
        memory_give(self.ports.memory, flow)

    cdef void forget_port(self, int port) noexcept:
        while <uint32_t> port < self.nports and self.heads[port]:
            self.end(self.items[self.heads[port]])

    cdef void forget_permits(self) noexcept:
        """Rules are others: whether a flow may go on is asked with its next parcel."""
        cdef uint32_t number
        for number in range(1, self.used):
            if self.items[number] != NULL:
                self.items[number].allowed = False

    # --- parcels of clients

    cdef void send(self, Flow* flow, const uint8_t* frame, uint32_t size) noexcept:
        """The client sent a parcel of the flow: pass it on, or keep it until a path is open."""
        cdef Port* p = self.ports.table[flow.port]
        cdef uint32_t sequence = get32(frame + 4 + 16), ahead = sequence - flow.base
        cdef Sent* sent
        cdef int result
        flow.used_at = self.ports.clocks.mono_ns
        flow.received += size
        if flow.received > flow.granted:
            p.counters[DROP_CREDIT] += 1
        elif <int32_t> ahead < 0:
            self._repeat(flow, frame, size)
        elif ahead >= MOST_OUTSTANDING:
            p.counters[DROP_CREDIT] += 1
        elif not self._cover(flow, ahead):
            p.counters[DROP_NO_MEMORY] += 1
        else:
            sent = &flow.ring[sequence & (flow.room - 1)]
            if sent.state == WAITING:
                p.counters[DROP_DUPLICATE] += 1
            elif sent.state == DONE:
                self._repeat(flow, frame, size)
            else:
                if sent.state == SENT:
                    self._lose(flow, sent, True)
                if sent.state == LOST or sent.state == PASSED:
                    sent.again = True
                result = BLOCKED
                if flow.waiting.enqueued == flow.waiting.sent:
                    result = self._forward(flow, sent, frame, size)
                if result == BLOCKED or result == PATHLESS:
                    self._keep(flow, sent, frame, size)
                elif result < 0:
                    p.counters[-result] += 1
        self._grant(flow)

    cdef bint _cover(self, Flow* flow, uint32_t ahead) noexcept:
        """Room in the ring for a sequence so far behind the first one."""
        cdef Port* p = self.ports.table[flow.port]
        cdef uint32_t room = max(flow.room, <uint32_t> FIRST_RING), sequence = flow.base
        cdef uint32_t cost
        cdef Sent* ring
        while room <= ahead:
            room *= 2
        if room > flow.room:
            cost = (room - flow.room) * <uint32_t> sizeof(Sent)
            if not pool_admits(&self.ports.pool, &p.holding, cost):
                return False
            ring = <Sent*> memory_take(self.ports.memory, room * sizeof(Sent))
            if ring == NULL:
                return False
            memset(ring, 0, room * sizeof(Sent))
            while sequence != flow.next:
                ring[sequence & (room - 1)] = flow.ring[sequence & (flow.room - 1)]
                sequence += 1
            memory_give(self.ports.memory, flow.ring)
            flow.ring = ring
            flow.room = room
            p.holding.bytes += cost
            if p.holding.account != NULL:
                p.holding.account.bytes += cost
        if ahead >= flow.next - flow.base:
            flow.next = flow.base + ahead + 1
        return True

    cdef int _forward(self, Flow* flow, Sent* sent, const uint8_t* frame, uint32_t size) noexcept:
        """Put a parcel on one of its paths; BLOCKED, PATHLESS, or the counter of a drop, negative."""
        cdef Destination* d = flow.destination
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef int place = self.paths.draw(self.ports.table[flow.port], d, 3, size, True, NOBODY), result
        cdef Path* path
        if place == PATHLESS and d.pathless_at == 0:
            d.pathless_at = max(now, 1)
        elif place != PATHLESS:
            d.pathless_at = 0
        if place < 0:
            return place
        path = &d.paths[place]
        result = self.paths.put(path.port, 3, frame + 4, size - 4, path.hops, path.nhops, frame[6] - 1)
        if result < 0:
            return result
        sent.size = size
        self._under_way(flow, sent, place)
        return 0

    cdef void _under_way(self, Flow* flow, Sent* sent, int place) noexcept:
        """The parcel has taken that path. Silence counts from the first one that is not acknowledged or lost."""
        cdef Path* path = &flow.destination.paths[place]
        cdef int64_t now = self.ports.clocks.mono_ns
        if path.in_flight == 0 and (not path.owing or now - path.sent_at > 4 * SILENCE_NS):
            path.progress_at = now
        path.sent_at = now
        path.in_flight += sent.size
        path.sent += sent.size
        path.window.parcel = max(path.window.parcel, sent.size)
        flow.in_flight += sent.size
        self.in_flight += sent.size
        sent.state = SENT
        sent.path = <uint8_t> place
        sent.at = now

    cdef void _repeat(self, Flow* flow, const uint8_t* frame, uint32_t size) noexcept:
        """A parcel that was acknowledged: the client did not hear of it, the receiver will say so again."""
        cdef Destination* d = flow.destination
        cdef Port* p = self.ports.table[flow.port]
        cdef int place = self.paths.draw(p, d, 3, size, True, NOBODY), result = -DROP_BLOCKED
        if place >= 0:
            result = self.paths.put(d.paths[place].port, 3, frame + 4, size - 4, d.paths[place].hops,
                                    d.paths[place].nhops, frame[6] - 1)
        if result < 0:
            p.counters[-result] += 1

    cdef void _keep(self, Flow* flow, Sent* sent, const uint8_t* frame, uint32_t size) noexcept:
        """Until a path is open; what credit allows bounds it."""
        cdef bint first = flow.waiting.enqueued == flow.waiting.sent
        if queue_put(&self.ports.pool, &flow.waiting, frame, size) < 0:
            self.ports.table[flow.port].counters[DROP_NO_MEMORY] += 1
            return
        sent.state = WAITING
        if first:
            flow.destination.waiting += 1
            self.waiting += 1

    cdef bint _send_waiting(self, Flow* flow) noexcept:
        """Send the first parcel that waits; False if no path is open."""
        cdef Segment* segment = queue_front(&flow.waiting)
        cdef const uint8_t* frame = segment.bytes + flow.waiting.offset
        cdef uint32_t size = frame_size(frame), sequence = get32(frame + 4 + 16)
        cdef Sent* sent = &flow.ring[sequence & (flow.room - 1)]
        cdef int result
        if sequence - flow.base < flow.next - flow.base and sent.state == WAITING:
            result = self._forward(flow, sent, frame, size)
            if result == BLOCKED or result == PATHLESS:
                return False
            if result < 0:
                self.ports.table[flow.port].counters[-result] += 1
                sent.state = NEW
        else:
            self.ports.table[flow.port].counters[DROP_DUPLICATE] += 1  # it was acknowledged meanwhile
        self._shift(flow, size)
        self._grant(flow)
        return True

    cdef void _shift(self, Flow* flow, uint32_t size) noexcept:
        """The first parcel waits no more."""
        queue_advance(&self.ports.pool, &flow.waiting, size, False)
        if flow.waiting.enqueued == flow.waiting.sent:
            flow.destination.waiting -= 1
            self.waiting -= 1

    cdef void _drain(self, Destination* d) noexcept:
        """Send what waits, flows in turn, while paths are open."""
        cdef uint32_t passed = 0
        cdef Flow* flow
        while d.waiting and passed < d.flows:
            flow = self.items[d.turn]
            passed += 1
            if flow.waiting.enqueued != flow.waiting.sent:
                if not self._send_waiting(flow):
                    return
                passed = 0
            d.turn = flow.following

    cdef void _drop_waiting(self, Flow* flow, int reason) noexcept:
        cdef Segment* segment
        cdef uint8_t* frame
        cdef Sent* sent
        while flow.waiting.enqueued != flow.waiting.sent:
            segment = queue_front(&flow.waiting)
            frame = segment.bytes + flow.waiting.offset
            sent = &flow.ring[get32(frame + 4 + 16) & (flow.room - 1)]
            if sent.state == WAITING:
                sent.state = NEW
            self.ports.table[flow.port].counters[reason] += 1
            self._shift(flow, frame_size(frame))

    cdef void _grant(self, Flow* flow) noexcept:
        """A PARCEL_CREDIT frame once half of the credit is used."""
        cdef uint64_t granted = flow.received - (flow.waiting.enqueued - flow.waiting.sent) + CREDIT_BYTES
        cdef uint8_t frame[20]
        if granted < flow.granted + CREDIT_BYTES // 2:
            return
        put_header(frame, PARCEL_CREDIT, 16)
        put64(frame + 4, flow.id)
        put64(frame + 12, granted)
        if self.ports.put_frame(flow.port, self.ports.table[flow.port], 0, frame, 20, True) == 0:
            flow.granted = granted

    # --- what comes back

    cdef void acknowledge(self, Flow* flow, const uint8_t* body) noexcept:
        """Read an acknowledgement that is well formed; what it says of parcels that were never sent is passed over."""
        cdef uint32_t expected = get32(body + 2), newest = get32(body + 14), span = flow.next - flow.base
        cdef uint32_t place, end
        cdef int i
        cdef Sent* sent
        cdef Path* sampled = NULL
        flow.used_at = self.ports.clocks.mono_ns
        if body[1] & RESET:
            expected = flow.next
        if expected - flow.base > span:
            return
        if newest - flow.base < span and not body[1] & RESET:
            sent = &flow.ring[newest & (flow.room - 1)]
            if sent.state == SENT and not sent.again:
                sampled = &flow.destination.paths[sent.path]
                window_sample(&sampled.window, self.ports.clocks.mono_ns, sent.at, get64(body + 18))
                if body[26] == RANGES_MOST:
                    self._pass_before(flow, sent)
        while flow.base != expected:
            sent = &flow.ring[flow.base & (flow.room - 1)]
            if not body[1] & RESET:
                self._done(flow, sent)
            elif sent.state == SENT:
                self._lose(flow, sent, False)
            sent.state = NEW
            sent.again = False
            flow.base += 1
        span = flow.next - flow.base
        for i in range(body[26]):
            place = get32(body + 27 + 8 * i)
            end = get32(body + 31 + 8 * i)
            if end - flow.base > span:
                break
            while place != end:
                self._done(flow, &flow.ring[place & (flow.room - 1)])
                place += 1
        if sampled != NULL:
            window_adjust(&sampled.window, self.ports.clocks.mono_ns, sampled.in_flight)
        self._drain(flow.destination)

    cdef void _done(self, Flow* flow, Sent* sent) noexcept:
        cdef Path* path
        if sent.state == SENT or sent.state == LOST or sent.state == PASSED:
            path = &flow.destination.paths[sent.path]
            path.silences = 0
            path.owing = False
            path.progress_at = flow.destination.progress_at = self.ports.clocks.mono_ns
            path.acked += sent.size
            path.acked_lately += sent.size
            if sent.state == SENT:
                path.in_flight -= sent.size
                path.window.fresh += sent.size
                flow.in_flight -= sent.size
                self.in_flight -= sent.size
                if path.excluded_until <= path.progress_at:
                    path.exclusion_ns = 0
        if sent.state != NEW:
            sent.state = DONE

    cdef void _pass_before(self, Flow* flow, Sent* newest) noexcept:
        """Parcels do not overtake on a path: what left before the newest one is not in flight any more.

        An acknowledgement with all its ranges does not say what else has arrived.
        """
        cdef Path* path = &flow.destination.paths[newest.path]
        cdef uint32_t sequence = flow.base
        cdef Sent* sent
        while sequence != flow.next:
            sent = &flow.ring[sequence & (flow.room - 1)]
            if sent.state == SENT and sent.path == newest.path and sent.at < newest.at:
                sent.state = PASSED
                path.in_flight -= sent.size
                path.window.fresh += sent.size
                flow.in_flight -= sent.size
                self.in_flight -= sent.size
            sequence += 1

    cdef void _lose(self, Flow* flow, Sent* sent, bint cut) noexcept:
        """A parcel is lost; with `cut` its path is full."""
        cdef Path* path = &flow.destination.paths[sent.path]
        path.in_flight -= sent.size
        path.lost += sent.size
        path.owing = True
        flow.in_flight -= sent.size
        self.in_flight -= sent.size
        sent.state = LOST
        if cut:
            window_halve(&path.window, self.ports.clocks.mono_ns)

    cdef bint returned(self, Flow* flow, const uint8_t* payload, uint32_t size) noexcept:
        """A parcel of the flow came back by the path that it took: exclude that and send it by another.

        False if it did not take that path, or is no more under way: nothing has changed then.
        """
        cdef Destination* d = flow.destination
        cdef uint32_t sequence = get32(payload + 16), nhops = payload[4] - 1
        cdef Sent* sent
        cdef Path* path
        cdef int place
        if sequence - flow.base >= flow.next - flow.base:
            return False
        sent = &flow.ring[sequence & (flow.room - 1)]
        place = self.paths.path_by(d, payload + HEAD + 8, nhops)
        if (sent.state != SENT and sent.state != LOST) or place != sent.path:
            return False
        path = &d.paths[place]
        path.returned += 1
        if sent.state == SENT:
            self._lose(flow, sent, False)
        sent.again = True
        if self.paths.exclude(d, path, payload[1] & PARCEL_ABSENT):
            self._lose_path(d, path)
        place = self.paths.draw(self.ports.table[flow.port], d, 3, sent.size, True, NOBODY)
        if place >= 0:
            self._resend(flow, sent, payload, size, place)
        else:
            self.ports.table[flow.port].counters[DROP_BLOCKED] += 1
        return True

    cdef void _resend(self, Flow* flow, Sent* sent, const uint8_t* payload, uint32_t size, int place) noexcept:
        """Another path for what came back; the client sends again what finds none."""
        cdef Path* path = &flow.destination.paths[place]
        cdef int result = self.paths.put(path.port, 3, payload, size, path.hops, path.nhops, payload[2] - 1)
        if result < 0:
            self.ports.table[flow.port].counters[-result] += 1
            return
        self._under_way(flow, sent, place)

    # --- time

    cdef void tick(self) noexcept:
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef uint32_t number
        cdef Destination* d
        cdef Flow* flow
        self.ticked_at = now
        for number in range(1, self.paths.room):
            d = self.paths.items[number]
            if d == NULL or d.flows == 0:
                continue
            if d.stamp != self.paths.stamp:
                self.paths.find_ports(d)
            self._exclude_silent(d)
            if now - d.corrected_at >= CORRECTION_NS:
                self.paths.correct(d)
            self._drain(d)
            if d.waiting and d.pathless_at and now - d.pathless_at >= PATHLESS_NS:
                self._give_up(d)
        for number in range(1, self.used):
            flow = self.items[number]
            if (flow != NULL and flow.in_flight == 0 and flow.waiting.enqueued == flow.waiting.sent
                    and now - flow.used_at > FORGOTTEN_NS):
                self.end(flow)

    cdef int64_t next_ns(self) noexcept:
        """Time until there is something to do, -1: never."""
        if self.nflows == 0:
            return -1
        return max(0, self.ticked_at + (TICK_NS if self.in_flight or self.waiting else IDLE_TICK_NS)
                   - self.ports.clocks.mono_ns)

    cdef void _exclude_silent(self, Destination* d) noexcept:
        """Leave paths that swallow parcels, and forget what was in flight where the first link is down.

        While no path at all brings an acknowledgement it may be the receiver that is busy: then each begins anew, and
        is left after the third time.
        """
        cdef int64_t now = self.ports.clocks.mono_ns, patience
        cdef uint32_t place
        cdef Path* path
        for place in range(d.npaths):
            path = &d.paths[place]
            patience = max(SILENCE_NS, 4 * path.window.round_trip_ns)
            if path.in_flight == 0:
                continue
            if path.port == NOBODY or self.ports.table[path.port].state != OPEN:
                self._lose_path(d, path)
            elif now - path.progress_at > patience:
                self._lose_path(d, path)
                if now - d.progress_at <= patience or path.silences >= SILENCES:
                    self.paths.exclude(d, path, False)
                else:
                    path.silences += 1
                    window_restart(&path.window)
                path.progress_at = now

    cdef void _lose_path(self, Destination* d, Path* path) noexcept:
        """What is in flight on it is lost; clients send it again."""
        cdef uint32_t _i, sequence
        cdef Flow* flow = self.items[d.turn]
        cdef Sent* sent
        for _i in range(d.flows):
            sequence = flow.base
            while sequence != flow.next and path.in_flight:
                sent = &flow.ring[sequence & (flow.room - 1)]
                if sent.state == SENT and &d.paths[sent.path] == path:
                    self._lose(flow, sent, False)
                sequence += 1
            flow = self.items[flow.following]

    cdef void _give_up(self, Destination* d) noexcept:
        """There was no path for too long: say so to the clients."""
        cdef uint32_t _i
        cdef Flow* flow = self.items[d.turn]
        for _i in range(d.flows):
            if flow.waiting.enqueued != flow.waiting.sent:
                answer(self.ports, flow.port, flow.id, flow.source, flow.source_size, d.name, d.size, UNREACHABLE,
                       flow.base, b"there is no route to this name")
                self._drop_waiting(flow, DROP_WAITED)
                self._grant(flow)
            flow = self.items[flow.following]
        d.pathless_at = 0

    cdef list rows(self):
        cdef list rows = []
        cdef uint32_t number
        cdef Flow* flow
        for number in range(1, self.used):
            flow = self.items[number]
            if flow != NULL:
                rows.append(FlowRow(
                    flow.id, flow.port, (<char*> flow.source)[:flow.source_size],
                    (<char*> flow.destination.name)[:flow.destination.size], flow.received, flow.granted,
                    flow.waiting.enqueued - flow.waiting.sent, flow.in_flight,
                ))
        return rows


cdef void answer(Ports ports, int port, uint64_t id, const uint8_t* destination, uint32_t to, const uint8_t* source,
                 uint32_t by, int flags, uint32_t expected, const char* text) noexcept:
    cdef uint8_t frame[1024]
    cdef uint32_t size = 4 + HEAD
    cdef Port* p = ports.table[port]
    cdef int result
    memset(frame, 0, 4 + HEAD + 510 + 27)
    frame[4] = 2
    frame[5] = PARCEL_ACK
    frame[9] = <uint8_t> to
    frame[10] = <uint8_t> by
    put64(frame + 12, id)
    memcpy(frame + size, destination, to)
    memcpy(frame + size + to, source, by)
    size += to + by
    frame[size] = 1
    frame[size + 1] = <uint8_t> flags
    put32(frame + size + 2, expected)
    size += 27
    memcpy(frame + size, text, strlen(text))
    size += <uint32_t> strlen(text)
    put_header(frame, PARCEL, size - 4)
    result = ports.put_frame(port, p, 2, frame, size, True)
    if result < 0:
        p.counters[-result] += 1
    else:
        p.counters[PARCELS_OUT] += 1
