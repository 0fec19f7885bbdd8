"""Names by their bytes: what parcels are looked up by, each with a port that has it."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._memory cimport MemoryBudget, meter_give, meter_resize, meter_take
from chappe.engine._topics_hash cimport (
    fold,
    hash_bytes,
    hash_drop,
    hash_first,
    hash_init,
    hash_put,
    hash_reserve,
    K0,
    store_give,
    store_init,
    store_take,
)


@cython.final
cdef class NameTable:
    """A keyed hash table of texts; nothing in it raises once it is made."""

    def __cinit__(self, MemoryBudget budget not None, seed):
        self.meter.memory = &budget.memory
        self.seed = seed
        hash_init(&self.hash, &self.meter)
        store_init(&self.store, &self.meter, sizeof(Name))

    def __dealloc__(self):
        cdef uint32_t number
        for number in range(1, self.store.used):
            free(name_at(self, number).text)
        free(self.store.items)
        free(self.hash.heads)
        free(self.hash.links)
        free(self.heads)
        free(self.counts)

    cdef uint32_t _hash(self, int key, const uint8_t* text, uint32_t size) noexcept:
        return hash_bytes(self.seed ^ fold(<uint64_t> <uint32_t> key + 1, K0), text, size)

    cdef uint32_t find(self, int key, const uint8_t* text, uint32_t size) noexcept:
        """Its number, or 0."""
        cdef uint32_t h = self._hash(key, text, size)
        cdef uint32_t number = hash_first(&self.hash, h)
        cdef Name* name
        while number:
            name = name_at(self, number)
            if (self.hash.links[number].hash == h and name.size == size and name.key == key
                    and memcmp(name.text, text, size) == 0):
                return number
            number = self.hash.links[number].next
        return 0

    cdef uint32_t add(self, int key, const uint8_t* text, uint32_t size, int port) noexcept:
        """The number of a name that is not there yet, or 0 without memory."""
        cdef uint32_t number
        cdef uint8_t* copy
        cdef Name* name
        if port >= 0 and not self._room_for_port(port):
            return 0
        copy = <uint8_t*> meter_take(&self.meter, size)
        if copy == NULL:
            return 0
        number = store_take(&self.store, &self.meter)
        if number == 0:
            meter_give(&self.meter, copy)
            return 0
        name = name_at(self, number)
        name.text = NULL
        if hash_reserve(&self.hash, &self.meter, number) < 0:
            store_give(&self.store, number)
            meter_give(&self.meter, copy)
            return 0
        memcpy(copy, text, size)
        name.hash = self._hash(key, text, size)
        name.size = size
        name.key = key
        name.port = port
        name.value = 0
        name.text = copy
        hash_put(&self.hash, &self.meter, name.hash, number)
        if port >= 0:
            name.next_of_port = self.heads[port]
            self.heads[port] = number
            self.counts[port] += 1
        return number

    cdef void drop(self, uint32_t number) noexcept:
        cdef Name* name = name_at(self, number)
        cdef uint32_t* place
        if name.port >= 0:
            place = &self.heads[name.port]
            while place[0] != number:
                place = &name_at(self, place[0]).next_of_port
            place[0] = name.next_of_port
            self.counts[name.port] -= 1
        hash_drop(&self.hash, &self.meter, name.hash, number)
        meter_give(&self.meter, name.text)
        name.text = NULL
        store_give(&self.store, number)

    cdef uint32_t count_of(self, int port) noexcept:
        return self.counts[port] if <uint32_t> port < self.nports else 0

    cdef bint _room_for_port(self, int port) noexcept:
        cdef uint32_t room
        cdef void* block
        if <uint32_t> port < self.nports:
            return True
        room = <uint32_t> port + 16
        block = meter_resize(&self.meter, self.heads, room * sizeof(uint32_t))
        if block == NULL:
            return False
        self.heads = <uint32_t*> block
        block = meter_resize(&self.meter, self.counts, room * sizeof(uint32_t))
        if block == NULL:
            return False
        self.counts = <uint32_t*> block
        memset(self.heads + self.nports, 0, (room - self.nports) * sizeof(uint32_t))
        memset(self.counts + self.nports, 0, (room - self.nports) * sizeof(uint32_t))
        self.nports = room
        return True
