"""The queue groups of a topic table: a group lives as long as a subscription or a (topic, group) pair names it."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from chappe.engine._memory cimport meter_give, meter_resize, meter_take, meter_take_or_raise
from chappe.engine._topics_hash cimport (
    Link,
    hash_buckets,
    hash_bytes,
    hash_drop,
    hash_first,
    hash_init,
    hash_put,
    hash_reserve,
    store_give,
    store_init,
    store_take,
)


cdef class Groups:
    """Numbers of group names; the table owns the meter and outlives its groups."""

    cdef int open(self, Meter* meter, uint64_t seed) except -1:
        self.meter = meter
        self.seed = seed
        self.room = 8
        self.cursors = <uint32_t*>meter_take_or_raise(meter, self.room * sizeof(uint32_t))
        store_init(&self.store, meter, sizeof(Group))
        hash_init(&self.index, meter)
        return 0

    def __dealloc__(self):
        cdef uint32_t bucket, number
        for bucket in range(hash_buckets(&self.index)):
            number = self.index.heads[bucket]
            while number:
                free(self.item(number).name)
                number = self.index.links[number].next
        free(self.index.heads)
        free(self.index.links)
        free(self.store.items)
        free(self.cursors)

    cdef uint32_t find(self, const unsigned char* name, uint32_t size) noexcept:
        cdef uint32_t h = hash_bytes(self.seed, name, size)
        cdef uint32_t at = hash_first(&self.index, h)
        cdef Link* links = self.index.links
        cdef Group* group
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                group = self.item(at)
                if group.size == size and memcmp(group.name, name, size) == 0:
                    return at
            at = links[at].next
        return 0

    cdef uint32_t make(self, const unsigned char* name, uint32_t size) noexcept:
        cdef uint32_t number, room
        cdef Group* group
        cdef void* block
        if hash_reserve(&self.index, self.meter, self.store.used) < 0:
            return 0
        number = store_take(&self.store, self.meter)
        if not number:
            return 0
        if number >= self.room:
            room = self.store.capacity
            block = meter_resize(self.meter, self.cursors, <size_t>room * 4)
            if block == NULL:
                store_give(&self.store, number)
                return 0
            self.cursors = <uint32_t*>block
            self.room = room
        block = meter_take(self.meter, size)
        if block == NULL:
            store_give(&self.store, number)
            return 0
        memcpy(block, name, size)
        self.cursors[number] = 0
        group = self.item(number)
        group.name = <unsigned char*>block
        group.size = size
        group.refs = 0
        hash_put(&self.index, self.meter, hash_bytes(self.seed, name, size), number)
        return number

    cdef void hold(self, uint32_t number) noexcept:
        self.item(number).refs += 1

    cdef void release(self, uint32_t number) noexcept:
        cdef Group* group = self.item(number)
        group.refs -= 1
        if group.refs == 0:
            hash_drop(&self.index, self.meter, hash_bytes(self.seed, group.name, group.size), number)
            meter_give(self.meter, group.name)
            store_give(&self.store, number)

    cdef Group* item(self, uint32_t number) noexcept:
        return <Group*>self.store.items + number

    cdef bytes text(self, uint32_t number):
        """The bytes that this number stands for, none for number 0."""
        cdef Group* group = self.item(number)
        return <bytes>(<char*>group.name)[:group.size] if number else b""

    cdef str name(self, uint32_t number):
        """Name of a group, "" of number 0."""
        return self.text(number).decode()
