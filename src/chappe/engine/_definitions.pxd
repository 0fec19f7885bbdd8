"""Numbers that the other side of a port defines: topics, source routes, issuers; and the topics that rules refuse."""

from libc.stdint cimport uint8_t, uint32_t

from chappe.engine._forwarding cimport Forwarding
from chappe.engine._issuers cimport Issuers
from chappe.engine._ports cimport Port, Ports
from chappe.engine._topics cimport TopicTable

cdef enum:                     # what a topic number of the other side stands for, if it is none of ours
    DENIED = 0xFFFFFFFF        # a topic that a rule refuses
    NO_ROOM = 0xFFFFFFFE       # a topic that found no number
    ROUTED = 0x80000000        # a topic with a source route: the rest is the place of its forwarding entry

cdef class Definitions:
    cdef Ports ports
    cdef TopicTable topics
    cdef Issuers issuers
    cdef Forwarding forwarding
    cdef bint* attention       # of the engine
    cdef object authorize
    cdef dict denied           # port -> its topic number -> (kind, topic) that a rule refuses, so many of each
    cdef dict refusals         # port -> (kind, topic) -> events refused and not yet taken
    cdef int topic_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1
    cdef int route_frame(self, int port, Port* p, const uint8_t* payload, uint32_t size) except -1
    cdef int issuer_frame(self, Port* p, const uint8_t* payload, uint32_t size) except -1
    cdef int refuse(self, int port, Port* p, uint32_t alias, bint by_rule) except -1
    cdef list take_refusals(self, int port, Port* p)
    cdef int forget_port(self, int port, Port* p) except -1

    cdef bint _permitted(self, int port, int kind, const uint8_t* name, uint32_t size) except -1
    cdef int _note_denied(self, int port, Port* p, uint32_t alias, object topic) except -1
    cdef int _settle(self, int port, Port* p, uint32_t alias) except -1
    cdef int _room_for_alias(self, Port* p, uint32_t alias) except -1
    cdef uint32_t _topic_number(self, const uint8_t* name, uint32_t size, int kind, uint32_t account) except 0
    cdef int _drop_alias(self, Port* p, uint32_t alias) except -1
