"""Names by their bytes: what parcels are looked up by, each with a port that has it."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._memory cimport Meter, MemoryBudget
from chappe.engine._topics_hash cimport Hash, Store

cdef enum:
    NOBODY = -1                # port of a name that none has

cdef struct Name:
    uint32_t next_of_port      # of names that the same port has
    uint32_t hash
    uint32_t size
    int key                    # one text may be there once for each key
    int port
    int value
    uint8_t* text              # NULL: the number is free

cdef class NameTable:
    cdef Meter meter
    cdef Hash hash
    cdef Store store
    cdef uint64_t seed
    cdef uint32_t* heads       # first name by port
    cdef uint32_t* counts      # names by port
    cdef uint32_t nports
    cdef uint32_t find(self, int key, const uint8_t* text, uint32_t size) noexcept
    cdef uint32_t add(self, int key, const uint8_t* text, uint32_t size, int port) noexcept
    cdef void drop(self, uint32_t number) noexcept
    cdef uint32_t count_of(self, int port) noexcept
    cdef uint32_t _hash(self, int key, const uint8_t* text, uint32_t size) noexcept
    cdef bint _room_for_port(self, int port) noexcept


cdef inline Name* name_at(NameTable table, uint32_t number) noexcept:
    """Valid until the next name is added."""
    return <Name*> table.store.items + number
