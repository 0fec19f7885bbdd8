"""Buffers of a thread: what a socket reads into before it is fed.

Feeding runs Python code (callbacks, the collector), and with it other threads, while the buffer is still being parsed:
so no two threads share one. A thread reads its next buffer only when it has fed the last one. The memory goes when the
thread ends.
"""

cdef extern from *:
    """
    #include <pthread.h>
    #include <stdlib.h>
    static pthread_key_t chappe_scratch_key;
    static int chappe_scratch_open(void) { return pthread_key_create(&chappe_scratch_key, free); }
    static unsigned char* chappe_scratch(size_t size) {
        void* block = pthread_getspecific(chappe_scratch_key);
        if (block == NULL) {
            block = malloc(size);
            if (block != NULL && pthread_setspecific(chappe_scratch_key, block) != 0) {
                free(block);
                block = NULL;
            }
        }
        return (unsigned char*) block;
    }
    """
    # Once a module that includes this file, before the first buffer; 0 if it worked.
    int open_scratch "chappe_scratch_open"() noexcept
    # The buffer of this thread and module, of one size always; NULL without memory.
    unsigned char* scratch_buffer "chappe_scratch"(size_t size) noexcept
