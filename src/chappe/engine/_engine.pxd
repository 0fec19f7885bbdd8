from libc.stdint cimport uint64_t

from chappe.engine._accounts cimport Accounts
from chappe.engine._acknowledgements cimport Acknowledgements
from chappe.engine._definitions cimport Definitions
from chappe.engine._delivery cimport Delivery
from chappe.engine._forwarding cimport Forwarding
from chappe.engine._input cimport Input
from chappe.engine._issuers cimport Issuers
from chappe.engine._memory cimport MemoryBudget
from chappe.engine._flows cimport Flows
from chappe.engine._parcels cimport Parcels
from chappe.engine._paths cimport Paths
from chappe.engine._ports cimport Ports
from chappe.engine._stack cimport Stack
from chappe.engine._status cimport StatusTable
from chappe.engine._topics cimport TopicTable
from chappe.engine._trains cimport Trains

cdef class Engine(Stack):
    cdef readonly MemoryBudget memory
    cdef readonly Accounts accounts
    cdef readonly StatusTable status
    cdef readonly TopicTable topics
    cdef Issuers issuers
    cdef Ports ports
    cdef Delivery delivery
    cdef Acknowledgements acks
    cdef Forwarding forwarding
    cdef Definitions definitions
    cdef Trains trains
    cdef Paths paths
    cdef Flows flows
    cdef Parcels parcels
    cdef Input input
    cdef dict freeing          # port -> where the slice-wise removal stands
    cdef bint _probe(self, int port, uint64_t token) except -1
    cdef tuple _address(self, uint64_t key)
