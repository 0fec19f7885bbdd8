"""Counted memory, stores of numbered items and a hash table of numbers: what the topic table is made of.

Everything is inline C, so that a module that cimports this file needs no other module at run time. Number 0
never names an item: it means "none" in every link and "empty" in every slot.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

cdef extern from *:
    """
    static inline uint64_t chappe_fold(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    #define CHAPPE_K0 0x9E3779B97F4A7C15ULL
    #define CHAPPE_K1 0xD6E8FEB86659FD93ULL
    """
    uint64_t fold "chappe_fold"(uint64_t a, uint64_t b) noexcept nogil
    const uint64_t K0 "CHAPPE_K0"
    const uint64_t K1 "CHAPPE_K1"

cdef struct Meter:
    unsigned long long* calls    # malloc, realloc and free, each counted
    unsigned long long steps     # probes, visits and moves: the work that must not grow with the table
    size_t bytes                 # held now, with the allocator's own overhead


cdef inline size_t charged(size_t size) noexcept nogil:
    return (size + 23) & ~<size_t>15


cdef inline void* take_bytes(Meter* meter, size_t size) noexcept nogil:
    cdef void* block = malloc(size)
    meter.calls[0] += 1
    if block != NULL:
        meter.bytes += charged(size)
    return block


cdef inline void* resize_bytes(Meter* meter, void* block, size_t old, size_t size) noexcept nogil:
    cdef void* moved = realloc(block, size)
    meter.calls[0] += 1
    if moved != NULL:
        meter.bytes += charged(size)
        if block != NULL:
            meter.bytes -= charged(old)
    return moved


cdef inline void give_bytes(Meter* meter, void* block, size_t size) noexcept nogil:
    if block != NULL:
        free(block)
        meter.calls[0] += 1
        meter.bytes -= charged(size)


cdef inline uint32_t hash_pair(uint64_t seed, uint32_t a, uint32_t b) noexcept nogil:
    return <uint32_t>fold(seed ^ K0 ^ ((<uint64_t>a << 32) | b), K1)


cdef inline uint32_t hash_bytes(uint64_t seed, const unsigned char* text, size_t size) noexcept nogil:
    """Keyed: who does not know the seed cannot choose texts that collide."""
    cdef uint64_t h = seed ^ K0 ^ (size * K1)
    cdef uint64_t word
    while size >= 8:
        memcpy(&word, text, 8)
        h = fold(h ^ word, K1)
        text += 8
        size -= 8
    word = 0
    memcpy(&word, text, size)
    return <uint32_t>fold(fold(h ^ word, K1) ^ seed, K0)


cdef struct Slot:
    uint32_t hash
    uint32_t value


cdef struct Hash:                # open addressing, linear probing, no tombstones
    Slot* slots
    uint32_t mask
    uint32_t used


cdef inline int hash_init(Hash* table, Meter* meter) noexcept nogil:
    table.slots = <Slot*>calloc(16, sizeof(Slot))
    meter.bytes += charged(16 * sizeof(Slot))
    table.mask = 15
    table.used = 0
    return 0 if table.slots != NULL else -1


cdef inline int hash_resize(Hash* table, Meter* meter, uint32_t capacity) noexcept nogil:
    cdef Slot* slots = <Slot*>calloc(capacity, sizeof(Slot))
    cdef uint32_t i, at
    meter.calls[0] += 1
    if slots == NULL:
        return -1
    meter.bytes += charged(capacity * sizeof(Slot))
    for i in range(table.mask + 1):
        if table.slots[i].value:
            meter.steps += 1
            at = table.slots[i].hash & (capacity - 1)
            while slots[at].value:
                at = (at + 1) & (capacity - 1)
            slots[at] = table.slots[i]
    give_bytes(meter, table.slots, (<size_t>table.mask + 1) * sizeof(Slot))
    table.slots = slots
    table.mask = capacity - 1
    return 0


cdef inline int hash_reserve(Hash* table, Meter* meter) noexcept nogil:
    """Make room for one more, so that the next hash_put cannot fail."""
    if (<uint64_t>table.used + 1) * 10 > (<uint64_t>table.mask + 1) * 7:
        return hash_resize(table, meter, (table.mask + 1) * 2)
    return 0


cdef inline void hash_put(Hash* table, Meter* meter, uint32_t h, uint32_t value) noexcept nogil:
    cdef uint32_t at = h & table.mask
    while table.slots[at].value:
        meter.steps += 1
        at = (at + 1) & table.mask
    table.slots[at].hash = h
    table.slots[at].value = value
    table.used += 1


cdef inline void hash_drop(Hash* table, Meter* meter, uint32_t h, uint32_t value) noexcept nogil:
    """Take a value out; those behind it move up, so that probes never meet a grave."""
    cdef uint32_t at = h & table.mask, ahead
    while table.slots[at].value != value:
        if table.slots[at].value == 0:
            return
        meter.steps += 1
        at = (at + 1) & table.mask
    ahead = at
    while True:
        ahead = (ahead + 1) & table.mask
        meter.steps += 1
        if table.slots[ahead].value == 0:
            break
        if ((ahead - table.slots[ahead].hash) & table.mask) >= ((ahead - at) & table.mask):
            table.slots[at] = table.slots[ahead]
            at = ahead
    table.slots[at].value = 0
    table.used -= 1
    if table.mask > 1023 and <uint64_t>table.used * 8 < table.mask:
        hash_resize(table, meter, (table.mask + 1) // 2)   # without memory it stays large, which is correct too


cdef struct Store:               # items numbered from 1; freed numbers are chained through their first four bytes
    char* items
    uint32_t size                # of one item
    uint32_t capacity
    uint32_t used                # highest number ever taken, plus one
    uint32_t spare               # first freed number


cdef inline int store_init(Store* store, Meter* meter, uint32_t size) noexcept nogil:
    meter.bytes += charged(8 * <size_t>size)
    store.size = size
    store.capacity = 8
    store.used = 1
    store.spare = 0
    store.items = <char*>malloc(8 * <size_t>size)
    return 0 if store.items != NULL else -1


cdef inline uint32_t store_take(Store* store, Meter* meter) noexcept nogil:
    """Number of an item with unspecified content; 0 without memory."""
    cdef uint32_t number = store.spare
    cdef uint32_t capacity
    cdef void* items
    if number:
        store.spare = (<uint32_t*>(store.items + <size_t>number * store.size))[0]
        return number
    if store.used == store.capacity:
        capacity = store.capacity + (store.capacity >> 1)
        if capacity >= 0x7FFFFFFF:
            return 0
        items = resize_bytes(meter, store.items, <size_t>store.capacity * store.size, <size_t>capacity * store.size)
        if items == NULL:
            return 0
        store.items = <char*>items
        store.capacity = capacity
    number = store.used
    store.used += 1
    return number


cdef inline void store_give(Store* store, uint32_t number) noexcept nogil:
    (<uint32_t*>(store.items + <size_t>number * store.size))[0] = store.spare
    store.spare = number


cdef inline void store_shrink(Store* store, Meter* meter, uint32_t used) noexcept nogil:
    """Forget every item from number `used` on (8 at most) and give their memory back."""
    cdef void* items = resize_bytes(meter, store.items, <size_t>store.capacity * store.size, 8 * <size_t>store.size)
    if items != NULL:
        store.items = <char*>items
        store.capacity = 8
    store.used = used
    store.spare = 0
