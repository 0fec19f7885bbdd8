"""Numbers that the other side of a port defines: topics, source routes, issuers; and the topics that rules refuse."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._bytes cimport get32
from chappe.engine._forwarding cimport Forwarding, ForwardingEntry
from chappe.engine._memory cimport memory_resize, resize_or_raise
from chappe.engine._ports cimport Port, Ports, fault
from chappe.engine._topics_names cimport fault_text, shown_key, topic_fault

cdef enum:
    ROUTES_LIMIT = 16777216        # bytes of all source routes that one link defines
    DENIED_NAMES = 64              # topics of one port that are named when a rule refuses them

OTHERS = ("", b"")  # refused topics beyond those that are named


@cython.final
cdef class Definitions:
    """Reads TOPIC, ROUTE and ISSUER frames; `authorize(port, kind, topic)` is asked once for each of the first two."""

    def __cinit__(self, Ports ports not None, Forwarding forwarding not None, authorize):
        self.ports = ports
        self.topics = ports.topics
        self.issuers = ports.issuers
        self.forwarding = forwarding
        self.authorize = authorize
        self.denied = {}
        self.refusals = {}

    cdef int topic_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t alias, number = DENIED, skip
        cdef int problem
        if size < 7:
            fault(p, f"TOPIC of {size} bytes, at least 7 are needed")
        alias = get32(payload)
        skip = 6 + <uint32_t> payload[5]
        if alias >= p.max_topics:
            fault(p, f"topic number {alias}, this link accepts numbers below {p.max_topics}")
        if skip != 6:
            fault(p, "TOPIC with a group, which only nodes send to clients")
        problem = topic_fault(payload + skip, size - skip, payload[4], False)
        if problem:
            fault(p, fault_text(problem, shown_key(payload + skip, size - skip, payload[4])[:64]))
        self._room_for_alias(p, alias)
        if self._permitted(port, payload[4], payload + skip, size - skip):
            number = self._topic_number(payload + skip, size - skip, payload[4], p.account)
        if not p.peer and self.authorize is not None:
            topic = (chr(payload[4]), <bytes> payload[skip:size]) if number == DENIED else None
            self._note_denied(port, p, alias, topic)
        self._drop_alias(p, p.aliases[alias])
        p.aliases[alias] = number
        return 0

    cdef int route_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1:
        """A topic number with a source route; repeated unchanged, as after a lost connection, it stays what it was."""
        cdef uint32_t alias, number, length, skip
        cdef int problem
        cdef ForwardingEntry* entry = NULL
        if not p.peer:
            fault(p, "ROUTE from a client: only nodes choose routes")
        if size < 10:
            fault(p, f"ROUTE of {size} bytes, at least 10 are needed")
        alias = get32(payload)
        length = (<uint32_t> payload[6] << 8) | payload[7]
        skip = 8 + length
        if alias >= p.max_topics:
            fault(p, f"topic number {alias}, this link accepts numbers below {p.max_topics}")
        if payload[5] or length == 0 or skip >= size:
            fault(p, f"ROUTE of {size} bytes with a source route of {length}: it needs one, and a topic")
        problem = topic_fault(payload + skip, size - skip, payload[4], False)
        if problem:
            fault(p, fault_text(problem, shown_key(payload + skip, size - skip, payload[4])[:64]))
        self._room_for_alias(p, alias)
        if not self._permitted(port, payload[4], payload + skip, size - skip):
            self._drop_alias(p, p.aliases[alias])
            p.aliases[alias] = DENIED
            return 0
        number = self._topic_number(payload + skip, size - skip, payload[4], p.account)
        if ROUTED < p.aliases[alias] < NO_ROOM:
            entry = self.forwarding.entries[p.aliases[alias] & ~ROUTED]
            if (entry.topic == number and entry.route_size == length
                    and memcmp(entry.source_route, payload + 8, length) == 0):
                self.topics.release(number)
                return 0
        self._drop_alias(p, p.aliases[alias])
        p.aliases[alias] = NO_ROOM
        entry = NULL
        if number == NO_ROOM:
            return 0
        if p.route_bytes + length > ROUTES_LIMIT:
            self.topics.release(number)
            return 0
        try:
            entry = self.forwarding.new_entry(number, port)
            entry.source_route = <uint8_t*> resize_or_raise(self.ports.memory, NULL, length)
        except MemoryError:
            if entry != NULL:
                self.forwarding.free_entry(entry)
            self.topics.release(number)
            raise
        entry.route_size = length
        memcpy(entry.source_route, payload + 8, length)
        p.route_bytes += length
        p.aliases[alias] = ROUTED | entry.place
        return 0

    cdef int issuer_frame(self, Port* p, const uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t number, capacity, old, found
        if not p.peer:
            fault(p, "ISSUER from a client: a client publishes in its own name only")
        if size != 24:
            fault(p, f"ISSUER of {size} bytes instead of 24")
        number = get32(payload)
        if number >= 1 << 24 or number >= p.nissuers_in + (1 << 20):
            fault(p, f"issuer number {number} is out of range")
        if number >= p.nissuers_in:
            capacity = max(number + 1, p.nissuers_in * 2, <uint32_t> 16)
            p.issuers_in = <uint32_t*> resize_or_raise(self.ports.memory, p.issuers_in, capacity * sizeof(uint32_t))
            memset(p.issuers_in + p.nissuers_in, 0, (capacity - p.nissuers_in) * sizeof(uint32_t))
            p.nissuers_in = capacity
        old = p.issuers_in[number]
        found = self.forwarding.issuer_number(payload[8:24], get32(payload + 4))
        try:
            self.issuers.open_window(found)
        except MemoryError:
            self.issuers.release(found)
            raise
        p.issuers_in[number] = found
        if old:
            self.issuers.release(old)
        return 0

    cdef bint _permitted(self, int port, int kind, const uint8_t* name, uint32_t size) except -1:
        """Whether events of a topic are taken from a port: of clients as well as of nodes."""
        if self.authorize is None:
            return True
        self.attention[0] = True  # whoever is asked may have to notify the publisher
        self.forwarding.questions += 1
        return bool(self.authorize(port, chr(kind), <bytes> name[:size]))

    cdef int _room_for_alias(self, Port* p, uint32_t alias) except -1:
        cdef uint32_t capacity
        if alias >= p.naliases:
            capacity = min(max(alias + 1, p.naliases * 2, <uint32_t> 16), p.max_topics)
            p.aliases = <uint32_t*> resize_or_raise(self.ports.memory, p.aliases, capacity * sizeof(uint32_t))
            memset(p.aliases + p.naliases, 0, (capacity - p.naliases) * sizeof(uint32_t))
            p.naliases = capacity
        return 0

    cdef uint32_t _topic_number(self, const uint8_t* name, uint32_t size, int kind, uint32_t account) except 0:
        """Number of a topic with one more holder, or NO_ROOM; a new one is charged to that account."""
        cdef uint32_t number
        self.topics.charging = account
        number = self.topics.intern(name, size, kind, 0)
        if number == 0:
            self.forwarding.recycle()
            number = self.topics.intern(name, size, kind, 0)
        if number == 0:
            return NO_ROOM
        self.topics.hold(number)
        return number

    cdef int _drop_alias(self, Port* p, uint32_t alias) except -1:
        """The other side's number means something else from now on."""
        cdef ForwardingEntry* entry
        if alias == 0 or alias >= NO_ROOM:
            return 0
        if alias > ROUTED:
            entry = self.forwarding.entries[alias & ~ROUTED]
            p.route_bytes -= entry.route_size
            self.topics.release(entry.topic)
            self.forwarding.free_entry(entry)
        else:
            self.topics.release(alias)
        return 0

    # --- what rules refuse

    cdef int _note_denied(self, int port, Port* p, uint32_t alias, object topic) except -1:
        """What a number stands for that a rule refuses, or None if none does any more."""
        cdef dict names
        self._settle(port, p, alias)
        if topic is None:
            if port in self.denied:
                self.denied[port].pop(alias, None)
            return 0
        names = self.denied.setdefault(port, {})
        if alias in names or len(names) < DENIED_NAMES:
            names[alias] = topic
        return 0

    cdef int refuse(self, int port, Port* p, uint32_t alias, bint by_rule) except -1:
        """An event that is not taken: its publisher hears of it before the next ECHO."""
        cdef void* block
        if not by_rule:
            p.refused_for_room += 1
            return 0
        p.refused_by_rule += 1
        if alias >= p.nrefused:
            block = memory_resize(self.ports.memory, p.refused, p.naliases * sizeof(uint32_t))
            if block == NULL:
                return 0  # counted, and not named
            p.refused = <uint32_t*> block
            memset(p.refused + p.nrefused, 0, (p.naliases - p.nrefused) * sizeof(uint32_t))
            p.nrefused = p.naliases
        p.refused[alias] += 1
        if not p.refusing:
            p.refusing = True
            self.refusals[port] = {}
        return 0

    cdef int _settle(self, int port, Port* p, uint32_t alias) except -1:
        """Count what was refused under a number for the topic that it stands for until now."""
        cdef dict rows
        if alias >= p.nrefused or p.refused[alias] == 0:
            return 0
        rows = self.refusals[port]
        name = self.denied.get(port, {}).get(alias, OTHERS)
        if name not in rows and len(rows) >= DENIED_NAMES:
            name = OTHERS
        rows[name] = rows.get(name, 0) + p.refused[alias]
        p.refused[alias] = 0
        return 0

    cdef list take_refusals(self, int port, Port* p):
        """(kind, topic, events) that a rule refused to a port since the last call."""
        cdef uint32_t alias
        if not p.refusing:
            return []
        for alias in range(p.nrefused):
            self._settle(port, p, alias)
        p.refusing = False
        return [(kind, topic, count) for (kind, topic), count in self.refusals.pop(port).items()]

    cdef int forget_port(self, int port, Port* p) except -1:
        """The port is free: what its numbers stood for is held no more."""
        cdef uint32_t i
        for i in range(p.naliases):
            self._drop_alias(p, p.aliases[i])
        for i in range(p.nissuers_in):
            if p.issuers_in[i]:
                self.issuers.release(p.issuers_in[i])
        if p.issuer:
            self.issuers.release(p.issuer)
        self.denied.pop(port, None)
        self.refusals.pop(port, None)
        return 0
