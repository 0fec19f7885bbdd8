"""Ways of events through the mesh: what topic numbers with a way mean, and who gets their events.

A way is bytes to the engine. Those who can read it are asked once per definition and whenever ways may have changed;
between two questions a whole run of events is copied to each neighbour, its topic numbers rewritten.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._bytes cimport frame_size, get32, put32
from chappe.engine._events cimport COURSE, DENIED, NO_ROOM, Branch, Course, Events, Run
from chappe.engine._marks cimport Marks
from chappe.engine._ports cimport (
    DROP_INCAPABLE,
    DROP_NO_MEMORY,
    DROP_NO_WAY,
    DROP_NOT_PERMITTED,
    EVENTS_OUT,
    OF_TOPIC,
    OPEN,
    PARKED,
    ROUTED_OUT,
    UNROUTED,
    WAY_ERRORS,
    Port,
)
from chappe.engine._topics cimport Route, Topic
from chappe.engine._topics_names cimport fault_text, shown_key, topic_fault

cdef enum:
    WAY_LIMIT = 0xFFFF             # bytes of one way
    WAYS_LIMIT = 16777216          # bytes of all ways that one link defines
    FIRST_MARK = 1024
    DENIED_NAMES = 64              # topics of one port that are named when a rule refuses them

OTHERS = ("", b"")  # refused topics beyond those that are named

# not in the enum: C makes an int of its members, and this is more than one holds
cdef const int64_t HOLD_LIMIT_NS = 10_000_000_000


cdef class Ways(Marks):
    def __cinit__(self):
        self.spare_courses = []
        self.chosen_groups = {}
        self.rests = {}
        self.denied = {}
        self.refusals = {}
        self.ncourses = 1
        self.way_mark = FIRST_MARK

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(1, self.ncourses):
            if self.courses[i] != NULL:
                free(self.courses[i].way)
                free(self.courses[i].branches)
                free(self.courses[i].allow)
                free(self.courses[i])
        free(self.courses)
        free(self.published)

    # --- definitions of topic numbers

    cdef int topic_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        cdef uint32_t alias, number = DENIED, skip
        cdef int problem
        if size < 7:
            self.fault(port, p, f"TOPIC of {size} bytes, at least 7 are needed")
        alias = get32(payload)
        skip = 6 + <uint32_t> payload[5]
        if alias >= p.max_topics:
            self.fault(port, p, f"topic number {alias}, this link accepts numbers below {p.max_topics}")
        if skip != 6:
            self.fault(port, p, "TOPIC with a group, which only nodes send to clients")
        problem = topic_fault(payload + skip, size - skip, payload[4], False)
        if problem:
            self.fault(port, p, fault_text(problem, shown_key(payload + skip, size - skip, payload[4])[:64]))
        self.room_for_alias(port, p, alias)
        if self.permitted(port, payload[4], payload + skip, size - skip):
            number = self.topic_number(payload + skip, size - skip, payload[4], p.account)
        if not p.peer and self.authorize is not None:
            topic = (chr(payload[4]), <bytes> payload[skip:size]) if number == DENIED else None
            self.note_denied(port, p, alias, topic)
        self.drop_alias(p, p.aliases[alias])
        p.aliases[alias] = number
        return 0

    cdef int note_denied(self, int port, Port* p, uint32_t alias, object topic) except -1:
        """What a number stands for that a rule refuses, or None if none does any more."""
        cdef dict names
        self.settle(port, p, alias)
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
            block = self.resize_memory(p.refused, p.naliases * sizeof(uint32_t))
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

    cdef int settle(self, int port, Port* p, uint32_t alias) except -1:
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

    def refusing(self):
        return list(self.refusals)

    def take_refusals(self, int port):
        cdef Port* p = self.port_at(port)
        cdef uint32_t alias
        if not p.refusing:
            return []
        for alias in range(p.nrefused):
            self.settle(port, p, alias)
        p.refusing = False
        return [(kind, topic, count) for (kind, topic), count in self.refusals.pop(port).items()]

    cdef int route_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1:
        """A topic number with a way; said again unchanged, as after a lost connection, it stays what it was."""
        cdef uint32_t alias, number, length, skip
        cdef int problem
        cdef Course* course = NULL
        if not p.peer:
            self.fault(port, p, "ROUTE from a client: only nodes choose ways")
        if size < 10:
            self.fault(port, p, f"ROUTE of {size} bytes, at least 10 are needed")
        alias = get32(payload)
        length = (<uint32_t> payload[6] << 8) | payload[7]
        skip = 8 + length
        if alias >= p.max_topics:
            self.fault(port, p, f"topic number {alias}, this link accepts numbers below {p.max_topics}")
        if payload[5] or length == 0 or skip >= size:
            self.fault(port, p, f"ROUTE of {size} bytes with a way of {length}: it needs a way and a topic")
        problem = topic_fault(payload + skip, size - skip, payload[4], False)
        if problem:
            self.fault(port, p, fault_text(problem, shown_key(payload + skip, size - skip, payload[4])[:64]))
        self.room_for_alias(port, p, alias)
        if not self.permitted(port, payload[4], payload + skip, size - skip):
            self.drop_alias(p, p.aliases[alias])
            p.aliases[alias] = DENIED
            return 0
        number = self.topic_number(payload + skip, size - skip, payload[4], p.account)
        if COURSE < p.aliases[alias] < NO_ROOM:
            course = self.courses[p.aliases[alias] & ~COURSE]
            if (course.topic == number and course.way_size == length
                    and memcmp(course.way, payload + 8, length) == 0):
                self.topics.release(number)
                return 0
        self.drop_alias(p, p.aliases[alias])
        p.aliases[alias] = NO_ROOM
        course = NULL
        if number == NO_ROOM:
            return 0
        if p.way_bytes + length > WAYS_LIMIT:
            self.topics.release(number)
            return 0
        try:
            course = self.new_course(number, port)
            course.way = <uint8_t*> self.take_memory(NULL, length)
        except MemoryError:
            if course != NULL:
                self.free_course(course)
            self.topics.release(number)
            raise
        course.way_size = length
        memcpy(course.way, payload + 8, length)
        p.way_bytes += length
        p.aliases[alias] = COURSE | course.place
        return 0

    cdef bint permitted(self, int port, int kind, uint8_t* name, uint32_t size) except -1:
        """Whether events of a topic are taken from a port: of clients as well as of nodes."""
        if self.authorize is None:
            return True
        self.attention = True  # whoever is asked may have to tell the publisher
        self.questions += 1
        return bool(self.authorize(port, chr(kind), <bytes> name[:size]))

    cdef int room_for_alias(self, int port, Port* p, uint32_t alias) except -1:
        cdef uint32_t capacity
        if alias >= p.naliases:
            capacity = min(max(alias + 1, p.naliases * 2, <uint32_t> 16), p.max_topics)
            p.aliases = <uint32_t*> self.take_memory(p.aliases, capacity * sizeof(uint32_t))
            memset(p.aliases + p.naliases, 0, (capacity - p.naliases) * sizeof(uint32_t))
            p.naliases = capacity
        return 0

    cdef uint32_t topic_number(self, const uint8_t* name, uint32_t size, int kind, uint32_t account) except 0:
        """Number of a topic with one more holder, or NO_ROOM; a new one is charged to that account."""
        cdef uint32_t number
        self.topics.charging = account
        number = self.topics.intern(name, size, kind, 0)
        if number == 0:
            self.try_recycle()
            number = self.topics.intern(name, size, kind, 0)
        if number == 0:
            return NO_ROOM
        self.topics.hold(number)
        return number

    cdef void drop_alias(self, Port* p, uint32_t alias):
        """The other side's number means something else from now on."""
        cdef Course* course
        if alias == 0 or alias >= NO_ROOM:
            return
        if alias > COURSE:
            course = self.courses[alias & ~COURSE]
            p.way_bytes -= course.way_size
            self.topics.release(course.topic)
            self.free_course(course)
        else:
            self.topics.release(alias)

    # --- courses

    cdef Course* new_course(self, uint32_t topic, int port) except NULL:
        cdef uint32_t place, room
        cdef Course* course
        if not self.spare_courses and self.ncourses >= self.courses_room:
            room = max(self.courses_room * 2, <uint32_t> 16)
            self.courses = <Course**> self.take_memory(self.courses, room * sizeof(Course*))
            memset(self.courses + self.courses_room, 0, (room - self.courses_room) * sizeof(Course*))
            self.courses_room = room
        course = <Course*> self.take_memory(NULL, sizeof(Course))
        if self.spare_courses:
            place = self.spare_courses.pop()
        else:
            place = self.ncourses
            self.ncourses += 1
        memset(course, 0, sizeof(Course))
        course.topic = topic
        course.place = place
        course.port = port
        self.courses[place] = course
        return course

    cdef void free_course(self, Course* course):
        self._drop_branches(course.branches, course.nbranches)
        self.free_held(course)
        self.chosen_groups.pop(course.place, None)
        self.rests.pop(course.place, None)
        self.courses[course.place] = NULL
        self.spare_courses.append(course.place)
        self.give_memory(course.way)
        self.give_memory(course.allow)
        self.give_memory(course)

    cdef Course* course_of(self, uint32_t topic) except NULL:
        """The course of events that clients of this node publish to a topic, made if it has none."""
        cdef uint32_t room
        if topic >= self.npublished:
            room = max(topic + 1, self.npublished * 2, <uint32_t> 16)
            self.published = <uint32_t*> self.take_memory(self.published, room * sizeof(uint32_t))
            memset(self.published + self.npublished, 0, (room - self.npublished) * sizeof(uint32_t))
            self.npublished = room
        if self.published[topic] == 0:
            self.published[topic] = self.new_course(topic, -1).place
        return self.courses[self.published[topic]]

    cdef void forget_course(self, uint32_t topic):
        if topic < self.npublished and self.published[topic]:
            self.free_course(self.courses[self.published[topic]])
            self.published[topic] = 0

    # --- asking

    cdef int ask(self, Port* p, Course* course) except -1:
        """Where events of a course go now; what the answer cannot be used for is counted, and ends here."""
        cdef uint64_t asked = self.topics.ways_stamp
        cdef uint64_t* errors = &self.past[WAY_ERRORS] if p == NULL else &p.counters[WAY_ERRORS]
        cdef int64_t hold_ns
        cdef list branches = []
        cdef bint local, failed = False, back = False
        cdef uint32_t denied = 0, incapable = 0
        cdef bytes rest = b""
        if self.authorize is not None:  # a simulated node is asked by nobody else: it defers nothing
            self.questions += 1
        kind, name, _ = self.topics.name(course.topic)
        try:
            if course.port < 0:
                answer = self.publish_way(kind, name)
            elif self.forward_way is None:
                answer = (False, [], 0, None)
            else:
                answer = self.forward_way(course.port, (<char*> course.way)[:course.way_size], kind, name)
            said, listed, wait, groups, *more = answer
            if more:
                rest, back, denied, incapable = (*more, 0, 0)[:4]
            local = bool(said)
            hold_ns = min(max(int(wait), 0), HOLD_LIMIT_NS)
            for target, way in listed:
                if not isinstance(target, int) or not isinstance(way, bytes):
                    raise TypeError(f"a branch is (port, way as bytes), not ({target!r}, {way!r})")
                branches.append((target, way))
            chosen = None if groups is None else frozenset(groups)
        except Exception as error:
            self.way_error = error
            errors[0] += 1
            # who subscribed at this node is known without the mesh
            local = course.port < 0
            chosen, hold_ns, failed = None, 0, True
            branches, rest = [], b""
            denied = incapable = 0
        course.denied = denied
        course.incapable = incapable
        course.local = local
        course.back = back
        course.rest = len(rest) > 0
        if course.rest:
            self.rests[course.place] = rest
        else:
            self.rests.pop(course.place, None)
        course.missing = failed or (not local and not branches and not course.rest and not denied and not incapable)
        try:
            self.set_branches(p, course, branches)
        except MemoryError as error:
            self.way_error = error
            errors[0] += 1
            course.missing += <uint32_t> len(branches)
            course.nbranches = 0
        course.chosen = local and chosen is not None
        course.allow_stamp = 0
        if course.chosen:
            self.chosen_groups[course.place] = chosen
        else:
            self.chosen_groups.pop(course.place, None)
        if hold_ns and course.port < 0:
            course.hold_until = max(course.hold_until, self.mono_ns + hold_ns)
        course.plain = (local and not course.chosen and course.nbranches == 0 and course.missing == 0
                        and course.first == NULL and not course.rest and not denied and not incapable)
        course.asked = asked
        return 0

    cdef int set_branches(self, Port* p, Course* course, list branches) except -1:
        """Numbers for every branch, known to its port; those of the last answer are given back afterwards."""
        cdef Branch* old = course.branches
        cdef uint32_t nold = course.nbranches, n = 0, pair
        cdef Branch* fresh = NULL
        cdef Topic* topic
        cdef Port* q
        # what the last answer held is given back whatever happens: without memory there are no branches at all
        course.branches = NULL
        course.nbranches = 0
        try:
            if branches:
                fresh = <Branch*> self.take_memory(NULL, len(branches) * sizeof(Branch))
        except MemoryError:
            self._drop_branches(old, nold)
            raise
        for target, way in branches:
            pair = 0
            if ((target != course.port or course.back) and 0 <= target < self.ntable and self.usable(target)
                    and 0 < len(way) <= WAY_LIMIT):
                topic = &self.topics.topics[course.topic]
                self.topics.charging = topic.account
                pair = self.pair_number(topic.name, topic.length, topic.kind, way)
            if pair:
                q = self.table[<int> target]
                if pair >= q.topics_words * 64 or not (q.topics_out[pair >> 6] >> (pair & 63)) & 1:
                    if not self.define_topic(target, q, pair):
                        pair = 0  # asked again when that port has room for definitions
            if pair == 0:
                course.missing += 1
                continue
            self.topics.topics[pair].refs += 1
            fresh[n].port = target
            fresh[n].pair = pair
            n += 1
        course.branches = fresh
        course.nbranches = n
        self._drop_branches(old, nold)
        return 0

    cdef void _drop_branches(self, Branch* branches, uint32_t count) noexcept:
        cdef uint32_t i
        for i in range(count):
            self.topics.topics[branches[i].pair].refs -= 1
            self.topics.released += 1
        self.give_memory(branches)

    cdef bint usable(self, int port) noexcept:
        """Whether events of a way can be sent there: a peer's stream that is there or may come back."""
        cdef Port* q = self.table[port]
        return q != NULL and (q.state == OPEN or q.state == PARKED) and q.peer and not q.datagram

    cdef uint32_t pair_number(self, const uint8_t* name, uint32_t size, int kind, bytes way) except? 0:
        """Number of a (topic, way) pair, or 0; numbers that nobody holds any more are looked for now and then."""
        cdef uint32_t pair
        if self.topics.nways >= self.way_mark:
            self.try_recycle()
            self.way_mark = max(<uint32_t> FIRST_MARK, self.topics.nways * 2)
        pair = self.topics.intern_way(name, size, kind, way)
        if pair == 0:
            self.try_recycle()
            pair = self.topics.intern_way(name, size, kind, way)
        return pair

    # --- sending

    cdef void send_run(self, int arrival, Port* p, Run* run) noexcept:
        if run.course == NULL:
            Events.send_run(self, arrival, p, run)
        else:
            self.send_course(arrival, p, run)

    cdef void send_course(self, int arrival, Port* p, Run* run) noexcept:
        """Copy a run to the subscribers of this node, then to each branch under its number there."""
        cdef Course* course = run.course
        cdef Route* route = run.route
        cdef uint32_t size = <uint32_t> (run.end - run.start), j
        cdef int i, b = 0, port
        cdef bint back, branch
        for i in range(route.n):
            port = <int> route.ports[i]
            back = b < route.nback and route.back[b] == <uint32_t> port
            if back:
                b += 1
            branch = port == arrival and p.peer
            for j in range(course.nbranches):
                branch = branch or course.branches[j].port == port
            if branch:
                continue
            self.put_events(port, self.table[port], run.cls, run.start, size, run.count, run.issuer, run.topic,
                            back and p.window != 0)
            if back:
                self.hold(arrival, p, port, self.table[port])
        if route.ngroups:
            if not course.chosen or self.choose_groups(course, run):
                self.send_group(arrival, p, run)
            else:
                self.count_drop(arrival, p, DROP_NO_MEMORY, OF_TOPIC, run.topic, run.count)
            run.allow = NULL
        if course.denied and not run.again:
            self.count_drop(arrival, p, DROP_NOT_PERMITTED, OF_TOPIC, run.topic, <uint64_t> course.denied * run.count)
        if course.incapable and not run.again:
            self.count_drop(arrival, p, DROP_INCAPABLE, OF_TOPIC, run.topic, <uint64_t> course.incapable * run.count)
        if course.missing and not run.again:
            self.count_drop(arrival, p, DROP_NO_WAY, OF_TOPIC, run.topic, <uint64_t> course.missing * run.count)
        elif (route.n == 0 and route.ngroups == 0 and course.nbranches == 0 and not run.again and not course.rest
                and not course.denied and not course.incapable):
            p.counters[UNROUTED] += run.count
        if (course.nbranches or course.rest) and not self.keep_back(p, course, run):
            self.send_branches(course, run.start, size, run.count, run.issuer, run.cls)
            if course.rest:
                self.strand(course, run.start, size, run.count)
        run.count = 0

    cdef void send_branches(self, Course* course, uint8_t* start, uint32_t size, uint32_t count, uint32_t issuer,
                            int cls) noexcept:
        """A run to each branch; its topic numbers are overwritten."""
        cdef uint32_t i, position, pair
        cdef uint64_t before
        cdef Port* q
        for i in range(course.nbranches):
            q = self.table[course.branches[i].port]
            pair = course.branches[i].pair
            position = 0
            while position < size:
                put32(start + position + 4, pair)
                position += frame_size(start + position)
            before = q.counters[EVENTS_OUT]
            self.put_events(course.branches[i].port, q, cls, start, size, count, issuer, pair, False)
            q.counters[ROUTED_OUT] += q.counters[EVENTS_OUT] - before
            if course.port >= 0:
                self.mark_onward(course.port, course.branches[i].port, cls)

    cdef bint choose_groups(self, Course* course, Run* run):
        """Which groups of the route are served here, looked up once per change of them; False without memory."""
        cdef int g
        cdef Route* route = run.route
        cdef void* block
        if course.allow_stamp != self.topics.stamp:
            chosen = self.chosen_groups[course.place]
            block = self.resize_memory(course.allow, route.ngroups)
            if block == NULL:
                return False
            course.allow = <uint8_t*> block
            for g in range(route.ngroups):
                course.allow[g] = self.topics.group_table.name(route.groups[g].group) in chosen
            course.allow_stamp = self.topics.stamp
        run.allow = course.allow
        return True

    cdef bint keep_back(self, Port* p, Course* course, Run* run) noexcept:
        """Whether a run waits before it enters the mesh."""
        return False

    cdef void strand(self, Course* course, uint8_t* start, uint32_t size, uint32_t count) noexcept:
        """Keep a run for the destinations of its course that cannot be reached now."""

    cdef void free_held(self, Course* course) noexcept:
        """Forget what waits."""
