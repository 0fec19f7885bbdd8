"""Parcels: pieces of flows between names, passed on from cell to cell.

A cell in the middle of a hop list changes two bytes and copies the frame; one at its end has the destination or writes
the next list. Whatever is wrong with a parcel is a counted drop and never ends a connection: the cells before did not
read all of it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from chappe.engine._bytes cimport get32, get64
from chappe.engine._flows cimport Flow, Flows, answer
from chappe.engine._memory cimport memory_resize
from chappe.engine._names cimport NameTable, name_at
from chappe.engine._paths cimport (
    BLOCKED,
    HEAD,
    ID_BYTES,
    LONGEST_LIST,
    PARCEL_ABSENT,
    PARCEL_ACK,
    PARCEL_MULTICAST,
    PARCEL_RETURNED,
    PATHLESS,
    Destination,
    Path,
    Paths,
    hops_of,
    parcel_room,
)
from chappe.engine._ports cimport (
    DROP_BAD_PARCEL,
    DROP_BLOCKED,
    DROP_HOPS,
    DROP_NO_MEMORY,
    DROP_NO_ROOM,
    DROP_NO_ROUTE,
    DROP_NOT_PERMITTED,
    DROP_QUEUE_FULL,
    OPEN,
    PARCELS_IN,
    PARCELS_OUT,
    PARCELS_RETURNED,
    UNROUTED,
    Port,
    mark_dirty,
)
from chappe.engine._queue cimport queue_put

from chappe.engine.routes import ParcelRow
from chappe.errors import ChappeError

cdef enum:
    VERSION = 2
    KNOWN_FLAGS = 63
    ACK_MOST = 1400            # bytes of a payload that acknowledges
    ACK_FIXED = 27
    ACK_RANGES = 32
    ACK_TEXT = 512
    REFUSED = 2                # flags of an acknowledgement
    WITH_TEXT = 6
    OUTSTANDING = 65536
    MULTICAST_BYTES = 4194304  # that wait for Python code
    PERMITS = 256              # that are remembered of a port
    QUESTIONS = 256            # to Python code at once for one port, and a second


cdef bint acknowledges(const uint8_t* body, uint32_t size) noexcept nogil:
    """Whether a body is an acknowledgement: its ranges ascend behind the next sequence expected."""
    cdef uint32_t last = 0, first, past, expected, fixed
    cdef int i
    if size < ACK_FIXED or body[0] != 1 or body[1] > 7 or body[26] > ACK_RANGES:
        return False
    fixed = ACK_FIXED + 8 * <uint32_t> body[26]
    if size < fixed or size - fixed > (ACK_TEXT if body[1] & WITH_TEXT else 0):
        return False
    expected = get32(body + 2)
    for i in range(body[26]):
        first = get32(body + ACK_FIXED + 8 * i) - expected
        past = get32(body + ACK_FIXED + 4 + 8 * i) - expected
        if first < last or past <= first or past >= OUTSTANDING:
            return False
        last = past
    return True


@cython.final
cdef class Parcels:
    """PARCEL frames: to the next cell, to a client, to Python code, or dropped and counted at the port they came by."""

    def __cinit__(self, Paths paths not None, Flows flows not None, authorize):
        self.paths = paths
        self.flows = flows
        self.ports = paths.ports
        self.authorize = authorize
        self.permits = NameTable(self.ports.budget, self.ports.seed)
        self.multicast = []

    def __dealloc__(self):
        free(self.asking)

    cdef void be_cell(self, bytes id) except *:
        if len(id) != ID_BYTES:
            raise ChappeError(f"the id of a cell has {ID_BYTES} bytes, not {len(id)}")
        if self.paths.parcel_routes is None:
            raise ChappeError("an engine without parcel_routes is no cell")
        memcpy(self.paths.me, <const uint8_t*> <char*> id, ID_BYTES)
        self.paths.cell = True

    cdef void forget_port(self, int port) noexcept:
        """It is parked or closed: its flows, names, permissions and cells are gone."""
        self.flows.forget_port(port)
        self.paths.forget_port(port)
        while self.permits.count_of(port):
            self.permits.drop(self.permits.heads[port])
        if <uint32_t> port < self.nasking:
            self.asking[port].at = 0

    cdef void forget_permits(self) noexcept:
        """Rules are others: each destination of each client is asked about again."""
        cdef uint32_t port
        for port in range(self.permits.nports):
            while self.permits.counts[port]:
                self.permits.drop(self.permits.heads[port])
        self.flows.forget_permits()

    cdef list take_multicast(self):
        cdef list taken = self.multicast
        if taken:
            self.multicast = []
            self.multicast_bytes = 0
        return taken

    cdef list rows(self):
        cdef list rows = []
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef uint32_t number, place
        cdef Destination* d
        cdef Path* path
        for number in range(1, self.paths.room):
            d = self.paths.items[number]
            if d == NULL:
                continue
            for place in range(d.npaths):
                path = &d.paths[place]
                if path.listed:
                    rows.append(ParcelRow(
                        (<char*> d.name)[:d.size], hops_of(path), path.base, path.share, <uint64_t> path.window.bytes,
                        path.in_flight, path.sent, path.acked, path.lost, path.returned,
                        max(0, path.excluded_until - now), path.window.delay_ns,
                        path.window.round_trip_ns,
                    ))
        return rows

    # --- frames

    cdef void parcel_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) noexcept:
        cdef uint8_t* payload = frame + 4
        cdef uint32_t head
        cdef int reason
        p.counters[PARCELS_IN] += 1
        if not self.paths.cell or (p.peer and self.paths.cells.count_of(port) == 0):
            p.counters[UNROUTED] += 1
            return
        reason = DROP_BAD_PARCEL
        if length >= HEAD:
            head = HEAD + ID_BYTES * <uint32_t> payload[4]
            if not (payload[0] != VERSION or payload[1] & ~KNOWN_FLAGS or payload[2] > LONGEST_LIST
                    or payload[3] > payload[4] or payload[4] > LONGEST_LIST or payload[5] == 0 or payload[6] == 0
                    or payload[7] or head + payload[5] + payload[6] > length
                    or (payload[1] & PARCEL_ABSENT and not payload[1] & PARCEL_RETURNED)
                    or (payload[1] & PARCEL_ACK and length > ACK_MOST)):
                if not p.peer:
                    reason = self._from_client(port, p, frame, length, payload + head)
                elif payload[1] & PARCEL_MULTICAST:
                    reason = self._keep_multicast(port, payload, length)
                elif payload[1] & PARCEL_RETURNED:
                    reason = self._returned(port, p, frame, length, payload + head)
                else:
                    reason = self._forward(port, p, frame, length, payload + head)
        if reason:
            p.counters[reason] += 1

    cdef int _forward(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept:
        """A parcel on its way. Like all that follow: 0, or the counter of the reason why it was dropped."""
        cdef uint8_t* payload = frame + 4
        cdef const uint8_t* hop = payload + HEAD + ID_BYTES * <uint32_t> payload[3]
        cdef int to
        if payload[3] == 0 or payload[3] >= payload[4] or memcmp(hop, self.paths.me, ID_BYTES) != 0:
            return DROP_BAD_PARCEL
        if payload[3] + 1 == payload[4]:
            to = self.paths.owner(names, payload[5])
            if to >= 0:
                return self._deliver(to, payload, length, names)
            return self._main(port, p, frame, length, names)
        if payload[2] == 0:
            return DROP_HOPS
        to = self.paths.port_of_cell(hop + ID_BYTES)
        if to == port:
            return DROP_BAD_PARCEL
        if to < 0 or self.ports.table[to].state != OPEN:
            return self._return(p, frame, length, PARCEL_RETURNED)
        payload[2] -= 1
        payload[3] += 1
        return self._pass(to, frame, length)

    cdef int _pass(self, int to, uint8_t* frame, uint32_t length) noexcept:
        """Copy the frame as it is."""
        cdef Port* q = self.ports.table[to]
        cdef int cls = 2 if frame[5] & PARCEL_ACK else 3
        if length > q.max_frame:
            return DROP_BAD_PARCEL
        if not parcel_room(q, cls, length + 4):
            return DROP_QUEUE_FULL
        if queue_put(&self.ports.pool, &q.queues[cls], frame, length + 4) < 0:
            return DROP_NO_MEMORY
        q.counters[PARCELS_OUT] += 1
        mark_dirty(self.ports, to, q)
        return 0

    cdef int _return(self, Port* p, uint8_t* frame, uint32_t length, int flags) noexcept:
        """Back to the cell before this one; `flags` say why."""
        cdef uint8_t* payload = frame + 4
        cdef int to
        if payload[2] == 0:
            return DROP_HOPS
        if payload[3] == 0:
            return DROP_NO_ROUTE
        to = self.paths.port_of_cell(payload + HEAD + ID_BYTES * (<uint32_t> payload[3] - 1))
        if to < 0 or self.ports.table[to].state != OPEN:
            return DROP_NO_ROUTE
        p.counters[PARCELS_RETURNED] += 1
        payload[1] |= flags
        payload[2] -= 1
        payload[3] -= 1
        return self._pass(to, frame, length)

    cdef int _returned(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept:
        """A parcel on its way back comes from the cell behind this one in its list, or it is none."""
        cdef uint8_t* payload = frame + 4
        cdef const uint8_t* hop = payload + HEAD + ID_BYTES * <uint32_t> payload[3]
        cdef Destination* d
        cdef Flow* flow
        cdef int place
        if (payload[3] + 1 >= payload[4] or memcmp(hop, self.paths.me, ID_BYTES) != 0
                or self.paths.port_of_cell(hop + ID_BYTES) != port):
            return DROP_BAD_PARCEL
        if payload[3]:
            return self._return(p, frame, length, PARCEL_RETURNED)
        if payload[2] == 0:
            return DROP_HOPS
        if not payload[1] & PARCEL_ACK:
            place = self.paths.owner(names + payload[5], payload[6])
            flow = self.flows.find(place, get64(payload + 8)) if place >= 0 else NULL
            if flow != NULL:
                if (not self._same(flow, payload, names)) or not self.flows.returned(flow, payload, length):
                    return DROP_BAD_PARCEL
                return 0
        d = self.paths.find(names, payload[5])
        if d == NULL:
            return DROP_NO_ROUTE
        place = self.paths.path_by(d, payload + HEAD + ID_BYTES, payload[4] - 1)
        if place < 0:
            return DROP_NO_ROUTE
        d.paths[place].returned += 1
        self.paths.exclude(d, &d.paths[place], payload[1] & PARCEL_ABSENT)
        return self._main(port, p, frame, length, names)

    cdef bint _same(self, Flow* flow, const uint8_t* payload, const uint8_t* names) noexcept:
        """Whether the parcel has the names of the flow."""
        return (flow.destination.size == payload[5] and flow.source_size == payload[6]
                and memcmp(flow.destination.name, names, payload[5]) == 0
                and memcmp(flow.source, names + payload[5], payload[6]) == 0)

    cdef int _main(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept:
        """This cell chooses by which others the parcel goes on; there is nothing that it remembers of it."""
        cdef uint8_t* payload = frame + 4
        cdef int cls = 2 if payload[1] & PARCEL_ACK else 3
        cdef int place
        cdef Destination* d = self._destination(port, names, payload[5])
        cdef Path* path
        if payload[2] == 0:
            return DROP_HOPS
        if d == NULL:
            return DROP_NO_ROOM
        place = self.paths.draw(p, d, cls, length + 4, False, port)
        if place == BLOCKED:
            return DROP_BLOCKED
        if place == PATHLESS:
            if not p.peer or payload[1] & PARCEL_RETURNED:
                return DROP_NO_ROUTE
            return self._return(p, frame, length, PARCEL_RETURNED | PARCEL_ABSENT)
        path = &d.paths[place]
        return -self.paths.put(path.port, cls, payload, length, path.hops, path.nhops, payload[2] - 1)

    cdef int _deliver(self, int owner, const uint8_t* payload, uint32_t length, const uint8_t* names) noexcept:
        """To a client of this node; what it learns of its own flows, this node reads in passing."""
        cdef Port* q = self.ports.table[owner]
        cdef int cls = 2 if payload[1] & PARCEL_ACK else 3
        cdef const uint8_t* body = names + payload[5] + payload[6]
        cdef uint32_t size = length - <uint32_t> (body - payload)
        cdef Flow* flow
        cdef int result
        if payload[1] & PARCEL_ACK:
            if not acknowledges(body, size):
                return DROP_BAD_PARCEL
            flow = self.flows.find(owner, get64(payload + 8))
            if (flow != NULL and flow.source_size == payload[5] and flow.destination.size == payload[6]
                    and memcmp(flow.source, names, payload[5]) == 0
                    and memcmp(flow.destination.name, names + payload[5], payload[6]) == 0):
                self.flows.acknowledge(flow, body)
        result = self.paths.put(owner, cls, payload, length, NULL, 0, payload[2])
        if result < 0:
            q.counters[-result] += 1
        return 0

    cdef int _keep_multicast(self, int port, const uint8_t* payload, uint32_t length) noexcept:
        if self.multicast_bytes + length > MULTICAST_BYTES:
            return DROP_QUEUE_FULL
        self.multicast.append((port, (<char*> payload)[:length]))
        self.multicast_bytes += length + 64
        self.attention[0] = True
        return 0

    # --- what clients send

    cdef int _from_client(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept:
        cdef uint8_t* payload = frame + 4
        cdef const uint8_t* source = names + payload[5]
        cdef const uint8_t* body = source + payload[6]
        cdef int owner
        if payload[4] or payload[1] & PARCEL_RETURNED:
            return DROP_BAD_PARCEL
        if payload[2] == 0:
            return DROP_HOPS
        if self.paths.owner(source, payload[6]) != port:
            answer(self.ports, port, get64(payload + 8), source, payload[6], names, payload[5], REFUSED, 0,
                   b"the name that this comes from is not one of the client")
            return DROP_NOT_PERMITTED
        if payload[1] & PARCEL_ACK:
            if not acknowledges(body, length - <uint32_t> (body - payload)):
                return DROP_BAD_PARCEL
            owner = self.paths.owner(names, payload[5])
            if owner >= 0:
                return self._deliver(owner, payload, length, names)
            return self._main(port, p, frame, length, names)
        if payload[1] & PARCEL_MULTICAST:
            if not self._permitted(port, names, payload[5]):
                return DROP_NOT_PERMITTED
            return self._keep_multicast(port, payload, length)
        return self._flow_parcel(port, p, frame, length, names)

    cdef int _flow_parcel(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept:
        cdef uint8_t* payload = frame + 4
        cdef uint64_t id = get64(payload + 8)
        cdef Flow* flow = self.flows.find(port, id)
        cdef Destination* d
        if flow != NULL and not self._same(flow, payload, names):
            return DROP_BAD_PARCEL
        if flow == NULL or not flow.allowed:
            if not self._permitted(port, names, payload[5]):
                if flow != NULL:
                    self.flows.end(flow)
                answer(self.ports, port, id, names + payload[5], payload[6], names, payload[5], REFUSED, 0,
                       b"no rule allows to send to this name")
                return DROP_NOT_PERMITTED
        if flow == NULL:
            d = self._destination(port, names, payload[5])
            if d == NULL:
                return DROP_NO_ROOM
            flow = self.flows.begin(port, id, names + payload[5], payload[6], d, get32(payload + 16))
            if flow == NULL:
                return DROP_NO_ROOM
        flow.allowed = True
        self.flows.send(flow, frame, length + 4)
        return 0

    # --- questions to Python code

    cdef Destination* _destination(self, int port, const uint8_t* name, uint32_t size) noexcept:
        """Where parcels to that name go; NULL: without room, or the port asked for too many that nobody knew."""
        cdef Destination* d = self.paths.find(name, size)
        if d == NULL and self._may_ask(port):
            d = self.paths.make(name, size)
        return d

    cdef bint _permitted(self, int port, const uint8_t* name, uint32_t size) noexcept:
        """Whether a client may send to that name; asked once."""
        cdef uint32_t number
        cdef bint allowed = False
        if self.authorize is None:
            return True
        number = self.permits.find(port, name, size)
        if number:
            return name_at(self.permits, number).value
        if not self._may_ask(port):
            return False
        try:
            allowed = bool(self.authorize(port, "c", (<char*> name)[:size]))
        except Exception as error:
            self.error = error
            return False
        if self.permits.count_of(port) >= PERMITS:
            while self.permits.count_of(port):
                self.permits.drop(self.permits.heads[port])
        number = self.permits.add(port, name, size, port)
        if number:
            name_at(self.permits, number).value = allowed
        return allowed

    cdef bint _may_ask(self, int port) noexcept:
        """Takes one of the questions that a port may cause: names are chosen by strangers."""
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef uint32_t room
        cdef void* block
        cdef Asking* asking
        if <uint32_t> port >= self.nasking:
            room = <uint32_t> port + 16
            block = memory_resize(self.ports.memory, self.asking, room * sizeof(Asking))
            if block == NULL:
                return False
            self.asking = <Asking*> block
            while self.nasking < room:
                self.asking[self.nasking].left = QUESTIONS
                self.asking[self.nasking].at = 0
                self.nasking += 1
        asking = &self.asking[port]
        asking.left = min(<double> QUESTIONS, asking.left + QUESTIONS * 1e-9 * <double> (now - asking.at))
        asking.at = now
        if asking.left < 1:
            return False
        asking.left -= 1
        return True
