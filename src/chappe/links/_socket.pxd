"""Stream sockets and the flush that serves them all, one call each per buffer or tick."""

from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from chappe.engine._stack cimport Stack

cdef inline void set_clocks(Stack stack) noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    stack.clocks.mono_ns = <long long> now.tv_sec * 1000000000 + now.tv_nsec
    clock_gettime(CLOCK_REALTIME, &now)
    stack.clocks.wall_ns = <long long> now.tv_sec * 1000000000 + now.tv_nsec

cdef class Target:
    cdef public bint blocked         # waits for its writer callback; flushes pass it over until then
    cdef int drain(self) except -1   # 1 = nothing left, 0 = the socket is full

cdef class StreamSocket(Target):
    cdef readonly Stack stack
    cdef readonly int port
    cdef readonly int fd
    cdef readonly Py_ssize_t budget
    cdef readonly unsigned long long bytes_in
    cdef readonly unsigned long long bytes_out
    cdef readonly unsigned long long reads
    cdef readonly unsigned long long writes
    cdef Flusher flusher
    cdef object ended
    cdef Py_ssize_t receive(self) except -2

cdef class Flusher:
    cdef readonly Stack stack
    cdef list targets
    cdef list woken
    cdef list early
    cdef list failures
    cdef object call_soon
    cdef object run
    cdef bint scheduled
    cdef public bint attentive      # run Python code before each flush, whatever was read
    cdef Py_ssize_t unflushed
    cdef readonly unsigned long long flushes
    cdef readonly unsigned long long bytes_in   # that all sockets fed, ever
    cdef int served                 # ports that the last flush wrote
    cdef long long flushed_at
    cdef int flush_into(self, list blocked) except -1
    cdef int write(self, int port, list blocked) except -1
    cdef int fed(self, Py_ssize_t count) except -1
    cdef int gathered(self, Py_ssize_t count) except -1
