"""Forwarding sets: output ports with their minimal intervals, and the port list each round selects.

A set is interned by content, so that a million variables with the same subscribers share one. Its intervals are
counted in publishing periods: sets do not depend on the rate. Per port they form an antichain under divisibility
(GS-067): an interval that another one divides never decides anything.

Two methods to evaluate a set, one result: *close* (GS-065) tries each port's intervals until one is satisfied; *sparse*
(GS-066) tests each distinct interval once, families of multiples by their smallest first, and remembers the port list
of each pattern of satisfied intervals.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._intervals cimport magnitude, round_of
from chappe.engine._memory cimport meter_give, meter_resize_or_raise, meter_take_or_raise
from chappe.engine._store cimport Content, Interner, take

cdef enum:
    MAX_STEPS = 64              # bits of a pattern; sets with more distinct intervals are evaluated closely
    MAX_MEMO = 4096             # patterns remembered per set
    MAX_LIST_BYTES = 8388608    # kept port lists; stamps choose patterns, so a peer must not fill the memory with them
    RING = 8


cdef int _by_port(const void* left, const void* right) noexcept nogil:
    cdef const Want* a = <const Want*> left
    cdef const Want* b = <const Want*> right
    if a.port != b.port:
        return -1 if a.port < b.port else 1
    return (a.interval > b.interval) - (a.interval < b.interval)


cdef int _by_size(const void* left, const void* right) noexcept nogil:
    cdef uint32_t a = (<const uint32_t*> left)[0]
    cdef uint32_t b = (<const uint32_t*> right)[0]
    return (a > b) - (a < b)


@cython.no_gc
cdef class ForwardingSets:
    """Interned sets and lists of one table; a list stays where it is until the next `changing`.

    Lists beyond `MAX_LIST_BYTES` live in a ring and are overwritten after eight different decisions.
    """

    def __dealloc__(self):
        cdef uint32_t i
        cdef int slot
        cdef Form* form
        # Not given back to the meter: when the collector ends a cycle, what it counts for may be gone already.
        if self.sets is not None:
            for i in range(1, self.sets.used):
                form = <Form*> self.sets.contents[i].form
                if form != NULL:
                    free(form.masks)
                    free(form.patterns)
                    free(form)
        if self.lists is not None:
            for i in range(1, self.lists.used):
                free(self.lists.contents[i].form)
        for slot in range(RING):
            free(self.ring[slot].items)
        free(self.build)
        free(self.scratch)
        free(self.fails)

    cdef int start(self, Meter* meter, bint sparse, uint64_t seed) except -1:
        self.meter = meter
        self.sparse = sparse
        self.sets = Interner()
        self.sets.meter = meter
        self.lists = Interner()
        self.lists.meter = meter
        self.sets.seed = self.lists.seed = seed
        return self._reserve(0, 0)

    cdef uint32_t intern(self, Want* wants, uint32_t n) except? 0:
        """The set of these wants (sorted in place) with one more reference; 0 for no wants."""
        cdef uint32_t i, k, ports = 0, kept = 0, first = 0, index
        cdef uint32_t* items
        cdef uint32_t* starts
        cdef uint32_t* intervals
        cdef void* moved
        if n == 0:
            return 0
        if self.build_room < 3 * n + 2:
            moved = meter_resize_or_raise(self.meter, self.build, self.build_room * sizeof(uint32_t),
                                          (6 * n + 4) * sizeof(uint32_t))
            self.build = <uint32_t*> moved
            self.build_room = 6 * n + 4
        for i in range(1, n):
            if _by_port(&wants[i - 1], &wants[i]) > 0:
                qsort(wants, n, sizeof(Want), _by_port)
                break
        for i in range(n):
            ports += i == 0 or wants[i].port != wants[i - 1].port
        self.build[0] = ports
        items = self.build + 1
        starts = items + ports
        intervals = starts + ports + 1
        ports = 0
        for i in range(n):
            if i == 0 or wants[i].port != wants[i - 1].port:
                first = starts[ports] = kept
                items[ports] = wants[i].port << 2 | wants[i].urgency
                ports += 1
            elif wants[i].urgency < (items[ports - 1] & 3):
                items[ports - 1] = wants[i].port << 2 | wants[i].urgency
            for k in range(first, kept):
                if wants[i].interval % intervals[k] == 0:
                    break
            else:
                intervals[kept] = wants[i].interval
                kept += 1
        starts[ports] = kept
        index = self.sets.intern(self.build, (2 + 2 * ports + kept) * sizeof(uint32_t))
        if self.sets.contents[index].form == NULL:
            try:
                self._derive(index)
            except MemoryError:
                self.release(index)
                raise
        return index

    cdef void release(self, uint32_t index) noexcept:
        if index and self.sets.release(index):
            self._free_form(<Form*> self.sets.contents[index].form)
            self.sets.discard(index)

    cdef int changing(self) except -1:
        """The table is about to change: lists handed out so far may go, rates may get other numbers."""
        cdef uint32_t i
        self.round_rate = 0
        if self.list_bytes > MAX_LIST_BYTES:
            self.generation += 1
            self.last = NULL
            self.list_bytes = 0
            for i in range(1, self.lists.used):
                if self.lists.contents[i].bytes != NULL:
                    meter_give(self.meter, self.lists.contents[i].form)
                    self.lists.discard(i)
        return 0

    cdef int scope(self, uint32_t n_ports) except -1:
        """Flooded lists may hold this many ports besides those of a set."""
        return self._reserve(self.widest, n_ports)

    cdef bint timeless(self, uint32_t index) noexcept:
        """Whether this set lets everything pass, so that the list is the same at every stamp."""
        return (<Form*> self.sets.contents[index].form).always

    cdef PortList* choose(self, uint32_t index, uint32_t rate_id, const Rate* rate, int64_t created) noexcept:
        """The ports of this set that pass at this stamp, and those that do not."""
        cdef Form* form = <Form*> self.sets.contents[index].form
        cdef PortList* found
        if form.generation != self.generation:
            self._refresh(form)
        if form.always:
            if form.whole != NULL:
                return form.whole
            memcpy(self.scratch + 2, form.items, form.n_ports * sizeof(uint32_t))
            found = self._settle(form.n_ports, 0)
            if not self.passing:
                form.whole = found
            return found
        if form.n_steps:
            return self._sparse(form, self._round(rate_id, rate, created))
        return self._close(form, self._round(rate_id, rate, created))

    cdef PortList* whole(self, uint32_t index) noexcept:
        """All ports of this set, as at a round that every interval divides."""
        cdef Form* form = <Form*> self.sets.contents[index].form
        if form.always:
            return self.choose(index, 0, NULL, 0)
        if form.generation != self.generation:
            self._refresh(form)
        return self._close(form, 0)

    cdef PortList* flood(self, const PortList* normal, const uint32_t* ports, uint32_t n, const uint8_t* levels,
                         uint32_t n_levels, int level) noexcept:
        """The ports of level 1 to `level` as alerts, and what the normal list says of the others (GS-103)."""
        cdef uint32_t passed = 0, failed = 0, port
        cdef uint32_t* items = self.scratch + 2
        cdef int i, total
        for i in range(<int> n):
            if levels[ports[i]] <= level:
                items[passed] = ports[i] << 2
                passed += 1
        if normal != NULL:
            total = normal.n + normal.nfail
            for i in range(total):
                port = normal.items[i] >> 2
                if port < n_levels and 1 <= levels[port] <= level:
                    continue
                if i < normal.n:
                    items[passed] = normal.items[i]
                    passed += 1
                else:
                    self.fails[failed] = normal.items[i]
                    failed += 1
        return self._settle(passed, failed)

    cdef uint64_t _round(self, uint32_t rate_id, const Rate* rate, int64_t created) noexcept:
        if created != self.round_created or rate_id != self.round_rate:
            self.round_created = created
            self.round_rate = rate_id
            self.round_value = round_of(created, rate.num, rate.den)
        return magnitude(self.round_value)

    cdef PortList* _close(self, Form* form, uint64_t round_number) noexcept:
        cdef uint32_t* items = self.scratch + 2
        cdef uint32_t passed = 0, failed = 0, port, k
        cdef PortList* found
        for port in range(form.n_ports):
            for k in range(form.starts[port], form.starts[port + 1]):
                if round_number % form.intervals[k] == 0:
                    items[passed] = form.items[port]
                    passed += 1
                    break
            else:
                self.fails[failed] = form.items[port]
                failed += 1
        if form.latest != NULL:     # at one stamp a set selects the same list for all its variables
            self.last = form.latest
            self.passing = False
        found = self._settle(passed, failed)
        if not self.passing:
            form.latest = found
        return found

    cdef PortList* _sparse(self, Form* form, uint64_t round_number) noexcept:
        cdef uint64_t pattern = 0, quotient
        cdef uint32_t family, k, place, port, passed = 0, failed = 0
        cdef uint32_t* items
        cdef PortList* found
        for family in range(form.n_families):
            k = form.families[family]
            quotient = round_number // form.steps[k]
            # If the smallest of a family does not divide the round, none of its multiples can.
            if quotient * form.steps[k] == round_number:
                pattern |= (<uint64_t> 1) << k
                for k in range(k + 1, form.families[family + 1]):
                    if quotient % form.steps[k] == 0:
                        pattern |= (<uint64_t> 1) << k
        place = _spot(pattern, form.room_memo)
        while form.lists[place] != NULL:
            if form.patterns[place] == pattern:
                return form.lists[place]
            place = (place + 1) & (form.room_memo - 1)
        items = self.scratch + 2
        for port in range(form.n_ports):
            if form.masks[port] & pattern:
                items[passed] = form.items[port]
                passed += 1
            else:
                self.fails[failed] = form.items[port]
                failed += 1
        found = self._settle(passed, failed)
        if not self.passing:
            self._remember(form, pattern, found)
        return found

    cdef void _remember(self, Form* form, uint64_t pattern, PortList* found) noexcept:
        cdef uint32_t i, place, room = form.room_memo
        cdef uint64_t* patterns
        cdef PortList** lists
        if (form.n_memo + 1) * 2 > room:
            if room >= MAX_MEMO:
                return
            patterns = <uint64_t*> take(self.meter, 2 * room * 16)
            if patterns == NULL:
                return
            lists = <PortList**> (patterns + 2 * room)
            for i in range(room):
                if form.lists[i] != NULL:
                    place = _spot(form.patterns[i], 2 * room)
                    while lists[place] != NULL:
                        place = (place + 1) & (2 * room - 1)
                    patterns[place] = form.patterns[i]
                    lists[place] = form.lists[i]
            meter_give(self.meter, form.patterns)
            form.patterns = patterns
            form.lists = lists
            form.room_memo = room = 2 * room
        place = _spot(pattern, room)
        while form.lists[place] != NULL:
            place = (place + 1) & (room - 1)
        form.patterns[place] = pattern
        form.lists[place] = found
        form.n_memo += 1

    cdef PortList* _settle(self, uint32_t n, uint32_t nfail) noexcept:
        """The one list with the content of the scratch area: equal decisions have equal addresses."""
        cdef uint32_t index
        cdef PortList* found = self.last
        if nfail:
            memcpy(self.scratch + 2 + n, self.fails, nfail * sizeof(uint32_t))
        if found != NULL and self._holds(found, n, nfail):
            return found
        self.scratch[0] = n
        self.scratch[1] = nfail
        index = self.lists.find(self.scratch, (2 + n + nfail) * sizeof(uint32_t))
        if index:
            found = <PortList*> self.lists.contents[index].form
        else:
            found = self._keep(n, nfail) if self.list_bytes <= MAX_LIST_BYTES else NULL
        self.passing = found == NULL
        if found == NULL and self._holds(&self.ring[self.ring_at], n, nfail):
            found = &self.ring[self.ring_at]
        elif found == NULL:
            self.ring_at = (self.ring_at + 1) % RING
            found = &self.ring[self.ring_at]
            found.n = n
            found.nfail = nfail
            memcpy(found.items, self.scratch + 2, (n + nfail) * sizeof(uint32_t))
        self.last = found
        return found

    cdef bint _holds(self, const PortList* found, uint32_t n, uint32_t nfail) noexcept:
        return (<uint32_t> found.n == n and <uint32_t> found.nfail == nfail
                and memcmp(found.items, self.scratch + 2, (n + nfail) * sizeof(uint32_t)) == 0)

    cdef PortList* _keep(self, uint32_t n, uint32_t nfail) noexcept:
        cdef uint32_t index, size = (2 + n + nfail) * sizeof(uint32_t)
        cdef PortList* kept = <PortList*> take(self.meter, sizeof(PortList))
        if kept == NULL:
            return NULL
        try:
            index = self.lists.intern(self.scratch, size)
        except MemoryError:
            meter_give(self.meter, kept)
            return NULL
        kept.n = n
        kept.nfail = nfail
        kept.items = <uint32_t*> self.lists.contents[index].bytes + 2
        self.lists.contents[index].form = kept
        self.list_bytes += size + sizeof(PortList) + sizeof(Content)
        return kept

    cdef int _reserve(self, uint32_t widest, uint32_t scoped) except -1:
        """Room for the widest list, so that no decision needs memory for scratch areas."""
        cdef uint32_t needed = 2 + widest + scoped, room
        cdef int i
        cdef void* moved
        if needed <= self.room:
            self.widest = widest
            self.scoped = scoped
            return 0
        room = needed * 2 if needed > 16 else 16
        for i in range(RING + 2):
            moved = self.scratch if i == RING else self.fails if i > RING else self.ring[i].items
            moved = meter_resize_or_raise(self.meter, moved, self.room * sizeof(uint32_t), room * sizeof(uint32_t))
            if i < RING:
                self.ring[i].items = <uint32_t*> moved
            elif i == RING:
                self.scratch = <uint32_t*> moved
            else:
                self.fails = <uint32_t*> moved
        self.room = room
        self.widest = widest
        self.scoped = scoped
        return 0

    cdef int _derive(self, uint32_t index) except -1:
        cdef uint32_t* content = <uint32_t*> self.sets.contents[index].bytes
        cdef Form* form = <Form*> meter_take_or_raise(self.meter, sizeof(Form))
        cdef uint32_t k
        self.sets.contents[index].form = form
        form.n_ports = content[0]
        form.items = content + 1
        form.starts = form.items + form.n_ports
        form.intervals = form.starts + form.n_ports + 1
        form.generation = self.generation
        form.always = True
        for k in range(form.starts[form.n_ports]):
            if form.intervals[k] != 1:
                form.always = False
        if form.n_ports > self.widest:
            self._reserve(form.n_ports, self.scoped)
        if self.sparse and not form.always:
            self._derive_sparse(form)
        return 0

    cdef int _derive_sparse(self, Form* form) except -1:
        cdef uint32_t total = form.starts[form.n_ports], distinct = 0, families = 0, i, k, at = 0, port
        cdef uint32_t* sorted_steps = self.build          # the content was copied: the build area is free again
        cdef uint32_t order[MAX_STEPS]
        memcpy(sorted_steps, form.intervals, total * sizeof(uint32_t))
        qsort(sorted_steps, total, sizeof(uint32_t), _by_size)
        for i in range(total):
            if i == 0 or sorted_steps[i] != sorted_steps[distinct - 1]:
                sorted_steps[distinct] = sorted_steps[i]
                distinct += 1
        if distinct > MAX_STEPS:
            return 0
        form.block_size = form.n_ports * sizeof(uint64_t) + (2 * distinct + 1) * sizeof(uint32_t)
        form.masks = <uint64_t*> take(self.meter, form.block_size)
        form.patterns = <uint64_t*> take(self.meter, 8 * 16)
        if form.masks == NULL or form.patterns == NULL:
            return 0            # evaluated closely: slower, and the same
        form.lists = <PortList**> (form.patterns + 8)
        form.room_memo = 8
        form.steps = <uint32_t*> (form.masks + form.n_ports)
        form.families = form.steps + distinct
        for i in range(distinct):
            if sorted_steps[i] == 0:
                continue
            form.families[families] = at
            families += 1
            order[at] = sorted_steps[i]
            form.steps[at] = sorted_steps[i]
            at += 1
            for k in range(i + 1, distinct):
                if sorted_steps[k] and sorted_steps[k] % sorted_steps[i] == 0:
                    order[at] = sorted_steps[k]
                    form.steps[at] = sorted_steps[k] // sorted_steps[i]
                    at += 1
                    sorted_steps[k] = 0
        form.families[families] = at
        form.n_families = families
        form.n_steps = distinct
        for port in range(form.n_ports):
            for k in range(form.starts[port], form.starts[port + 1]):
                for i in range(distinct):
                    if order[i] == form.intervals[k]:
                        form.masks[port] |= (<uint64_t> 1) << i
        return 0

    cdef void _refresh(self, Form* form) noexcept:
        form.generation = self.generation
        form.whole = NULL
        form.latest = NULL
        form.n_memo = 0
        if form.room_memo:
            memset(form.lists, 0, form.room_memo * sizeof(PortList*))

    cdef void _free_form(self, Form* form) noexcept:
        if form != NULL:
            meter_give(self.meter, form.masks)
            meter_give(self.meter, form.patterns)
            meter_give(self.meter, form)


cdef inline uint32_t _spot(uint64_t pattern, uint32_t room) noexcept:
    return <uint32_t> ((pattern * 0x9e3779b97f4a7c15u) >> 32) & (room - 1)
