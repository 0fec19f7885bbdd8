"""Who publishes: numbers of (issuer, epoch), and which of their sequences were seen."""

cimport cython
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from chappe.engine._memory cimport MemoryBudget, memory_give, resize_or_raise

from chappe.errors import ChappeError


cdef bint seen_before(Issuer* issuer, uint32_t sequence, bint peer) noexcept:
    """Whether this sequence was seen before; remembers it."""
    cdef int32_t ahead = <int32_t> (sequence - issuer.last)
    cdef uint32_t i
    cdef bint first = not issuer.seen
    if first:
        issuer.seen = True
        issuer.last = sequence
        ahead = 0
        if not peer and not issuer.peered:
            return False
    elif not issuer.peered and not peer:
        if ahead <= 0:
            return True
        issuer.last = sequence
        return False
    if not issuer.peered:
        issuer.peered = True
        # a client's own port takes sequences in order, so everything before the last one was seen there
        memset(issuer.window, 0 if first else 0xFF, WINDOW // 8)
        if first:
            issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
            return False
    if ahead > 0:
        if ahead >= WINDOW:
            memset(issuer.window, 0, WINDOW // 8)
        else:
            for i in range(issuer.last + 1, issuer.last + <uint32_t> ahead):
                issuer.window[(i % WINDOW) >> 6] &= ~(<uint64_t> 1 << (i & 63))
        issuer.last = sequence
    elif ahead <= -WINDOW:
        return True
    elif (issuer.window[(sequence % WINDOW) >> 6] >> (sequence & 63)) & 1:
        return True
    issuer.window[(sequence % WINDOW) >> 6] |= <uint64_t> 1 << (sequence & 63)
    return False


@cython.final
cdef class Issuers:
    """An issuer that nobody holds is remembered until its number is needed."""

    def __cinit__(self, MemoryBudget memory not None, uint32_t max_issuers):
        self.memory = memory
        self.max_issuers = max_issuers
        self.sessions = [None]
        self.numbers = {}
        self.idle = {}
        self.spare = []
        self.swept = []

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.room):
            free(self.items[i].window)
        free(self.items)

    cdef bint full(self) noexcept:
        return <uint32_t> len(self.numbers) >= self.max_issuers

    cdef bint crowded(self, bytes issuer, uint32_t epoch) except -1:
        """Whether numbers that nobody uses should be looked for before this issuer gets one."""
        return self.full() and (issuer, epoch) not in self.numbers

    cdef uint32_t number(self, bytes issuer, uint32_t epoch) except 0:
        """Number of an issuer on this node, made if it is new; counts one more holder."""
        cdef tuple key = (issuer, epoch)
        cdef object found = self.numbers.get(key)
        cdef uint32_t number, room
        if found is None:
            number = self.spare.pop() if self.spare else <uint32_t> len(self.sessions)
            if number >= 1 << 24:
                raise ChappeError("16 million issuers publish through this node at once; spread them over more nodes")
            if number >= self.room:
                room = max(number + 1, self.room * 2, <uint32_t> 16)
                self.items = <Issuer*> resize_or_raise(&self.memory.memory, self.items, room * sizeof(Issuer))
                memset(self.items + self.room, 0, (room - self.room) * sizeof(Issuer))
                self.room = room
            if number == <uint32_t> len(self.sessions):
                self.sessions.append(key)
            else:
                self.sessions[number] = key
            self.numbers[key] = number
        else:
            number = found
            self.idle.pop(number, None)
        self.items[number].refs += 1
        return number

    cdef int open_window(self, uint32_t number) except -1:
        """Room to remember sequences that come out of order."""
        if self.items[number].window == NULL:
            self.items[number].window = <uint64_t*> resize_or_raise(&self.memory.memory, NULL, WINDOW // 8)
        return 0

    cdef int release(self, uint32_t number) except -1:
        """One holder less."""
        self.items[number].refs -= 1
        if self.items[number].refs == 0:
            self.idle[number] = None
        return 0

    cdef int sweep(self) except -1:
        """Forget the longer idle half, so that a client that comes back soon is still recognised."""
        cdef uint32_t number
        for number in list(self.idle)[:len(self.idle) // 2 + 1]:
            del self.idle[number]
            del self.numbers[self.sessions[number]]
            self.swept.append(number)
        return 0

    cdef list recycle(self, const uint64_t* queued):
        """Free the numbers of forgotten issuers but those whose bits are set."""
        cdef uint32_t number
        cdef list freed = [], waiting = []
        for number in self.swept:
            if (queued[number >> 6] >> (number & 63)) & 1:
                waiting.append(number)
                continue
            memory_give(&self.memory.memory, self.items[number].window)
            memset(&self.items[number], 0, sizeof(Issuer))
            self.sessions[number] = None
            self.spare.append(number)
            freed.append(number)
        self.swept = waiting
        return freed
