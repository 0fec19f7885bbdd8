"""Bytes out of a real engine without a socket, and a look at the events among them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from chappe.engine._bytes cimport frame_size, get32
from chappe.engine._stack cimport Stack, iovec

cdef enum:
    VECTORS = 64
    STATUS = 0x01
    EVENT = 0x02
    TOPIC = 0x12
    ISSUER = 0x22
    ROUTE = 0x32
    CONTROL = 0x05


def take(Stack stack not None, int port, Py_ssize_t limit):
    """At most `limit` bytes of what the port has to send; more than that stays queued."""
    cdef iovec vectors[VECTORS]
    cdef int i, used = stack.gather(port, vectors, VECTORS)
    cdef Py_ssize_t total = 0, part, done = 0
    if used <= 0 or limit <= 0:
        return b""
    for i in range(used):
        total += vectors[i].iov_len
    total = min(total, limit)
    cdef bytes taken = PyBytes_FromStringAndSize(NULL, total)
    cdef char* out = PyBytes_AS_STRING(taken)
    for i in range(used):
        part = min(<Py_ssize_t> vectors[i].iov_len, total - done)
        memcpy(out + done, vectors[i].iov_base, part)
        done += part
    stack.written(port, total)
    return taken


def dirty(Stack stack not None):
    """The ports that have something to send, lowest first."""
    cdef int port = stack.next_dirty()
    cdef list found = []
    while port >= 0:
        found.append(port)
        port = stack.next_dirty()
    if len(found) > 1:
        found.sort()
    return found


cdef class Reader:
    """Follows the frames of one direction of a link and knows what its numbers mean.

    `control` and `status` collect the payloads of CONTROL and STATUS frames until somebody takes them.
    """

    cdef public list control
    cdef public list status
    cdef dict topics
    cdef dict routes
    cdef dict issuers
    cdef bytes rest

    def __init__(self):
        self.control = []
        self.status = []
        self.topics = {}
        self.routes = {}
        self.issuers = {}
        self.rest = b""

    def restart(self):
        """A new connection: the rest of a frame is forgotten; numbers are defined again before they are used."""
        self.rest = b""

    def events(self, bytes piece not None):
        """(session, sequence, topic, route or None) of each event that is complete with this piece."""
        cdef list found = []
        cdef bytes data = self.rest + piece if self.rest else piece
        cdef const uint8_t* start = <const uint8_t*> PyBytes_AS_STRING(data)
        cdef Py_ssize_t position = 0, end = len(data)
        cdef const uint8_t* frame
        cdef uint32_t size, issuer, at, number
        while end - position >= 4:
            frame = start + position
            size = frame_size(frame)
            if <Py_ssize_t> size > end - position:
                break
            if frame[0] == EVENT:
                issuer = (<uint32_t> frame[9] << 16) | (<uint32_t> frame[10] << 8) | frame[11]
                number = get32(frame + 4)
                found.append((self.issuers.get(issuer), get32(frame + 12), self.topics.get(number),
                              self.routes.get(number)))
            elif frame[0] == TOPIC:
                at = 10 + frame[9]
                number = get32(frame + 4)
                self.topics[number] = <bytes> frame[at:size]
                self.routes.pop(number, None)
            elif frame[0] == ROUTE:
                at = 12 + ((<uint32_t> frame[10] << 8) | frame[11])
                number = get32(frame + 4)
                self.topics[number] = <bytes> frame[at:size]
                self.routes[number] = <bytes> frame[12:at]
            elif frame[0] == ISSUER:
                self.issuers[get32(frame + 4) & 0xFFFFFF] = <bytes> frame[12:28]
            elif frame[0] == CONTROL:
                self.control.append(<bytes> frame[4:size])
            elif frame[0] == STATUS:
                self.status.append(<bytes> frame[4:size])
            position += size
        self.rest = data[position:]
        return found
