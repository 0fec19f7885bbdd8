"""Variable number -> the watches of it."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.string cimport memset

from chappe.client._status cimport Watch


cdef class WatchTable:
    """Variable number -> the watches of it, by open addressing: one probe an event, no objects."""

    def __cinit__(self):
        self.by_id = {}
        self.rebuild()

    def __dealloc__(self):
        PyMem_RawFree(self.watches)
        PyMem_RawFree(self.keys)

    cdef PyObject* find(self, uint32_t key) noexcept:
        cdef Py_ssize_t mask = self.room - 1, at = (key * <uint32_t> 2654435769) & mask
        while self.watches[at] != NULL:
            if self.keys[at] == key:
                return self.watches[at]
            at = (at + 1) & mask
        return NULL

    cdef int rebuild(self) except -1:
        cdef Py_ssize_t room = 64, at
        cdef uint32_t key
        cdef Watch watch, other
        while room < 4 * len(self.by_id):
            room *= 2
        if room != self.room:
            PyMem_RawFree(self.watches)
            PyMem_RawFree(self.keys)
            self.watches = <PyObject**> PyMem_RawMalloc(room * sizeof(PyObject*))
            self.keys = <uint32_t*> PyMem_RawMalloc(room * sizeof(uint32_t))
            if self.watches == NULL or self.keys == NULL:
                raise MemoryError
            self.room = room
        memset(self.watches, 0, room * sizeof(PyObject*))
        for key, group in self.by_id.items():
            finest = min([(<Watch> watch).every for watch in group])
            for index, watch in enumerate(group):
                watch.filtered = watch.every > finest
                other = group[index + 1] if index + 1 < len(group) else None
                watch.sibling = other
            at = (key * <uint32_t> 2654435769) & (room - 1)
            while self.watches[at] != NULL:
                at = (at + 1) & (room - 1)
            self.keys[at] = key
            self.watches[at] = <PyObject*> group[0]
        return 0

    def add(self, watches):
        """Deliver to these watches, by the numbers granted to them."""
        cdef Watch watch
        for watch in watches:
            self.by_id.setdefault(watch.variable_id, []).append(watch)
        self.rebuild()

    def remove(self, watches):
        """Stop delivering; the numbers that nobody here watches any more."""
        cdef Watch watch
        free = []
        for watch in watches:
            group = self.by_id.get(watch.variable_id, [])
            if watch in group:
                group.remove(watch)
                if not group:
                    del self.by_id[watch.variable_id]
                    free.append(watch.variable_id)
        self.rebuild()
        return free

    def clear(self):
        self.by_id = {}
        self.rebuild()

    def __len__(self):
        return len(self.by_id)
