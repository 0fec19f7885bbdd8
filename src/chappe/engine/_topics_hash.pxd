"""Stores of numbered items and a hash table of numbers, keyed: what the topic table is made of.

Everything is inline C. What makes a table raises MemoryError; what fills it on the path of messages says so by what it
returns, and has changed nothing then. Number 0 never names an item: it means "none" in every link.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from chappe.engine._memory cimport Meter, meter_resize, meter_take_or_raise

cdef extern from *:
    """
    static inline uint64_t chappe_fold(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    #define CHAPPE_ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    #define CHAPPE_ROUND \
        v0 += v1; v1 = CHAPPE_ROTATE(v1, 13); v1 ^= v0; v0 = CHAPPE_ROTATE(v0, 32); \
        v2 += v3; v3 = CHAPPE_ROTATE(v3, 16); v3 ^= v2; \
        v0 += v3; v3 = CHAPPE_ROTATE(v3, 21); v3 ^= v0; \
        v2 += v1; v1 = CHAPPE_ROTATE(v1, 17); v1 ^= v2; v2 = CHAPPE_ROTATE(v2, 32);
    static uint64_t chappe_siphash13(uint64_t k0, uint64_t k1, const unsigned char* text, size_t size) {
        uint64_t v0 = k0 ^ 0x736f6d6570736575ULL, v1 = k1 ^ 0x646f72616e646f6dULL;
        uint64_t v2 = k0 ^ 0x6c7967656e657261ULL, v3 = k1 ^ 0x7465646279746573ULL;
        uint64_t word, last = (uint64_t)size << 56;
        while (size >= 8) {
            memcpy(&word, text, 8);
            v3 ^= word;
            CHAPPE_ROUND
            v0 ^= word;
            text += 8;
            size -= 8;
        }
        word = 0;
        memcpy(&word, text, size);
        last |= word;
        v3 ^= last;
        CHAPPE_ROUND
        v0 ^= last;
        v2 ^= 0xff;
        CHAPPE_ROUND CHAPPE_ROUND CHAPPE_ROUND
        return v0 ^ v1 ^ v2 ^ v3;
    }
    #define CHAPPE_K0 0x9E3779B97F4A7C15ULL
    #define CHAPPE_K1 0xD6E8FEB86659FD93ULL
    """
    uint64_t fold "chappe_fold"(uint64_t a, uint64_t b) noexcept nogil
    uint64_t siphash "chappe_siphash13"(uint64_t k0, uint64_t k1, const unsigned char* text, size_t size) noexcept nogil
    const uint64_t K0 "CHAPPE_K0"
    const uint64_t K1 "CHAPPE_K1"

cdef inline uint32_t hash_pair(uint64_t seed, uint32_t a, uint32_t b) noexcept nogil:
    return <uint32_t>fold(seed ^ K0 ^ ((<uint64_t>a << 32) | b), K1)


cdef inline uint32_t hash_bytes(uint64_t seed, const unsigned char* text, size_t size) noexcept nogil:
    """SipHash-1-3: who does not know the seed cannot choose texts that collide."""
    return <uint32_t>siphash(seed, fold(seed ^ K0, K1), text, size)


cdef struct Link:
    uint32_t hash
    uint32_t next                # value in the same bucket


cdef struct Hash:                # linear hashing: grows by one bucket at a time, so that no insertion moves the table
    uint32_t* heads              # first value by bucket
    Link* links                  # by value
    uint32_t mask                # buckets at the start of this round, minus one
    uint32_t split               # buckets already split in this round
    uint32_t used
    uint32_t heads_room
    uint32_t links_room


cdef inline int hash_init(Hash* table, Meter* meter) except -1:
    table.heads = <uint32_t*>meter_take_or_raise(meter, 16 * sizeof(uint32_t))
    table.mask = 15
    table.split = 0
    table.used = 0
    table.heads_room = 16
    table.links = <Link*>meter_take_or_raise(meter, 16 * sizeof(Link))
    table.links_room = 16
    return 0


cdef inline uint32_t hash_bucket(Hash* table, uint32_t h) noexcept nogil:
    cdef uint32_t bucket = h & table.mask
    return bucket if bucket >= table.split else h & (table.mask * 2 + 1)


cdef inline uint32_t hash_buckets(Hash* table) noexcept nogil:
    return table.mask + 1 + table.split if table.heads != NULL else 0


cdef inline uint32_t hash_first(Hash* table, uint32_t h) noexcept nogil:
    """First value that may have this hash; the others follow by links[value].next."""
    return table.heads[hash_bucket(table, h)]


cdef inline int hash_reserve(Hash* table, Meter* meter, uint32_t value) noexcept nogil:
    """Make room for one more value, up to this one, so that the next hash_put cannot fail."""
    cdef uint32_t room
    cdef void* block
    if value >= table.links_room:
        room = value + (value >> 1) + 1
        block = meter_resize(meter, table.links, room * sizeof(Link))
        if block == NULL:
            return -1
        table.links = <Link*>block
        table.links_room = room
    if hash_buckets(table) == table.heads_room:
        room = table.heads_room + (table.heads_room >> 1)
        block = meter_resize(meter, table.heads, room * sizeof(uint32_t))
        if block == NULL:
            return -1
        table.heads = <uint32_t*>block
        table.heads_room = room
    return 0


cdef inline void hash_split(Hash* table, Meter* meter) noexcept nogil:
    """Divide the next bucket of this round between itself and a new one."""
    cdef uint32_t value = table.heads[table.split], following
    cdef uint32_t low = 0, high = 0
    while value:
        meter.steps += 1
        following = table.links[value].next
        if table.links[value].hash & (table.mask + 1):
            table.links[value].next = high
            high = value
        else:
            table.links[value].next = low
            low = value
        value = following
    table.heads[table.split] = low
    table.heads[table.mask + 1 + table.split] = high
    table.split += 1
    if table.split > table.mask:
        table.mask = table.mask * 2 + 1
        table.split = 0


cdef inline void hash_put(Hash* table, Meter* meter, uint32_t h, uint32_t value) noexcept nogil:
    cdef uint32_t bucket
    table.used += 1
    if table.used > hash_buckets(table):
        hash_split(table, meter)
    bucket = hash_bucket(table, h)
    table.links[value].hash = h
    table.links[value].next = table.heads[bucket]
    table.heads[bucket] = value


cdef inline void hash_clear(Hash* table, Meter* meter) noexcept nogil:
    """Forget everything and give the memory back."""
    cdef void* block
    table.mask = 15
    table.split = 0
    table.used = 0
    memset(table.heads, 0, 16 * sizeof(uint32_t))
    block = meter_resize(meter, table.heads, 16 * sizeof(uint32_t))
    if block != NULL:
        table.heads = <uint32_t*>block
        table.heads_room = 16
    block = meter_resize(meter, table.links, 16 * sizeof(Link))
    if block != NULL:
        table.links = <Link*>block
        table.links_room = 16


cdef inline void hash_drop(Hash* table, Meter* meter, uint32_t h, uint32_t value) noexcept nogil:
    """Take a value out; the last one gives the memory of a large table back."""
    cdef uint32_t* place = table.heads + hash_bucket(table, h)
    while place[0] != value:
        meter.steps += 1
        place = &table.links[place[0]].next
    place[0] = table.links[value].next
    table.used -= 1
    if table.used == 0 and table.heads_room > 4096:
        hash_clear(table, meter)


cdef struct Store:               # items numbered from 1; freed numbers are chained through their first four bytes
    char* items
    uint32_t size                # of one item
    uint32_t capacity
    uint32_t used                # highest number ever taken, plus one
    uint32_t spare               # first freed number


cdef inline int store_init(Store* store, Meter* meter, uint32_t size) except -1:
    store.size = size
    store.capacity = 8
    store.used = 1
    store.spare = 0
    store.items = <char*>meter_take_or_raise(meter, 8 * <size_t>size)
    return 0


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
        items = meter_resize(meter, store.items, <size_t>capacity * store.size)
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
    cdef void* items = meter_resize(meter, store.items, 8 * <size_t>store.size)
    if items != NULL:
        store.items = <char*>items
        store.capacity = 8
    store.used = used
    store.spare = 0
