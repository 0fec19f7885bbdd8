"""Chappe frames: EVENT and STATUS are noted, PROBE is answered, LOSS and CREDIT are kept."""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

from bench._meter cimport Meter, answer, get32, get64, note, note_body


cdef Py_ssize_t scan_chappe(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, size, skip
    cdef unsigned char kind
    cdef char echo[4]
    while at + 4 <= length:
        size = get32(bytes + at) & 0xFFFFFF
        if at + 4 + size > length:
            return at
        kind = <unsigned char> bytes[at]
        if kind == 0x02:
            skip = 12
            if bytes[at + 8] & 8:
                skip += 2 + (((<unsigned char> bytes[at + 16]) << 8) | <unsigned char> bytes[at + 17])
            note_body(meter, bytes + at + 4 + skip, size - skip)
        elif kind == 0x01:
            if not records(meter, bytes + at + 4, size):
                return -1
        elif kind == 0x04:
            echo[0] = 0x14
            memcpy(echo + 1, bytes + at + 1, 3)
            answer(meter, echo, 4)
            answer(meter, bytes + at + 4, size)
        elif kind == 0x15:
            meter.dropped = get64(bytes + at + 4) + get64(bytes + at + 12)
        elif kind == 0x25:
            meter.credit = get64(bytes + at + 4)
        at += 4 + size
    return at


cdef inline bint records(Meter* meter, const char* run, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at = 0, whole
    while at + 24 <= size:
        whole = 24 + 24 * <Py_ssize_t> (<unsigned char> run[at + 12])
        if at + whole > size:
            return False
        if meter.capture != NULL:
            if meter.captured + 24 <= meter.capture_room:
                memcpy(meter.capture + meter.captured, run + at, 24)
                meter.captured += 24
            meter.received += 1
        else:
            # One publisher sends all variables of this bench in turn; the value is its sequence.
            note(meter, 0, get64(run + at + 16), <int64_t> get64(run + at))
        at += whole
    return at == size
