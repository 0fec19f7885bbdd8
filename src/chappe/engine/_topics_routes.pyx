"""Routes of topics, interned by content, so that the engine compares pointers to merge runs of messages.

The content of a route with queue groups includes its pair numbers, which makes it one per topic.
"""

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


cdef inline size_t _size(size_t nwords, int ngroups) noexcept nogil:
    return sizeof(Route) + ngroups * sizeof(GroupRef) + nwords * sizeof(uint32_t)


cdef void _point(Route* route) noexcept nogil:
    """Let the parts of a new route point into its words."""
    cdef uint32_t* word = route.words
    cdef GroupRef* group
    cdef int i
    route.n = word[0]
    route.nback = word[1]
    route.ports = word + 2
    route.back = route.ports + route.n
    word = route.back + route.nback
    for i in range(route.ngroups):
        group = route.groups + i
        group.pair = word[0]
        group.group = word[1]
        group.n = word[2]
        group.nback = word[3]
        group.ports = word + 4
        group.back = group.ports + group.n
        word = group.back + group.nback


cdef class Routes:
    """All routes of one table; the table owns the meter, counts the holders and outlives its routes."""

    cdef int open(self, Meter* meter, uint64_t seed) except -1:
        self.meter = meter
        self.seed = seed
        self.words = <uint32_t*>meter_take_or_raise(meter, 16 * sizeof(uint32_t))
        self.room = 16
        store_init(&self.store, meter, sizeof(Route*))
        hash_init(&self.index, meter)
        return 0

    def __dealloc__(self):
        cdef uint32_t bucket, number
        for bucket in range(hash_buckets(&self.index)):
            number = self.index.heads[bucket]
            while number:
                free((<Route**>self.store.items)[number])
                number = self.index.links[number].next
        free(self.index.heads)
        free(self.index.links)
        free(self.store.items)
        free(self.words)

    cdef int reserve(self, size_t room) noexcept:
        cdef void* block
        if room <= self.room:
            return 0
        room += room >> 1
        block = meter_resize(self.meter, self.words, room * sizeof(uint32_t))
        if block == NULL:
            return -1
        self.words = <uint32_t*>block
        self.room = room
        return 0

    cdef Route* find(self, size_t nwords, int ngroups) noexcept:
        cdef size_t size = nwords * sizeof(uint32_t)
        cdef uint32_t h = hash_bytes(self.seed, <unsigned char*>self.words, size)
        cdef uint32_t at = hash_first(&self.index, h)
        cdef Link* links = self.index.links
        cdef Route* route
        cdef uint32_t number
        while at:
            self.meter.steps += 1
            if links[at].hash == h:
                route = (<Route**>self.store.items)[at]
                if route.nwords == nwords and route.ngroups == ngroups and memcmp(route.words, self.words, size) == 0:
                    return route
            at = links[at].next
        if hash_reserve(&self.index, self.meter, self.store.used) < 0:
            return NULL
        number = store_take(&self.store, self.meter)
        if not number:
            return NULL
        route = <Route*>meter_take(self.meter, _size(nwords, ngroups))
        if route == NULL:
            store_give(&self.store, number)
            return NULL
        route.groups = <GroupRef*>(route + 1)
        route.words = <uint32_t*>(route.groups + ngroups)
        route.ngroups = ngroups
        route.nwords = <uint32_t>nwords
        route.refs = 0
        route.hash = h
        route.number = number
        memcpy(route.words, self.words, size)
        _point(route)
        (<Route**>self.store.items)[number] = route
        hash_put(&self.index, self.meter, h, number)
        return route

    cdef void discard(self, Route* route) noexcept:
        hash_drop(&self.index, self.meter, route.hash, route.number)
        store_give(&self.store, route.number)
        meter_give(self.meter, route)
