from libc.stdint cimport int64_t, uint32_t

cdef struct PortList:
    int n                      # ports that get the record
    int nfail                  # ports in the set whose filter says no
    uint32_t* items            # n + nfail items: (port << 2) | class

cdef enum Verdict:
    FORWARD = 0
    UNKNOWN
    NOT_IN_MODE
    NOT_PERMITTED
    DUPLICATE
    STALE
    FUTURE
    FLOODED

cdef class StatusTable:
    cdef public int slot
    cdef public unsigned long long allocations
    cdef PortList* decide(self, int port, const unsigned char* record, Py_ssize_t size, int64_t wall_ns, int* verdict) noexcept
