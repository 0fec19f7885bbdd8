"""Queues that a coroutine awaits without a suspension while they hold something.

`Steps` is iterator and awaitable in one object: `async for` asks it for the next entry and gets it by `am_send`, with
no coroutine, future or StopIteration in between. Only an empty queue makes a future.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF

cdef extern from "Python.h":
    ctypedef int (*sendfunc)(PyObject*, PyObject*, PyObject**)

    ctypedef struct PyAsyncMethods:
        sendfunc am_send

    ctypedef struct TypeSlots "PyTypeObject":
        PyAsyncMethods* tp_as_async

cdef int RETURNED = 0      # PYGEN_RETURN
cdef int SUSPENDED = 1     # PYGEN_NEXT


cdef class Waitable:
    """Something with entries to take: one (form 0), a list (form 1) or a RecordBatch (form 2)."""

    def __cinit__(self):
        self.waiters = []
        self.wake_at = 1

    cdef Py_ssize_t size(self) noexcept:
        return 0

    cdef object take(self, int form, Py_ssize_t limit):
        raise NotImplementedError

    cdef int wake(self) except -1:
        """Resume every coroutine that waits for an entry."""
        if self.ready is not None:
            self.ready()
        if not self.waiters:
            return 0
        waiters, self.waiters = self.waiters, []
        for future in waiters:
            if not future.done():
                future.set_result(None)
        return 0

    def end(self, failure=None):
        """Iterators finish after what is queued: quietly, or with `failure`."""
        self.closed = True
        self.failure = failure
        self.wake()

    def __len__(self):
        return self.size()


cdef class Steps:
    """The awaitable iterator over a Waitable."""

    def __cinit__(self, Waitable queue, int form=0, Py_ssize_t limit=1, double max_wait=0.0):
        self.queue = queue
        self.form = form
        self.limit = limit
        self.max_wait = max_wait

    def __aiter__(self):
        return self

    def __anext__(self):
        return self

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef PyObject* result = NULL
        cdef int outcome = self.step(&result)
        value = <object> result
        _drop(result)
        if outcome == SUSPENDED:
            return value
        raise StopIteration(value)

    cdef int step(self, PyObject** result) except -1:
        cdef Py_ssize_t size = self.queue.size()
        if self.future is not None:
            if not self.future.done():
                self.future.cancel()
            self.future = None
        if size == 0 and self.queue.before_wait is not None and not self.queue.closed:
            self.queue.before_wait()  # it may find that the connection is gone, which ends the queue
            size = self.queue.size()
        if size == 0:
            if self.queue.closed:
                raise self.queue.failure if self.queue.failure is not None else StopAsyncIteration
            return self.suspend(result)
        if self.max_wait > 0.0:
            if size < self.limit and not self.expired and not self.queue.closed:
                self.queue.wake_at = self.limit
                if self.timer is None:
                    self.timer = self.queue.loop.call_later(self.max_wait, self._expire)
                return self.suspend(result)
            self.expired = False
            self.queue.wake_at = 1
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
        value = self.queue.take(self.form, self.limit)
        Py_INCREF(value)
        result[0] = <PyObject*> value
        return RETURNED

    cdef int suspend(self, PyObject** result) except -1:
        if self.queue.loop is None:
            raise RuntimeError("this queue belongs to no event loop; it can only be read with take()")
        self.future = self.queue.loop.create_future()
        self.queue.waiters.append(self.future)
        value = next(self.future.__await__())
        Py_INCREF(value)
        result[0] = <PyObject*> value
        return SUSPENDED

    def _expire(self):
        self.timer = None
        if self.queue.size():
            self.expired = True
            self.queue.wake()


cdef extern from "Python.h":
    void _drop "Py_DECREF"(PyObject* entry)


cdef int _send(PyObject* steps, PyObject* value, PyObject** result) except -1:
    return (<Steps> <object> steps).step(result)


(<TypeSlots*> Steps).tp_as_async.am_send = <sendfunc> _send
