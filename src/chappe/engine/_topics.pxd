"""The topic table: numbers for topics, and for each number the ports that get its messages."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from chappe.engine._accounts cimport Accounts
from chappe.engine._memory cimport MemoryBudget, Meter
from chappe.engine._topics_groups cimport Groups
from chappe.engine._topics_hash cimport Hash
from chappe.engine._topics_routes cimport GroupRef, Route, Routes
from chappe.engine._topics_trie cimport Trie


cdef enum:
    ROUTED_TOPIC = 0x80000000    # in Topic.group: the rest is the number of a source route, not of a group


cdef struct Topic:
    Route* route                 # valid only while stamp == table.stamp
    uint64_t stamp
    uint32_t refs                # input aliases, routes (of a pair) and other holders of this number
    uint32_t group               # 0, or of a pair the number of its group, or ROUTED_TOPIC and that of its source route
    unsigned char* name
    uint32_t link                # next in the list of free or of quarantined numbers
    uint32_t account             # who made it, 0 = nobody
    uint16_t length
    uint8_t kind                 # 's', 'i', 'l' or 'n'
    uint8_t state


cdef class TopicTable:
    cdef Topic* topics           # by number, from 1; may move when intern or resolve makes a number
    cdef public uint64_t stamp   # changes with every change of subscriptions
    cdef public uint64_t forwarding_stamp  # changes when routes must be asked for again
    cdef uint32_t* cursors       # by group number
    cdef MemoryBudget budget
    cdef Accounts accounts       # whose quotas hold; None: no account is charged
    cdef uint32_t charging       # account of the numbers that are made now
    cdef public unsigned long long overflows     # groups left out of a route because no number was free
    cdef readonly uint32_t max_topics
    cdef readonly uint32_t max_routed_topics

    # Recompute and remember the route of a number; NULL without memory. Valid until the next resolve or change.
    cdef Route* resolve(self, uint32_t number) noexcept
    # Number of a topic, made if needed for `charging`, its refs unchanged; 0 if there is no room for it.
    cdef uint32_t intern(self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group) noexcept
    # Number of a (topic, source route) pair, as above.
    cdef uint32_t intern_routed(self, const unsigned char* key, Py_ssize_t size, int kind, bytes source_route) noexcept

    cdef Meter meter
    cdef uint64_t seed
    cdef uint32_t capacity       # of topics
    cdef uint32_t used           # highest number ever given, plus one
    cdef uint32_t spare          # first free number
    cdef uint32_t swept          # the number that sweep looked at last
    cdef uint32_t quarantine     # first quarantined number
    cdef uint32_t released       # holds undone since the last sweep: how much one could find
    cdef uint32_t plain          # numbers of topics in use, quarantined ones included
    cdef uint32_t pairs          # numbers of (topic, group) pairs in use, quarantined ones included
    cdef readonly uint32_t routed_topics  # numbers of (topic, source route) pairs in use, quarantined too
    cdef Hash topic_index
    cdef Trie trie               # the subscriptions
    cdef Routes routes
    cdef Route* empty            # the route of a topic nobody wants
    cdef Groups group_table
    cdef Groups route_table      # source routes are kept as groups are: texts with numbers that pairs hold
    cdef unsigned long long overflows_seen

    # Free quarantined numbers but those whose bits are set; NULL: all.
    cdef list recycle_unless(self, const uint64_t* queued)
    cdef uint32_t _new_topic(
        self, const unsigned char* key, Py_ssize_t size, int kind, uint32_t group, uint32_t h
    ) noexcept
    cdef size_t _layout(self, uint32_t number, int* ngroups) noexcept
    cdef void _drop_route(self, Route* route, bint quarantine) noexcept
    cdef void _quarantine(self, uint32_t number) noexcept
    cdef void _remove(self, uint32_t sub) noexcept
    cdef int _check(self, uint32_t number) except -1
    cdef bint _admitted(self, uint32_t group) noexcept
    cdef void _charge(self, Topic* topic, int amount) noexcept
