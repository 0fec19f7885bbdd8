"""Variable number -> the watches of it."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memset

from chappe.client._status cimport Watch

from math import gcd

cdef enum:
    SMALLEST = 64


cdef inline Py_ssize_t home(uint32_t key, Py_ssize_t room) noexcept:
    return (key * <uint32_t> 2654435769) & (room - 1)


cdef class WatchTable:
    """Variable number -> the watches of it, by open addressing: one probe an event, no objects.

    Adding and removing cost the same at any size; the table doubles when it is half full.
    """

    def __cinit__(self):
        self.by_id = {}
        self.resize(SMALLEST)

    def __dealloc__(self):
        PyMem_RawFree(self.watches)
        PyMem_RawFree(self.keys)

    cdef PyObject* find(self, uint32_t key) noexcept:
        return self.watches[self.place(key)]

    cdef Py_ssize_t place(self, uint32_t key) noexcept:
        """Where the key is, or the free place where it would be."""
        cdef Py_ssize_t mask = self.room - 1, at = home(key, self.room)
        while self.watches[at] != NULL and self.keys[at] != key:
            at = (at + 1) & mask
        return at

    cdef int resize(self, Py_ssize_t room) except -1:
        cdef PyObject** watches = <PyObject**> PyMem_RawMalloc(room * sizeof(PyObject*))
        cdef uint32_t* keys = <uint32_t*> PyMem_RawMalloc(room * sizeof(uint32_t))
        if watches == NULL or keys == NULL:
            PyMem_RawFree(watches)
            PyMem_RawFree(keys)
            raise MemoryError(f"no memory for a table of {room} watches")
        PyMem_RawFree(self.watches)
        PyMem_RawFree(self.keys)
        memset(watches, 0, room * sizeof(PyObject*))
        self.watches = watches
        self.keys = keys
        self.room = room
        for key, group in self.by_id.items():
            self.link(group, key)
        return 0

    cdef int link(self, list group, uint32_t key) except -1:
        """Put a group in the table; its watches learn of each other."""
        cdef Watch watch, other = None
        cdef Py_ssize_t at = self.place(key)
        if len(group) == 1:
            watch = <Watch> group[0]
            watch.filtered = False
            watch.sibling = None
        else:
            finest = gcd(*[(<Watch> watch).every for watch in group])  # what the node is asked for
            for watch in reversed(group):
                watch.filtered = watch.every > finest
                watch.sibling = other
                other = watch
        self.keys[at] = key
        self.watches[at] = <PyObject*> group[0]
        self.moves += 1
        return 0

    cdef void vacate(self, uint32_t key) noexcept:
        """Free the place of a key; entries behind it move up, so that no probe ends too early."""
        cdef Py_ssize_t mask = self.room - 1, hole = self.place(key), at = hole
        while True:
            at = (at + 1) & mask
            if self.watches[at] == NULL:
                break
            if ((at - home(self.keys[at], self.room)) & mask) >= ((at - hole) & mask):
                self.keys[hole] = self.keys[at]
                self.watches[hole] = self.watches[at]
                self.moves += 1
                hole = at
        self.watches[hole] = NULL

    def add(self, watches):
        """Deliver to these watches, by the numbers granted to them."""
        cdef Watch watch
        cdef list group
        for watch in watches:
            group = self.by_id.setdefault(watch.variable_id, [])
            group.append(watch)
            if len(group) == 1 and 2 * len(self.by_id) > self.room:
                self.resize(2 * self.room)
            else:
                self.link(group, watch.variable_id)

    def remove(self, watches):
        """Stop delivering; the numbers that nobody here watches any more."""
        cdef Watch watch
        cdef list group
        free = []
        for watch in watches:
            group = self.by_id.get(watch.variable_id, [])
            if watch not in group:
                continue
            group.remove(watch)
            watch.sibling = None
            if group:
                self.link(group, watch.variable_id)
            else:
                self.vacate(watch.variable_id)
                del self.by_id[watch.variable_id]
                free.append(watch.variable_id)
        return free

    def of(self, variable_id):
        """The watches of a variable."""
        return tuple(self.by_id.get(variable_id, ()))

    def clear(self):
        self.by_id = {}
        self.resize(SMALLEST)

    def __len__(self):
        return len(self.by_id)
