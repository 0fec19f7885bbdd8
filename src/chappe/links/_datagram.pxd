"""Authentic datagrams: sessions with a key, a replay window and the address of the other side."""

from libc.stdint cimport uint32_t, uint64_t

from chappe.engine._stack cimport Stack, iovec
from chappe.links._socket cimport Flusher, Target

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr_storage:
        unsigned short ss_family
    struct msghdr:
        void* msg_name
        unsigned int msg_namelen
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
        int msg_flags

cdef class DatagramSocket

cdef class DatagramSession(Target):
    cdef readonly uint32_t session
    cdef readonly Stack stack
    cdef readonly int port
    cdef DatagramSocket socket
    cdef unsigned char key[16]
    cdef uint64_t direction_out      # top bit of the sequence numbers that this side sends
    cdef uint64_t sent
    cdef uint64_t newest             # highest sequence number accepted
    cdef uint64_t window[32]         # one bit a sequence number, by number modulo 2,048
    cdef sockaddr_storage place
    cdef uint32_t place_size         # 0 until the other side is known
    cdef bint mute                   # a listener of a group: answers nothing, sends nothing
    cdef sockaddr_storage candidate  # where authentic datagrams come from now, not proven yet
    cdef uint32_t candidate_size     # 0: nowhere else
    cdef uint64_t token              # that must come back from there
    cdef long long challenged_at
    cdef readonly unsigned long long paths       # path frames among those accepted
    cdef readonly unsigned long long challenges
    cdef readonly unsigned long long moves
    cdef readonly unsigned long long accepted
    cdef readonly unsigned long long bad_tag
    cdef readonly unsigned long long replayed
    cdef readonly unsigned long long reflected
    cdef readonly unsigned long long bad_frame
    cdef readonly unsigned long long written
    cdef readonly unsigned long long send_errors
    cdef bint fresh(self, uint64_t sequence) noexcept
    cdef void remember(self, uint64_t sequence) noexcept
    cdef int set_peer(self, host, int port) except -1
    cdef int accept(self, unsigned char* data, Py_ssize_t size, sockaddr_storage* source,
                    uint32_t source_size) except -1
    cdef void challenge(self, sockaddr_storage* source, uint32_t source_size) noexcept
    cdef int answered(self, uint64_t token, sockaddr_storage* source, uint32_t source_size) except -1
    cdef void send_path(self, unsigned char kind, uint64_t token, sockaddr_storage* to, uint32_t to_size) noexcept

cdef class DatagramSocket:
    cdef readonly int fd
    cdef Flusher flusher
    cdef dict sessions
    cdef dict ended
    cdef DatagramSession latest
    cdef uint32_t overflow           # the kernel's own count, which wraps
    cdef readonly unsigned long long received
    cdef readonly unsigned long long too_short
    cdef readonly unsigned long long truncated
    cdef readonly unsigned long long unknown_session
    cdef readonly unsigned long long kernel_drops
    cdef readonly unsigned long long send_blocked
    cdef readonly unsigned long long receive_errors
    cdef readonly unsigned long long reads
    cdef readonly unsigned long long writes
    cdef DatagramSession find(self, uint32_t session)
    cdef Py_ssize_t receive(self) except -1
    cdef void note_overflow(self, msghdr* message) noexcept
