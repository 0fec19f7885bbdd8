"""Bare relays: what comes in on one socket goes out on another, copied or spliced, and nothing else happens."""

from libc.errno cimport EINTR, errno

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t length, int flags)
    ssize_t send(int fd, const void* buffer, size_t length, int flags)
    enum: MSG_NOSIGNAL

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    """

cdef extern from "fcntl.h" nogil:
    ssize_t splice(int from_fd, void* from_offset, int to_fd, void* to_offset, size_t length, unsigned int flags)
    int fcntl(int fd, int command, ...)
    enum: F_SETPIPE_SZ
    enum: SPLICE_F_MOVE

cdef enum:
    ROOM = 262144
    PIPE_ROOM = 1048576

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


def splice_relay(int inward, int outward, int pipe_out, int pipe_in):
    """Move until either side ends, through a pipe, so that the bytes never leave the kernel; bytes moved."""
    cdef ssize_t got, done, wrote
    cdef unsigned long long total = 0
    with nogil:
        fcntl(pipe_in, F_SETPIPE_SZ, <int> PIPE_ROOM)
        while True:
            got = splice(inward, NULL, pipe_in, NULL, ROOM, SPLICE_F_MOVE)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                break
            done = 0
            while done < got:
                wrote = splice(pipe_out, NULL, outward, NULL, got - done, SPLICE_F_MOVE)
                if wrote < 0 and errno == EINTR:
                    continue
                if wrote <= 0:
                    break
                done += wrote
            if done < got:
                break
            total += got
    return total
