"""The fast path of plain values into their streams: no object, no reference counted, one probe of the table each."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from chappe.client._status cimport StatusStream, Watch

cdef extern from *:
    """
    #define chappe_swap64(x) __builtin_bswap64(x)
    #define chappe_swap32(x) __builtin_bswap32(x)
    """
    uint64_t swap "chappe_swap64"(uint64_t) noexcept
    uint32_t swap32 "chappe_swap32"(uint32_t) noexcept


cdef Py_ssize_t plain_run(
    PyObject** watches, uint32_t* keys, Py_ssize_t room, const unsigned char* payload, Py_ssize_t size,
    int64_t received, list touched
) except -1:
    """Deliver records from the first on while each is plain; how many bytes that were.

    Plain: without option blocks, of one watch that nobody attends and nothing filters, whose stream has room. The rest
    takes the slow path. Nothing here makes an object or counts a reference.
    """
    cdef Py_ssize_t at = 0, place, mask = room - 1, free = 0, taken = 0, next_place = 0, ring = 0
    cdef uint64_t created, bits
    cdef uint32_t number
    cdef PyObject* found
    cdef PyObject* latest = NULL
    cdef StatusStream stream = None
    # columns of the stream, side by side with where the next value goes: the loop below touches no stream
    cdef int64_t* created_column = NULL
    cdef int64_t* received_column = NULL
    cdef uint64_t* bits_column = NULL
    cdef uint32_t* place_column = NULL
    while size - at >= 24 and payload[at + 12] == 0:
        memcpy(&number, payload + at + 8, 4)
        number = swap32(number)
        place = (number * <uint32_t> 2654435769) & mask
        while watches[place] != NULL and keys[place] != number:
            place = (place + 1) & mask
        found = watches[place]
        if found == NULL:
            break
        if (<Watch> found).sibling is not None or (<Watch> found).attended or (<Watch> found).filtered:
            break
        if (<Watch> found).newest_options is not None:
            break
        if <PyObject*> (<Watch> found).stream != latest:
            if latest != NULL:
                stream.count += taken
            taken = free = 0
            stream = (<Watch> found).stream
            latest = <PyObject*> stream
            if not stream.iterated or stream.closed or stream.options != NULL:
                break
            if not stream.touched:
                stream.touched = True
                touched.append(stream)
            free = min(stream.room, stream.max_queue) - stream.count
            ring = stream.room - 1
            next_place = (stream.first + stream.count) & ring
            created_column = stream.created
            received_column = stream.received
            bits_column = stream.bits
            place_column = stream.place
        if taken >= free:
            break
        memcpy(&created, payload + at, 8)
        memcpy(&bits, payload + at + 16, 8)
        created = swap(created)
        bits = swap(bits)
        (<Watch> found).updates += 1
        if <int64_t> created > (<Watch> found).newest_created or not (<Watch> found).has_value:
            (<Watch> found).has_value = True
            (<Watch> found).newest_created = <int64_t> created
            (<Watch> found).newest_received = received
            (<Watch> found).newest_bits = bits
        created_column[next_place] = <int64_t> created
        received_column[next_place] = received
        bits_column[next_place] = bits
        place_column[next_place] = (<Watch> found).position
        next_place = (next_place + 1) & ring
        taken += 1
        at += 24
    if latest != NULL:
        stream.count += taken
    return at
