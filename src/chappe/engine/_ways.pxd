from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._events cimport Branch, Course, Run
from chappe.engine._marks cimport Marks
from chappe.engine._ports cimport Port

cdef class Ways(Marks):
    cdef int questions           # that Python was asked since the last buffer was fed
    cdef object authorize
    cdef object publish_way
    cdef object forward_way
    cdef bint meshed           # publish_way is there
    cdef public object way_error
    cdef Course** courses      # by place, from 1; a course never moves
    cdef uint32_t ncourses
    cdef uint32_t courses_room
    cdef list spare_courses
    cdef uint32_t* published   # by topic number: place of the course of events of clients
    cdef uint32_t npublished
    cdef uint32_t way_mark     # pairs at which numbers that nobody holds are looked for
    cdef dict chosen_groups    # place -> names of the queue groups served here
    cdef dict rests            # place -> way to the destinations that cannot be reached now
    cdef dict denied           # port -> its topic number -> (kind, topic) that a rule refuses, so many of each
    cdef dict refusals         # port -> (kind, topic) -> events refused and not yet taken
    cdef int topic_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef int route_frame(self, int port, Port* p, uint8_t* payload, uint32_t size) except -1
    cdef bint permitted(self, int port, int kind, uint8_t* name, uint32_t size) except -1
    cdef int note_denied(self, int port, Port* p, uint32_t alias, object topic) except -1
    cdef int refuse(self, int port, Port* p, uint32_t alias, bint by_rule) except -1
    cdef int settle(self, int port, Port* p, uint32_t alias) except -1
    cdef int room_for_alias(self, int port, Port* p, uint32_t alias) except -1
    cdef uint32_t topic_number(self, const uint8_t* name, uint32_t size, int kind, uint32_t account) except 0
    cdef void drop_alias(self, Port* p, uint32_t alias)
    cdef Course* new_course(self, uint32_t topic, int port) except NULL
    cdef void free_course(self, Course* course)
    cdef Course* course_of(self, uint32_t topic) except NULL
    cdef int ask(self, Port* p, Course* course) except -1
    cdef int set_branches(self, Port* p, Course* course, list branches) except -1
    cdef uint32_t pair_number(self, const uint8_t* name, uint32_t size, int kind, bytes way) except? 0
    cdef void _drop_branches(self, Branch* branches, uint32_t count) noexcept
    cdef bint usable(self, int port) noexcept
    cdef void send_course(self, int arrival, Port* p, Run* run) noexcept
    cdef void send_branches(self, Course* course, uint8_t* start, uint32_t size, uint32_t count, uint32_t issuer,
                            int cls) noexcept
    cdef bint choose_groups(self, Course* course, Run* run)
    cdef bint keep_back(self, Port* p, Course* course, Run* run) noexcept
    cdef void strand(self, Course* course, uint8_t* start, uint32_t size, uint32_t count) noexcept
    cdef void free_held(self, Course* course) noexcept
