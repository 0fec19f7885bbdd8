"""Entries of the status table and everything they refer to by small indices."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from chappe.engine._memory cimport MemoryBudget, Meter
from chappe.engine._sets cimport ForwardingSets, Rate, Want
from chappe.engine._store cimport Interner, Pool

cdef enum:
    MODES = 16
    SLOTS = 17                  # the modes and the temporary table of a mode change
    PAGE = 1024
    DIRECTORY = 4096
    LEAVES = 1024
    WINDOW = 64
    MANY = 0x80000000           # flag of Entry.inputs: the rest is an interned list of ports
    MAX_PORT = 0xffffff
    AWAITED = 1                 # Entry.last_size: none, and the next one goes to all that get any

cdef struct Entry:
    uint32_t rate               # interned rate; 0 = no entry here
    uint32_t inputs             # 0 = none, a port + 1, or MANY | interned list
    uint32_t vector             # interned mode vector; 0 = no path and no flooding in any slot
    uint32_t paths              # first of a list in order of ports
    uint32_t window             # 0 = copies cannot arrive on several paths
    uint32_t last_size          # bytes of the newest record; 0 = none, AWAITED; always 0 away from the edge

cdef struct EdgeEntry:          # one cache line: deciding and keeping the record touch no other memory of the variable
    Entry entry
    unsigned char head[24]      # the newest record without its option blocks
    unsigned char* options
    uint32_t room               # bytes at options
    uint32_t spare

cdef struct Page:               # a cache line, then PAGE entries of the table's stride
    uint32_t used
    uint32_t spare[15]

cdef struct Path:
    uint32_t next
    uint32_t number             # the path id of the broker
    uint32_t port
    uint32_t terms

cdef struct Terms:
    uint16_t modes
    uint16_t n_intervals        # 1 = the same in every mode, else 16
    uint8_t priorities[MODES]
    uint32_t changes            # bit m: mode m has other terms than mode m - 1
    int64_t intervals[MODES]    # only n_intervals of them are stored

cdef struct Vector:
    uint32_t sets[SLOTS]
    uint8_t levels[SLOTS]
    uint8_t spare[3]

cdef struct Window:
    int64_t newest
    uint32_t count
    uint32_t next
    int64_t stamps[WINDOW]

cdef class EntryTable:
    cdef public int slot
    cdef readonly str layout
    cdef MemoryBudget budget
    cdef bint edge
    cdef Meter meter
    cdef ForwardingSets forwarding
    cdef Interner vectors, rates, inputs, terms
    cdef Pool paths, windows
    cdef size_t stride          # of entries: Entry or EdgeEntry
    cdef Page*** leaves
    cdef uint32_t n_entries
    cdef Want* wants
    cdef uint32_t wants_room
    cdef int temporary_old, temporary_new

    cdef Entry* make(self, uint32_t variable) except NULL
    cdef void count_entry(self, uint32_t variable) noexcept
    cdef void drop(self, uint32_t variable) noexcept
    cdef int64_t next_used(self, int64_t start) noexcept
    cdef int set_rate(self, Entry* entry, int64_t num, int64_t den) except -1
    cdef list inputs_of(self, Entry* entry)
    cdef int put_inputs(self, Entry* entry, list ports) except -1
    cdef Path* path_of(self, Entry* entry, uint32_t number) noexcept
    cdef int put_path(self, Entry* entry, uint32_t number, uint32_t port, Terms* terms) except -1
    cdef bint remove_paths(self, Entry* entry, int64_t number, int64_t port) noexcept
    cdef int rebuild(self, Entry* entry, const uint8_t* levels) except -1
    cdef void keep(self, Entry* entry, const unsigned char* record, Py_ssize_t size) noexcept
    cdef uint32_t _set_of(self, Entry* entry, int mode, int also) except? 0
    cdef uint32_t _changes(self, Entry* entry) noexcept
    cdef void _release_vector(self, uint32_t index) noexcept
    cdef int _renew_window(self, Entry* entry) except -1


cdef inline Entry* entry_at(EntryTable table, Page* page, uint32_t variable) noexcept:
    return <Entry*> (<char*> page + sizeof(Page) + (variable & (PAGE - 1)) * table.stride)


cdef inline Entry* find_entry(EntryTable table, uint32_t variable) noexcept:
    """The entry of a variable, NULL if it has none."""
    cdef Page** directory = table.leaves[variable >> 22]
    cdef Page* page
    cdef Entry* entry
    if directory == NULL:
        return NULL
    page = directory[(variable >> 10) & (DIRECTORY - 1)]
    if page == NULL:
        return NULL
    entry = entry_at(table, page, variable)
    return entry if entry.rate else NULL


cdef inline Rate* rate_of(EntryTable table, Entry* entry) noexcept:
    return <Rate*> table.rates.contents[entry.rate].bytes


cdef inline Vector* vector_of(EntryTable table, Entry* entry) noexcept:
    """The mode vector of an entry, NULL if it has nothing in any slot."""
    return <Vector*> table.vectors.contents[entry.vector].bytes if entry.vector else NULL


cdef inline Terms* terms_of(EntryTable table, const Path* path) noexcept:
    return <Terms*> table.terms.contents[path.terms].bytes


cdef inline int64_t interval_of(const Terms* terms, int mode) noexcept:
    return terms.intervals[mode if terms.n_intervals > 1 else 0]


cdef inline bint permits(EntryTable table, Entry* entry, uint32_t port) noexcept:
    """Whether records of the variable may come in by that port."""
    cdef uint32_t i, n
    cdef uint32_t* ports
    if entry.inputs == port + 1:
        return True
    if entry.inputs & MANY:
        ports = <uint32_t*> table.inputs.contents[entry.inputs ^ MANY].bytes
        n = table.inputs.contents[entry.inputs ^ MANY].size // sizeof(uint32_t)
        for i in range(n):
            if ports[i] == port:
                return True
    return False
