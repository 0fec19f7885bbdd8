"""Variable number -> the watches of it."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

cdef class WatchTable:
    cdef PyObject** watches
    cdef uint32_t* keys
    cdef Py_ssize_t room
    cdef dict by_id
    cdef PyObject* find(self, uint32_t key) noexcept
    cdef int rebuild(self) except -1
