"""Values that come by several paths: of those with the same creation time only the first counts (GS-054)."""


cdef class Copies:
    """The creation times of the last values of one watch."""

    def __cinit__(self):
        cdef int place
        for place in range(RECENT):
            self.recent[place] = -(<int64_t> 1 << 62)

    cdef bint repeated(self, int64_t created) noexcept:
        """True if this value has come before; else it is remembered."""
        cdef int place
        for place in range(RECENT):
            if self.recent[place] == created:
                return True
        self.recent[self.at] = created
        self.at = (self.at + 1) & (RECENT - 1)
        return False
