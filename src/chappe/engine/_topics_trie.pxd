"""The subscriptions of a topic table, in a trie of levels."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._memory cimport Meter
from chappe.engine._topics_hash cimport Hash, Store


cdef struct Level:               # text of a level, shared by all nodes that carry it
    unsigned char* text
    uint32_t size
    uint32_t refs


cdef struct Node:
    uint32_t parent
    uint32_t level
    uint32_t children
    uint32_t head                # first subscription that ends here


cdef struct Sub:
    uint32_t node
    uint32_t port
    uint32_t mark                # group * 2 + backpressure
    uint32_t before              # neighbours in the node's list
    uint32_t after
    uint32_t port_before         # neighbours in the port's chain
    uint32_t port_after


cdef struct Chain:               # all subscriptions of one port
    uint32_t port
    uint32_t head
    uint32_t count


cdef enum:
    UNCHANGED = 0
    ADDED = 1
    UPDATED = 2


cdef class Trie:
    cdef Meter* meter            # of the table that owns this trie
    cdef uint64_t seed
    cdef Store levels
    cdef Store nodes
    cdef Store subs
    cdef Store chains
    cdef Hash level_index
    cdef Hash child_index
    cdef Hash sub_index
    cdef Hash port_index
    cdef uint32_t count          # subscriptions
    cdef uint64_t* found         # result of match: group << 33 | port << 1 | backpressure, sorted, with repeats
    cdef uint64_t* spare         # as large as found: the other half of the sort
    cdef uint32_t nfound
    cdef uint32_t room
    cdef unsigned char here[1024]        # the address of this node: nobody else leads there
    cdef Py_ssize_t here_size

    cdef int open(self, Meter* meter, uint64_t seed) except -1
    # ADDED, UPDATED (backpressure changed) or UNCHANGED; -1 without memory, and then nothing changed.
    cdef int add(
        self, uint32_t port, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group, bint back
    ) noexcept
    # Number of a subscription, 0 if there is none.
    cdef uint32_t find(
        self, uint32_t port, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group
    ) noexcept
    cdef void remove(self, uint32_t number) noexcept
    # Subscriptions of a port: number of the chain, 0 if it has none.
    cdef uint32_t chain(self, uint32_t port) noexcept
    # Fill `found` with all that match a published topic; -1 without memory.
    cdef int match(self, const unsigned char* key, Py_ssize_t size, int kind) noexcept
    cdef tuple described(self, uint32_t number)
    # Say which node this is; -1 if the address is too long.
    cdef int place(self, const unsigned char* here, Py_ssize_t size) noexcept

    cdef uint32_t _level(self, const unsigned char* text, uint32_t size) noexcept
    cdef uint32_t _new_level(self, const unsigned char* text, uint32_t size) noexcept
    cdef uint32_t _child(self, uint32_t parent, uint32_t level) noexcept
    cdef uint32_t _new_child(self, uint32_t parent, const unsigned char* text, uint32_t size) noexcept
    cdef uint32_t _walk(self, const unsigned char* key, Py_ssize_t size, int kind, bint create) noexcept
    cdef void _prune(self, uint32_t node) noexcept
    cdef uint32_t _sub(self, uint32_t node, uint32_t port, uint32_t group) noexcept
    cdef int _link(self, uint32_t node, uint32_t port, uint32_t mark) noexcept
    cdef int _collect(self, uint32_t node) noexcept
    cdef int _match_address(self, const unsigned char* key, Py_ssize_t size) noexcept
    cdef int _collect_address(self, const unsigned char* key, Py_ssize_t size) noexcept
    cdef void _sort(self) noexcept
