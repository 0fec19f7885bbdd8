"""Bounded byte queues made of pooled segments.

A segment holds whole frames only, so every segment boundary is a frame boundary: the writer may turn to a more urgent
class there. Bytes that were written stay until released where a port retains them.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from chappe.engine._memory cimport memory_give, memory_take
from chappe.engine._topics_hash cimport K1, fold

cdef enum:
    SHARE = 4                  # a port may hold one part in so many of what is free


cdef bint pool_admits(Pool* pool, Holding* holding, uint32_t size) noexcept nogil:
    """Whether a port may take a segment of that size.

    An eighth of the budget is left to tables. Of the rest a port that holds something may hold a quarter of what is
    free at most: as memory gets short, those that hold most are refused first, and the others go on.
    """
    cdef uint64_t limit, used
    if pool.forced:
        return True
    if holding.account != NULL and pool.account_limit and holding.account.bytes + size > pool.account_limit:
        return False
    if pool.memory.budget == 0:
        return True
    limit = pool.memory.budget - pool.memory.budget // 8
    used = pool.memory.bytes - <uint64_t> pool.nfree * SEGMENT_BYTES
    return used + size <= limit and (holding.bytes == 0 or holding.bytes + size <= (limit - used) // SHARE)


cdef Segment* _take(Pool* pool, Holding* holding, uint32_t size) noexcept nogil:
    cdef Segment* segment
    cdef uint32_t capacity = size if size > SEGMENT_BYTES else SEGMENT_BYTES
    if not pool_admits(pool, holding, capacity):
        pool.memory.refused += 1
        if holding.account != NULL:
            holding.account.refused += 1
        return NULL
    if capacity == SEGMENT_BYTES and pool.free != NULL:
        segment = pool.free
        pool.free = segment.next
        pool.nfree -= 1
    else:
        segment = <Segment*> memory_take(pool.memory, sizeof(Segment) + capacity)
        if segment == NULL:
            return NULL
        segment.capacity = capacity
        segment.bytes = <uint8_t*> (segment + 1)
    segment.next = NULL
    segment.size = 0
    segment.open_frame = -1
    segment.open_records = 0
    holding.bytes += capacity
    if holding.account != NULL:
        holding.account.bytes += capacity
    return segment


cdef void _give(Pool* pool, Holding* holding, Segment* segment) noexcept nogil:
    holding.bytes -= segment.capacity
    if holding.account != NULL:
        holding.account.bytes -= segment.capacity
    if segment.capacity == SEGMENT_BYTES and pool.nfree < pool.keep:
        segment.next = pool.free
        pool.free = segment
        pool.nfree += 1
        return
    memory_give(pool.memory, segment)


cdef void pool_clear(Pool* pool) noexcept nogil:
    cdef Segment* segment = pool.free
    cdef Segment* following
    while segment != NULL:
        following = segment.next
        free(segment)
        segment = following
    pool.free = NULL
    pool.nfree = 0


cdef uint8_t* queue_reserve(Pool* pool, Queue* queue, uint32_t size) noexcept nogil:
    """Room for `size` bytes of whole frames at the end; NULL if this port gets no memory."""
    cdef Segment* tail = queue.tail
    cdef uint8_t* place
    if tail == NULL or tail.capacity - tail.size < size:
        tail = _take(pool, queue.holding, size)
        if tail == NULL:
            return NULL
        tail.start = queue.enqueued
        if queue.tail == NULL:
            queue.head = tail
        else:
            queue.tail.next = tail
        if queue.cursor == NULL:
            queue.cursor = tail
            queue.offset = 0
        queue.tail = tail
    place = tail.bytes + tail.size
    tail.size += size
    tail.open_frame = -1
    queue.enqueued += size
    return place


cdef int queue_put(Pool* pool, Queue* queue, const uint8_t* data, uint32_t size) noexcept nogil:
    cdef uint8_t* place = queue_reserve(pool, queue, size)
    if place == NULL:
        return -1
    memcpy(place, data, size)
    return 0


cdef inline void _put_length(uint8_t* frame, uint32_t length) noexcept nogil:
    frame[1] = <uint8_t> (length >> 16)
    frame[2] = <uint8_t> (length >> 8)
    frame[3] = <uint8_t> length


cdef int _put_records(Pool* pool, Queue* queue, const uint8_t* records, uint32_t size, uint32_t count,
                      uint32_t packing, uint32_t frame_limit) noexcept nogil:
    """Append one group of records to the open STATUS frame, or open a new one."""
    cdef Segment* tail = queue.tail
    cdef uint8_t* frame
    cdef uint32_t length
    if (tail != NULL and tail.open_frame >= 0 and tail.open_records + count <= packing
            and tail.capacity - tail.size >= size and tail.size - tail.open_frame + size <= frame_limit):
        frame = tail.bytes + tail.open_frame
        memcpy(tail.bytes + tail.size, records, size)
        tail.size += size
        tail.open_records += count
        queue.enqueued += size
        length = tail.size - tail.open_frame - 4
        _put_length(frame, length)
        return 0
    frame = queue_reserve(pool, queue, size + 4)
    if frame == NULL:
        return -1
    frame[0] = 0x01
    _put_length(frame, size)
    memcpy(frame + 4, records, size)
    tail = queue.tail
    tail.open_frame = tail.size - size - 4
    tail.open_records = count
    return 0


cdef inline uint32_t _plain_room(const Queue* queue, uint32_t packing, uint32_t frame_limit) noexcept nogil:
    """How many records without option blocks the open frame still takes or, if none, a new one; at least one."""
    cdef const Segment* tail = queue.tail
    cdef uint32_t left = 0
    if tail != NULL and tail.open_frame >= 0 and tail.open_records < packing:
        if tail.size - tail.open_frame < frame_limit:
            left = min(frame_limit - (tail.size - tail.open_frame), tail.capacity - tail.size) // 24
            left = min(left, packing - tail.open_records)
    if left == 0:
        left = min(packing, (min(frame_limit, <uint32_t> SEGMENT_BYTES) - 4) // 24)
    return left if left else 1


cdef uint32_t queue_put_status(Pool* pool, Queue* queue, const uint8_t* records, uint32_t size, uint32_t count,
                               uint32_t packing, uint32_t frame_limit) noexcept nogil:
    """Append records: at most `packing` a frame (0 = any), and `frame_limit` bytes unless one record is larger.

    How many bytes of them, all but without memory. The result is the same as appending them one by one; a run that fits
    whole is copied whole.
    """
    cdef Segment* tail = queue.tail
    cdef uint32_t position = 0, length, several, opened = 0, frame = 4
    if packing == 0:
        packing = 0x7FFFFFFF
    if tail != NULL and tail.open_frame >= 0:
        opened = tail.open_records
        frame = tail.size - tail.open_frame
    if opened + count <= packing and frame + size <= frame_limit:
        return size if _put_records(pool, queue, records, size, count, packing, frame_limit) == 0 else 0
    while position < size:
        if size == 24 * count:      # none has option blocks: as many at once as one frame takes
            several = min(_plain_room(queue, packing, frame_limit), (size - position) // 24)
            length = 24 * several
        else:
            several = 1
            length = 24 * (1 + <uint32_t> records[position + 12])
        if _put_records(pool, queue, records + position, length, several, packing, frame_limit) < 0:
            break
        position += length
    return position


cdef void queue_release(Pool* pool, Queue* queue, uint64_t position) noexcept nogil:
    """Give back whole segments below `position`, never what is still to be written."""
    cdef Segment* segment = queue.head
    if position > queue.sent:
        position = queue.sent
    while segment != NULL and segment != queue.cursor and segment.start + segment.size <= position:
        queue.head = segment.next
        _give(pool, queue.holding, segment)
        segment = queue.head
    if position > queue.released:
        queue.released = position
    # an idle queue gives its last segment back, too: ten thousand quiet ports hold no memory
    if queue.released == queue.enqueued and queue.head != NULL and queue.head == queue.tail:
        _give(pool, queue.holding, queue.head)
        queue.head = queue.cursor = queue.tail = NULL
        queue.offset = 0


cdef void queue_advance(Pool* pool, Queue* queue, uint64_t count, bint retain) noexcept nogil:
    """`count` bytes were written; they are given back at once unless `retain` and something waits to be confirmed."""
    cdef uint32_t left
    queue.sent += count
    while count > 0 and queue.cursor != NULL:
        left = queue.cursor.size - queue.offset
        if count < left:
            queue.offset += <uint32_t> count
            count = 0
        else:
            count -= left
            queue.offset = queue.cursor.size
            if queue.cursor.next == NULL:
                break
            queue.cursor = queue.cursor.next
            queue.offset = 0
    if not retain or queue.keep <= queue.released:
        queue_release(pool, queue, queue.sent)


cdef Segment* queue_front(Queue* queue) noexcept nogil:
    """The segment with the next byte to write, or NULL."""
    if queue.sent == queue.enqueued:
        return NULL
    while queue.offset == queue.cursor.size and queue.cursor.next != NULL:
        queue.cursor = queue.cursor.next
        queue.offset = 0
    return queue.cursor


cdef void queue_clear(Pool* pool, Queue* queue) noexcept nogil:
    cdef Holding* holding = queue.holding
    cdef Segment* segment = queue.head
    cdef Segment* following
    while segment != NULL:
        following = segment.next
        _give(pool, queue.holding, segment)
        segment = following
    memset(queue, 0, sizeof(Queue))
    queue.holding = holding


cdef void queue_shift(Pool* pool, Queue* queue) noexcept nogil:
    """Give back the oldest segment of a queue that is being taken apart."""
    cdef Segment* segment = queue.head
    queue.head = segment.next
    _give(pool, queue.holding, segment)


cdef inline uint32_t _place(CountTable* table, uint64_t key, uint32_t mask) noexcept nogil:
    return <uint32_t> fold(key ^ table.seed, K1) & mask


cdef int count_init(CountTable* table, Memory* memory, uint32_t limit, uint64_t seed) noexcept nogil:
    """A table with room for key 1, under which everything is counted that finds none of its own; -1 without memory."""
    table.slots = <CountSlot*> memory_take(memory, 64 * sizeof(CountSlot))
    if table.slots == NULL:
        return -1
    memset(table.slots, 0, 64 * sizeof(CountSlot))
    table.capacity = 64
    table.limit = limit
    table.seed = seed
    table.memory = memory
    table.slots[_place(table, 1, 63)].key = 1
    table.used = 1
    return 0


cdef void _count_grow(CountTable* table) noexcept nogil:
    cdef uint32_t place, i, capacity = table.capacity * 2, mask = capacity - 1
    cdef CountSlot* fresh = <CountSlot*> memory_take(table.memory, capacity * sizeof(CountSlot))
    if fresh == NULL:
        return
    memset(fresh, 0, capacity * sizeof(CountSlot))
    for i in range(table.capacity):
        if table.slots[i].key:
            place = _place(table, table.slots[i].key, mask)
            while fresh[place].key:
                place = (place + 1) & mask
            fresh[place] = table.slots[i]
    memory_give(table.memory, table.slots)
    table.slots = fresh
    table.capacity = capacity


cdef void count_add(CountTable* table, uint64_t key, uint64_t amount) noexcept nogil:
    """Add to the exact count of a key (never 0); past the limit new keys are counted together under key 1."""
    cdef uint32_t place, mask
    if table.used * 4 >= table.capacity * 3:
        _count_grow(table)
    mask = table.capacity - 1
    place = _place(table, key, mask)
    while table.slots[place].key and table.slots[place].key != key:
        place = (place + 1) & mask
    if table.slots[place].key == 0:
        if table.used >= table.limit or table.used * 8 >= table.capacity * 7:
            count_add(table, 1, amount)
            return
        table.slots[place].key = key
        table.slots[place].count = 0
        table.used += 1
    table.slots[place].count += amount


cdef uint64_t count_take(CountTable* table, uint64_t key) noexcept nogil:
    """The count of a key, set back to zero."""
    cdef uint32_t place, mask
    cdef uint64_t count
    mask = table.capacity - 1
    place = _place(table, key, mask)
    while table.slots[place].key:
        if table.slots[place].key == key:
            count = table.slots[place].count
            table.slots[place].count = 0
            return count
        place = (place + 1) & mask
    return 0


cdef void count_clear(CountTable* table) noexcept nogil:
    free(table.slots)
    memset(table, 0, sizeof(CountTable))
