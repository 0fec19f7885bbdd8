"""RESP (Redis): `message` pushes on a subscriber, integer replies on a publisher."""

from libc.string cimport memchr

from bench._meter cimport Meter, note_body


cdef inline const char* number(const char* line, const char* stop, Py_ssize_t* value) noexcept nogil:
    # The byte after the line `<type><digits>\r\n`, NULL if the line is not complete.
    cdef const char* at = line + 1
    value[0] = 0
    while at < stop and c"0" <= at[0] <= c"9":
        value[0] = value[0] * 10 + (at[0] - c"0")
        at += 1
    return at + 2 if at + 2 <= stop else NULL


cdef Py_ssize_t scan_resp(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    cdef const char* at = bytes
    cdef const char* stop = bytes + length
    cdef const char* item
    cdef const char* end
    cdef Py_ssize_t items, size, _part
    while at < stop:
        if at[0] == c"*":
            item = number(at, stop, &items)
            if item == NULL:
                return at - bytes
            if items != 3:
                return -1
            size = 0
            for _part in range(items):
                if item >= stop:
                    return at - bytes
                if item[0] != c"$":
                    return -1
                end = number(item, stop, &size)
                if end == NULL or end + size + 2 > stop:
                    return at - bytes
                item = end + size + 2
            note_body(meter, end, size)
            at = item
        elif at[0] == c":" or at[0] == c"+":
            end = <const char*> memchr(at, 10, <size_t> (stop - at))
            if end == NULL:
                return at - bytes
            at = end + 1
        else:
            return -1
    return at - bytes
