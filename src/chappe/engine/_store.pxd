"""Storage of the status table: pools of fixed-size items, interned contents."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport Meter

cdef void* take(Meter* meter, size_t size) noexcept
cdef void* resize(Meter* meter, void* block, size_t old, size_t new) noexcept

cdef class Pool:
    cdef Meter* meter
    cdef size_t item_size
    cdef uint32_t shift         # a chunk holds 2**shift items
    cdef uint32_t n_chunks, room_chunks, used, free_head
    cdef char** chunks
    cdef uint32_t add(self) except 0
    cdef void remove(self, uint32_t index) noexcept

cdef inline void* pool_at(Pool pool, uint32_t index) noexcept:
    return pool.chunks[index >> pool.shift] + (index & ((<uint32_t> 1 << pool.shift) - 1)) * pool.item_size

cdef struct Content:
    unsigned char* bytes
    void* form                  # what the owner derived from the content, NULL if nothing
    uint32_t size
    uint32_t refs
    uint64_t hash

cdef class Interner:
    cdef Meter* meter
    cdef uint64_t seed          # of the hashes: contents are chosen by strangers
    cdef Content* contents
    cdef uint32_t* buckets
    cdef uint32_t room, used, live, n_buckets, free_head
    cdef int reserve(self) except -1
    cdef uint32_t find(self, const void* bytes, uint32_t size) noexcept
    cdef uint32_t intern(self, const void* bytes, uint32_t size) except 0
    cdef void retain(self, uint32_t index) noexcept
    cdef bint release(self, uint32_t index) noexcept
    cdef void discard(self, uint32_t index) noexcept
