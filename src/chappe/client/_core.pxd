"""The protocol of a client, without a socket: frames in, messages out; calls in, frames out."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t

from chappe.client._directory cimport Directory
from chappe.client._sender cimport Sender
from chappe.client._status cimport StatusStream
from chappe.client._watches cimport WatchTable

cdef class ClientCore(Sender):
    cdef readonly WatchTable watches
    cdef readonly WatchTable floods   # variables that came without being watched
    cdef public StatusStream flood   # where their values go, or None
    # callbacks of the owner: all may be None
    cdef public object on_control    # (bytes): a CONTROL payload, in order with the frames around it
    cdef public object on_progress   # (): an echo or a LOSS has changed `flushed`, `room` or `losses`
    cdef public object on_full       # (queue): it has dropped for the first time, or wants the reading to stop
    cdef public object on_unnamed    # (list): watches of flooded variables that have come for the first time
    cdef public object on_failure    # (error): a callback of the user raised
    # this connection
    cdef unsigned char* rest
    cdef Py_ssize_t rest_size
    cdef Py_ssize_t rest_room
    cdef Py_ssize_t max_frame
    cdef int64_t lost_status
    cdef int64_t lost_events
    cdef int64_t refused_by_rule
    cdef int64_t refused_for_room
    cdef Directory directory
    cdef list touched
    cdef list pushes
    cdef bint progress
    cdef list unnamed
    # counters
    cdef readonly int64_t heard_ns
    cdef int64_t in_bytes
    cdef int64_t in_events
    cdef int64_t in_status
    cdef int64_t in_datagrams
    cdef int64_t repeats
    cdef int64_t unwanted
    cdef int64_t lost_status_before
    cdef int64_t lost_events_before
    cdef int64_t refused_before_by_rule
    cdef int64_t refused_before_for_room

    cdef Py_ssize_t needed(self, const unsigned char* data, Py_ssize_t size) except -1
    cdef int unit(self, const unsigned char* data, Py_ssize_t size) except -1
    cdef int parse(self, unsigned char* data, Py_ssize_t size) except -1
    cdef int keep(self, const unsigned char* data, Py_ssize_t size) except -1
    cdef int event(self, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int status(self, const unsigned char* payload, Py_ssize_t size) except -1
    cdef int rare(self, int kind, const unsigned char* payload, Py_ssize_t size) except -1
    cdef PyObject* stranger(self, uint32_t number) except? NULL
    cdef int push(self) except -1
    cdef int finish(self) except -1
