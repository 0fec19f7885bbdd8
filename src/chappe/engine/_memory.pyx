"""The memory of an engine, as Python sees it."""


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
