from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._output cimport Output
from chappe.engine._ports cimport Port
from chappe.engine._topics cimport Route

cdef enum:
    DENIED = 0xFFFFFFFF        # an input alias that a rule refuses
    NO_ROOM = 0xFFFFFFFE       # an input alias whose topic found no number
    KEEP = 0                   # verdicts on an extension
    EXPIRED = 1
    MALFORMED = 2

cdef struct Issuer:
    uint32_t last              # highest sequence seen (32 bits)
    bint seen
    uint32_t refs              # client ports, and peers that have a number for it
    uint64_t* window           # a bit for each of the last 4,096; NULL while only a client's own port feeds it

cdef struct Run:               # consecutive EVENT frames for the same subscribers
    Route* route
    uint8_t* start
    uint8_t* end
    uint32_t count
    uint32_t issuer
    uint32_t topic             # of all its frames, or 0 if they differ
    int cls

cdef class Events(Output):
    cdef object authorize
    cdef Issuer* issuers
    cdef uint32_t nissuers
    cdef readonly uint32_t max_issuers
    cdef dict issuer_numbers   # (session, epoch) -> number
    cdef dict idle_issuers     # numbers nobody holds, longest idle first
    cdef list spare_issuers
    cdef list swept_issuers
    cdef uint64_t* defined     # by topic number: stamp at which every port of its route knew the number
    cdef uint32_t ndefined
    cdef list sweep_marks      # (port, class, position) that must be written before swept numbers are reused
    cdef int fault(self, int port, Port* p, str reason) except -1
    cdef int topic_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef int issuer_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef uint32_t issuer_number(self, bytes session, uint32_t epoch) except 0
    cdef bint repeated(self, Issuer* issuer, uint32_t sequence, bint peer) noexcept
    cdef int extension_verdict(self, const uint8_t* body, uint32_t size) noexcept
    cdef void send_run(self, int arrival, Port* p, Run* run) noexcept
    cdef void send_group(self, int arrival, Port* p, Run* run) noexcept
    cdef void define_route(self, uint32_t number, Route* route) noexcept
    cdef void release_issuer(self, uint32_t number)
    cdef list queue_marks(self)
    cdef void forget_marks(self, int port)
    cdef void try_recycle(self)
