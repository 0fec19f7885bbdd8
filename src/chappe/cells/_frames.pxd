"""Headers of parcels."""

from libc.stdint cimport uint32_t, uint64_t

cdef enum:
    FIRST = 1                # flags of parcels
    LAST = 2
    ACK = 4
    MULTICAST = 8
    HEAD = 24                # header of the frame and of the parcel, up to the names
    OVERHEAD = 64            # what a parcel takes of the room beside its body: many small ones are bounded, too
    BEGINNING = 262144       # room and credit of a flow that has heard nothing yet
    WINDOW = 65536           # parcels of a flow that are not confirmed

cdef void put_head(unsigned char* place, Py_ssize_t payload, int flags, bytes names, Py_ssize_t destination,
                   uint64_t flow, uint32_t sequence) noexcept
