"""ZMTP 3.0: one frame a message, topic prefix and body; commands and subscriptions are passed over."""

from bench._meter cimport Meter, get64, note_body


cdef Py_ssize_t scan_zmtp(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, size, head
    cdef unsigned char flags
    while at + 2 <= length:
        flags = <unsigned char> bytes[at]
        if flags > 7:
            return -1
        if flags & 2:
            if at + 9 > length:
                return at
            size = <Py_ssize_t> get64(bytes + at + 1)
            head = 9
            if size < 0 or size > 16777216:
                return -1
        else:
            size = <unsigned char> bytes[at + 1]
            head = 2
        if at + head + size > length:
            return at
        # A publisher gets subscriptions here: too short to be a message of this bench.
        if not flags & 4 and size >= <Py_ssize_t> meter.size:
            note_body(meter, bytes + at + head + size - meter.size, meter.size)
        at += head + size
    return at
