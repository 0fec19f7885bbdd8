"""Bytes between stream sockets and a Stack: one compiled call for each buffer, one flush for each loop tick.

The interpreter lock is kept during the system calls: the sockets are non-blocking, and giving the lock away for a few
microseconds can cost a whole switch interval to get it back.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memcpy, memset

from chappe.engine._stack cimport Stack, iovec
from chappe.links._scratch cimport open_scratch, scratch_buffer

cdef extern from "<sys/socket.h>" nogil:
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    Py_ssize_t recv(int fd, void* buffer, size_t size, int flags)
    Py_ssize_t sendmsg(int fd, msghdr* message, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef enum:
    SCRATCH = 262144        # the receive buffer of a thread
    VECTORS = 64
    WRITE_BUDGET = 1048576  # a fast reader must not hold the loop for longer than this many bytes
    EARLY_FLUSH = 1048576   # many busy publishers in one tick must not overflow the queue of one subscriber

if open_scratch() != 0:
    raise MemoryError("no key for the receive buffers of threads")


def feed(Stack stack not None, int port, unsigned char[::1] buffer not None, Py_ssize_t count):
    """Feed the first `count` bytes of a buffer that a transport filled; the buffer may be modified. ProtocolError."""
    if not 0 <= count <= buffer.shape[0]:
        raise ValueError(f"count is {count}, the buffer has {buffer.shape[0]} bytes")
    if count:
        set_clocks(stack)
        stack.feed_bytes(port, &buffer[0], count)


def collect(Stack stack not None, int port, Py_ssize_t limit):
    """Take at most `limit` queued bytes of a port, for transports that want a bytes object; empty if there are none."""
    cdef iovec vectors[VECTORS]
    cdef int i, used = stack.gather(port, vectors, VECTORS)
    cdef Py_ssize_t total = 0, part
    if used <= 0 or limit <= 0:
        return b""
    for i in range(used):
        total += vectors[i].iov_len
    total = min(total, limit)
    cdef bytes taken = PyBytes_FromStringAndSize(NULL, total)
    cdef char* out = PyBytes_AS_STRING(taken)
    cdef Py_ssize_t done = 0
    for i in range(used):
        part = min(<Py_ssize_t> vectors[i].iov_len, total - done)
        memcpy(out + done, vectors[i].iov_base, part)
        done += part
    stack.written(port, total)
    return taken


def clocks(Stack stack not None):
    """Set both clocks of a stack to now, for timers and calls that do not come from a socket."""
    set_clocks(stack)


cdef class Target:
    """Something a Flusher writes a port's bytes to."""

    cdef int drain(self) except -1:
        raise NotImplementedError


