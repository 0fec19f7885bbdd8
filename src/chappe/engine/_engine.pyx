"""The engine of a node: its ports, tables, queues and counters, as Python calls them."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from chappe.engine._bytes cimport payload_size, put64, put_header
from chappe.engine._events cimport COURSE
from chappe.engine._input cimport QUESTIONS, Input
from chappe.engine._ports cimport *
from chappe.engine._queue cimport queue_clear
from chappe.engine._stack cimport iovec

from chappe.engine._ports import NAMES
from chappe.engine.rescue import RawOutputs, Rescued
from chappe.errors import ChappeError, ProtocolError, RefusedError
from chappe.wire.addresses import shown

__all__ = ["Engine", "RawOutputs", "Rescued"]


cdef class Engine(Input):
    # --- the Python side: ports

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
            number = self.issuer_number(issuer, epoch)
        if partner >= 0:
            self.port_at(partner)
        charged = 0
        try:
            charged = self.accounts.open(account)
            port = self.new_port()
        except MemoryError as error:
            self.accounts.close(charged)
            if number:
                self.release_issuer(number)
            raise RefusedError(str(error)) from None
        p = self.table[port]
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
            self.table[partner].data_port = port
        if level:
            try:
                self.status.set_level(port, level)
            except MemoryError as error:
                self.free_port(port)
                raise RefusedError(str(error)) from None
        return port

    def close_port(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        if p.state == CLOSED:
            return
        self.count_unsent(port, p)
        self.strand_marks(port)
        p.state = CLOSED
        for cls in range(4):
            queue_clear(&self.pool, &p.queues[cls])
        p.sticky = -1
        p.carry_size = 0
        p.deferred = p.patient = False
        for waiting in (self.deferred_ports, self.asked_ports):
            if port in waiting:
                waiting.remove(port)
        self.unhold(p)
        self.forget_publisher(port)
        self.forget_echoes(port, p)
        if p.partner >= 0 and self.table[p.partner].data_port == port:
            self.table[p.partner].data_port = -1
        if p.data_port >= 0:
            self.table[p.data_port].partner = -1
        if p.peer:
            self.topics.new_ways()  # none may lead there any more
        self.status.set_level(port, 0)

    def free_port(self, int port, int limit=10_000):
        cdef Port* p = self.port_at(port)
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
        for i in range(p.naliases):
            self.drop_alias(p, p.aliases[i])
        for i in range(p.nissuers_in):
            if p.issuers_in[i]:
                self.release_issuer(p.issuers_in[i])
        if p.issuer:
            self.release_issuer(p.issuer)
        for i in range(COUNTERS):
            self.past[i] += p.counters[i]
        self.denied.pop(port, None)
        self.refusals.pop(port, None)
        self.forget_starved(port)
        self._release(p)
        self.accounts.close(p.account)
        dirty = p.dirty
        memset(p, 0, sizeof(Port))
        p.dirty = dirty  # it is still in the list of those
        return True

    def park_port(self, int port):
        cdef Port* p = self.port_at(port)
        if p.state == OPEN:
            p.state = PARKED
            p.carry_size = 0
            p.deferred = False
            p.train_in.size = p.train_out.size = 0
            p.riding_token = 0
            self.forget_echoes(port, p)

    def resume_port(self, int port):
        cdef Port* p = self.port_at(port)
        if p.state == CLOSED:
            raise ChappeError(f"port {port} was closed, open a new one")
        p.state = OPEN
        p.failed = False
        p.carry_size = 0
        p.deferred = False
        p.last_heard = self.mono_ns
        self.rebuild(port, p)
        self.renew_marks(port)

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
        cdef uint64_t total = 0
        cdef uint32_t i
        for i in range(p.npending):
            total += p.pending[i].size
        for cls in range(4):
            total += p.queues[cls].enqueued - p.queues[cls].sent
        return total

    def unacknowledged(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int cls
        cdef uint64_t total = 0, end
        for cls in range(4):
            # What is neither event nor parcel dies with its connection.
            end = p.queues[cls].keep if p.state == PARKED else p.queues[cls].enqueued
            if end > p.queues[cls].released:
                total += end - p.queues[cls].released
        return total

    # --- control and probes

    def send(self, int port, bytes frame, int priority=0):
        cdef Port* p = self.port_at(port)
        cdef uint8_t* data = <uint8_t*> <char*> frame
        if len(frame) < 4 or 4 + payload_size(data) != <uint32_t> len(frame):
            raise ChappeError("send takes exactly one whole frame")
        if not 0 <= priority <= 3:
            raise ChappeError(f"class {priority} does not exist, use 0 to 3")
        cdef int result = self.put_frame(port, p, priority, data, <uint32_t> len(frame), True)
        if result < 0:
            p.counters[-result] += 1
            return False
        if data[0] == PARCEL:
            p.queues[priority].keep = p.queues[priority].enqueued
        p.counters[CONTROL_OUT] += 1
        return True

    @property
    def deferred(self):
        return [port for port in self.deferred_ports if self.port_at(port).deferred]

    def feed_deferred(self, ports=None, int most=QUESTIONS):
        cdef list turn = self.deferred_ports, failed = [], left = []
        cdef int port, asked = 0
        cdef Port* p
        cdef uint8_t* data
        cdef uint32_t size
        self.deferred_ports = []
        for port in turn:
            p = self.port_at(port)
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
                self.feed_bytes(port, data, size)
            except ProtocolError as error:
                failed.append((port, error))
            except MemoryError as error:
                failed.append((port, ProtocolError(str(error))))
            finally:
                self.most = -1
                self.give_memory(data)
            asked += max(self.questions, 1)
        self.deferred_ports = left + self.deferred_ports
        return failed

    def be_patient(self, int port, bint patient):
        self.port_at(port).patient = patient

    def take_asked(self):
        cdef int port
        cdef Port* p
        found = []
        for port in self.asked_ports:
            p = self.port_at(port)
            found.append((port, p.asked))
            p.asked = 0
        self.asked_ports.clear()
        return found

    def take_control(self):
        self.attention = False
        found = self.control_inbox
        if found:
            self.control_inbox = []
        return found

    def take_echoes(self):
        found = self.echo_inbox
        if found:
            self.echo_inbox = []
        return found

    def heartbeat(self, int port):
        return bool(self._probe(port, 0))

    def send_probe(self, int port, token):
        if not 0 < token < 1 << 63:
            raise ChappeError(f"token {token} cannot be used, take 1 to {(1 << 63) - 1}")
        cdef Port* p = self.port_at(port)
        p.riding_token = 0
        p.probe_token = token
        p.probe_sent_at = self.mono_ns
        return bool(self._probe(port, token))

    def ride_probe(self, int port, token):
        if not 0 < token < 1 << 63:
            raise ChappeError(f"token {token} cannot be used, take 1 to {(1 << 63) - 1}")
        cdef Port* p = self.port_at(port)
        if p.state != OPEN or p.riding_token:
            return False
        p.riding_token = token
        return True

    def riding(self, int port):
        return self.port_at(port).riding_token

    cdef bint _probe(self, int port, uint64_t token) except -1:
        cdef Port* p = self.port_at(port)
        cdef uint8_t frame[20]
        put_header(frame, PROBE, 16)
        put64(frame + 4, token)
        put64(frame + 12, <uint64_t> self.mono_ns)
        return self.put_frame(port, p, 0, frame, 20, True) == 0

    def last_heard(self, int port):
        return self.port_at(port).last_heard

    # --- limits of all ports

    def set_limits(self, *, memory_bytes, max_ways, account_topics, account_bytes):
        self.memory.memory.budget = memory_bytes
        self.topics.max_ways = max_ways
        self.accounts.max_topics = account_topics
        self.accounts.max_bytes = self.pool.account_limit = account_bytes

    # --- rates and credits

    def limit_rate(self, int port, double events_per_s, double burst):
        cdef Port* p = self.port_at(port)
        p.rate = events_per_s
        p.burst = p.tokens = burst
        p.tokens_at = self.mono_ns

    def throttled(self):
        cdef int port
        found = []
        if self.overdrawn:
            self.overdrawn = False
            for port in range(self.ntable):
                if self.table[port].state == OPEN and self.table[port].rate > 0 and self.table[port].tokens < 0:
                    found.append(port)
        return found

    def throttled_ns(self, int port):
        cdef Port* p = self.port_at(port)
        if p.rate <= 0 or p.tokens >= 0:
            return 0
        return max(0, int(-p.tokens / p.rate * 1e9) - (self.mono_ns - p.tokens_at))

    def grant(self, int port):
        self.grant_credit(port, self.port_at(port))

    def defined_topics(self, int port, uint32_t start, uint32_t limit):
        cdef Port* p = self.port_at(port)
        cdef uint32_t i, end = min(p.naliases, start + limit)
        found = []
        for i in range(start, end):
            if 0 < p.aliases[i] < COURSE:
                found.append(self.topics.name(p.aliases[i])[:2])
        return found, end if end < p.naliases else 0

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
        return self.memory.calls

    def port_counters(self, int port):
        cdef Port* p = self.port_at(port)
        cdef int i
        counts = {name: p.counters[i] for i, name in enumerate(NAMES)}
        counts["lost_status"] = p.lost_status
        counts["lost_events"] = p.lost_events
        return counts

    def traffic(self, int port):
        cdef Port* p = self.port_at(port)
        return p.counters[STATUS_IN] + p.counters[EVENTS_IN] + p.counters[STATUS_OUT] + p.counters[EVENTS_OUT]

    def counters(self):
        cdef int i, port
        totals = [self.past[i] for i in range(COUNTERS)]
        for port in range(self.ntable):
            for i in range(COUNTERS):
                totals[i] += self.table[port].counters[i]
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
            return ("topic", shown(name.decode()), reason)
        return ("topic", name.decode() if kind == "s" else int.from_bytes(name, "big", signed=True), reason)

    def address_drops(self, int limit=0):
        cdef uint32_t i
        sums = {}  # a topic has one number, and one more with each group and each way
        for i in range(self.address_counts.capacity):
            if self.address_counts.slots[i].count:
                address = self._address(self.address_counts.slots[i].key)
                sums[address] = sums.get(address, 0) + self.address_counts.slots[i].count
        for i in range(self.ntopic_full):
            if self.topic_full[i]:
                address = self._address((<uint64_t> OF_TOPIC << 40) | (<uint64_t> DROP_QUEUE_FULL << 32) | i)
                sums[address] = sums.get(address, 0) + self.topic_full[i]
        rows = [(*address, count) for address, count in sums.items()]
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
        return self.memory.bytes
