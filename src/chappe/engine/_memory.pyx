"""The memory of an engine, as Python sees it, and the functions that raise where there is none."""

from libc.string cimport memset


cdef int raise_no_memory(Memory* memory, str wanted) except -1:
    raise MemoryError(f"no memory for {wanted}: {memory.bytes} of {memory.budget or 'any'} bytes are in use; raise "
                      "limits.memory_bytes")


cdef void* resize_or_raise(Memory* memory, void* block, size_t size) except NULL:
    cdef void* moved = memory_resize(memory, block, size)
    if moved == NULL:
        raise_no_memory(memory, f"{size} bytes of the engine")
    return moved


cdef void* meter_take_or_raise(Meter* meter, size_t size) except NULL:
    return meter_resize_or_raise(meter, NULL, 0, size)


cdef void* meter_resize_or_raise(Meter* meter, void* block, size_t old, size_t new) except NULL:
    cdef void* moved = meter_resize(meter, block, new)
    if moved == NULL:
        raise_no_memory(meter.memory, f"{new} bytes of a table")
    if new > old:
        memset(<char*> moved + old, 0, new - old)
    return moved


cdef class MemoryBudget:
    """What an engine and its tables hold, and may hold; 0 bytes: no bound."""

    def __cinit__(self, limit: int = 0):
        if not 0 <= limit < 1 << 62:
            raise ValueError(f"a memory budget of {limit} bytes; give 0 (no bound) or more")
        self.memory.budget = limit

    @property
    def bytes(self) -> int:
        """Held now, with the allocator's own overhead."""
        return self.memory.bytes

    @property
    def limit(self) -> int:
        return self.memory.budget

    @property
    def refused(self) -> int:
        """How often something wanted memory and got none."""
        return self.memory.refused

    @property
    def calls(self) -> int:
        """Calls of the allocator so far."""
        return self.memory.calls

    def fail(self, calls: int) -> None:
        """Let one call of the allocator fail: the next for 1, 0 for none. For tests of what happens then."""
        self.memory.fails_in = calls
