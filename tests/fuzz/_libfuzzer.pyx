"""libFuzzer driving a Python callable, with the coverage of every module built by clang beside this one."""

from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    int LLVMFuzzerRunDriver(int *argc, char ***argv, int (*callback)(const uint8_t *data, size_t size));
    """
    int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*callback)(const uint8_t*, size_t) noexcept) nogil

cdef object target = None


cdef int once(const uint8_t* data, size_t size) noexcept:
    try:
        target((<const char*> data)[:size])
    except BaseException:
        import os
        import traceback

        traceback.print_exc()
        os.abort()
    return 0


def run(list arguments, function):
    """Run libFuzzer with its own command line; it ends the process."""
    global target
    cdef char* values[32]
    cdef char** pointer = values
    cdef int count = 0
    target = function
    for argument in arguments[:31]:
        values[count] = argument
        count += 1
    values[count] = NULL
    return LLVMFuzzerRunDriver(&count, &pointer, once)
