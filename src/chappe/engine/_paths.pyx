"""Paths of parcels: neighbouring cells, names that are here, and by which cells a destination is reached."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._bytes cimport put_header
from chappe.engine._memory cimport memory_give, memory_resize, memory_take, raise_no_memory
from chappe.engine._names cimport NOBODY, NameTable, name_at
from chappe.engine._ports cimport (
    DROP_BAD_PARCEL,
    DROP_CLOSED,
    DROP_NO_MEMORY,
    DROP_QUEUE_FULL,
    OPEN,
    PARCEL,
    PARCEL_QUESTIONS,
    PARCELS_OUT,
    ROUTE_ERRORS,
    Port,
    Ports,
    mark_dirty,
)
from chappe.engine._queue cimport queue_reserve
from chappe.engine._windows cimport window_begin, window_open

from chappe.errors import ChappeError, RefusedError

cdef enum:
    MOST_PATHS = 64            # of a destination
    PATH_SLOTS = 128           # with those that are not listed any more and have something in flight
    DESTINATIONS = 4096
    NAMES_OF_PORT = 1024
    UNREAD_BROKEN = 1024
    STEP_BACK = 10             # a share goes one part in so many towards what parcel_routes gave,
    STEP_ON = 3                # or towards what was acknowledged

cdef int64_t EXCLUDED_NS = 30_000_000_000
cdef int64_t ABSENT_NS = 250_000_000      # where the name is not at the end of the path now
cdef int64_t ABSENT_LONG_NS = 2_000_000_000
cdef int64_t EXCLUDED_MOST_NS = 600_000_000_000
cdef double LEAST_SHARE = 0.01
cdef double MOST_SHARE = 1e18


@cython.final
cdef class Paths:
    """What parcel_routes answered, and which part of the parcels takes which path."""

    def __cinit__(self, Ports ports not None, parcel_routes):
        self.ports = ports
        self.parcel_routes = parcel_routes
        self.cells = NameTable(ports.budget, ports.seed)
        self.owned = NameTable(ports.budget, ports.seed)
        self.known = NameTable(ports.budget, ports.seed)
        self.random = ports.seed ^ <uint64_t> 0x9E3779B97F4A7C15
        if self.random == 0:
            self.random = 1
        self.stamp = 1
        self.hand = 1
        self.broken = []

    def __dealloc__(self):
        cdef uint32_t number, place
        for number in range(self.room):
            if self.items[number] != NULL:
                for place in range(self.items[number].npaths):
                    free(self.items[number].paths[place].hops)
                free(self.items[number].paths)
                free(self.items[number])
        free(self.items)

    # --- cells and names

    cdef int port_of_cell(self, const uint8_t* id) noexcept:
        """Where a neighbouring cell is reached, or NOBODY."""
        cdef uint32_t number = self.cells.find(NOBODY, id, ID_BYTES)
        return name_at(self.cells, number).port if number else NOBODY

    cdef int owner(self, const uint8_t* name, uint32_t size) noexcept:
        cdef uint32_t number = self.owned.find(NOBODY, name, size)
        return name_at(self.owned, number).port if number else NOBODY

    cdef void place_cell(self, bytes id, int port) except *:
        cdef const uint8_t* text = <const uint8_t*> <char*> id
        cdef uint32_t number
        cdef Port* p
        if len(id) != ID_BYTES or (self.cell and memcmp(text, self.me, ID_BYTES) == 0):
            raise ChappeError(f"{id.hex() or 'nothing'} is not the id of another cell: it has {ID_BYTES} bytes")
        if port >= 0:
            p = self.ports.port_at(port)
            if not p.peer or p.datagram or p.state != OPEN:
                raise ChappeError(f"port {port} is not the open stream of a peer: no cell is reached by it")
        number = self.cells.find(NOBODY, text, ID_BYTES)
        if number:
            self.cells.drop(number)
        self.stamp += 1
        if port >= 0 and self.cells.add(NOBODY, text, ID_BYTES, port) == 0:
            raise_no_memory(self.ports.memory, "a neighbouring cell")

    cdef void own(self, bytes name, int port) except *:
        cdef const uint8_t* text = <const uint8_t*> <char*> name
        cdef Port* p = self.ports.port_at(port)
        cdef int owner
        if not 1 <= len(name) <= 255 or p.peer or p.datagram or p.state != OPEN:
            raise ChappeError(f"port {port} cannot have a name of {len(name)} bytes: clients have names of 1 to 255")
        owner = self.owner(text, <uint32_t> len(name))
        if owner == port:
            return
        if owner >= 0:
            raise RefusedError(f"another client of this node has the name {name.decode(errors='replace')}")
        if self.owned.count_of(port) >= NAMES_OF_PORT:
            raise RefusedError(f"a client has at most {NAMES_OF_PORT} names")
        if self.owned.add(NOBODY, text, <uint32_t> len(name), port) == 0:
            raise_no_memory(self.ports.memory, "a name")
        self.changed(name)

    cdef void disown(self, bytes name, int port) noexcept:
        cdef uint32_t number = self.owned.find(NOBODY, <const uint8_t*> <char*> name, <uint32_t> len(name))
        if number and name_at(self.owned, number).port == port:
            self.owned.drop(number)
            self.changed(name)

    cdef void forget_port(self, int port) noexcept:
        """No cell is reached by it and no name is there any more."""
        cdef uint32_t number
        cdef Destination* d
        while self.cells.count_of(port):
            self.cells.drop(self.cells.heads[port])
            self.stamp += 1
        while self.owned.count_of(port):
            number = self.owned.heads[port]
            d = self.find(name_at(self.owned, number).text, name_at(self.owned, number).size)
            if d != NULL:
                d.asked = False
            self.owned.drop(number)

    # --- destinations

    cdef Destination* find(self, const uint8_t* name, uint32_t size) noexcept:
        cdef uint32_t number = self.known.find(NOBODY, name, size)
        if number == 0:
            return NULL
        self.items[number].used = True
        return self.items[number]

    cdef Destination* make(self, const uint8_t* name, uint32_t size) noexcept:
        """One that is not there yet, in place of one that is not used any more if there are many; NULL: no room."""
        cdef uint32_t number, room
        cdef void* block
        cdef Destination* d
        if self.used >= DESTINATIONS:
            d = self._spare()
            if d == NULL:
                return NULL
            self._release(d)
        d = <Destination*> memory_take(self.ports.memory, sizeof(Destination))
        if d == NULL:
            return NULL
        number = self.known.add(NOBODY, name, size, NOBODY)
        if number >= self.room:
            room = number + (number >> 1) + 16
            block = memory_resize(self.ports.memory, self.items, room * sizeof(Destination*))
            if block == NULL:
                self.known.drop(number)
                number = 0
            else:
                self.items = <Destination**> block
                memset(self.items + self.room, 0, (room - self.room) * sizeof(Destination*))
                self.room = room
        if number == 0:
            memory_give(self.ports.memory, d)
            return NULL
        memset(d, 0, sizeof(Destination))
        d.number = number
        d.name = name_at(self.known, number).text
        d.size = size
        d.used = True
        d.corrected_at = self.ports.clocks.mono_ns
        self.items[number] = d
        self.used += 1
        return d

    cdef Destination* _spare(self) noexcept:
        """A destination that no flow goes to and that was not used since the last time around."""
        cdef uint32_t _step
        cdef Destination* d
        for _step in range(2 * self.room):
            self.hand = self.hand + 1 if self.hand + 1 < self.room else 1
            d = self.items[self.hand]
            if d != NULL and d.flows == 0:
                if not d.used:
                    return d
                d.used = False
        return NULL

    cdef void _release(self, Destination* d) noexcept:
        cdef uint32_t place
        for place in range(d.npaths):
            memory_give(self.ports.memory, d.paths[place].hops)
        memory_give(self.ports.memory, d.paths)
        self.items[d.number] = NULL
        self.known.drop(d.number)
        memory_give(self.ports.memory, d)
        self.used -= 1

    cdef void changed(self, bytes name) noexcept:
        """Ask for the paths again, of all destinations if none is named."""
        cdef uint32_t number
        cdef Destination* d
        if name:
            d = self.find(<const uint8_t*> <char*> name, <uint32_t> len(name))
            if d != NULL:
                d.asked = False
            return
        for number in range(self.room):
            if self.items[number] != NULL:
                self.items[number].asked = False

    cdef void placed(self, bytes name) noexcept:
        """A cell has got the name: whatever happened to parcels before, its paths may be used."""
        cdef Destination* d = self.find(<const uint8_t*> <char*> name, <uint32_t> len(name))
        cdef uint32_t place
        if d == NULL:
            return
        d.asked = False
        for place in range(d.npaths):
            d.paths[place].excluded_until = d.paths[place].exclusion_ns = 0
            d.paths[place].silences = 0

    cdef void _ask(self, Port* asking, Destination* d) noexcept:
        cdef list routes = []
        if self.owner(d.name, d.size) >= 0:
            routes.append((1.0, b""))
        else:
            asking.counters[PARCEL_QUESTIONS] += 1
            try:
                for share, hops in self.parcel_routes((<char*> d.name)[:d.size]):
                    ids = b"".join(hops)
                    if not 0 < share < MOST_SHARE or not 1 <= len(hops) < LONGEST_LIST:
                        raise ValueError(f"a path of {len(hops)} hops and the share {share}")
                    if len(ids) != ID_BYTES * len(hops) or any(len(hop) != ID_BYTES for hop in hops):
                        raise ValueError(f"the id of a cell has {ID_BYTES} bytes")
                    routes.append((share, ids))
                if len(routes) > MOST_PATHS:
                    raise ValueError(f"{len(routes)} paths, at most {MOST_PATHS} are used")
            except Exception as error:
                asking.counters[ROUTE_ERRORS] += 1
                self.error = error
                routes = []
        self._use(d, routes)

    cdef void _use(self, Destination* d, list routes) noexcept:
        """Take these paths; those that were there keep what was learned. Without memory for all, ask again."""
        cdef uint32_t place
        cdef Path* path
        cdef bytes hops
        cdef double share, total = 0, bases = 0, shares = 0
        d.asked = True
        for place in range(d.npaths):
            d.paths[place].listed = False
        for share, _ in routes:
            total += share
        for share, hops in routes:
            path = self._slot(d, <const uint8_t*> <char*> hops, <uint32_t> len(hops) // ID_BYTES)
            if path == NULL:
                d.asked = False
                continue
            path.base = share / total + (path.base if path.listed else 0)
            if path.share <= 0:
                path.share = share / total
            path.listed = True
        for place in range(d.npaths):
            path = &d.paths[place]
            if path.listed:
                bases += path.base
                shares += path.share
        for place in range(d.npaths):
            path = &d.paths[place]
            if path.listed:
                path.base /= bases
                path.share /= shares
            else:
                path.base = path.share = 0
        d.stamp = 0

    cdef Path* _slot(self, Destination* d, const uint8_t* hops, uint32_t nhops) noexcept:
        """Where a path with these hops is, or gets room; NULL without memory."""
        cdef int place = self.path_by(d, hops, nhops)
        cdef uint32_t spare, at
        cdef void* block
        cdef uint8_t* copy
        cdef Path* path
        if place >= 0:
            return &d.paths[place]
        copy = <uint8_t*> memory_take(self.ports.memory, nhops * ID_BYTES)
        if copy == NULL:
            return NULL
        memcpy(copy, hops, nhops * ID_BYTES)
        spare = d.npaths
        for at in range(d.npaths):
            path = &d.paths[at]
            if not path.listed and path.in_flight == 0:
                spare = at
                if path.excluded_until <= self.ports.clocks.mono_ns:
                    break  # else how long it is excluded is forgotten only for want of room
        if spare < d.npaths and (d.paths[spare].excluded_until <= self.ports.clocks.mono_ns or d.npaths == PATH_SLOTS):
            memory_give(self.ports.memory, d.paths[spare].hops)
        else:
            block = NULL
            if d.npaths < PATH_SLOTS:
                block = memory_resize(self.ports.memory, d.paths, (d.npaths + 1) * sizeof(Path))
            if block == NULL:
                memory_give(self.ports.memory, copy)
                return NULL
            d.paths = <Path*> block
            spare = d.npaths
            d.npaths += 1
        path = &d.paths[spare]
        memset(path, 0, sizeof(Path))
        path.hops = copy
        path.nhops = nhops
        window_begin(&path.window)
        return path

    cdef int path_by(self, Destination* d, const uint8_t* hops, uint32_t nhops) noexcept:
        """Where the path with these hops is, -1: nowhere."""
        cdef uint32_t place
        for place in range(d.npaths):
            if d.paths[place].nhops == nhops and memcmp(d.paths[place].hops, hops, nhops * ID_BYTES) == 0:
                return <int> place
        return -1

    cdef void find_ports(self, Destination* d) noexcept:
        cdef uint32_t place
        cdef Path* path
        for place in range(d.npaths):
            path = &d.paths[place]
            path.port = self.port_of_cell(path.hops) if path.nhops else self.owner(d.name, d.size)
        d.stamp = self.stamp

    # --- draws

    cdef double _uniform(self) noexcept:
        """At least 0, below 1: xorshift64*."""
        self.random ^= self.random >> 12
        self.random ^= self.random << 25
        self.random ^= self.random >> 27
        return <double> ((self.random * <uint64_t> 0x2545F4914F6CDD1D) >> 11) * (1.0 / 9007199254740992.0)

    cdef int draw(self, Port* asking, Destination* d, int cls, uint32_t size, bint windowed, int arrival) noexcept:
        """The place of a path that is open, by the shares of those that are; BLOCKED or PATHLESS.

        `windowed`: the parcel belongs to a flow that begins here. No parcel goes back by the port `arrival`.
        """
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef uint32_t place
        cdef int last = PATHLESS, full = PATHLESS
        cdef double total = 0, drawn
        cdef Path* path
        cdef bint is_open[PATH_SLOTS]
        if not d.asked:
            self._ask(asking, d)
        if d.stamp != self.stamp:
            self.find_ports(d)
        for place in range(d.npaths):
            path = &d.paths[place]
            is_open[place] = False
            if (not path.listed or path.port < 0 or path.port == arrival or path.excluded_until > now
                    or self.ports.table[path.port].state != OPEN):
                continue
            if ((windowed and <double> path.in_flight >= window_open(&path.window, now))
                    or not parcel_room(self.ports.table[path.port], cls, size + ID_BYTES * (path.nhops + 1))):
                d.saturated = True
                full = BLOCKED
                continue
            is_open[place] = True
            last = <int> place
            total += path.share if windowed else path.base
        if last < 0:
            return full
        drawn = self._uniform() * total
        for place in range(d.npaths):
            if is_open[place]:
                drawn -= d.paths[place].share if windowed else d.paths[place].base
                if drawn < 0:
                    return <int> place
        return last

    cdef bint exclude(self, Destination* d, Path* path, bint absent) noexcept:
        """Use the path no more for a while, longer each time; False if it is a client of this node or excluded.

        `absent`: all its cells were reached, and the last one did not know the name. That may be over in a moment, so
        the while is short, and the routes are asked for again.
        """
        cdef int64_t now = self.ports.clocks.mono_ns
        if path.nhops == 0 or path.excluded_until > now:
            return False
        if now - path.excluded_until > EXCLUDED_MOST_NS:
            path.exclusion_ns = 0
        if absent:
            path.exclusion_ns = min(max(2 * path.exclusion_ns, ABSENT_NS), EXCLUDED_NS)
        else:
            path.exclusion_ns = min(max(2 * path.exclusion_ns, EXCLUDED_NS), EXCLUDED_MOST_NS)
        path.excluded_until = now + path.exclusion_ns
        if path.exclusion_ns < ABSENT_LONG_NS:
            d.asked = False
        elif len(self.broken) < UNREAD_BROKEN:
            self.broken.append(((<char*> d.name)[:d.size], hops_of(path)))
            self.attention[0] = True
        return True

    cdef void correct(self, Destination* d) noexcept:
        """Move shares towards what was acknowledged if paths were full, else back to what parcel_routes gave."""
        cdef int64_t now = self.ports.clocks.mono_ns
        cdef uint64_t acked = 0
        cdef uint32_t place
        cdef double total = 0
        cdef Path* path
        for place in range(d.npaths):
            if d.paths[place].listed:
                acked += d.paths[place].acked_lately
        for place in range(d.npaths):
            path = &d.paths[place]
            if path.listed:
                if not d.saturated:
                    path.share += (path.base - path.share) / STEP_BACK
                elif acked:
                    path.share += (<double> path.acked_lately / <double> acked - path.share) / STEP_ON
                if path.share < LEAST_SHARE and path.excluded_until <= now:
                    path.share = LEAST_SHARE
                total += path.share
            path.acked_lately = 0
        for place in range(d.npaths):
            if d.paths[place].listed:
                d.paths[place].share /= total
        d.saturated = False
        d.corrected_at = now

    # --- frames

    cdef int put(self, int port, int cls, const uint8_t* payload, uint32_t size, const uint8_t* hops, uint32_t nhops,
                 int hops_left) noexcept:
        """Queue a parcel with another hop list, or none; 0, or the counter of the reason why not, negative."""
        cdef Port* p = self.ports.table[port]
        cdef uint32_t old = ID_BYTES * payload[4], listed = ID_BYTES * (nhops + 1) if nhops else 0
        cdef uint32_t length = size - old + listed
        cdef uint8_t* place
        if p.state != OPEN:
            return -DROP_CLOSED
        if length > p.max_frame:
            return -DROP_BAD_PARCEL
        if not parcel_room(p, cls, length + 4):
            return -DROP_QUEUE_FULL
        place = queue_reserve(&self.ports.pool, &p.queues[cls], length + 4)
        if place == NULL:
            return -DROP_NO_MEMORY
        put_header(place, PARCEL, length)
        memcpy(place + 4, payload, HEAD)
        place[5] = payload[1] & ~(PARCEL_RETURNED | PARCEL_ABSENT)
        place[6] = <uint8_t> hops_left
        place[7] = 1 if nhops else 0
        place[8] = <uint8_t> (nhops + 1) if nhops else 0
        if nhops:
            memcpy(place + 4 + HEAD, self.me, ID_BYTES)
            memcpy(place + 4 + HEAD + ID_BYTES, hops, ID_BYTES * nhops)
        memcpy(place + 4 + HEAD + listed, payload + HEAD + old, size - HEAD - old)
        p.counters[PARCELS_OUT] += 1
        mark_dirty(self.ports, port, p)
        return 0


cdef tuple hops_of(const Path* path):
    cdef uint32_t place
    return tuple([(<char*> path.hops)[ID_BYTES * place:ID_BYTES * place + ID_BYTES] for place in range(path.nhops)])
