from bench._meter cimport Meter

cdef Py_ssize_t scan_chappe(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil
