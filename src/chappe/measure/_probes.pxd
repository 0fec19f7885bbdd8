from libc.stdint cimport int64_t

cdef int64_t NEVER


cdef class Probes:
    cdef int64_t _token
    cdef int64_t _late_ns
    cdef dict _open              # token: (row, life of it, sequence, sent_ns, whether it counts as lost)
    cdef list _times             # heap of (when to look at it, token)
    cdef list _life
    cdef list _outcomes          # a bytearray a row
    cdef readonly object sequence    # of the last probe of each row
    cdef readonly object lost        # among the last 100
    cdef int64_t[::1] sequences
    cdef int64_t[::1] losses

    cdef int64_t open(self, Py_ssize_t row, int64_t now_ns, int64_t timeout_ns) except -1
    cdef int64_t sent(self, Py_ssize_t row, int64_t token) except -1
    cdef bint close(self, int64_t token) except -1
    cdef int64_t next(self) except -1
