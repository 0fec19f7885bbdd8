from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._output cimport Output
from chappe.engine._ports cimport Port
from chappe.engine._topics cimport Route

cdef enum:
    DENIED = 0xFFFFFFFF        # an input alias that a rule refuses
    NO_ROOM = 0xFFFFFFFE       # an input alias whose topic found no number
    COURSE = 0x80000000        # an input alias with a way: the rest is the place of its course
    WINDOW = 4096              # sequences remembered per issuer between nodes
    KEEP = 0                   # verdicts on an extension
    EXPIRED = 1
    MALFORMED = 2

cdef struct Issuer:
    uint32_t last              # highest sequence seen (32 bits)
    bint seen
    uint32_t refs              # client ports, and peers that have a number for it
    uint64_t* window           # a bit for each of the last 4,096; NULL if no peer has defined it
    bint peered                # events of it came from a peer: the window counts

cdef struct Branch:            # a neighbour that gets events of a course
    int port
    uint32_t pair              # number of the (topic, way) pair there

cdef struct Held:              # a run that waits before it enters the mesh; its frames follow
    Held* next
    uint32_t size
    uint32_t count
    uint32_t issuer
    int cls

cdef struct Course:            # where events of a topic go that came by a way, or from clients of this node
    uint32_t topic             # plain number
    uint32_t place             # in the list of courses
    int port                   # where the way came from; -1 for events of clients
    uint8_t* way
    uint32_t way_size
    uint64_t asked             # topics.ways_stamp when the answer was given; 0 = never
    bint local                 # subscribers of this node get them
    bint plain                 # nothing but that: such events are handled as if there were no ways
    bint chosen                # only some queue groups are served here
    uint8_t* allow             # by place in the route's groups, while allow_stamp == topics.stamp
    uint64_t allow_stamp
    uint32_t missing           # branches that cannot be used
    uint32_t denied            # destinations that rules of this node withhold it from
    uint32_t incapable         # destinations that lack a capability, or all ways to which do
    bint back                  # a branch may lead to where the way came from
    bint rest                  # for some of the destinations there is no way now: events are kept for them
    uint32_t nbranches
    Branch* branches
    int64_t hold_until
    Held* first
    Held* last
    uint64_t nheld             # events that wait

cdef struct Run:               # consecutive EVENT frames for the same subscribers
    Course* course             # NULL: the route is all there is
    bint again                 # repeats: passed on along the way, not delivered
    uint8_t* allow             # groups of the route that are served; NULL = all
    Route* route
    uint8_t* start
    uint8_t* end
    uint32_t count
    uint32_t issuer
    uint32_t topic             # of all its frames, or 0 if they differ
    int cls

cdef class Events(Output):
    cdef Issuer* issuers
    cdef uint32_t nissuers
    cdef readonly uint32_t max_issuers
    cdef dict issuer_numbers   # (issuer, epoch) -> number
    cdef dict idle_issuers     # numbers nobody holds, longest idle first
    cdef list spare_issuers
    cdef list swept_issuers
    cdef uint64_t* defined     # by topic number: stamp at which every port of its route knew the number
    cdef uint32_t ndefined
    cdef int64_t recycled_at   # when free numbers were looked for
    cdef uint32_t nholding     # courses with events that wait: their numbers are in no queue yet
    cdef int fault(self, int port, Port* p, str reason) except -1
    cdef int issuer_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef uint32_t issuer_number(self, bytes issuer, uint32_t epoch) except 0
    cdef bint repeated(self, Issuer* issuer, uint32_t sequence, bint peer) noexcept
    cdef int extension_verdict(self, const uint8_t* body, uint32_t size) noexcept
    cdef void send_run(self, int arrival, Port* p, Run* run) noexcept
    cdef void send_group(self, int arrival, Port* p, Run* run) noexcept
    cdef void define_route(self, uint32_t number, Route* route) noexcept
    cdef void release_issuer(self, uint32_t number)
    cdef bint may_recycle(self) noexcept
    cdef int try_recycle(self) except -1
    cdef void find_queued(self, uint64_t* topics, uint64_t* issuers) noexcept
    cdef void forget_course(self, uint32_t topic)