cdef class StreamSocket(Target):
    """A connected, non-blocking stream socket that carries one port; it does not own the descriptor."""

    def __init__(self, Stack stack not None, int port, int fd, Py_ssize_t budget=262144):
        if budget < 1:
            raise ValueError(f"budget is {budget}; it must be at least 1 byte")
        self.stack = stack
        self.port = port
        self.fd = fd
        self.budget = budget

    cdef Py_ssize_t receive(self) except -2:
        cdef Py_ssize_t total = 0, wanted, count
        cdef unsigned char* scratch = scratch_buffer(SCRATCH)
        if scratch == NULL:
            raise MemoryError("no memory for the receive buffer of this thread")
        while total < self.budget:
            wanted = min(<Py_ssize_t> SCRATCH, self.budget - total)
            count = recv(self.fd, scratch, wanted, MSG_DONTWAIT)
            self.reads += 1
            if count < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    break
                PyErr_SetFromErrno(OSError)
                return -2
            if count == 0:
                return total if total else -1
            total += count
            self.bytes_in += count
            set_clocks(self.stack)
            self.stack.feed_bytes(self.port, scratch, count)
            if count < wanted:
                break
        return total

    cdef int drain(self) except -1:
        cdef iovec vectors[VECTORS]
        cdef msghdr message
        cdef Py_ssize_t count, total = 0
        cdef size_t offered
        cdef int i, used
        memset(&message, 0, sizeof(message))
        while total < WRITE_BUDGET:
            used = self.stack.gather(self.port, vectors, VECTORS)
            if used <= 0:
                self.blocked = False
                return 1
            offered = 0
            for i in range(used):
                offered += vectors[i].iov_len
            message.msg_iov = vectors
            message.msg_iovlen = used
            count = sendmsg(self.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
            self.writes += 1
            if count < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    break
                PyErr_SetFromErrno(OSError)
                return -1
            self.stack.written(self.port, count)
            self.bytes_out += count
            total += count
            if <size_t> count < offered:
                break
        self.blocked = True
        return 0

    def readable(self):
        """Read and feed at most `budget` bytes; how many, or -1 at the end of the stream. OSError, ProtocolError."""
        return self.receive()

    def writable(self):
        """Write what the port has queued; True if nothing is left. OSError."""
        return self.drain() == 1

    def report_to(self, Flusher flusher, ended):
        """A Poller that reads this socket flushes through that flusher, and calls `ended(error or None)` at the end."""
        self.flusher = flusher
        self.ended = ended


cdef class Flusher:
    """Writes every port that has something to send; knows which socket carries which port."""

    def __init__(self, Stack stack not None):
        self.stack = stack
        self.targets = []
        self.woken = []
        self.early = []
        self.failures = []

    def bind(self, int port, target):
        """Bytes of `port` go to a StreamSocket or DatagramSession, or by a callable that is True if it wrote all."""
        if port < 0:
            raise ValueError(f"port is {port}; ports are not negative")
        if not (isinstance(target, Target) or callable(target)):
            raise TypeError(f"{type(target).__name__} can not carry a port; give a socket or a callable")
        while len(self.targets) <= port:
            self.targets.append(None)
        self.targets[port] = target
        self.wake(port)

    def unbind(self, int port):
        """The port has no socket: what it queues waits."""
        if 0 <= port < len(self.targets):
            self.targets[port] = None

    def wake(self, int port):
        """Include that port in the next flush even if it reports nothing new."""
        self.woken.append(port)
        self.soon()

    def fed_bytes(self, Py_ssize_t count):
        """A transport fed that many bytes: flush in this tick, or at once after a mebibyte without one."""
        self.fed(count)

    def schedule_on(self, call_soon, run):
        """`soon` uses `call_soon(run)`, at most once until `flush` has been called."""
        self.call_soon = call_soon
        self.run = run
        self.scheduled = False
        if self.woken:
            self.soon()

    def soon(self):
        """Ask for one flush in this tick of the loop, however often this is called."""
        if not self.scheduled and self.call_soon is not None:
            self.scheduled = True
            self.call_soon(self.run)

    cdef int fed(self, Py_ssize_t count) except -1:
        self.unflushed += count
        self.bytes_in += count
        if not self.scheduled and self.call_soon is not None:
            self.scheduled = True
            self.call_soon(self.run)
        if self.unflushed > EARLY_FLUSH:
            self.flush_into(self.early)
        return 0

    cdef int gathered(self, Py_ssize_t count) except -1:
        """A poller read that many bytes and flushes at the end of its tick; much input is not kept that long."""
        self.unflushed += count
        self.bytes_in += count
        if self.unflushed > EARLY_FLUSH:
            self.flush_into(self.early)
        return 0

    cdef int flush_into(self, list blocked) except -1:
        cdef list woken
        cdef int port, size = <int> len(self.targets)
        self.unflushed = 0
        self.flushes += 1
        self.served = 0
        self.flushed_at = self.stack.clocks.mono_ns
        if self.woken:
            woken = self.woken
            self.woken = []
            for item in woken:
                port = item
                if port < size:
                    self.write(port, blocked)
        while True:
            port = self.stack.next_dirty()
            if port < 0:
                return 0
            if port < size:
                self.write(port, blocked)

    cdef int write(self, int port, list blocked) except -1:
        target = self.targets[port]
        if target is None:
            return 0
        self.served += 1
        try:
            if isinstance(target, Target):
                if (<Target> target).blocked:
                    return 0
                if (<Target> target).drain() == 0:
                    blocked.append(port)
            elif not target():
                blocked.append(port)
        except Exception as error:
            self.failures.append((port, error))
        return 0

    def flush(self):
        """Write all that is queued; the ports that could not be written completely and need a writer callback."""
        cdef list blocked = self.early
        self.early = []
        self.scheduled = False
        self.flush_into(blocked)
        return blocked

    def take_failures(self):
        """(port, error) of the sockets that failed in flushes since the last call."""
        failures = self.failures
        self.failures = []
        return failures
