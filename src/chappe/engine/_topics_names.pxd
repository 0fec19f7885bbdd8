"""What may be a topic, a pattern or a group name: checks for bytes from outside."""

cdef enum:
    MAX_BYTES = 1024
    MAX_LEVELS = 64
    MAX_GROUP_BYTES = 255
    STRING = 115                 # 's'
    INTEGER = 105                # 'i', 4 bytes big-endian
    LONG = 108                   # 'l', 8 bytes big-endian
    ADDRESS = 110                # 'n', UTF-8: a node, or an inbox at it
    ID_DIGITS = 32

# 0 if the key is a topic (or, with pattern, a pattern) of that kind, else a number for `fault_text`.
cdef int topic_fault(const unsigned char* key, Py_ssize_t size, int kind, bint pattern) noexcept nogil
cdef str fault_text(int fault, object shown)
# The bytes of a topic as a person may see them: of an address without the id of an inbox.
cdef bytes shown_key(const unsigned char* key, Py_ssize_t size, int kind)
