"""Paths of parcels: neighbouring cells, names that are here, and by which cells a destination is reached."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._names cimport NameTable
from chappe.engine._ports cimport Port, Ports
from chappe.engine._windows cimport Window

cdef enum:
    ID_BYTES = 8               # of a cell
    HEAD = 20                  # of a parcel: what is before its hop list
    LONGEST_LIST = 64
    PARCEL_ACK = 4             # flags of a parcel
    PARCEL_MULTICAST = 8
    PARCEL_RETURNED = 16
    PARCEL_ABSENT = 32
    BLOCKED = -1               # draws: all paths are full,
    PATHLESS = -2              # or there is none

cdef struct Path:
    uint8_t* hops              # ids, without that of this cell
    uint32_t nhops             # 0: to a client of this node
    bint listed                # parcel_routes named it; else it is kept for what is in flight
    int port                   # of its first hop, NOBODY
    double base                # share that parcel_routes gave,
    double share               # and as corrected; the sum over listed paths is 1
    Window window
    uint64_t in_flight
    uint64_t sent
    uint64_t acked
    uint64_t lost
    uint64_t acked_lately      # since shares were corrected
    uint64_t returned
    uint32_t silences          # since something was acknowledged
    int64_t excluded_until
    int64_t exclusion_ns       # the last one; 0: none since it worked
    int64_t progress_at        # something was acknowledged, or nothing was in flight and nothing lost
    int64_t sent_at
    bint owing                 # something was lost since something was acknowledged

cdef struct Destination:
    uint32_t number
    uint8_t* name
    uint32_t size
    bint asked                 # the paths are those of parcel_routes
    bint used                  # lately
    uint64_t stamp             # of cells when the ports of its paths were looked up
    Path* paths
    uint32_t npaths
    uint32_t flows             # that begin here,
    uint32_t turn              # the one whose turn it is,
    uint32_t waiting           # and those that wait
    bint saturated             # a path was full since shares were corrected
    int64_t corrected_at
    int64_t progress_at        # something was acknowledged by any path
    int64_t pathless_at        # there has been no path since; 0: there is one

cdef class Paths:
    cdef Ports ports
    cdef bint* attention       # of the engine
    cdef object parcel_routes
    cdef object error          # the last one that parcel_routes raised
    cdef bint cell             # this node is one,
    cdef uint8_t me[8]         # and its id
    cdef NameTable cells       # neighbours
    cdef NameTable owned       # names of clients
    cdef NameTable known       # destinations
    cdef Destination** items   # by number in `known`
    cdef uint32_t room
    cdef uint32_t used         # destinations
    cdef uint32_t hand         # where the search for one that is not used any more goes on
    cdef uint64_t stamp        # changes when a cell moves to another port
    cdef uint64_t random
    cdef list broken
    cdef int port_of_cell(self, const uint8_t* id) noexcept
    cdef int owner(self, const uint8_t* name, uint32_t size) noexcept
    cdef void own(self, bytes name, int port) except *
    cdef void disown(self, bytes name, int port) noexcept
    cdef void place_cell(self, bytes id, int port) except *
    cdef void forget_port(self, int port) noexcept
    cdef Destination* find(self, const uint8_t* name, uint32_t size) noexcept
    cdef Destination* make(self, const uint8_t* name, uint32_t size) noexcept
    cdef void changed(self, bytes name) noexcept
    cdef void placed(self, bytes name) noexcept
    cdef int draw(self, Port* asking, Destination* d, int cls, uint32_t size, bint windowed, int arrival) noexcept
    cdef int path_by(self, Destination* d, const uint8_t* hops, uint32_t nhops) noexcept
    cdef bint exclude(self, Destination* d, Path* path, bint absent) noexcept
    cdef void correct(self, Destination* d) noexcept
    cdef int put(self, int port, int cls, const uint8_t* payload, uint32_t size, const uint8_t* hops, uint32_t nhops,
                 int hops_left) noexcept
    cdef void _ask(self, Port* asking, Destination* d) noexcept
    cdef void _use(self, Destination* d, list routes) noexcept
    cdef Path* _slot(self, Destination* d, const uint8_t* hops, uint32_t nhops) noexcept
    cdef void find_ports(self, Destination* d) noexcept
    cdef Destination* _spare(self) noexcept
    cdef void _release(self, Destination* d) noexcept
    cdef double _uniform(self) noexcept


cdef tuple hops_of(const Path* path)


cdef inline bint parcel_room(Port* p, int cls, uint64_t size) noexcept nogil:
    """Parcels use half of a queue at most."""
    return p.queues[cls].enqueued - p.queues[cls].released + size <= p.limit >> 1
