"""Variable number -> the watches of it."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

cdef class WatchTable:
    cdef PyObject** watches
    cdef uint32_t* keys
    cdef Py_ssize_t room              # a power of two
    cdef dict by_id
    cdef readonly int64_t moves       # entries put in a place: stays proportional to the watches ever added
    cdef PyObject* find(self, uint32_t key) noexcept
    cdef Py_ssize_t place(self, uint32_t key) noexcept
    cdef int resize(self, Py_ssize_t room) except -1
    cdef int link(self, list group, uint32_t key) except -1
    cdef void vacate(self, uint32_t key) noexcept
