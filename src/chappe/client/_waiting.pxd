"""Queues that a coroutine awaits without a suspension while they hold something."""

from cpython.object cimport PyObject

cdef class Waitable:
    cdef public object loop          # where futures are made; None until a client owns the queue
    cdef public bint closed
    cdef public object failure       # raised by iterators after the last entry; None for a quiet end
    cdef public object before_wait   # (): called before a coroutine waits for an entry
    cdef public object ready         # (): called when entries have come, instead of resuming a coroutine
    cdef list waiters
    cdef Py_ssize_t wake_at
    cdef Py_ssize_t size(self) noexcept
    cdef object take(self, int form, Py_ssize_t limit)
    cdef int wake(self) except -1

cdef class Steps:
    cdef Waitable queue
    cdef int form
    cdef Py_ssize_t limit
    cdef double max_wait
    cdef object future
    cdef object timer
    cdef bint expired
    cdef int step(self, PyObject** result) except -1
    cdef int suspend(self, PyObject** result) except -1
