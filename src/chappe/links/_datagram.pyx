"""Datagrams in batches of 64 between a UDP socket and the stacks whose sessions it carries (NS-009, GS-161).

Layout of a datagram: session u32, sequence u64, one frame, tag 16. The side that did not open the session sets the top
bit of its sequence numbers: no number is ever used twice under one key, and a datagram sent back to its sender
is recognised.
"""

from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport timespec

from chappe.engine._stack cimport Stack, iovec
from chappe.links._scratch cimport open_scratch, scratch_buffer
from chappe.links._siphash cimport chappe_siphash128
from chappe.links._socket cimport Flusher, Target, set_clocks

from chappe.errors import ProtocolError

cdef extern from "<sys/socket.h>" nogil:
    struct mmsghdr:
        msghdr msg_hdr
        unsigned int msg_len
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* item)
    unsigned char* CMSG_DATA(cmsghdr* item)
    int recvmmsg(int fd, mmsghdr* messages, unsigned int limit, int flags, timespec* timeout)
    int sendmmsg(int fd, mmsghdr* messages, unsigned int count, int flags)
    struct sockaddr:
        pass
    Py_ssize_t sendto(int fd, const void* data, size_t size, int flags, const sockaddr* to, unsigned int to_size)
    int MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, SOL_SOCKET, SO_RXQ_OVFL, AF_INET, AF_INET6

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        unsigned short sin_family
        unsigned short sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        unsigned short sin6_family
        unsigned short sin6_port
        in6_addr sin6_addr
        unsigned int sin6_scope_id
    unsigned short htons(unsigned short value)
    unsigned short ntohs(unsigned short value)

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* out)
    const char* inet_ntop(int family, const void* address, char* out, unsigned int size)

cdef enum:
    BATCH = 64
    SLOT = 65536            # no datagram is longer, so none is cut
    HEAD = 12
    TAG = 16
    SHORTEST = HEAD + 4 + TAG
    LONGEST_FRAME = 65507 - HEAD - TAG
    OUT = 262144
    CONTROL_ROOM = 64
    READ_BUDGET = 262144
    WRITE_BATCHES = 16
    WINDOW = 1024
    CHALLENGE = 0x44        # a path frame: 8 bytes that
    RESPONSE = 0x54         # must come back from the same address before anything is sent there
    PATH_SIZE = HEAD + 4 + 8 + TAG
    CHALLENGE_NS = 50000000
    RING = 2048             # bits kept, a multiple of 64 above the window, so that whole words can be cleared

cdef uint64_t TOP_BIT = <uint64_t> 1 << 63

cdef struct Scratch:        # of a thread
    sockaddr_storage sources[BATCH]
    unsigned char controls[BATCH * CONTROL_ROOM]
    unsigned char out[OUT]
    unsigned char slots[BATCH * SLOT]

if open_scratch() != 0:
    raise MemoryError("no key for the datagram buffers of threads")


cdef Scratch* scratch_of_thread() except NULL:
    cdef Scratch* scratch = <Scratch*> scratch_buffer(sizeof(Scratch))
    if scratch == NULL:
        raise MemoryError("no memory for the datagram buffers of this thread")
    return scratch


cdef inline uint64_t load_be(const unsigned char* p, int size) noexcept:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | p[i]
    return value


cdef inline void store_be(unsigned char* p, uint64_t value, int size) noexcept:
    cdef int i
    for i in range(size):
        p[i] = <unsigned char> (value >> (8 * (size - 1 - i)))


def siphash128(bytes key not None, bytes data not None):
    """SipHash-2-4-128 of `data`; the key has 16 bytes."""
    cdef unsigned char tag[TAG]
    if len(key) != 16:
        raise ValueError(f"a key has 16 bytes, not {len(key)}")
    chappe_siphash128(key, data, len(data), tag)
    return tag[:TAG]


