from bench._meter cimport Meter

cdef Py_ssize_t scan_nats(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil
