"""The queue groups of a topic table: names, numbers, cursors."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport Meter
from chappe.engine._topics_hash cimport Hash, Store


cdef struct Group:
    unsigned char* name
    uint32_t size
    uint32_t refs                # subscriptions and (topic, group) pairs; at 0 the number is free again


cdef class Groups:
    cdef Meter* meter            # of the table that owns these groups
    cdef uint64_t seed
    cdef Store store             # of Group
    cdef Hash index
    cdef uint32_t* cursors       # round-robin position by group number; may move when a group is made
    cdef uint32_t room           # of cursors

    cdef int open(self, Meter* meter, uint64_t seed) except -1
    # Number of a group, 0 if there is none.
    cdef uint32_t find(self, const unsigned char* name, uint32_t size) noexcept
    # Number of a new group without holders; 0 without memory.
    cdef uint32_t make(self, const unsigned char* name, uint32_t size) noexcept
    cdef void hold(self, uint32_t number) noexcept
    cdef void release(self, uint32_t number) noexcept
    cdef Group* item(self, uint32_t number) noexcept
    cdef bytes text(self, uint32_t number)
    cdef str name(self, uint32_t number)
