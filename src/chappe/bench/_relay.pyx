"""A bare relay: what comes in on one socket goes out on another, and nothing else happens."""

from libc.errno cimport EINTR, errno

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t length, int flags)
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    enum: MSG_NOSIGNAL

cdef enum:
    ROOM = 262144

cdef char buffer[ROOM]


def relay(int inward, int outward):
    """Copy until either side ends; bytes copied."""
    cdef ssize_t got, done, wrote
    cdef unsigned long long total = 0
    with nogil:
        while True:
            got = recv(inward, buffer, ROOM, 0)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                break
            done = 0
            while done < got:
                wrote = send(outward, buffer + done, got - done, MSG_NOSIGNAL)
                if wrote < 0 and errno == EINTR:
                    continue
                if wrote <= 0:
                    break
                done += wrote
            if done < got:
                break
            total += got
    return total
