"""Watched variables: the newest value of each, and streams of all values."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from chappe.client._copies cimport Copies
from chappe.client._waiting cimport Waitable

cdef enum Type:
    FLOAT = 0
    INT = 1
    BOOL = 2
    BYTES = 3

cdef class StatusEvent:
    cdef readonly Watch watch
    cdef readonly int64_t created
    cdef readonly int64_t received
    cdef readonly bint extrapolated   # an estimate of this client, not a value that came
    cdef uint64_t bits
    cdef bytes options

cdef class StatusStream(Waitable):
    cdef readonly list watches
    cdef public object owner
    cdef readonly Py_ssize_t max_queue
    cdef readonly bint blocking
    cdef readonly int64_t dropped
    cdef readonly int64_t unread      # values discarded, oldest first, before anybody iterated
    cdef bint iterated
    cdef bint drop_reported
    cdef bint holding
    cdef bint touched
    cdef Py_ssize_t unnamed           # variables whose name is asked for: nothing is taken until it is known
    cdef Py_ssize_t count
    cdef Py_ssize_t first
    cdef Py_ssize_t room              # a power of two
    cdef int64_t* created
    cdef int64_t* received
    cdef uint64_t* bits
    cdef uint32_t* place              # in `watches`
    cdef PyObject** options           # NULL until a record with option blocks came
    cdef object names
    cdef bytes ids                    # variable number of each watch, made with `names`
    cdef str kind
    cdef bytes codes                  # type of each watch if they are not all the same
    cdef int add(self, Watch watch) except -1
    cdef int offer(self, Watch watch, int64_t created, int64_t received, uint64_t bits, bytes options) except -1
    cdef int enlarge(self) except -1
    cdef StatusEvent pop(self)
    cdef object pop_arrow(self, Py_ssize_t limit)
    cdef void copy_column(self, void* out, void* column, Py_ssize_t width, Py_ssize_t rows) noexcept

cdef class Watch:
    # what every value touches comes first, side by side
    cdef readonly StatusStream stream
    cdef readonly object callback
    cdef Watch sibling                # the next watch of the same variable
    cdef bytes newest_options
    cdef readonly int64_t updates
    cdef int64_t newest_created
    cdef int64_t newest_received
    cdef uint64_t newest_bits
    cdef uint32_t position
    cdef bint has_value
    cdef bint filtered                # another watch of this client wants the variable more often
    cdef int attended                 # CALLED: every value becomes an event; COPIES: it may come by several paths
    cdef int code
    cdef readonly uint32_t variable_id
    cdef readonly str publisher
    cdef readonly str variable
    cdef readonly str type
    cdef public object owner
    cdef readonly object interval_ns
    cdef readonly int64_t rate_num
    cdef readonly int64_t rate_den
    cdef readonly int64_t every
    cdef public bint active
    cdef readonly int64_t duplicates  # values that came again, by another path
    cdef Copies copies                # None where it comes by one path
    cdef StatusEvent event(self, int64_t created, int64_t received, uint64_t bits, bytes options)
    cdef public object quality        # what was asked for and granted, see `chappe.client.watched`
    cdef readonly tuple patterns      # derived values in the last option blocks
    cdef public object decoder        # bytes -> value, of user types
    cdef list taps                    # called with each event before the callback
    cdef readonly bint extrapolated   # the newest value is an estimate
    cdef int64_t estimate_created
    cdef int64_t estimate_received
    cdef uint64_t estimate_bits
    cdef int accept(self, int64_t created, int64_t received, uint64_t bits, bytes options, list pushes) except -1
    cdef object value_of(self, uint64_t bits, bytes options)
    cdef object derived_of(self, bytes options)
    cdef int pushed(self, StatusEvent event) except -1
