"""Entries of the status table and everything they refer to by small indices.

A variable id is looked up directly: ten bits choose the leaf, twelve the page, ten the entry; an entry of 24 bytes
refers to its rate, its inputs and its mode vector, all interned, so that a million entries cost what is different. At
the edge an entry is a cache line of 64 bytes with the newest record in it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from chappe.engine._intervals cimport class_of, periods_of, stamp_of
from chappe.engine._memory cimport (
    MemoryBudget, meter_give, meter_lines, meter_resize_or_raise, meter_take_or_raise, raise_no_memory,
)
from chappe.engine._sets cimport ForwardingSets, Rate, Want
from chappe.engine._store cimport Interner, Pool, pool_at, resize

cdef enum:
    TERMS_HEAD = 24             # bytes of Terms before its intervals


@cython.no_gc
cdef class EntryTable:
    """Storage of a status table; every change keeps an entry's mode vector, window and references consistent."""

    def __cinit__(self, str layout="close", bint edge=False, seed: int = 0, MemoryBudget budget=None):
        if layout not in ("close", "sparse"):
            raise ValueError(f"table layout {layout!r} is not known; use 'close' or 'sparse'")
        self.layout = layout
        self.edge = edge
        self.stride = sizeof(EdgeEntry) if edge else sizeof(Entry)
        self.budget = MemoryBudget() if budget is None else budget
        self.meter.memory = &self.budget.memory
        self.temporary_old = self.temporary_new = -1
        self.leaves = <Page***> meter_take_or_raise(&self.meter, LEAVES * sizeof(Page**))
        self.forwarding = ForwardingSets()
        self.forwarding.start(&self.meter, layout == "sparse", seed & 0xFFFFFFFFFFFFFFFF)
        self.vectors = Interner()
        self.rates = Interner()
        self.inputs = Interner()
        self.terms = Interner()
        self.vectors.meter = self.rates.meter = self.inputs.meter = self.terms.meter = &self.meter
        self.vectors.seed = self.rates.seed = self.inputs.seed = self.terms.seed = seed & 0xFFFFFFFFFFFFFFFF
        self.paths = Pool()
        self.windows = Pool()
        self.paths.meter = self.windows.meter = &self.meter
        self.paths.item_size, self.paths.shift = sizeof(Path), 8
        self.windows.item_size, self.windows.shift = sizeof(Window), 4

    def __dealloc__(self):
        cdef int leaf, number
        cdef int64_t variable
        if self.leaves != NULL:
            if self.edge:
                variable = self.next_used(0)
                while variable >= 0:
                    free((<EdgeEntry*> find_entry(self, <uint32_t> variable)).options)
                    variable = self.next_used(variable + 1)
            for leaf in range(LEAVES):
                if self.leaves[leaf] != NULL:
                    for number in range(DIRECTORY):
                        free(self.leaves[leaf][number])
                    free(self.leaves[leaf])
        free(self.leaves)
        free(self.wants)

    cdef Entry* make(self, uint32_t variable) except NULL:
        """Room for an entry of this variable, which counts from its first rate on."""
        cdef Page*** directory = &self.leaves[variable >> 22]
        cdef Page** page
        if directory[0] == NULL:
            directory[0] = <Page**> meter_take_or_raise(&self.meter, DIRECTORY * sizeof(Page*))
        page = &directory[0][(variable >> 10) & (DIRECTORY - 1)]
        if page[0] == NULL:
            page[0] = <Page*> meter_lines(&self.meter, sizeof(Page) + PAGE * self.stride)
            if page[0] == NULL:
                raise_no_memory(self.meter.memory, "a page of the status table")
        return entry_at(self, page[0], variable)

    cdef void count_entry(self, uint32_t variable) noexcept:
        self.leaves[variable >> 22][(variable >> 10) & (DIRECTORY - 1)].used += 1
        self.n_entries += 1

    cdef void drop(self, uint32_t variable) noexcept:
        """Forget a variable and give back all it referred to."""
        cdef Entry* entry = find_entry(self, variable)
        cdef Page** page = &self.leaves[variable >> 22][(variable >> 10) & (DIRECTORY - 1)]
        self.remove_paths(entry, -1, -1)
        self._release_vector(entry.vector)
        if self.rates.release(entry.rate):
            self.rates.discard(entry.rate)
        if entry.inputs & MANY and self.inputs.release(entry.inputs ^ MANY):
            self.inputs.discard(entry.inputs ^ MANY)
        if entry.window:
            self.windows.remove(entry.window)
        if self.edge:
            meter_give(&self.meter, (<EdgeEntry*> entry).options)
        memset(entry, 0, self.stride)
        self.n_entries -= 1
        page[0].used -= 1
        if page[0].used == 0:
            meter_give(&self.meter, page[0])
            page[0] = NULL

    cdef int64_t next_used(self, int64_t start) noexcept:
        """The smallest variable id in the table from `start` on, -1 if there is none."""
        cdef int64_t variable = start if start > 0 else 0
        cdef Page** directory
        cdef Page* page
        while variable < 0x100000000:
            directory = self.leaves[variable >> 22]
            if directory == NULL:
                variable = ((variable >> 22) + 1) << 22
                continue
            page = directory[(variable >> 10) & (DIRECTORY - 1)]
            if page == NULL:
                variable = ((variable >> 10) + 1) << 10
                continue
            if entry_at(self, page, <uint32_t> variable).rate:
                return variable
            variable += 1
        return -1

    cdef int set_rate(self, Entry* entry, int64_t num, int64_t den) except -1:
        cdef Rate rate
        cdef uint32_t old = entry.rate
        rate.num = num
        rate.den = den
        entry.rate = self.rates.intern(&rate, sizeof(Rate))
        if old and self.rates.release(old):
            self.rates.discard(old)
        return 0

    cdef list inputs_of(self, Entry* entry):
        cdef uint32_t i
        cdef uint32_t* ports
        if entry.inputs & MANY:
            ports = <uint32_t*> self.inputs.contents[entry.inputs ^ MANY].bytes
            return [ports[i] for i in range(self.inputs.contents[entry.inputs ^ MANY].size // sizeof(uint32_t))]
        return [entry.inputs - 1] if entry.inputs else []

    cdef int put_inputs(self, Entry* entry, list ports) except -1:
        """Permit exactly these input ports, given in ascending order."""
        cdef uint32_t old = entry.inputs, n = len(ports), i
        cdef uint32_t* content
        if n > 1:
            content = <uint32_t*> meter_take_or_raise(&self.meter, n * sizeof(uint32_t))
            for i in range(n):
                content[i] = ports[i]
            try:
                entry.inputs = MANY | self.inputs.intern(content, n * sizeof(uint32_t))
            finally:
                meter_give(&self.meter, content)
        else:
            entry.inputs = <uint32_t> ports[0] + 1 if n else 0
        if old & MANY and self.inputs.release(old ^ MANY):
            self.inputs.discard(old ^ MANY)
        return self._renew_window(entry)

    cdef Path* path_of(self, Entry* entry, uint32_t number) noexcept:
        cdef uint32_t index = entry.paths
        cdef Path* path
        while index:
            path = <Path*> pool_at(self.paths, index)
            if path.number == number:
                return path
            index = path.next
        return NULL

    cdef int put_path(self, Entry* entry, uint32_t number, uint32_t port, Terms* terms) except -1:
        """Add a path or change it in place (GS-073); `rebuild` has to follow."""
        cdef Path* path = self.path_of(entry, number)
        cdef uint32_t* link = &entry.paths
        cdef uint32_t index, interned
        _mark_changes(terms)
        interned = self.terms.intern(terms, TERMS_HEAD + terms.n_intervals * sizeof(int64_t))
        if path != NULL and path.port == port:
            if self.terms.release(path.terms):
                self.terms.discard(path.terms)
            path.terms = interned
            return 0
        try:
            index = self.paths.add()
        except MemoryError:
            if self.terms.release(interned):
                self.terms.discard(interned)
            raise
        if path != NULL:
            self.remove_paths(entry, number, -1)
        # In order of ports, so that the forwarding sets of a variable with many watchers need no sorting.
        while link[0] and (<Path*> pool_at(self.paths, link[0])).port < port:
            link = &(<Path*> pool_at(self.paths, link[0])).next
        path = <Path*> pool_at(self.paths, index)
        path.next = link[0]
        path.number = number
        path.port = port
        path.terms = interned
        link[0] = index
        return 0

    cdef bint remove_paths(self, Entry* entry, int64_t number, int64_t port) noexcept:
        """Remove the paths of this number and port, -1 standing for any; `rebuild` has to follow."""
        cdef uint32_t* link = &entry.paths
        cdef uint32_t index
        cdef Path* path
        cdef bint any_gone = False
        while link[0]:
            index = link[0]
            path = <Path*> pool_at(self.paths, index)
            if (number < 0 or path.number == number) and (port < 0 or path.port == port):
                link[0] = path.next
                if self.terms.release(path.terms):
                    self.terms.discard(path.terms)
                self.paths.remove(index)
                any_gone = True
            else:
                link = &path.next
        return any_gone

    cdef int rebuild(self, Entry* entry, const uint8_t* levels) except -1:
        """Make the mode vector say what the paths and these flood levels (NULL: as before) mean."""
        cdef Vector vector
        cdef Vector* old_vector = vector_of(self, entry)
        cdef uint32_t index = 0, old = entry.vector
        cdef uint32_t changes = self._changes(entry)
        cdef int mode
        cdef bint empty = True
        memset(&vector, 0, sizeof(Vector))
        if levels == NULL and old_vector != NULL:
            levels = old_vector.levels
        if levels != NULL:
            memcpy(vector.levels, levels, MODES)
        try:
            for mode in range(MODES):
                if mode and not changes >> mode & 1:
                    vector.sets[mode] = vector.sets[mode - 1]
                    if vector.sets[mode]:
                        self.forwarding.sets.retain(vector.sets[mode])
                else:
                    vector.sets[mode] = self._set_of(entry, mode, mode)
                empty = empty and vector.sets[mode] == 0 and vector.levels[mode] == 0
            if self.temporary_old >= 0:
                vector.sets[MODES] = self._set_of(entry, self.temporary_old, self.temporary_new)
                if vector.levels[self.temporary_new]:
                    vector.levels[MODES] = vector.levels[self.temporary_old]
            if not empty:
                index = self.vectors.intern(&vector, sizeof(Vector))
        except MemoryError:
            for mode in range(SLOTS):
                self.forwarding.release(vector.sets[mode])
            raise
        if not empty:
            if self.vectors.contents[index].refs > 1:
                for mode in range(SLOTS):       # the interned vector holds references of its own
                    self.forwarding.release(vector.sets[mode])
        entry.vector = index
        self._release_vector(old)
        return self._renew_window(entry)

    cdef void keep(self, Entry* entry, const unsigned char* record, Py_ssize_t size) noexcept:
        """Remember the record if it is the newest of its variable; only in a table at the edge."""
        cdef EdgeEntry* last = <EdgeEntry*> entry
        cdef uint32_t extra = size - 24
        cdef void* moved
        if entry.last_size > AWAITED and stamp_of(record) < stamp_of(last.head):
            return
        if extra > last.room:
            moved = resize(&self.meter, last.options, last.room, extra)
            if moved == NULL:
                return
            last.options = <unsigned char*> moved
            last.room = extra
        memcpy(last.head, record, 24)
        if extra:
            memcpy(last.options, record + 24, extra)
        entry.last_size = size

    cdef uint32_t _set_of(self, Entry* entry, int mode, int also) except? 0:
        """The forwarding set of the paths valid in both modes, with the terms of the first."""
        cdef uint32_t index = entry.paths, n = 0
        cdef uint32_t both = (1 << mode) | (1 << also)
        cdef Rate* rate = rate_of(self, entry)
        cdef Path* path
        cdef Terms* terms
        cdef void* moved
        while index:
            path = <Path*> pool_at(self.paths, index)
            terms = terms_of(self, path)
            if (terms.modes & both) == both:
                if n == self.wants_room:
                    moved = meter_resize_or_raise(&self.meter, self.wants, n * sizeof(Want), (2 * n + 8) * sizeof(Want))
                    self.wants = <Want*> moved
                    self.wants_room = 2 * n + 8
                self.wants[n].port = path.port
                self.wants[n].interval = <uint32_t> periods_of(interval_of(terms, mode), rate.num, rate.den)
                self.wants[n].urgency = class_of(terms.priorities[mode])
                n += 1
            index = path.next
        return self.forwarding.intern(self.wants, n)

    cdef uint32_t _changes(self, Entry* entry) noexcept:
        cdef uint32_t index = entry.paths, changes = 0
        cdef Path* path
        while index:
            path = <Path*> pool_at(self.paths, index)
            changes |= terms_of(self, path).changes
            index = path.next
        return changes

    cdef void _release_vector(self, uint32_t index) noexcept:
        cdef Vector* vector
        cdef int slot
        if index and self.vectors.release(index):
            vector = <Vector*> self.vectors.contents[index].bytes
            for slot in range(SLOTS):
                self.forwarding.release(vector.sets[slot])
            self.vectors.discard(index)

    cdef int _renew_window(self, Entry* entry) except -1:
        """A duplicate window exists where copies may arrive on several paths, and nowhere else."""
        cdef Vector* vector = vector_of(self, entry)
        cdef bint needed = (entry.inputs & MANY) != 0
        cdef Window* window
        cdef int mode
        if vector != NULL:
            for mode in range(MODES):
                needed = needed or vector.levels[mode] != 0
        if needed and entry.window == 0:
            entry.window = self.windows.add()
            if entry.last_size > AWAITED:  # another copy of the newest may come by the new way
                window = <Window*> pool_at(self.windows, entry.window)
                window.newest = window.stamps[0] = stamp_of((<EdgeEntry*> entry).head)
                window.count = window.next = 1
        elif entry.window and not needed:
            self.windows.remove(entry.window)
            entry.window = 0
        return 0


cdef void _mark_changes(Terms* terms) noexcept:
    """Most paths have the same terms in all modes: their sets are built once, not sixteen times."""
    cdef int mode
    terms.changes = 0
    for mode in range(1, MODES):
        if (terms.modes >> mode & 1) != (terms.modes >> (mode - 1) & 1):
            terms.changes |= 1 << mode
        elif terms.modes >> mode & 1 and (terms.priorities[mode] != terms.priorities[mode - 1]
                                          or interval_of(terms, mode) != interval_of(terms, mode - 1)):
            terms.changes |= 1 << mode
