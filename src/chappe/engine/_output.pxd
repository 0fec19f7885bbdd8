from libc.stdint cimport uint8_t, uint64_t

from chappe.engine._ports cimport Port, Ports
from chappe.engine._queue cimport Queue
from chappe.engine._stack cimport iovec

cdef uint64_t PASSED_ON        # bit of a probe's token: its echo comes when what was before it has been passed on

cdef class Output(Ports):
    cdef void released_echo(self, int port, Port* p, uint64_t token) noexcept
    cdef void receipt(self, int cls) noexcept
    cdef void grant_credit(self, int port, Port* p) noexcept
    cdef void hold(self, int arrival, Port* from_port, int port, Port* p) noexcept
    cdef void unhold(self, Port* p) noexcept
    cdef void _before_gather(self, int port, Port* p) noexcept
    cdef bint _probe_now(self, Port* p, uint64_t token) noexcept
    cdef void _next_piece(self, Port* p) noexcept
    cdef int _list(self, Queue* queue, iovec* vectors, int n, int limit, uint64_t budget) noexcept
    cdef void _stick(self, Port* p, int cls) noexcept
    cdef int rebuild(self, int port, Port* p) except -1
    cdef bint _kept(self, Queue* old, const uint8_t* frame, uint64_t end) noexcept
    cdef void _forget_unused(self, Port* p, Queue* olds) noexcept
    cdef void _keep_frames(self, int port, Port* p, int cls, Queue* old) noexcept
    cdef void forget_publisher(self, int port) noexcept
    cdef void count_unsent(self, int port, Port* p) noexcept
