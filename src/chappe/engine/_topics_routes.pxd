"""Routes of topics: who gets a message. Equal routes are one object."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport Meter
from chappe.engine._topics_hash cimport Hash, Store


cdef struct GroupRef:            # one queue group that matches the topic
    uint32_t pair                # number of the (topic, group) pair: deliveries to the group carry it
    uint32_t group               # group number; its round-robin cursor is cursors[group] of the table
    int n                        # members
    uint32_t* ports              # their ports, sorted, unique
    int nback                    # members that asked for backpressure
    uint32_t* back               # their ports, a sorted subset of ports


cdef struct Route:               # one block of memory; never changed once made
    int n                        # plain subscribers
    uint32_t* ports              # sorted, unique
    int nback                    # plain subscribers that asked for backpressure
    uint32_t* back               # their ports, a sorted subset of ports
    int ngroups
    GroupRef* groups             # by group number
    uint32_t refs                # topics that hold it; 0 only between find and its first holder
    uint32_t hash                # of words
    uint32_t number              # in the store of routes
    uint32_t nwords
    uint32_t* words              # everything above as one array: the content that equal routes share


cdef class Routes:
    cdef Meter* meter            # of the table that owns these routes
    cdef uint64_t seed
    cdef Store store             # of Route*
    cdef Hash index
    cdef uint32_t* words         # scratch: n, nback, ports, back; then a group: pair, group, n, nback, ports, back
    cdef size_t room             # of words

    cdef int open(self, Meter* meter, uint64_t seed) except -1
    # Make room in the scratch words; -1 without memory.
    cdef int reserve(self, size_t room) noexcept
    # The route whose content the scratch words are, made if there is none; NULL without memory.
    cdef Route* find(self, size_t nwords, int ngroups) noexcept
    cdef void discard(self, Route* route) noexcept
