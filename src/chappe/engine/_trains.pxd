"""Trains: bytes sent to learn how fast a link is; the side that gets them says when they came."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._ports cimport Port, Ports

cdef class Trains:
    cdef Ports ports
    cdef list answers          # to trains of this node that nobody has taken yet
    cdef bint send(self, int port, uint64_t token, size) except -1
    cdef list take(self)
    cdef int train_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1
    cdef int trained_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1
