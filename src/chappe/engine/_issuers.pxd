"""Who publishes: numbers of (issuer, epoch), and which of their sequences were seen."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport MemoryBudget

cdef enum:
    WINDOW = 4096              # sequences remembered per issuer between nodes

cdef struct Issuer:
    uint32_t last              # highest sequence seen (32 bits)
    bint seen
    uint32_t refs              # client ports, and peers that have a number for it
    uint64_t* window           # a bit for each of the last 4,096; NULL if no peer has defined it
    bint peered                # events of it came from a peer: the window counts

cdef class Issuers:
    cdef MemoryBudget memory
    cdef Issuer* items         # by number
    cdef uint32_t room
    cdef uint32_t max_issuers
    cdef list sessions         # by number: (issuer, epoch)
    cdef dict numbers          # (issuer, epoch) -> number
    cdef dict idle             # numbers nobody holds, longest idle first
    cdef list spare
    cdef list swept            # numbers that are free once nothing queued carries them
    cdef bint full(self) noexcept
    cdef bint crowded(self, bytes issuer, uint32_t epoch) except -1
    cdef uint32_t number(self, bytes issuer, uint32_t epoch) except 0
    cdef int open_window(self, uint32_t number) except -1
    cdef int release(self, uint32_t number) except -1
    cdef int sweep(self) except -1
    cdef list recycle(self, const uint64_t* queued)

# Whether this sequence was seen before; remembers it.
cdef bint seen_before(Issuer* issuer, uint32_t sequence, bint peer) noexcept


cdef inline bint next_in_order(Issuer* issuer, uint32_t sequence, bint peer) noexcept nogil:
    """Whether this is the sequence after the last one, as nearly all are; then it is remembered."""
    if not issuer.seen or sequence != <uint32_t> (issuer.last + 1):
        return False
    if issuer.peered:
        issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
    elif peer:
        return False
    issuer.last = sequence
    return True
