"""Storage of the status table: pools of fixed-size items, interned contents.

Everything is addressed by small indices (0 means none), so that a million table entries hold four-byte references
instead of pointers.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from chappe.engine._memory cimport meter_give, meter_resize, meter_resize_or_raise, meter_take, meter_take_or_raise
from chappe.engine._topics_hash cimport hash_bytes


cdef void* take(Meter* meter, size_t size) noexcept:
    """A zeroed block, or NULL."""
    cdef void* block = meter_take(meter, size)
    if block != NULL:
        memset(block, 0, size)
    return block


cdef void* resize(Meter* meter, void* block, size_t old, size_t new) noexcept:
    """The block with its content and zeros behind it, or NULL with the old block untouched."""
    cdef void* moved = meter_resize(meter, block, new)
    if moved != NULL and new > old:
        memset(<char*> moved + old, 0, new - old)
    return moved


cdef class Pool:
    """Items of one size at stable addresses; item 0 is never handed out. The owner sets `meter` and sizes first."""

    def __cinit__(self):
        self.used = 1

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n_chunks):
            free(self.chunks[i])
        free(self.chunks)

    cdef uint32_t add(self) except 0:
        """The index of a zeroed item."""
        cdef uint32_t index = self.free_head
        cdef uint32_t room
        cdef void* moved
        if index:
            self.free_head = (<uint32_t*> pool_at(self, index))[0]
            memset(pool_at(self, index), 0, self.item_size)
            return index
        index = self.used
        if index >= self.n_chunks << self.shift:
            if self.n_chunks == self.room_chunks:
                room = self.room_chunks * 2 if self.room_chunks else 8
                moved = meter_resize_or_raise(self.meter, self.chunks, self.room_chunks * sizeof(char*),
                                              room * sizeof(char*))
                self.chunks = <char**> moved
                self.room_chunks = room
            moved = meter_take_or_raise(self.meter, self.item_size << self.shift)
            self.chunks[self.n_chunks] = <char*> moved
            self.n_chunks += 1
        self.used += 1
        return index

    cdef void remove(self, uint32_t index) noexcept:
        (<uint32_t*> pool_at(self, index))[0] = self.free_head
        self.free_head = index


cdef class Interner:
    """Equal contents share one index and are counted; `release` says when nobody refers to a content any more."""

    def __cinit__(self):
        self.used = 1

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(1, self.used):
            free(self.contents[i].bytes)
        free(self.contents)
        free(self.buckets)

    cdef uint32_t find(self, const void* bytes, uint32_t size) noexcept:
        """The index of this content, 0 if nobody interned it; no reference is taken."""
        cdef uint64_t value
        cdef uint32_t place, index
        cdef Content* content
        if self.n_buckets == 0:
            return 0
        value = hash_bytes(self.seed, <const unsigned char*> bytes, size)
        place = value & (self.n_buckets - 1)
        while True:
            index = self.buckets[place]
            if index == 0:
                return 0
            content = &self.contents[index]
            if content.hash == value and content.size == size and memcmp(content.bytes, bytes, size) == 0:
                return index
            place = (place + 1) & (self.n_buckets - 1)

    cdef uint32_t intern(self, const void* bytes, uint32_t size) except 0:
        """The index of this content with one more reference; `refs == 1` afterwards means it is new."""
        cdef uint32_t index = self.find(bytes, size)
        cdef Content* content
        cdef unsigned char* copy
        if index:
            self.contents[index].refs += 1
            return index
        self.reserve()
        copy = <unsigned char*> meter_take_or_raise(self.meter, size)
        memcpy(copy, bytes, size)
        if self.free_head:
            index = self.free_head
            self.free_head = self.contents[index].refs
        else:
            index = self.used
            self.used += 1
        content = &self.contents[index]
        content.bytes = copy
        content.form = NULL
        content.size = size
        content.refs = 1
        content.hash = hash_bytes(self.seed, copy, size)
        self.live += 1
        _place(self.buckets, self.n_buckets, content.hash, index)
        return index

    cdef void retain(self, uint32_t index) noexcept:
        self.contents[index].refs += 1

    cdef bint release(self, uint32_t index) noexcept:
        """Take back one reference; True means it was the last one and the owner has to `discard`."""
        self.contents[index].refs -= 1
        return self.contents[index].refs == 0

    cdef void discard(self, uint32_t index) noexcept:
        cdef uint32_t mask = self.n_buckets - 1
        cdef uint32_t hole = self.contents[index].hash & mask
        cdef uint32_t probe, home
        while self.buckets[hole] != index:
            hole = (hole + 1) & mask
        # Close the gap: later items of the chain move up if their own place is at or before the hole.
        probe = hole
        while True:
            probe = (probe + 1) & mask
            if self.buckets[probe] == 0:
                break
            home = self.contents[self.buckets[probe]].hash & mask
            if ((probe - home) & mask) >= ((probe - hole) & mask):
                self.buckets[hole] = self.buckets[probe]
                hole = probe
        self.buckets[hole] = 0
        meter_give(self.meter, self.contents[index].bytes)
        self.contents[index].bytes = NULL
        self.contents[index].form = NULL
        self.contents[index].refs = self.free_head
        self.free_head = index
        self.live -= 1

    cdef int reserve(self) except -1:
        cdef uint32_t room, i
        cdef void* moved
        if self.free_head == 0 and self.used >= self.room:
            room = self.room * 2 if self.room else 16
            moved = meter_resize_or_raise(self.meter, self.contents, self.room * sizeof(Content),
                                          room * sizeof(Content))
            self.contents = <Content*> moved
            self.room = room
        if (self.live + 1) * 2 > self.n_buckets:
            room = self.n_buckets * 2 if self.n_buckets else 32
            moved = meter_take_or_raise(self.meter, room * sizeof(uint32_t))
            for i in range(1, self.used):
                if self.contents[i].bytes != NULL:
                    _place(<uint32_t*> moved, room, self.contents[i].hash, i)
            meter_give(self.meter, self.buckets)
            self.buckets = <uint32_t*> moved
            self.n_buckets = room
        return 0


cdef void _place(uint32_t* buckets, uint32_t n_buckets, uint64_t value, uint32_t index) noexcept:
    cdef uint32_t place = value & (n_buckets - 1)
    while buckets[place]:
        place = (place + 1) & (n_buckets - 1)
    buckets[place] = index
