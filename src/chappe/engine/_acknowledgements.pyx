"""What the other side has, and what came by source routes and has not been passed on: the node before keeps it, too.

A probe that asks for it (decision 0015) is answered twice: at once, that all before it is here, and once the next nodes
have it, that nobody needs to keep it for this one. The second answer waits for first answers of others and never for a
second one, so that it cannot wait in a circle.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free

from chappe.engine._bytes cimport get64, put64, put_header
from chappe.engine._memory cimport memory_resize
from chappe.engine._output cimport PASSED_ON
from chappe.engine._ports cimport ECHO, NOWHERE, OPEN, PARKED, RELEASED_EARLY, Mark, Passing, Port, Ports, mark_dirty
from chappe.engine._queue cimport Queue, queue_release

cdef enum:
    FIRST_ROOM = 8


cdef uint32_t _without(Mark* marks, uint32_t count, int port) noexcept:
    cdef uint32_t i = 0
    while i < count:
        if marks[i].port == port:
            count -= 1
            marks[i] = marks[count]
        else:
            i += 1
    return count


@cython.final
cdef class Acknowledgements:
    """Which queued events others have, and the probes of neighbours that are answered when they do."""

    def __cinit__(self, Ports ports not None):
        self.ports = ports

    def __dealloc__(self):
        free(self.tracked)

    cdef void released_echo(self, int port, Port* p, uint64_t token) noexcept:
        """The other engine has everything before that probe, and if the token says so, nobody needs it here any more.

        An event that a node has and has not passed on is kept by the node before it, too. Half the queue at most: what
        is older than that is given back as soon as the other engine has it, so that a slow link never stops others.
        """
        cdef int cls = <int> ((token >> 61) & 3)
        cdef Queue* queue = &p.queues[cls]
        cdef uint64_t early
        if queue.probe_token and (queue.probe_token | PASSED_ON) == (token | PASSED_ON):
            queue.probe_token = 0
            queue.received = queue.probe_position
            self.receipt(cls)
        if queue.passing_token and queue.passing_token == token:
            queue.passing_token = 0
            queue_release(&self.ports.pool, queue,
                          queue.sent if queue.keep <= queue.passing_position else queue.passing_position)
        elif queue.enqueued - queue.released > p.limit // 2:
            early = min(queue.received, queue.enqueued - p.limit // 2)
            if early > queue.released:
                p.counters[RELEASED_EARLY] += early - queue.released
                queue_release(&self.ports.pool, queue, early)
        if queue.keep > (queue.received if queue.passing_token else queue.released):
            mark_dirty(self.ports, port, p)

    cdef void receipt(self, int cls) noexcept:
        """Another engine has more of that class: send the second answers that waited for it."""
        cdef int at
        cdef uint32_t i
        cdef Port* p
        cdef Passing* passing
        cdef uint8_t frame[20]
        for at in range(self.ntracked):
            p = self.ports.table[self.tracked[at]]
            passing = &p.passing[cls]
            if passing.token == 0:
                continue
            i = 0
            while i < passing.nmarks:
                if self._open(&passing.marks[i]):
                    i += 1
                else:
                    passing.nmarks -= 1
                    passing.marks[i] = passing.marks[passing.nmarks]
            if passing.nmarks == 0:
                put_header(frame, ECHO, 16)
                put64(frame + 4, passing.token)
                put64(frame + 12, passing.clock)
                passing.token = 0
                self.ports.put_frame(self.tracked[at], p, 0, frame, 20, False)

    cdef void mark_onward(self, int arrival, int port, int cls) noexcept:
        """Events with a source route that came on one port were queued for another one, or wait for a route."""
        cdef Port* p = self.ports.table[arrival]
        cdef void* block
        if port == NOWHERE:
            self._raise(p, port, cls, 0)
        elif self.ports.table[port].retain:
            self._raise(p, port, cls, self.ports.table[port].queues[cls].keep)
        else:
            return
        if p.tracked:
            return
        if self.ntracked == self.tracked_room:
            block = memory_resize(self.ports.memory, self.tracked, (self.tracked_room * 2 + FIRST_ROOM) * sizeof(int))
            if block == NULL:
                p.unmarked[cls] = True
                return
            self.tracked = <int*> block
            self.tracked_room = self.tracked_room * 2 + FIRST_ROOM
        p.tracked = True
        self.tracked[self.ntracked] = arrival
        self.ntracked += 1

    cdef void _raise(self, Port* p, int port, int cls, uint64_t position) noexcept:
        cdef uint32_t i
        cdef void* block
        for i in range(p.nonward):
            if p.onward[i].port == port and p.onward[i].cls == cls:
                p.onward[i].position = position
                return
        if p.nonward == p.onward_room:
            block = memory_resize(self.ports.memory, p.onward, (p.onward_room * 2 + FIRST_ROOM) * sizeof(Mark))
            if block == NULL:
                p.unmarked[cls] = True
                return
            p.onward = <Mark*> block
            p.onward_room = p.onward_room * 2 + FIRST_ROOM
        p.onward[p.nonward].port = port
        p.onward[p.nonward].cls = cls
        p.onward[p.nonward].position = position
        p.nonward += 1

    cdef bint _open(self, Mark* mark) noexcept:
        """Whether events up to that place may be here alone."""
        cdef Port* q
        if mark.port == NOWHERE:
            return True
        q = self.ports.table[mark.port]
        return (q.state == OPEN or q.state == PARKED) and (
            q.queues[mark.cls].received < mark.position and q.queues[mark.cls].released < mark.position)

    cdef void defer_echo(self, Port* p, uint8_t* frame) noexcept:
        """A probe that came: if it asks for it and there is something to wait for, this echo says only that it came."""
        cdef uint64_t token = get64(frame + 4)
        cdef int cls = <int> ((token >> 61) & 3)
        cdef Passing* passing = &p.passing[cls]
        cdef uint32_t i = 0
        if not token >> 63 or not token & PASSED_ON:
            return
        passing.nmarks = 0
        passing.token = 0
        if p.unmarked[cls]:
            # without memory it is not known what waits: the node before keeps its copies, as long as it has room
            put64(frame + 4, token & ~PASSED_ON)
            return
        while i < p.nonward:
            if p.onward[i].cls != cls:
                i += 1
            elif self._open(&p.onward[i]):
                if not self._room_for_mark(passing):
                    passing.nmarks = 0
                    put64(frame + 4, token & ~PASSED_ON)
                    return
                passing.marks[passing.nmarks] = p.onward[i]
                passing.nmarks += 1
                i += 1
            else:
                p.nonward -= 1
                p.onward[i] = p.onward[p.nonward]
        if passing.nmarks:
            passing.token = token
            passing.clock = get64(frame + 12)
            put64(frame + 4, token & ~PASSED_ON)

    cdef bint _room_for_mark(self, Passing* passing) noexcept:
        cdef void* block
        if passing.nmarks == passing.room:
            block = memory_resize(self.ports.memory, passing.marks, (passing.room * 2 + FIRST_ROOM) * sizeof(Mark))
            if block == NULL:
                return False
            passing.marks = <Mark*> block
            passing.room = passing.room * 2 + FIRST_ROOM
        return True

    # --- what else happens to them

    cdef bint _waits(self, Mark* marks, uint64_t count, int port, int cls) noexcept:
        """Whether some of these events were for a neighbour that is lost, or have no route, or go there already."""
        cdef uint64_t i
        for i in range(count):
            if marks[i].cls == cls and (marks[i].port == NOWHERE or marks[i].port == port
                                        or self.ports.table[marks[i].port].state == PARKED):
                return True
        return False

    cdef void move_marks(self, int port, int cls) noexcept:
        """Such an event takes another route: whoever waits for any of them waits for this one, too."""
        cdef int at
        cdef uint32_t i
        cdef Port* p
        cdef Passing* passing
        cdef uint64_t position
        if not self.ports.table[port].retain:
            return
        position = self.ports.table[port].queues[cls].keep
        for at in range(self.ntracked):
            p = self.ports.table[self.tracked[at]]
            if self._waits(p.onward, p.nonward, port, cls):
                self._raise(p, port, cls, position)
            passing = &p.passing[cls]
            if passing.token == 0 or not self._waits(passing.marks, passing.nmarks, port, cls):
                continue
            for i in range(passing.nmarks):
                if passing.marks[i].port == port:
                    passing.marks[i].position = position
                    break
            else:
                if not self._room_for_mark(passing):
                    passing.token = 0  # never answered: the node before keeps its copies, as long as it has room
                    continue
                passing.marks[passing.nmarks].port = port
                passing.marks[passing.nmarks].cls = cls
                passing.marks[passing.nmarks].position = position
                passing.nmarks += 1

    cdef void drop_marks(self, int port) noexcept:
        """Nothing waits for that port any more: all that was in its queues has gone elsewhere."""
        cdef int at, cls
        cdef Port* p
        for at in range(self.ntracked):
            p = self.ports.table[self.tracked[at]]
            p.nonward = _without(p.onward, p.nonward, port)
            for cls in range(4):
                p.passing[cls].nmarks = _without(p.passing[cls].marks, p.passing[cls].nmarks, port)
        for cls in range(4):
            self.receipt(cls)

    cdef void unroute_marks(self, int port) noexcept:
        """The port is about to be closed: what is in its queues and nowhere else is not passed on."""
        cdef int at, cls
        cdef uint32_t i
        cdef Port* p
        for at in range(self.ntracked):
            p = self.ports.table[self.tracked[at]]
            for i in range(p.nonward):
                if p.onward[i].port == port and self._open(&p.onward[i]):
                    p.onward[i].port = NOWHERE
            for cls in range(4):
                for i in range(p.passing[cls].nmarks):
                    if p.passing[cls].marks[i].port == port and self._open(&p.passing[cls].marks[i]):
                        p.passing[cls].marks[i].port = NOWHERE
        self.drop_marks(port)

    cdef void renew_marks(self, int port) noexcept:
        """Its queues were built anew for another connection: places in them are others."""
        cdef int at, cls
        cdef uint32_t i
        cdef Port* p
        cdef Port* q = self.ports.table[port]
        for at in range(self.ntracked):
            p = self.ports.table[self.tracked[at]]
            for i in range(p.nonward):
                if p.onward[i].port == port:
                    p.onward[i].position = q.queues[p.onward[i].cls].keep
            for cls in range(4):
                for i in range(p.passing[cls].nmarks):
                    if p.passing[cls].marks[i].port == port:
                        p.passing[cls].marks[i].position = q.queues[cls].keep
        for cls in range(4):
            self.receipt(cls)

    cdef void forget_echoes(self, int port, Port* p) noexcept:
        """Its connection is lost: what was asked there is asked again on the next one. A closed port is forgotten."""
        cdef int at, cls
        for cls in range(4):
            p.passing[cls].token = 0
            p.passing[cls].nmarks = 0
            p.unmarked[cls] = False
        if p.state == OPEN or p.state == PARKED or not p.tracked:
            return
        p.nonward = 0
        p.tracked = False
        for at in range(self.ntracked):
            if self.tracked[at] == port:
                self.ntracked -= 1
                self.tracked[at] = self.tracked[self.ntracked]
                break
