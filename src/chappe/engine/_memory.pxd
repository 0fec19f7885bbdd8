"""The one place where an engine takes memory: counted, within a budget, and able to fail on purpose in tests.

Every function returns NULL instead of memory when the budget or the machine has none; nothing has changed then. All is
inline, so that a module that cimports this file needs no other module at run time.
"""

from libc.stdlib cimport free, realloc
from libc.string cimport memset

cdef extern from "<malloc.h>" nogil:
    size_t malloc_usable_size(void* block)

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef struct Memory:
    size_t bytes                 # held now, with the allocator's own overhead
    size_t budget                # never held more than this; 0 = no bound
    unsigned long long calls     # of the allocator
    unsigned long long refused   # calls that got nothing
    unsigned long long fails_in  # tests: this call fails, counted from 1; 0 = none

cdef struct Meter:               # of one table, whose memory counts in the whole
    Memory* memory
    unsigned long long steps     # probes, visits and moves: the work that must not grow with the table
    size_t bytes


cdef inline size_t held_by(void* block) noexcept nogil:
    return malloc_usable_size(block) + sizeof(size_t) if block != NULL else 0


cdef inline size_t rounded(size_t size) noexcept nogil:
    """No less than an allocator takes: steps of 16 bytes, with a rest too small to split off; large ones in pages."""
    return (size + 55) & ~<size_t> 15 if size < 65536 else (size + 8191) & ~<size_t> 4095


cdef inline bint memory_grants(Memory* memory, size_t more) noexcept nogil:
    memory.calls += 1
    if memory.fails_in:
        memory.fails_in -= 1
        if memory.fails_in == 0:
            memory.refused += 1
            return False
    if memory.budget and more and memory.bytes + more > memory.budget:
        memory.refused += 1
        return False
    return True


cdef inline void* memory_resize(Memory* memory, void* block, size_t size) noexcept nogil:
    """The block with its content, perhaps elsewhere; NULL: the old one is untouched."""
    cdef size_t before = held_by(block)
    cdef void* moved
    if not memory_grants(memory, rounded(size) - before if size + sizeof(size_t) > before else 0):
        return NULL
    moved = realloc(block, size if size else 1)
    if moved == NULL:
        memory.refused += 1
        return NULL
    memory.bytes += held_by(moved) - before
    return moved


cdef inline void* memory_take(Memory* memory, size_t size) noexcept nogil:
    return memory_resize(memory, NULL, size)


cdef inline void memory_give(Memory* memory, void* block) noexcept nogil:
    if block != NULL:
        memory.calls += 1
        memory.bytes -= held_by(block)
        free(block)


cdef inline void* meter_resize(Meter* meter, void* block, size_t size) noexcept nogil:
    cdef size_t before = held_by(block)
    cdef void* moved = memory_resize(meter.memory, block, size)
    if moved != NULL:
        meter.bytes += held_by(moved) - before
    return moved


cdef inline void* meter_take(Meter* meter, size_t size) noexcept nogil:
    return meter_resize(meter, NULL, size)


cdef inline void* meter_lines(Meter* meter, size_t size) noexcept nogil:
    """A zeroed block that starts on a cache line; the size is a multiple of one."""
    cdef void* block = NULL
    if memory_grants(meter.memory, rounded(size) + 64):
        block = aligned_alloc(64, size)
    if block != NULL:
        memset(block, 0, size)
        meter.memory.bytes += held_by(block)
        meter.bytes += held_by(block)
    return block


cdef inline void meter_give(Meter* meter, void* block) noexcept nogil:
    if block != NULL:
        meter.bytes -= held_by(block)
        memory_give(meter.memory, block)


cdef class MemoryBudget:
    cdef Memory memory


# The one text of a MemoryError, for callers that learned of it from a function that does not raise.
cdef int raise_no_memory(Memory* memory, str wanted) except -1

# As memory_resize, and as meter_take and meter_resize with zeros behind what was there, but MemoryError without memory.
cdef void* resize_or_raise(Memory* memory, void* block, size_t size) except NULL
cdef void* meter_take_or_raise(Meter* meter, size_t size) except NULL
cdef void* meter_resize_or_raise(Meter* meter, void* block, size_t old, size_t new) except NULL
