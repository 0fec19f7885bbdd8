"""One descriptor for all stream sockets of a loop: a tick reads every ready socket in compiled code, then flushes once.

The event loop watches a single epoll descriptor. So a socket that is ready costs one recv and no call through the
loop, and while sockets keep bringing small pieces they are gathered for some microseconds before one flush; a lone
socket of which a second look finds nothing is not looked at twice. Flushes
that serve many ports are kept apart by a short sleep: each costs a system call a port, whatever it carries. While many
sockets bring little each, reads are kept apart too, so that every recv finds more.
"""

from cpython.exc cimport PyErr_SetFromErrno
from posix.time cimport nanosleep, timespec
from posix.unistd cimport close

from chappe.links._socket cimport Flusher, StreamSocket, set_clocks

cdef extern from "<sys/epoll.h>" nogil:
    union epoll_data_t:
        int fd
    struct epoll_event:
        unsigned int events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int operation, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int limit, int timeout)
    int EPOLL_CLOEXEC
    int EPOLL_CTL_ADD
    int EPOLL_CTL_DEL
    unsigned int EPOLLIN

cdef enum:
    READY = 256
    GATHER_NS = 100000         # no longer than this between the first read of a tick and its flush
    GATHER_BYTES = 12288       # a batch this large is worth writing
    VAIN = 4                   # after so many second looks that found nothing, only
    AGAIN = 16                 # every so manieth tick looks twice, until one finds something
    SPREAD = 4                 # a flush of so many ports is kept
    SPACING_NS = 50000         # so far from the one before
    MANY = 32                  # reads in one tick, of which each
    SMALL = 512                # brings less than this on average: let more arrive
    REST_NS = 250000           # for so long at first,
    REST_MAX_NS = 2000000      # twice as long each time up to this
    ATTEND_NS = 50000000       # Python code looks around at least this often while sockets are read


cdef inline void sleep(long long ns) noexcept:
    cdef timespec pause
    pause.tv_sec = 0
    pause.tv_nsec = ns
    nanosleep(&pause, NULL)


cdef class Poller:
    """Reads what is ready, then flushes: by `flush()` if more than data was read, or not all could be written."""

    cdef readonly int fd
    cdef readonly unsigned long long polls
    cdef readonly unsigned long long reads
    cdef list sockets          # by descriptor
    cdef int count
    cdef object flush
    cdef long long brought     # bytes, in this tick
    cdef long long rest_ns     # before the next tick reads
    cdef long long attended_ns  # when `flush` was last called
    cdef unsigned int vain     # ticks since a second look found something

    def __cinit__(self):
        self.fd = epoll_create1(EPOLL_CLOEXEC)
        if self.fd < 0:
            PyErr_SetFromErrno(OSError)
        self.sockets = []

    def __init__(self, flush):
        self.flush = flush

    def __dealloc__(self):
        if self.fd >= 0:
            close(self.fd)

    def __len__(self):
        return self.count

    def add(self, StreamSocket socket not None):
        """Read this socket from now on. OSError."""
        cdef epoll_event event
        event.events = EPOLLIN
        event.data.fd = socket.fd
        if epoll_ctl(self.fd, EPOLL_CTL_ADD, socket.fd, &event) < 0:
            PyErr_SetFromErrno(OSError)
        while len(self.sockets) <= socket.fd:
            self.sockets.append(None)
        self.sockets[socket.fd] = socket
        self.count += 1

    def remove(self, int fd):
        """Leave that descriptor alone; nothing happens if it was not read."""
        cdef epoll_event event
        if 0 <= fd < len(self.sockets) and self.sockets[fd] is not None:
            self.sockets[fd] = None
            self.count -= 1
            epoll_ctl(self.fd, EPOLL_CTL_DEL, fd, &event)

    def poll(self):
        """The reader callback of the loop."""
        cdef StreamSocket socket
        if self.rest_ns:
            sleep(self.rest_ns)
        socket = self.read_all()
        if socket is not None and self.worth_waiting(socket):
            self.read_ready(socket)
        if socket is None or not self.flushed(socket.flusher):
            self.flush()

    cdef bint flushed(self, Flusher flusher) except -1:
        """Flush here if what was read is data alone and was written completely; False if Python code has to look."""
        if flusher.attentive or flusher.scheduled or flusher.stack.attention:
            pass
        elif flusher.stack.clocks.mono_ns - self.attended_ns < ATTEND_NS:
            flusher.flush_into(flusher.early)
            if not flusher.early and not flusher.failures:
                return True
        self.attended_ns = flusher.stack.clocks.mono_ns
        return False

    cdef StreamSocket read_all(self):
        """Read what is there, and find out whether many sockets bring little each."""
        cdef unsigned long long before = self.reads
        cdef StreamSocket socket
        self.brought = 0
        socket = self.read_ready(None)
        if self.reads - before >= MANY and self.brought < <long long> (self.reads - before) * SMALL:
            self.rest_ns = min(max(2 * self.rest_ns, <long long> REST_NS), <long long> REST_MAX_NS)
        elif self.rest_ns:
            self.rest_ns = self.rest_ns // 2 if self.rest_ns > REST_NS else 0
        return socket

    cdef StreamSocket read_ready(self, StreamSocket socket):
        """Read until no socket is ready or there is enough for a flush; the last socket read."""
        cdef epoll_event events[READY]
        cdef int i, n
        cdef long long started = -1
        self.polls += 1
        while True:
            n = epoll_wait(self.fd, events, READY, 0)
            if n <= 0:
                if started >= 0:
                    self.vain += 1
                return socket
            for i in range(n):
                found = self.sockets[events[i].data.fd]
                if found is not None:
                    socket = found
                    self.read(socket)
            if socket is None:
                return None
            if started < 0:
                started = socket.stack.clocks.mono_ns
                if n == 1 and self.vain >= VAIN and self.vain % AGAIN:
                    self.vain += 1
                    return socket
            else:
                self.vain = 0
            if socket.flusher.unflushed > GATHER_BYTES or socket.stack.clocks.mono_ns - started > GATHER_NS:
                return socket

    cdef bint worth_waiting(self, StreamSocket socket) noexcept:
        """Sleep until the next flush of many ports is due; False if there is no reason to."""
        cdef long long left
        if socket.flusher.served < SPREAD or socket.flusher.unflushed > GATHER_BYTES:
            return False
        set_clocks(socket.stack)
        left = socket.flusher.flushed_at + SPACING_NS - socket.stack.clocks.mono_ns
        if left <= 0:
            return False
        sleep(left)
        return True

    cdef int read(self, StreamSocket socket) except -1:
        cdef Py_ssize_t count
        self.reads += 1
        try:
            count = socket.receive()
        except Exception as error:
            socket.ended(error)
            return 0
        if count < 0:
            socket.ended(None)
        else:
            self.brought += count
            socket.flusher.gathered(count)
        return 0
