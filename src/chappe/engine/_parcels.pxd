"""Parcels: pieces of flows between names, passed on from cell to cell."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from chappe.engine._flows cimport Flow, Flows
from chappe.engine._names cimport NameTable
from chappe.engine._paths cimport Destination, Paths
from chappe.engine._ports cimport Port, Ports

cdef struct Asking:            # of one port: what Python was asked for it
    double left
    int64_t at

cdef class Parcels:
    cdef Ports ports
    cdef Paths paths
    cdef Flows flows
    cdef bint* attention       # of the engine
    cdef object authorize
    cdef object error          # the last one that authorize raised
    cdef NameTable permits     # of ports and destinations
    cdef Asking* asking        # by port
    cdef uint32_t nasking
    cdef list multicast
    cdef uint64_t multicast_bytes
    cdef void parcel_frame(self, int port, Port* p, uint8_t* frame, uint32_t length) noexcept
    cdef void forget_port(self, int port) noexcept
    cdef void forget_permits(self) noexcept
    cdef void be_cell(self, bytes id) except *
    cdef list take_multicast(self)
    cdef list rows(self)
    cdef int _from_client(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept
    cdef int _flow_parcel(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept
    cdef int _forward(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept
    cdef int _return(self, Port* p, uint8_t* frame, uint32_t length, int flags) noexcept
    cdef int _returned(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept
    cdef bint _same(self, Flow* flow, const uint8_t* payload, const uint8_t* names) noexcept
    cdef int _main(self, int port, Port* p, uint8_t* frame, uint32_t length, const uint8_t* names) noexcept
    cdef int _deliver(self, int owner, const uint8_t* payload, uint32_t length, const uint8_t* names) noexcept
    cdef int _pass(self, int to, uint8_t* frame, uint32_t length) noexcept
    cdef int _keep_multicast(self, int port, const uint8_t* payload, uint32_t length) noexcept
    cdef Destination* _destination(self, int port, const uint8_t* name, uint32_t size) noexcept
    cdef bint _permitted(self, int port, const uint8_t* name, uint32_t size) noexcept
    cdef bint _may_ask(self, int port) noexcept
