from bench._meter cimport Meter

cdef Py_ssize_t scan_mqtt(Meter* meter, const char* bytes, Py_ssize_t length) noexcept nogil
