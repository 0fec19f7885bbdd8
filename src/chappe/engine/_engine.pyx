"""The engine of a node: its ports, tables, queues and counters, as Python calls them."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from os import urandom

from chappe.engine cimport _output
from chappe.engine._accounts cimport Accounts
from chappe.engine._acknowledgements cimport Acknowledgements
from chappe.engine._bytes cimport payload_size, put64, put_header
from chappe.engine._definitions cimport ROUTED, Definitions
from chappe.engine._delivery cimport Delivery
from chappe.engine._flows cimport Flows
from chappe.engine._forwarding cimport Forwarding
from chappe.engine._input cimport QUESTIONS, Input
from chappe.engine._issuers cimport Issuers
from chappe.engine._memory cimport MemoryBudget
from chappe.engine._parcels cimport Parcels
from chappe.engine._paths cimport Paths
from chappe.engine._ports cimport *
from chappe.engine._queue cimport queue_clear
from chappe.engine._stack cimport Stack, iovec
from chappe.engine._status cimport StatusTable
from chappe.engine._topics cimport TopicTable
from chappe.engine._trains cimport Trains

from chappe.engine._ports import NAMES
from chappe.engine.routes import ForwardingDecision, Undelivered
from chappe.errors import ChappeError, RefusedError
from chappe.wire.addresses import redacted

__all__ = ["Engine", "ForwardingDecision", "Undelivered"]


cdef class Engine(Stack):
    def __cinit__(self, *, str layout="sparse", bint edge=True, max_topics=1 << 20, max_issuers=1 << 17,
                  max_routed_topics=1 << 16, authorize=None, plan_route=None, forward_route=None,
                  parcel_routes=None, seed=None, memory_bytes=0, account_topics=0, account_routed_topics=0,
                  account_bytes=0):
        cdef uint64_t key = (int.from_bytes(urandom(8), "big") if seed is None else seed) & 0xFFFFFFFFFFFFFFFF
        self.memory = MemoryBudget(memory_bytes)
        self.accounts = Accounts(self.memory, account_topics, account_routed_topics, account_bytes)
        self.status = StatusTable(layout=layout, edge=edge, seed=key, budget=self.memory)
        self.topics = TopicTable(max_topics=max_topics, max_routed_topics=max_routed_topics, seed=key,
                                 budget=self.memory)
        self.topics.accounts = self.accounts
        self.issuers = Issuers(self.memory, max_issuers)
        self.ports = Ports(self.memory, self.topics, self.issuers, key, account_bytes)
        self.ports.clocks = &self.clocks
        self.delivery = Delivery(self.ports)
        self.acks = Acknowledgements(self.ports)
        # a simulated node authorizes nobody: its questions are not bounded, as nothing else waits meanwhile
        self.forwarding = Forwarding(self.ports, self.delivery, self.acks, plan_route, forward_route,
                                     authorize is not None)
        self.definitions = Definitions(self.ports, self.forwarding, authorize)
        self.definitions.attention = &self.attention
        self.trains = Trains(self.ports)
        self.paths = Paths(self.ports, parcel_routes)
        self.flows = Flows(self.paths)
        self.parcels = Parcels(self.paths, self.flows, authorize)
        self.paths.attention = self.parcels.attention = &self.attention
        self.input = Input(self.ports, self.status, self.definitions, self.trains, self.parcels)
        self.input.attention = &self.attention
        self.freeing = {}

    # --- what sockets call

    cdef int feed_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        return self.input.feed(port, data, size)

    cdef int feed_datagram_bytes(self, int port, unsigned char* data, Py_ssize_t size) except -1:
        return self.input.feed_datagram(port, data, size)

    cdef int gather(self, int port, iovec* vectors, int limit) noexcept:
        return _output.gather(self.ports, port, vectors, limit)

    cdef void written(self, int port, Py_ssize_t count) noexcept:
        _output.written(self.ports, port, count)

    cdef int gather_datagrams(self, int port, iovec* frames, int limit) noexcept:
        return _output.gather_datagrams(self.ports, port, frames, limit)

    cdef void datagrams_written(self, int port, int count) noexcept:
        _output.datagrams_written(self.ports, port, count)

    cdef int next_dirty(self) noexcept:
        return self.ports.next_dirty()

    # --- ports

    def open_port(self, *, bint peer=False, bint datagram=False, int level=0, queue_bytes=4 << 20,
                  max_frame=1 << 20, packing=0, bint conflate=False, bint retain=False, credit=0, bint loss=True,
                  max_topics=65536, bytes issuer=b"", epoch=1, int partner=-1,
                  str account=""):
        cdef uint32_t number = 0, charged
        cdef int port
        cdef Port* p
        if not peer and not datagram:
            if len(issuer) != 16:
                raise ChappeError("a client's port needs its issuer: 16 bytes")
            number = self.forwarding.issuer_number(issuer, epoch)
        if partner >= 0:
            self.ports.port_at(partner)
        charged = 0
        try:
            charged = self.accounts.open(account)
            port = self.ports.new_port()
        except MemoryError as error:
            self.accounts.close(charged)
            if number:
                self.issuers.release(number)
            raise RefusedError(str(error)) from None
        p = self.ports.table[port]
        p.state = OPEN
        p.account = charged
        if charged and not peer:
            p.holding.account = self.accounts.items[charged]
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
        p.issuer = number
        p.partner = partner
        if partner >= 0:
            self.ports.table[partner].data_port = port
        if level:
            try:
                self.status.set_level(port, level)
            except MemoryError as error:
                self.free_port(port)
                raise RefusedError(str(error)) from None
        return port

    def close_port(self, int port):
        cdef Port* p = self.ports.port_at(port)
        cdef int cls
        if p.state == CLOSED:
            return
        self.parcels.forget_port(port)
        _output.count_unsent(self.ports, p)
        self.acks.unroute_marks(port)
        p.state = CLOSED
        for cls in range(4):
            queue_clear(&self.ports.pool, &p.queues[cls])
        p.sticky = -1
        self.input.forget_port(port, p)
        _output.unhold(self.ports, p)
        _output.forget_publisher(self.ports, port)
        self.acks.forget_echoes(port, p)
        if p.partner >= 0 and self.ports.table[p.partner].data_port == port:
            self.ports.table[p.partner].data_port = -1
        if p.data_port >= 0:
            self.ports.table[p.data_port].partner = -1
        if p.peer:
            self.topics.forwarding_changed()  # none may lead there any more
        self.status.set_level(port, 0)

    def free_port(self, int port, int limit=10_000):
        cdef Port* p = self.ports.port_at(port)
        cdef uint32_t i
        cdef int place
        cdef bint dirty
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
        self.definitions.forget_port(port, p)
        for i in range(COUNTERS):
            self.ports.past[i] += p.counters[i]
        self.ports.forget_starved(port)
        self.ports.release(p)
        self.accounts.close(p.account)
        dirty = p.dirty
        memset(p, 0, sizeof(Port))
        p.dirty = dirty  # it is still in the list of those
        return True

    def park_port(self, int port):
        cdef Port* p = self.ports.port_at(port)
        if p.state == OPEN:
            p.state = PARKED
            self.parcels.forget_port(port)
            p.carry_size = 0
            p.deferred = False
            p.train_in.size = p.train_out.size = 0
            p.riding_token = 0
            self.acks.forget_echoes(port, p)

    def resume_port(self, int port):
        cdef Port* p = self.ports.port_at(port)
        if p.state == CLOSED:
            raise ChappeError(f"port {port} was closed, open a new one")
        p.state = OPEN
        p.failed = False
        p.carry_size = 0
        p.deferred = False
        p.last_heard = self.clocks.mono_ns
        _output.rebuild(self.ports, port, p)
        self.acks.renew_marks(port)

    def open_ports(self):
        cdef int port
        return [port for port in range(self.ports.ntable) if self.ports.table[port].state in (OPEN, PARKED)]

    # --- bytes, for tests and for transports that are not plain sockets

    def feed(self, int port, data):
        cdef bytearray copy = bytearray(data)
        self.input.feed(port, <unsigned char*> <char*> copy, len(copy))

    def feed_datagram(self, int port, data):
        cdef bytearray copy = bytearray(data)
        return bool(self.input.feed_datagram(port, <unsigned char*> <char*> copy, len(copy)))

    def peek(self, int port):
        cdef iovec vectors[1]
        self.ports.port_at(port)
        if _output.gather(self.ports, port, vectors, 1) == 0:
            return memoryview(b"")
        return memoryview(<char[:vectors[0].iov_len]> <char*> vectors[0].iov_base).cast("B")

    def consumed(self, int port, Py_ssize_t count):
        cdef Port* p = self.ports.port_at(port)
        cdef uint64_t planned = 0
        cdef int cls
        for cls in range(4):
            planned += p.queues[cls].plan_end - p.queues[cls].sent
        if count < 0 or <uint64_t> count > planned:
            raise ChappeError(f"{count} bytes consumed of {planned} that were peeked")
        _output.written(self.ports, port, count)

    def peek_datagrams(self, int port, int limit=64):
        cdef iovec frames[64]
        cdef int i, n
        self.ports.port_at(port)
        n = _output.gather_datagrams(self.ports, port, frames, min(limit, 64))
        return [(<char*> frames[i].iov_base)[:frames[i].iov_len] for i in range(n)]

    def consumed_datagrams(self, int port, int count):
        self.ports.port_at(port)
        _output.datagrams_written(self.ports, port, count)

    def pending(self, int port):
        cdef Port* p = self.ports.port_at(port)
        cdef int cls
        cdef uint64_t total = 0
        cdef uint32_t i
        for i in range(p.npending):
            total += p.pending[i].size
        for cls in range(4):
            total += p.queues[cls].enqueued - p.queues[cls].sent
        return total

    def unacknowledged(self, int port):
        cdef Port* p = self.ports.port_at(port)
        cdef int cls
        cdef uint64_t total = 0, end
        for cls in range(4):
            # What is no event dies with its connection.
            end = p.queues[cls].keep if p.state == PARKED else p.queues[cls].enqueued
            if end > p.queues[cls].released:
                total += end - p.queues[cls].released
        return total

    # --- control and probes

    def send(self, int port, bytes frame, int priority=0):
        cdef Port* p = self.ports.port_at(port)
        cdef uint8_t* data = <uint8_t*> <char*> frame
        if len(frame) < 4 or 4 + payload_size(data) != <uint32_t> len(frame):
            raise ChappeError("send takes exactly one whole frame")
        if not 0 <= priority <= 3:
            raise ChappeError(f"class {priority} does not exist, use 0 to 3")
        cdef int result = self.ports.put_frame(port, p, priority, data, <uint32_t> len(frame), True)
        if result < 0:
            p.counters[-result] += 1
            return False
        p.counters[CONTROL_OUT] += 1
        return True

    @property
    def deferred(self):
        return [port for port in self.input.deferred_ports if self.ports.port_at(port).deferred]

    def feed_deferred(self, ports=None, int most=QUESTIONS):
        return self.input.feed_deferred(ports, most)

    def be_patient(self, int port, bint patient):
        self.ports.port_at(port).patient = patient

    def take_asked(self):
        cdef int port
        cdef Port* p
        found = []
        for port in self.input.asked_ports:
            p = self.ports.port_at(port)
            found.append((port, p.asked))
            p.asked = 0
        self.input.asked_ports.clear()
        return found

    def take_control(self):
        self.attention = False
        found = self.input.control_inbox
        if found:
            self.input.control_inbox = []
        return found

    def take_echoes(self):
        found = self.input.echo_inbox
        if found:
            self.input.echo_inbox = []
        return found

    def heartbeat(self, int port):
        return bool(self._probe(port, 0))

    def send_probe(self, int port, token):
        if not 0 < token < 1 << 63:
            raise ChappeError(f"token {token} cannot be used, take 1 to {(1 << 63) - 1}")
        cdef Port* p = self.ports.port_at(port)
        p.riding_token = 0
        p.probe_token = token
        p.probe_sent_at = self.clocks.mono_ns
        return bool(self._probe(port, token))

    def ride_probe(self, int port, token):
        if not 0 < token < 1 << 63:
            raise ChappeError(f"token {token} cannot be used, take 1 to {(1 << 63) - 1}")
        cdef Port* p = self.ports.port_at(port)
        if p.state != OPEN or p.riding_token:
            return False
        p.riding_token = token
        return True

    def riding(self, int port):
        return self.ports.port_at(port).riding_token

    cdef bint _probe(self, int port, uint64_t token) except -1:
        cdef Port* p = self.ports.port_at(port)
        cdef uint8_t frame[20]
        put_header(frame, PROBE, 16)
        put64(frame + 4, token)
        put64(frame + 12, <uint64_t> self.clocks.mono_ns)
        return self.ports.put_frame(port, p, 0, frame, 20, True) == 0

    def last_heard(self, int port):
        return self.ports.port_at(port).last_heard

    # --- limits of all ports

    def set_limits(self, *, memory_bytes, max_routed_topics, account_topics, account_bytes):
        self.memory.memory.budget = memory_bytes
        self.topics.max_routed_topics = max_routed_topics
        self.accounts.max_topics = account_topics
        self.accounts.max_bytes = self.ports.pool.account_limit = account_bytes

    # --- rates and credits

    def limit_rate(self, int port, double events_per_s, double burst):
        cdef Port* p = self.ports.port_at(port)
        p.rate = events_per_s
        p.burst = p.tokens = burst
        p.tokens_at = self.clocks.mono_ns

    def throttled(self):
        cdef int port
        cdef Port* p
        found = []
        if self.input.overdrawn:
            self.input.overdrawn = False
            for port in range(self.ports.ntable):
                p = self.ports.table[port]
                if p.state == OPEN and p.rate > 0 and p.tokens < 0:
                    found.append(port)
        return found

    def throttled_ns(self, int port):
        cdef Port* p = self.ports.port_at(port)
        if p.rate <= 0 or p.tokens >= 0:
            return 0
        return max(0, int(-p.tokens / p.rate * 1e9) - (self.clocks.mono_ns - p.tokens_at))

    def defined_topics(self, int port, uint32_t start, uint32_t limit):
        cdef Port* p = self.ports.port_at(port)
        cdef uint32_t i, end = min(p.naliases, start + limit)
        found = []
        for i in range(start, end):
            if 0 < p.aliases[i] < ROUTED:
                found.append(self.topics.name(p.aliases[i])[:2])
        return found, end if end < p.naliases else 0

    def refusing(self):
        return list(self.definitions.refusals)

    def take_refusals(self, int port):
        return self.definitions.take_refusals(port, self.ports.port_at(port))

    # --- trains

    def send_train(self, int port, token, size):
        return self.trains.send(port, token, size)

    def take_trained(self):
        return self.trains.take()

    # --- forwarding

    @property
    def route_error(self):
        return self.forwarding.route_error or self.paths.error or self.parcels.error

    def release_held(self):
        return self.forwarding.release_held()

    def held_ns(self):
        return self.forwarding.held_ns()

    def take_unconfirmed(self, int port, int limit=1000):
        cdef Port* p = self.ports.port_at(port)
        if p.state == OPEN:
            self.park_port(port)
        return [] if p.state == CLOSED or not p.peer else self.forwarding.take_unconfirmed(port, p, limit)

    def take_undeliverable(self):
        return self.forwarding.take_undeliverable()

    def forget_undelivered(self, int port=NOWHERE):
        self.forwarding.forget_undelivered(port)

    def drop_undelivered(self, event, bint waited):
        self.forwarding.drop_undelivered(event, waited)

    def reroute(self, event, next_hops):
        return self.forwarding.reroute(event, next_hops)

    # --- parcels

    def be_cell(self, bytes id):
        self.parcels.be_cell(id)

    def set_cell(self, bytes id, int port):
        self.paths.place_cell(id, port)

    def own_name(self, bytes name, int port):
        self.paths.own(name, port)

    def disown_name(self, bytes name, int port):
        self.paths.disown(name, port)

    def parcels_changed(self, bytes destination=b""):
        self.paths.changed(destination)

    def permits_changed(self):
        self.parcels.forget_permits()

    def name_placed(self, bytes name):
        self.paths.placed(name)

    def parcels_tick(self):
        self.flows.tick()

    def parcels_next(self):
        return self.flows.next_ns()

    def take_parcels(self):
        return self.parcels.take_multicast()

    def take_broken(self):
        found = self.paths.broken
        if found:
            self.paths.broken = []
        return found

    def parcel_rows(self):
        return self.parcels.rows()

    def flow_rows(self):
        return self.flows.rows()

    # --- subscriptions that touch queues

    def watch(self, int port, variable, path, intervals, priorities, modes):
        cdef Port* p = self.ports.port_at(port)
        every = self.status.setup_path(variable, port, path, intervals, priorities, modes)
        cdef bytes last = self.status.last(variable) or b""
        if last:
            self.ports.put_status(port, p, 2, <const uint8_t*> <char*> last, <uint32_t> len(last), 1)
        return every

    # --- counters

    @property
    def allocations(self):
        return self.memory.calls

    def port_counters(self, int port):
        cdef Port* p = self.ports.port_at(port)
        cdef int i
        counts = {name: p.counters[i] for i, name in enumerate(NAMES)}
        counts["lost_status"] = p.lost_status
        counts["lost_events"] = p.lost_events
        return counts

    def traffic(self, int port):
        cdef Port* p = self.ports.port_at(port)
        return p.counters[STATUS_IN] + p.counters[EVENTS_IN] + p.counters[STATUS_OUT] + p.counters[EVENTS_OUT]

    def counters(self):
        cdef int i, port
        totals = [self.ports.past[i] for i in range(COUNTERS)]
        for port in range(self.ports.ntable):
            for i in range(COUNTERS):
                totals[i] += self.ports.table[port].counters[i]
        return dict(zip(NAMES, totals))

    cdef tuple _address(self, uint64_t key):
        cdef uint32_t number = <uint32_t> key
        reason = NAMES[(key >> 32) & 0xFF]
        if key == 1:
            return ("other", "", "")
        if (key >> 40) & 3 == 1:
            return ("variable", number, reason)
        try:
            kind, name, _ = self.topics.name(number)
        except IndexError:
            return ("topic", f"number {number}" if number else "", reason)
        if kind == "n":
            return ("topic", redacted(name.decode()), reason)
        return ("topic", name.decode() if kind == "s" else int.from_bytes(name, "big", signed=True), reason)

    def address_drops(self, int limit=0):
        cdef uint32_t i
        sums = {}  # a topic has one number, and one more with each group and each source route
        for i in range(self.ports.address_counts.capacity):
            if self.ports.address_counts.slots[i].count:
                address = self._address(self.ports.address_counts.slots[i].key)
                sums[address] = sums.get(address, 0) + self.ports.address_counts.slots[i].count
        for i in range(self.ports.ntopic_full):
            if self.ports.topic_full[i]:
                address = self._address((<uint64_t> OF_TOPIC << 40) | (<uint64_t> DROP_QUEUE_FULL << 32) | i)
                sums[address] = sums.get(address, 0) + self.ports.topic_full[i]
        rows = [(*address, count) for address, count in sums.items()]
        rows.sort(key=lambda row: -row[3])
        return rows[:limit] if limit else rows

    def memory_bytes(self):
        return self.memory.bytes
