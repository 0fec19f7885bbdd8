"""PARCEL frames as the ends of a flow write them: without hops, which a cell adds."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

from chappe.engine._bytes cimport put32, put64, put_header

cdef enum:
    PARCEL = 0x03
    VERSION = 2              # of the parcel header
    HOPS = 64


cdef void put_head(unsigned char* place, Py_ssize_t payload, int flags, bytes names, Py_ssize_t destination,
                   uint64_t flow, uint32_t sequence) noexcept:
    """A PARCEL frame up to its body; `names`: destination and source."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(names)
    put_header(place, PARCEL, <uint32_t> payload)
    place[4] = VERSION
    place[5] = flags
    place[6] = HOPS
    place[7] = place[8] = place[11] = 0
    place[9] = <unsigned char> destination
    place[10] = <unsigned char> (size - destination)
    put64(place + 12, flow)
    put32(place + 20, sequence)
    memcpy(place + HEAD, PyBytes_AS_STRING(names), size)


def encode_names(str source not None, str destination not None):
    """Destination and source as a header has them, and the length of the first."""
    to, by = destination.encode(), source.encode()
    for name in (to, by):
        if not 1 <= len(name) <= 255:
            raise ValueError(f"a name of a cell has 1 to 255 bytes, not {len(name)}")
    return to + by, len(to)
