"""What leaves an engine: the next bytes of a port, what must be confirmed, and credit for publishers."""

from libc.stdint cimport uint64_t

from chappe.engine._ports cimport Port, Ports
from chappe.engine._stack cimport iovec

cdef uint64_t PASSED_ON        # bit of a probe's token: its echo comes when what was before it has been passed on

# List the next bytes to write: what was half written, then the classes by urgency; how many vectors.
cdef int gather(Ports ports, int port, iovec* vectors, int limit) noexcept
# The socket took `count` of the gathered bytes, in the order they were listed.
cdef void written(Ports ports, int port, Py_ssize_t count) noexcept
# One vector a frame, most urgent first; how many.
cdef int gather_datagrams(Ports ports, int port, iovec* frames, int limit) noexcept
cdef void datagrams_written(Ports ports, int port, int count) noexcept

# Queues for a new connection: definitions, then retained events, then what was never written.
cdef int rebuild(Ports ports, int port, Port* p) except -1
# What a closing port still had to write is lost for it: count each event and record.
cdef void count_unsent(Ports ports, Port* p) noexcept

# A CREDIT frame once half the window is used and nobody holds this client back.
cdef void grant_credit(Ports ports, int port, Port* p) noexcept
# A backpressure subscriber is half full: its publisher gets no credit until it has drained.
cdef void hold(Ports ports, int arrival, Port* from_port, int port, Port* p) noexcept
cdef void unhold(Ports ports, Port* p) noexcept
# A publisher is gone: nobody waits to give it credit.
cdef void forget_publisher(Ports ports, int port) noexcept
