"""A byte queue in segments that never move; offsets count bytes since its beginning and never restart."""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc


cdef class SegmentQueue:
    """What is reserved stays contiguous and in place until `release` passes it."""

    def __cinit__(self, Py_ssize_t usual=65536, Py_ssize_t spare_limit=64):
        self.usual = usual
        self.spare_limit = spare_limit

    def __dealloc__(self):
        cdef Segment* segment
        self.clear()
        while self.spare != NULL:
            segment = self.spare
            self.spare = segment.next
            PyMem_RawFree(segment)

    cdef unsigned char* reserve(self, Py_ssize_t size) except NULL:
        """`size` contiguous bytes at the end of the queue."""
        cdef Segment* segment = self.last
        cdef unsigned char* place
        if segment != NULL and segment.capacity - segment.used >= size:
            place = bytes_of(segment) + segment.used
            segment.used += size
            self.head += size
            return place
        return self.grow(size)

    cdef unsigned char* grow(self, Py_ssize_t size) except NULL:
        cdef Segment* segment
        cdef Py_ssize_t capacity
        if size <= self.usual and self.spare != NULL:
            segment = self.spare
            self.spare = segment.next
            self.spare_count -= 1
        else:
            capacity = size if size > self.usual else self.usual
            segment = <Segment*> PyMem_RawMalloc(sizeof(Segment) + capacity)
            if segment == NULL:
                raise MemoryError(f"no memory for a queue segment of {capacity} bytes")
            self.allocations += 1
            segment.capacity = capacity
        segment.next = NULL
        segment.used = size
        segment.start = self.head
        if self.last == NULL:
            self.first = segment
        else:
            self.last.next = segment
        self.last = segment
        self.head += size
        return bytes_of(segment)

    cdef void release(self, int64_t offset) noexcept:
        """Forget the bytes before `offset`; an empty last segment is used again from its beginning."""
        cdef Segment* segment
        self.tail = offset
        while self.first != NULL and self.first.start + self.first.used <= offset:
            segment = self.first
            self.first = segment.next
            if self.first == NULL:
                self.last = NULL
            if segment.capacity == self.usual and self.spare_count < self.spare_limit:
                segment.next = self.spare
                self.spare = segment
                self.spare_count += 1
            else:
                PyMem_RawFree(segment)

    cdef void clear(self) noexcept:
        self.release(self.head)
