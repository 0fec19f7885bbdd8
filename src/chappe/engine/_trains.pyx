"""Trains: bytes sent to learn how fast a link is; the side that gets them says when they came."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._bytes cimport get32, get64, put64, put_header
from chappe.engine._ports cimport OPEN, TRAINED, TRAINS_IN, Port, Ports, Train, fault, mark_dirty

from chappe.errors import ChappeError

cdef enum:
    SHORTEST_TRAIN = 40
    LONGEST_TRAIN = 67108864
    ANSWERED_BYTES = 33554432      # trains of so many bytes at once, and so many a second, are answered on one port
    UNREAD_ANSWERS = 4096          # more than anyone waits for: the rest nobody asked for


@cython.final
cdef class Trains:
    """One train a port in each direction, and the answers of other nodes."""

    def __cinit__(self, Ports ports not None):
        self.ports = ports
        self.answers = []

    cdef bint send(self, int port, uint64_t token, size) except -1:
        """Send `size` bytes as TRAIN frames whenever the port has nothing else to write; False if it cannot now."""
        cdef Port* p = self.ports.port_at(port)
        if not SHORTEST_TRAIN <= size <= LONGEST_TRAIN:
            raise ChappeError(f"a train of {size} bytes; use {SHORTEST_TRAIN} to {LONGEST_TRAIN}")
        if not p.peer or p.datagram:
            raise ChappeError(f"port {port} is not the stream of a peer: only nodes answer trains")
        if p.state != OPEN or p.train_out.size:
            return False
        p.train_out.token = token
        p.train_out.size = size
        p.train_out.done = 0
        mark_dirty(self.ports, port, p)
        return True

    cdef list take(self):
        """(port, token, bytes and ns of the second half, arrival of first and last byte by the other's clock)."""
        cdef list answers = self.answers
        if answers:
            self.answers = []
        return answers

    cdef int train_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1:
        """Follow one train a port; one that is not complete, in order, or within the limit is never answered."""
        cdef Train* train = &p.train_in
        cdef uint64_t token
        cdef uint32_t total, offset, length = size + 4
        cdef uint8_t answer[44]
        cdef int result
        if not p.peer:
            fault(p, "TRAIN from a client: only links between nodes are measured so")
        if size < 16:
            fault(p, f"TRAIN of {size} bytes, at least 16 are needed")
        token = get64(payload)
        total = get32(payload + 8)
        offset = get32(payload + 12)
        if total < SHORTEST_TRAIN or total > LONGEST_TRAIN or offset > total or length > total - offset:
            fault(p, f"TRAIN of {total} bytes with {length} bytes at {offset}")
        p.train_spent = max(0.0, p.train_spent - ANSWERED_BYTES * 1e-9
                            * <double> (self.ports.clocks.mono_ns - p.train_spent_at))
        p.train_spent += length
        p.train_spent_at = self.ports.clocks.mono_ns
        if offset == 0:
            train.token = token
            train.size = total
            train.done = 0
            train.first = train.half = self.ports.clocks.mono_ns
        if (token != train.token or total != train.size or offset != train.done
                or p.train_spent > ANSWERED_BYTES):
            train.size = 0
            return 0
        if <uint64_t> train.done * 2 < total or train.half == self.ports.clocks.mono_ns:
            # bytes read together came at one time: only what came later can be timed
            train.half = self.ports.clocks.mono_ns
            train.after = offset + length
        train.done += length
        if train.done < total:
            return 0
        train.size = 0
        p.counters[TRAINS_IN] += 1
        put_header(answer, TRAINED, 40)
        put64(answer + 4, token)
        put64(answer + 12, total - train.after)
        put64(answer + 20, <uint64_t> (self.ports.clocks.mono_ns - train.half))
        put64(answer + 28, <uint64_t> train.first)
        put64(answer + 36, <uint64_t> self.ports.clocks.mono_ns)
        result = self.ports.put_frame(port, p, 0, answer, 44, True)
        if result < 0:
            p.counters[-result] += 1
        return 0

    cdef int trained_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1:
        if not p.peer:
            fault(p, "TRAINED from a client: only links between nodes are measured so")
        if size != 40:
            fault(p, f"TRAINED of {size} bytes instead of 40")
        if len(self.answers) >= UNREAD_ANSWERS:
            return 0
        self.answers.append((port, get64(payload), get64(payload + 8), get64(payload + 16),
                             <int64_t> get64(payload + 24), <int64_t> get64(payload + 32)))
        return 0
