"""The fast path of plain values into their streams."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

cdef Py_ssize_t plain_run(
    PyObject** watches, uint32_t* keys, Py_ssize_t room, const unsigned char* payload, Py_ssize_t size,
    int64_t received, list touched
) except -1
