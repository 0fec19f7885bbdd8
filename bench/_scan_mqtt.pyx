"""MQTT 3.1.1: PUBLISH of QoS 0; every other packet is passed over."""

from bench._meter cimport Meter, note_body


cdef Py_ssize_t scan_mqtt(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil:
    cdef Py_ssize_t at = 0, body, remaining, topic
    cdef int shift
    cdef unsigned char byte
    while at + 2 <= length:
        remaining = 0
        shift = 0
        body = at + 1
        while True:
            if body >= length:
                return at
            byte = <unsigned char> bytes[body]
            body += 1
            remaining |= (<Py_ssize_t> (byte & 0x7F)) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift > 21:
                return -1
        if body + remaining > length:
            return at
        if (<unsigned char> bytes[at]) & 0xF0 == 0x30:
            topic = ((<unsigned char> bytes[body]) << 8) | (<unsigned char> bytes[body + 1])
            if topic + 2 > remaining:
                return -1
            note_body(meter, bytes + body + 2 + topic, remaining - 2 - topic)
        at = body + remaining
    return at