cdef class DatagramSession(Target):
    """One key, one port and one address behind a DatagramSocket; made by its `bind`."""

    cdef bint fresh(self, uint64_t sequence) noexcept:
        if sequence == 0:
            return False
        if sequence > self.newest:
            return True
        if self.newest - sequence >= WINDOW:
            return False
        return not (self.window[(sequence % RING) >> 6] >> (sequence & 63)) & 1

    cdef void remember(self, uint64_t sequence) noexcept:
        cdef uint64_t word, last
        if sequence > self.newest:
            last = sequence >> 6
            word = self.newest >> 6
            if last - word >= RING // 64:
                memset(self.window, 0, sizeof(self.window))
            else:
                while word < last:
                    word += 1
                    self.window[word % (RING // 64)] = 0
            self.newest = sequence
        self.window[(sequence % RING) >> 6] |= <uint64_t> 1 << (sequence & 63)

    cdef int accept(self, unsigned char* data, Py_ssize_t size, sockaddr_storage* source,
                    uint32_t source_size) except -1:
        cdef unsigned char tag[TAG]
        cdef unsigned char difference = 0
        cdef uint64_t sequence = load_be(data + 4, 8)
        cdef bint elsewhere, newest
        cdef int i
        chappe_siphash128(self.key, data, size - TAG, tag)
        for i in range(TAG):
            difference |= tag[i] ^ data[size - TAG + i]
        if difference:
            self.bad_tag += 1
            return 0
        if sequence & TOP_BIT == self.direction_out:
            self.reflected += 1
            return 0
        sequence &= ~TOP_BIT
        if not self.fresh(sequence):
            self.replayed += 1
            return 0
        elsewhere = self.place_size != source_size or memcmp(&self.place, source, source_size) != 0
        newest = sequence > self.newest
        self.remember(sequence)
        self.accepted += 1
        if size == PATH_SIZE and data[HEAD] in (CHALLENGE, RESPONSE):
            self.paths += 1
            if data[HEAD] == RESPONSE:
                return self.answered(load_be(data + HEAD + 4, 8), source, source_size)
            if not self.mute:
                self.send_path(RESPONSE, load_be(data + HEAD + 4, 8), source, source_size)
            return 1
        if newest and elsewhere:
            # Only the newest one may mean a move: a late one may come from where the peer was before.
            self.challenge(source, source_size)
        try:
            self.stack.feed_datagram_bytes(self.port, data + HEAD, size - HEAD - TAG)
        except ProtocolError:
            self.bad_frame += 1
        return 1

    cdef void challenge(self, sockaddr_storage* source, uint32_t source_size) noexcept:
        """Authentic datagrams come from elsewhere, as those do that somebody copied: ask there for an answer."""
        cdef unsigned char seed[136]  # an address of any family, and a count
        cdef unsigned char tag[TAG]
        cdef bint known = self.candidate_size == source_size and memcmp(&self.candidate, source, source_size) == 0
        if self.mute or self.socket is None:
            return
        if self.candidate_size and self.stack.clocks.mono_ns - self.challenged_at < CHALLENGE_NS:
            return  # one small datagram in a while: nobody is flooded by way of us
        if not known:
            memcpy(&self.candidate, source, source_size)
            self.candidate_size = source_size
            memset(seed, 0, sizeof(seed))
            memcpy(seed, source, source_size)
            store_be(seed + 128, self.sent + 1, 8)
            chappe_siphash128(self.key, seed, sizeof(seed), tag)
            self.token = load_be(tag, 8)
        self.challenged_at = self.stack.clocks.mono_ns
        self.challenges += 1
        self.send_path(CHALLENGE, self.token, source, source_size)

    cdef int answered(self, uint64_t token, sockaddr_storage* source, uint32_t source_size) except -1:
        """The other side is where it says: send there from now on."""
        if (
            token != self.token or self.candidate_size == 0 or self.candidate_size != source_size
            or memcmp(&self.candidate, source, source_size) != 0
        ):
            return 1
        memcpy(&self.place, source, source_size)
        self.place_size = source_size
        self.candidate_size = 0
        self.moves += 1
        if self.socket is not None and self.socket.flusher is not None:
            self.socket.flusher.wake(self.port)  # what was queued before the address was known
        return 1

    cdef void send_path(self, unsigned char kind, uint64_t token, sockaddr_storage* to, uint32_t to_size) noexcept:
        cdef unsigned char data[PATH_SIZE]
        if self.socket is None:
            return
        self.sent += 1
        store_be(data, self.session, 4)
        store_be(data + 4, self.sent | self.direction_out, 8)
        data[HEAD] = kind
        store_be(data + HEAD + 1, 8, 3)
        store_be(data + HEAD + 4, token, 8)
        chappe_siphash128(self.key, data, PATH_SIZE - TAG, data + PATH_SIZE - TAG)
        if sendto(self.socket.fd, data, PATH_SIZE, MSG_DONTWAIT | MSG_NOSIGNAL, <const sockaddr*> to, to_size) < 0:
            self.send_errors += 1

    cdef int drain(self) except -1:
        cdef iovec frames[BATCH]
        cdef iovec vectors[BATCH]
        cdef mmsghdr messages[BATCH]
        cdef int origin[BATCH]
        cdef int _batch, found, i, built, place, done
        cdef size_t used, size
        cdef unsigned char* at
        cdef unsigned char* out = scratch_of_thread().out
        self.blocked = False
        if self.socket is None or self.place_size == 0:
            return 1  # waits, within the bounds of its queue, until the other side has been heard
        for _batch in range(WRITE_BATCHES):
            found = self.stack.gather_datagrams(self.port, frames, BATCH)
            if found <= 0:
                return 1
            built = 0
            used = 0
            i = 0
            while i < found:
                size = frames[i].iov_len
                if size > LONGEST_FRAME:
                    self.send_errors += 1
                    i += 1
                    continue
                if used + size + HEAD + TAG > OUT:
                    break
                at = out + used
                self.sent += 1
                store_be(at, self.session, 4)
                store_be(at + 4, self.sent | self.direction_out, 8)
                memcpy(at + HEAD, frames[i].iov_base, size)
                chappe_siphash128(self.key, at, HEAD + size, at + HEAD + size)
                vectors[built].iov_base = at
                vectors[built].iov_len = HEAD + size + TAG
                memset(&messages[built], 0, sizeof(mmsghdr))
                messages[built].msg_hdr.msg_name = &self.place
                messages[built].msg_hdr.msg_namelen = self.place_size
                messages[built].msg_hdr.msg_iov = &vectors[built]
                messages[built].msg_hdr.msg_iovlen = 1
                origin[built] = i
                used += HEAD + size + TAG
                built += 1
                i += 1
            place = 0
            while place < built:
                done = sendmmsg(self.socket.fd, messages + place, built - place, MSG_DONTWAIT | MSG_NOSIGNAL)
                self.socket.writes += 1
                if done > 0:
                    place += done
                    self.written += done
                elif errno == EINTR:
                    continue
                elif errno == EAGAIN:
                    self.socket.send_blocked += 1
                    self.stack.datagrams_written(self.port, origin[place])
                    self.blocked = True
                    return 0
                else:
                    self.send_errors += 1  # this datagram alone: too long for the path, or no route
                    place += 1
            self.stack.datagrams_written(self.port, i)
        self.blocked = True
        return 0

    def writable(self):
        """Send what the port has queued; True if nothing is left."""
        return self.drain() == 1

    def carry(self, int port):
        """Carry another port of the same stack from now on, in both directions."""
        self.port = port

    @property
    def newest_accepted(self):
        """The highest sequence number of the other side that was accepted."""
        return self.newest

    @property
    def last_sent(self):
        """The sequence number of the last datagram that was sent."""
        return self.sent

    @property
    def peer(self):
        """(host, port) of the other side, or None until an authentic datagram or `bind` named it."""
        cdef char text[64]
        if self.place_size == 0:
            return None
        if self.place.ss_family == AF_INET:
            inet_ntop(AF_INET, &(<sockaddr_in*> &self.place).sin_addr, text, sizeof(text))
            return text.decode(), ntohs((<sockaddr_in*> &self.place).sin_port)
        inet_ntop(AF_INET6, &(<sockaddr_in6*> &self.place).sin6_addr, text, sizeof(text))
        return text.decode(), ntohs((<sockaddr_in6*> &self.place).sin6_port)

    cdef int set_peer(self, host, int port) except -1:
        cdef bytes text = host.encode()
        memset(&self.place, 0, sizeof(self.place))
        if inet_pton(AF_INET, text, &(<sockaddr_in*> &self.place).sin_addr) == 1:
            self.place.ss_family = AF_INET
            (<sockaddr_in*> &self.place).sin_port = htons(port)
            self.place_size = sizeof(sockaddr_in)
        elif inet_pton(AF_INET6, text, &(<sockaddr_in6*> &self.place).sin6_addr) == 1:
            self.place.ss_family = AF_INET6
            (<sockaddr_in6*> &self.place).sin6_port = htons(port)
            self.place_size = sizeof(sockaddr_in6)
        else:
            raise ValueError(f"peer {host!r} is not an IP address; resolve the name first")
        return 0

    def counters(self):
        """What happened to the datagrams of this session so far."""
        return {
            "accepted": self.accepted,
            "bad_tag": self.bad_tag,
            "replayed": self.replayed,
            "reflected": self.reflected,
            "bad_frame": self.bad_frame,
            "paths": self.paths,
            "challenges": self.challenges,
            "moves": self.moves,
            "written": self.written,
            "send_errors": self.send_errors,
        }


cdef class DatagramSocket:
    """A non-blocking UDP socket that carries any number of sessions; it does not own the descriptor."""

    def __init__(self, int fd, Flusher flusher=None):
        self.fd = fd
        self.flusher = flusher
        self.sessions = {}
        self.ended = {}

    def bind(self, uint32_t session, Stack stack not None, int port, bytes key not None, *, bint opener, peer=None,
             bint mute=False):
        """Carry `port` as that session under a key of 16 bytes.

        Exactly one of the two sides is the opener. Without `peer` the address is learned: where an authentic datagram
        comes from is asked for an answer, and sent to once that has come; so are addresses that it moves to later.
        `mute`: nothing is ever sent. Sessions that exist are refused: unbind them first, and never bind a key twice.
        """
        if len(key) != 16:
            raise ValueError(f"the key of session {session} has {len(key)} bytes, not 16")
        if session in self.sessions:
            raise ValueError(f"session {session} is bound already")
        cdef DatagramSession bound = DatagramSession.__new__(DatagramSession)
        bound.session = session
        bound.stack = stack
        bound.port = port
        bound.socket = self
        memcpy(bound.key, <const unsigned char*> key, 16)
        bound.direction_out = 0 if opener else TOP_BIT
        bound.mute = mute
        if peer is not None:
            bound.set_peer(peer[0], peer[1])
        self.sessions[session] = bound
        return bound

    def unbind(self, uint32_t session):
        """Datagrams of that session are unknown from now on; its counts stay in the totals."""
        cdef DatagramSession bound = self.sessions.pop(session, None)
        self.latest = None
        if bound is not None:
            bound.socket = None
            for name, count in bound.counters().items():
                self.ended[name] = self.ended.get(name, 0) + count

    cdef DatagramSession find(self, uint32_t session):
        if self.latest is None or self.latest.session != session:
            self.latest = self.sessions.get(session)
        return self.latest

    cdef Py_ssize_t receive(self) except -1:
        cdef mmsghdr messages[BATCH]
        cdef iovec vectors[BATCH]
        cdef int i, count
        cdef Py_ssize_t total = 0
        cdef DatagramSession session
        cdef Scratch* scratch = scratch_of_thread()
        while total < READ_BUDGET:
            for i in range(BATCH):
                vectors[i].iov_base = scratch.slots + <size_t> i * SLOT
                vectors[i].iov_len = SLOT
                messages[i].msg_hdr.msg_name = &scratch.sources[i]
                messages[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage)
                messages[i].msg_hdr.msg_iov = &vectors[i]
                messages[i].msg_hdr.msg_iovlen = 1
                messages[i].msg_hdr.msg_control = scratch.controls + i * CONTROL_ROOM
                messages[i].msg_hdr.msg_controllen = CONTROL_ROOM
                messages[i].msg_hdr.msg_flags = 0
            count = recvmmsg(self.fd, messages, BATCH, MSG_DONTWAIT, NULL)
            self.reads += 1
            if count < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    break
                self.receive_errors += 1
                PyErr_SetFromErrno(OSError)
                return -1
            for i in range(count):
                total += messages[i].msg_len
                self.received += 1
                self.note_overflow(&messages[i].msg_hdr)
                if messages[i].msg_hdr.msg_flags & MSG_TRUNC:
                    self.truncated += 1
                    continue
                if messages[i].msg_len < SHORTEST:
                    self.too_short += 1
                    continue
                session = self.find(<uint32_t> load_be(scratch.slots + <size_t> i * SLOT, 4))
                if session is None:
                    self.unknown_session += 1
                    continue
                set_clocks(session.stack)
                session.accept(
                    scratch.slots + <size_t> i * SLOT, messages[i].msg_len, &scratch.sources[i],
                    messages[i].msg_hdr.msg_namelen
                )
            if count < BATCH:
                break
        return total

    cdef void note_overflow(self, msghdr* message) noexcept:
        cdef cmsghdr* item = CMSG_FIRSTHDR(message)
        cdef uint32_t count
        while item != NULL:
            if item.cmsg_level == SOL_SOCKET and item.cmsg_type == SO_RXQ_OVFL:
                memcpy(&count, CMSG_DATA(item), sizeof(count))
                self.kernel_drops += <uint32_t> (count - self.overflow)
                self.overflow = count
            item = CMSG_NXTHDR(message, item)

    def readable(self):
        """Read and feed at most about 256 KiB; how many bytes the datagrams had. OSError."""
        return self.receive()

    def on_readable(self):
        """The reader callback of an event loop: feeds, and asks for a flush in this tick. Survives socket errors."""
        cdef Py_ssize_t count
        try:
            count = self.receive()
        except OSError:
            return  # counted; a datagram socket goes on after an error
        if count > 0 and self.flusher is not None:
            self.flusher.fed(count)

    def counters(self):
        """What happened on this socket so far, all sessions together."""
        totals = dict(self.ended)
        for session in self.sessions.values():
            for name, count in session.counters().items():
                totals[name] = totals.get(name, 0) + count
        totals.update(
            received=self.received, too_short=self.too_short, truncated=self.truncated,
            unknown_session=self.unknown_session, kernel_drops=self.kernel_drops,
            send_blocked=self.send_blocked, receive_errors=self.receive_errors,
            reads=self.reads, writes=self.writes,
        )
        return totals
