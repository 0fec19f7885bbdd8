from libc.stdint cimport uint8_t, uint32_t

from chappe.engine._keeping cimport Keeping
from chappe.engine._ports cimport Port

cdef class Trains(Keeping):
    cdef list trained_inbox
    cdef int train_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef int trained_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
