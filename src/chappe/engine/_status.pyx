"""The status table: which ports get a record, decided by its variable and stamp alone."""

from libc.stdint cimport int64_t, uint32_t

cdef class StatusTable:
    def __cinit__(self, str layout="close", bint edge=False):
        self.slot = 0

    cdef PortList* decide(self, int port, const unsigned char* record, Py_ssize_t size, int64_t wall_ns, int* verdict) noexcept:
        verdict[0] = UNKNOWN
        return NULL
