"""Big-endian numbers and frame headers in buffers, inline."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef inline void put32(uint8_t* place, uint32_t value) noexcept nogil:
    place[0] = <uint8_t> (value >> 24)
    place[1] = <uint8_t> (value >> 16)
    place[2] = <uint8_t> (value >> 8)
    place[3] = <uint8_t> value


cdef inline void put64(uint8_t* place, uint64_t value) noexcept nogil:
    put32(place, <uint32_t> (value >> 32))
    put32(place + 4, <uint32_t> value)


cdef inline uint32_t get32(const uint8_t* place) noexcept nogil:
    return (<uint32_t> place[0] << 24) | (<uint32_t> place[1] << 16) | (<uint32_t> place[2] << 8) | place[3]


cdef inline uint64_t get64(const uint8_t* place) noexcept nogil:
    return (<uint64_t> get32(place) << 32) | get32(place + 4)


cdef inline uint32_t payload_size(const uint8_t* frame) noexcept nogil:
    return (<uint32_t> frame[1] << 16) | (<uint32_t> frame[2] << 8) | frame[3]


cdef inline uint32_t frame_size(const uint8_t* frame) noexcept nogil:
    return 4 + payload_size(frame)


cdef inline uint32_t record_size(const uint8_t* record) noexcept nogil:
    return 24 * (1 + <uint32_t> record[12])


cdef inline void put_header(uint8_t* frame, int kind, uint32_t length) noexcept nogil:
    frame[0] = <uint8_t> kind
    frame[1] = <uint8_t> (length >> 16)
    frame[2] = <uint8_t> (length >> 8)
    frame[3] = <uint8_t> length
