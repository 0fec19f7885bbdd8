"""What the numbers of this connection stand for, and which subscriptions want them."""

from libc.stdint cimport uint32_t

from chappe.client._inbox cimport IssuerEntry, TopicEntry

cdef class Slot:
    cdef TopicEntry entry
    cdef list subscriptions
    cdef Py_ssize_t generation
    cdef Py_ssize_t turn

cdef class Directory:
    cdef list slots
    cdef list issuers
    cdef dict exact                  # (kind, text, group) -> [Subscription]
    cdef list wild
    cdef Py_ssize_t generation       # of the subscriptions: slots matched under an older one are matched again
    cdef dict issuer_entries         # (issuer, epoch) -> IssuerEntry, over reconnections
    cdef IssuerEntry nobody
    cdef Slot slot(self, uint32_t number)
    cdef IssuerEntry issuer(self, uint32_t number)
    cdef int match(self, Slot slot) except -1
    cdef int define_topic(self, bytes payload) except -1
    cdef int define_issuer(self, bytes payload) except -1
