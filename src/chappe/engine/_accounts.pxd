"""Who uses up the tables and queues of an engine: ports of one identity share an account."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport MemoryBudget

cdef struct Account:
    uint32_t ports
    uint32_t topics              # numbers that it made and that are not free again,
    uint32_t pairs               # those of its topics with queue groups,
    uint32_t routed_topics                # and those with forwarding entries
    uint64_t bytes               # segments in the queues of its ports
    uint64_t refused             # numbers and segments that it did not get

cdef struct Holding:             # what the queues of one port hold
    uint64_t bytes
    Account* account             # NULL: nobody's

cdef class Accounts:
    cdef MemoryBudget budget
    cdef Account** items         # by number, from 1; an account never moves
    cdef uint32_t used
    cdef uint32_t room
    cdef dict numbers
    cdef list names
    cdef list spare
    cdef readonly uint32_t max_topics
    cdef readonly uint32_t max_routed_topics
    cdef readonly uint64_t max_bytes
    # Number of an account with one more port; 0 for no name.
    cdef uint32_t open(self, str name) except? 0
    cdef void close(self, uint32_t number)
    cdef void tidy(self)


cdef inline bint within(uint32_t held, uint32_t quota, uint32_t limit, uint32_t used) noexcept nogil:
    """Whether one that holds so many may have one more: within its quota, and never more than are left for all."""
    return (quota == 0 or held < quota) and used < limit and held < limit - used
