"""Delivery of events to the subscribers of this node: a run of frames to every port of a route."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from chappe.engine._ports cimport Port, Ports
from chappe.engine._topics cimport Route, TopicTable

cdef struct Run:               # consecutive EVENT frames for the same subscribers
    Route* route
    uint8_t* start
    uint8_t* end
    uint32_t count
    uint32_t issuer
    uint32_t topic             # of all its frames, or 0 if they differ
    int cls

cdef class Delivery:
    cdef Ports ports
    cdef TopicTable topics
    cdef uint64_t* defined     # by topic number: stamp at which every port of its route knew the number
    cdef uint32_t ndefined
    cdef void define_route(self, uint32_t number, Route* route) noexcept
    cdef void deliver(self, int arrival, Port* p, Run* run) noexcept
    cdef void deliver_to_groups(self, int arrival, Port* p, Run* run, const uint8_t* allowed) noexcept
    cdef void forget_topic(self, uint32_t number) noexcept
