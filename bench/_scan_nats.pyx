"""NATS client protocol: MSG lines with a body; PING is answered."""

from libc.string cimport memchr, memcmp

from bench._meter cimport Meter, answer, note_body


cdef Py_ssize_t scan_nats(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, size, scale
    cdef const char* line
    cdef const char* end
    cdef const char* digit
    while at < length:
        line = bytes + at
        end = <const char*> memchr(line, 10, <size_t> (length - at))
        if end == NULL:
            return -1 if length - at > 65536 else at
        if line[0] == c"M":
            size = 0
            scale = 1
            digit = end - 2
            while digit > line and c"0" <= digit[0] <= c"9":
                size += (digit[0] - c"0") * scale
                scale *= 10
                digit -= 1
            if scale == 1 or scale > 100000000:
                return -1
            if (end - bytes) + 1 + size + 2 > length:
                return at
            note_body(meter, end + 1, size)
            at = (end - bytes) + 1 + size + 2
            continue
        if line[0] == c"P" and end - line >= 4 and memcmp(line, b"PING", 4) == 0:
            answer(meter, b"PONG\r\n", 6)
        elif line[0] == c"-":
            return -1
        at = (end - bytes) + 1
    return at
