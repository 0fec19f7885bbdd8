"""Accepting connections in one call: who floods a listener costs it little before anything is known of the flood."""

from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, errno
from libc.stdint cimport uint16_t

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct sockaddr:
        unsigned short sa_family
    struct sockaddr_storage:
        unsigned short ss_family
    int accept4(int fd, sockaddr* address, socklen_t* size, int flags)
    int AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_CLOEXEC

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
        unsigned int sin6_scope_id

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* source, char* target, socklen_t size)
    uint16_t ntohs(uint16_t number)

cdef enum:
    TEXT = 64  # bytes of an address as text


def accept_some(int fd, int most):
    """At most so many connections that wait: (descriptor, host, port) of each; those of Unix sockets have no host.

    They are non-blocking. OSError if none could be accepted for another reason than that there is none.
    """
    cdef sockaddr_storage place
    cdef socklen_t size
    cdef char text[TEXT]
    cdef int descriptor
    cdef list found = []
    while len(found) < most:
        size = sizeof(place)
        descriptor = accept4(fd, <sockaddr*> &place, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if descriptor < 0:
            if errno == EINTR or errno == ECONNABORTED:  # that one was gone before it was accepted
                continue
            if errno == EAGAIN or found:
                break
            PyErr_SetFromErrno(OSError)
        found.append((descriptor, *_place(&place, text)))
    return found


cdef tuple _place(sockaddr_storage* place, char* text):
    cdef sockaddr_in* four = <sockaddr_in*> place
    cdef sockaddr_in6* six = <sockaddr_in6*> place
    if place.ss_family == AF_INET and inet_ntop(AF_INET, &four.sin_addr, text, TEXT) != NULL:
        return text.decode("ascii"), ntohs(four.sin_port)
    if place.ss_family == AF_INET6 and inet_ntop(AF_INET6, &six.sin6_addr, text, TEXT) != NULL:
        return text.decode("ascii"), ntohs(six.sin6_port)
    return "", 0
