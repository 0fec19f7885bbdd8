"""Bounded byte queues made of pooled segments, and a counting table: the memory of the engine's output side."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._accounts cimport Holding
from chappe.engine._memory cimport Memory

cdef enum:
    SEGMENT_BYTES = 32768
    RUN_BYTES = 8192           # longest run of frames copied at once, so that little of a segment is wasted

cdef struct Segment:
    Segment* next
    uint64_t start             # position of the first byte in the queue's stream
    uint32_t size              # bytes filled
    uint32_t capacity
    int open_frame             # offset of the STATUS frame that may still grow, or -1
    uint32_t open_records
    uint8_t* bytes

cdef struct Pool:
    Segment* free
    int nfree
    int keep                   # free segments kept for reuse
    Memory* memory
    uint64_t account_limit     # bytes that the queues of one account may hold; 0 = no bound
    bint forced                # nothing is refused but by the machine: what is kept must not be lost

cdef struct Queue:
    Segment* head              # oldest segment kept
    Segment* cursor            # segment being written out
    Segment* tail
    uint32_t offset            # bytes of the cursor already written
    uint64_t enqueued          # positions: bytes ever appended,
    uint64_t sent              # written out,
    uint64_t released          # and given back
    uint64_t keep              # retain: end of the last frame that must be confirmed
    uint64_t received          # retain: the other engine has everything below this position
    uint64_t probe_position    # retain: ECHO of probe_token says so up to here
    uint64_t probe_token
    uint64_t passing_position  # retain: what is below is given back when it has been passed on, too
    uint64_t passing_token
    uint64_t plan_end          # position up to which the last gather listed bytes
    Holding* holding           # where its segments count

cdef struct CountSlot:
    uint64_t key
    uint64_t count

cdef struct CountTable:
    CountSlot* slots
    uint32_t capacity
    uint32_t used
    uint32_t limit             # distinct keys; beyond it everything is counted under key 1
    uint64_t seed              # of the hashes: strangers choose keys
    Memory* memory

cdef uint8_t* queue_reserve(Pool* pool, Queue* queue, uint32_t size) noexcept nogil
cdef int queue_put(Pool* pool, Queue* queue, const uint8_t* data, uint32_t size) noexcept nogil
cdef uint32_t queue_put_status(Pool* pool, Queue* queue, const uint8_t* records, uint32_t size, uint32_t count,
                               uint32_t packing, uint32_t frame_limit) noexcept nogil
cdef void queue_advance(Pool* pool, Queue* queue, uint64_t count, bint retain) noexcept nogil
cdef void queue_release(Pool* pool, Queue* queue, uint64_t position) noexcept nogil
cdef Segment* queue_front(Queue* queue) noexcept nogil
cdef void queue_clear(Pool* pool, Queue* queue) noexcept nogil
cdef void queue_shift(Pool* pool, Queue* queue) noexcept nogil
cdef bint pool_admits(Pool* pool, Holding* holding, uint32_t size) noexcept nogil
cdef void pool_clear(Pool* pool) noexcept nogil

cdef int count_init(CountTable* table, Memory* memory, uint32_t limit, uint64_t seed) noexcept nogil
cdef void count_add(CountTable* table, uint64_t key, uint64_t amount) noexcept nogil
cdef uint64_t count_take(CountTable* table, uint64_t key) noexcept nogil
cdef void count_clear(CountTable* table) noexcept nogil
