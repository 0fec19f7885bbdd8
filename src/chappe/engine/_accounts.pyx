"""Who uses up the tables and queues of an engine: ports of one identity share an account.

An account may hold up to its quota and never more than is left for all others, so that a table which one identity fills
still has half its room, two identities leave a third, and whoever comes new finds some.
"""

from libc.stdlib cimport free
from libc.string cimport memset

from chappe.engine._memory cimport resize_or_raise


cdef class Accounts:
    """Accounts by name; one goes when it has no port and holds nothing. A quota of 0 is no bound."""

    def __cinit__(self, MemoryBudget budget not None, max_topics: int = 0, max_routed_topics: int = 0,
                  max_bytes: int = 0):
        self.budget = budget
        self.numbers = {}
        self.names = [""]
        self.spare = []
        self.used = 1
        self.max_topics = max_topics
        self.max_routed_topics = max_routed_topics
        self.max_bytes = max_bytes

    def __dealloc__(self):
        cdef uint32_t number
        for number in range(1, self.used):
            free(self.items[number])
        free(self.items)

    cdef uint32_t open(self, str name) except? 0:
        cdef uint32_t number, room
        cdef void* block
        if not name:
            return 0
        found = self.numbers.get(name)
        if found is None:
            self.tidy()
            if not self.spare:
                if self.used >= self.room:
                    room = self.room * 2 + 16
                    block = resize_or_raise(&self.budget.memory, self.items, room * sizeof(Account*))
                    self.items = <Account**> block
                    self.room = room
                block = resize_or_raise(&self.budget.memory, NULL, sizeof(Account))
                self.items[self.used] = <Account*> block
                self.names.append("")
                self.spare.append(self.used)
                self.used += 1
            number = self.spare.pop()
            memset(self.items[number], 0, sizeof(Account))
            self.names[number] = name
            self.numbers[name] = number
        else:
            number = found
        self.items[number].ports += 1
        return number

    cdef void close(self, uint32_t number):
        if number:
            self.items[number].ports -= 1

    cdef void tidy(self):
        """Forget accounts without ports that hold nothing any more."""
        cdef uint32_t number
        cdef Account* item
        if self.spare or self.used < self.room:
            return
        for number in range(1, self.used):
            item = self.items[number]
            if (item.ports == item.topics == item.pairs == item.routed_topics == 0 and item.bytes == 0
                    and self.names[number]):
                del self.numbers[self.names[number]]
                self.names[number] = ""
                self.spare.append(number)

    def usage(self):
        """What each account holds, by its name."""
        cdef Account* item
        cdef uint32_t number
        rows = {}
        for name, found in self.numbers.items():
            number = found
            item = self.items[number]
            rows[name] = {
                "ports": item.ports, "topics": item.topics, "pairs": item.pairs, "routed_topics": item.routed_topics,
                "queued_bytes": item.bytes, "refused": item.refused,
            }
        return rows
