"""The status table as the engine sees it: one call of `decide_run` for neighbours that go to the same ports."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from chappe.engine._entries cimport Entry, EntryTable
from chappe.engine._sets cimport PortList

cdef enum Verdict:
    FORWARD = 0                 # a list, perhaps with no port that passes
    UNKNOWN
    NOT_IN_MODE
    NOT_PERMITTED
    DUPLICATE
    STALE
    FUTURE
    FLOODED                     # a list, too

cdef class StatusTable(EntryTable):
    cdef public int64_t future_tolerance_ns
    cdef uint8_t* levels        # per port, 0 = never flooded to
    cdef uint32_t n_levels
    cdef uint32_t* scope        # ports of level 1 and above, ascending
    cdef uint32_t n_scope

    cdef PortList nobody       # the list of a variable that nobody wants in any mode
    cdef PortList* decide(self, int port, const unsigned char* record, Py_ssize_t size, int64_t wall_ns,
                          int* verdict) noexcept
    cdef PortList* decide_run(self, int port, const unsigned char* records, uint32_t size, int64_t wall_ns,
                              int* verdict, uint32_t* used, uint32_t* count) noexcept
    cdef Entry* _known(self, object variable) except NULL
    cdef int _levels_of(self, Entry* entry, uint8_t* levels) except -1
    cdef dict _describe_set(self, uint32_t index)
