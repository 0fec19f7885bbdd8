"""Forwarding sets: output ports with their minimal intervals, and the port list each round selects."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._memory cimport Meter
from chappe.engine._store cimport Interner

cdef struct PortList:
    int n                       # ports that get the record
    int nfail                   # ports that are in the set but whose filter says no
    uint32_t* items             # n + nfail items: (port << 2) | class

cdef struct Rate:
    int64_t num                 # events per nanosecond, num / den in lowest terms; 0 / 1 = an alert variable
    int64_t den

cdef struct Want:
    uint32_t port
    uint32_t interval           # whole periods
    uint32_t urgency            # class, 0 = alert

cdef struct Form:
    uint32_t n_ports
    uint32_t generation
    bint always                 # all intervals are 1: no round is needed
    uint32_t* items             # these three point into the interned content
    uint32_t* starts
    uint32_t* intervals
    PortList* whole             # every port passes
    PortList* latest            # close: what was selected last
    uint32_t n_steps            # sparse: distinct intervals, 0 = evaluate closely
    uint32_t n_families
    size_t block_size
    uint64_t* masks             # sparse: per port the steps that make it pass; start of the block
    uint32_t* steps             # sparse: per family its smallest interval, then quotients by it
    uint32_t* families          # sparse: where each family starts in steps
    uint32_t n_memo, room_memo
    uint64_t* patterns          # sparse memo: satisfied steps -> list
    PortList** lists

cdef class ForwardingSets:
    cdef Meter* meter
    cdef bint sparse
    cdef Interner sets, lists
    cdef uint32_t generation
    cdef uint32_t* build        # content under construction
    cdef uint32_t build_room
    cdef uint32_t* scratch      # n, nfail, items
    cdef uint32_t* fails
    cdef uint32_t room, widest, scoped
    cdef size_t list_bytes
    cdef PortList* last
    cdef PortList ring[8]
    cdef int ring_at
    cdef bint passing           # the last settled list lives in the ring
    cdef int64_t round_created, round_value
    cdef uint32_t round_rate

    cdef int start(self, Meter* meter, bint sparse, uint64_t seed) except -1
    cdef uint32_t intern(self, Want* wants, uint32_t n) except? 0
    cdef void release(self, uint32_t index) noexcept
    cdef int changing(self) except -1
    cdef int scope(self, uint32_t n_ports) except -1
    cdef bint timeless(self, uint32_t index) noexcept
    cdef PortList* choose(self, uint32_t index, uint32_t rate_id, const Rate* rate, int64_t created) noexcept
    cdef PortList* whole(self, uint32_t index) noexcept
    cdef PortList* flood(self, const PortList* normal, const uint32_t* ports, uint32_t n, const uint8_t* levels,
                         uint32_t n_levels, int level) noexcept

    cdef int _reserve(self, uint32_t widest, uint32_t scoped) except -1
    cdef int _derive(self, uint32_t index) except -1
    cdef int _derive_sparse(self, Form* form) except -1
    cdef void _free_form(self, Form* form) noexcept
    cdef void _refresh(self, Form* form) noexcept
    cdef uint64_t _round(self, uint32_t rate_id, const Rate* rate, int64_t created) noexcept
    cdef PortList* _close(self, Form* form, uint64_t round_number) noexcept
    cdef PortList* _sparse(self, Form* form, uint64_t round_number) noexcept
    cdef void _remember(self, Form* form, uint64_t pattern, PortList* found) noexcept
    cdef PortList* _settle(self, uint32_t n, uint32_t nfail) noexcept
    cdef bint _holds(self, const PortList* found, uint32_t n, uint32_t nfail) noexcept
    cdef PortList* _keep(self, uint32_t n, uint32_t nfail) noexcept
