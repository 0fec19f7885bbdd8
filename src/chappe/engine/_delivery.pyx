"""Delivery of events to the subscribers of this node: a run of frames to every port of a route."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from chappe.engine cimport _output
from chappe.engine._bytes cimport get32, put32
from chappe.engine._memory cimport memory_resize
from chappe.engine._ports cimport OPEN, UNROUTED, Port, Ports, has_room, knows_topic
from chappe.engine._topics cimport GroupRef, Route


@cython.final
cdef class Delivery:
    """Copies runs to ports; every port knows a topic number before it gets an event with it."""

    def __cinit__(self, Ports ports not None):
        self.ports = ports
        self.topics = ports.topics

    def __dealloc__(self):
        free(self.defined)

    cdef void define_route(self, uint32_t number, Route* route) noexcept:
        """Make sure that every port of the route knows this topic number; one that has no room for it is starved."""
        cdef uint32_t capacity
        cdef int i
        cdef Port* p
        cdef void* block
        cdef bint known = True
        if number >= self.ndefined:
            capacity = max(number + 1, self.ndefined * 2)
            block = memory_resize(self.ports.memory, self.defined, capacity * sizeof(uint64_t))
            if block != NULL:
                self.defined = <uint64_t*> block
                memset(self.defined + self.ndefined, 0, (capacity - self.ndefined) * sizeof(uint64_t))
                self.ndefined = capacity
        for i in range(route.n):
            p = self.ports.table[route.ports[i]]
            if not knows_topic(p, number):
                known = self.ports.define_topic(<int> route.ports[i], p, number) and known
        if known and number < self.ndefined:
            self.defined[number] = self.topics.stamp

    cdef void deliver(self, int arrival, Port* p, Run* run) noexcept:
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
            self.ports.put_events(port, self.ports.table[port], run.cls, run.start, size, run.count, run.issuer,
                                  run.topic, held and p.window != 0)
            if held:
                _output.hold(self.ports, arrival, p, port, self.ports.table[port])
        if route.ngroups:
            self.deliver_to_groups(arrival, p, run, NULL)
        elif route.n == 0:
            p.counters[UNROUTED] += run.count

    cdef void deliver_to_groups(self, int arrival, Port* p, Run* run, const uint8_t* allowed) noexcept:
        """One member of each (allowed) group gets the message: the next one in turn that has room."""
        cdef int g, step, tried, port
        cdef uint32_t turn, topic = get32(run.start + 4)
        cdef uint32_t size = <uint32_t> (run.end - run.start)
        cdef GroupRef* group
        cdef Port* member
        cdef bint held
        for g in range(run.route.ngroups):
            if allowed != NULL and not allowed[g]:
                continue
            group = &run.route.groups[g]
            turn = self.topics.cursors[group.group]
            port = -1
            tried = 0
            for step in range(group.n):
                tried = step
                port = <int> group.ports[(turn + <uint32_t> step) % <uint32_t> group.n]
                member = self.ports.table[port]
                if (member.state == OPEN and (port != arrival or not p.peer)
                        and has_room(member, run.cls, size)):
                    break
            self.topics.cursors[group.group] = turn + <uint32_t> tried + 1
            member = self.ports.table[port]
            if not knows_topic(member, group.pair):
                self.ports.define_topic(port, member, group.pair)
            held = False
            for step in range(group.nback):
                held = held or group.back[step] == <uint32_t> port
            put32(run.start + 4, group.pair)
            self.ports.put_events(port, member, run.cls, run.start, size, 1, run.issuer, group.pair,
                            held and p.window != 0)
            put32(run.start + 4, topic)
            if held:
                _output.hold(self.ports, arrival, p, port, member)

    cdef void forget_topic(self, uint32_t number) noexcept:
        """The number gets another meaning."""
        if number < self.ndefined:
            self.defined[number] = 0
