from libc.stdint cimport uint64_t

from chappe.engine._input cimport Input

cdef class Engine(Input):
    cdef tuple _address(self, uint64_t key)
    cdef bint _probe(self, int port, uint64_t token) except -1
