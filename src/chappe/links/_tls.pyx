"""TLS on a connected socket whose handshake is over: what asyncio asks of a transport, with one callback a buffer.

OpenSSL never sees the socket. It reads from one memory buffer and writes to another; here bytes go between those and
the descriptor. What was read and not decrypted, because the protocol pauses, is one buffer of a thread at most.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport strerror

from contextlib import suppress
from socket import SHUT_WR, socket as new_socket
from ssl import SSLError, SSLWantReadError, SSLZeroReturnError

from chappe.links._scratch cimport open_scratch, scratch_buffer

cdef extern from "<sys/socket.h>" nogil:
    Py_ssize_t recv(int fd, void* buffer, size_t size, int flags)
    Py_ssize_t send(int fd, const void* buffer, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT

cdef enum:
    SCRATCH = 262144  # bytes read at once
    BUDGET = 1048576  # bytes read in one callback
    HIGH = 65536      # bytes that may wait for the socket before the protocol is paused

cdef enum State:
    OPEN
    CLOSING  # close_notify is sent or waits behind what was written; what arrives is thrown away
    CLOSED

if open_scratch() != 0:
    raise MemoryError("no key for the receive buffers of threads")


cdef object socket_error():
    return OSError(errno, strerror(errno).decode())


cdef class TlsTransport:
    """The transport of a BufferedProtocol; owns the descriptor from its construction to `connection_lost`.

    An end of the stream without close_notify ends it like one with it: whoever needs to know has frames to count.
    """

    cdef object loop
    cdef object sock
    cdef int fd
    cdef object protocol
    cdef object secured       # the SSLObject
    cdef object incoming      # its MemoryBIOs
    cdef object outgoing
    cdef double linger_s      # for how long a close waits for the other side
    cdef State state
    cdef bint paused          # by the protocol
    cdef bint watched         # the loop says when there is something to read
    cdef bint ended           # nothing will arrive any more
    cdef bint full            # the protocol was told not to write
    cdef bytearray unsent     # encrypted, and the socket had no room
    cdef Py_ssize_t high
    cdef Py_ssize_t low
    cdef object failure       # of decryption
    cdef object broken        # why writing is not possible any more
    cdef object timer
    cdef dict places

    def __init__(self, loop, sock, protocol, secured, incoming, outgoing, double linger_s):
        """Take over the descriptor of `sock`; `secured` is the SSLObject of the two MemoryBIOs after its handshake."""
        self.places = {"sockname": sock.getsockname(), "peername": sock.getpeername()}
        self.sock = new_socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.fd = self.sock.fileno()
        self.loop = loop
        self.protocol = protocol
        self.secured = secured
        self.incoming = incoming
        self.outgoing = outgoing
        self.linger_s = linger_s
        self.state = OPEN
        self.unsent = bytearray()
        self.high = HIGH
        self.low = HIGH // 4
        protocol.connection_made(self)
        loop.call_soon(self._read_on)

    def get_extra_info(self, name, default=None):
        if name == "ssl_object":
            return self.secured
        if name == "socket":
            return self.sock
        if name == "peercert":
            return self.secured.getpeercert()
        if name == "cipher":
            return self.secured.cipher()
        return self.places.get(name, default)

    def get_protocol(self):
        return self.protocol

    def is_closing(self):
        return self.state != OPEN

    # --- reading

    def is_reading(self):
        return self.state == OPEN and not self.paused

    def pause_reading(self):
        """Deliver nothing until `resume_reading`, not even what has been read from the socket."""
        if self.state == OPEN and not self.paused:
            self.paused = True
            self.unwatch()

    def resume_reading(self):
        if self.state == OPEN and self.paused:
            self.paused = False
            self.loop.call_soon(self._read_on)

    def _read_on(self):
        """Deliver what was kept back, also what came with the end of the handshake; then look at the socket again."""
        if self.state == OPEN and not self.paused:
            self.deliver()
        if self.state == OPEN and not self.paused and not self.ended:
            self.watch()

    cdef int watch(self) except -1:
        if not self.watched:
            self.watched = True
            self.loop.add_reader(self.sock, self._on_readable)
        return 0

    cdef int unwatch(self) except -1:
        if self.watched:
            self.watched = False
            self.loop.remove_reader(self.sock)
        return 0

    def _on_readable(self):
        """Read until the socket has no more, but not for so long that others wait."""
        cdef Py_ssize_t count = SCRATCH, total = 0
        while count == SCRATCH and total < BUDGET and self.state != CLOSED and not self.paused:
            count = self.receive()
            total += count

    cdef Py_ssize_t receive(self) except -1:
        """Read once and deliver it; how many bytes came."""
        cdef Py_ssize_t count
        cdef unsigned char* scratch = scratch_buffer(SCRATCH)
        if scratch == NULL:
            raise MemoryError("no memory for the receive buffer of this thread")
        count = recv(self.fd, scratch, SCRATCH, MSG_DONTWAIT)
        if count < 0:
            if errno != EAGAIN and errno != EINTR:
                self.finish(socket_error())
            return 0
        if self.state == CLOSING:
            if count == 0:
                self.finish(None)
            return count
        if count == 0:
            self.ended = True
        else:
            self.incoming.write(PyMemoryView_FromMemory(<char*> scratch, count, PyBUF_READ))
        self.deliver()
        return count

    cdef int deliver(self) except -1:
        """Give the protocol what has arrived, unless it pauses; then answer and end as the other side asked for."""
        cdef Py_ssize_t filled, size
        try:
            while self.state == OPEN and not self.paused:
                room = self.protocol.get_buffer(-1)
                size = len(room)
                filled = self.decrypt(room, size)
                if filled:
                    self.protocol.buffer_updated(filled)
                if self.failure is not None:
                    self.fail(self.failure)
                elif filled < size:
                    break
            if self.state == OPEN and self.outgoing.pending:  # the answer to a key update
                self.flush()
            if self.state == OPEN and self.ended:
                self.unwatch()
                if not self.paused:
                    self.protocol.eof_received()
                    self.close()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            told = {"message": "a protocol over TLS failed", "exception": error, "transport": self}
            self.loop.call_exception_handler(told)
            self.fail(error)
        return 0

    cdef Py_ssize_t decrypt(self, room, Py_ssize_t size) except -1:
        """Fill the room as far as what has arrived goes; `ended` or `failure` says that nothing follows it."""
        cdef Py_ssize_t filled = 0, count
        try:
            while filled < size and (self.incoming.pending or self.secured.pending()):
                count = self.secured.read(size - filled, room[filled:] if filled else room)
                if count == 0:
                    self.ended = True
                    break
                filled += count
        except SSLWantReadError:
            pass
        except SSLZeroReturnError:
            self.ended = True
        except SSLError as error:
            self.failure = error
        return filled

    # --- writing

    def set_write_buffer_limits(self, high=None, low=None):
        if high is None:
            high = HIGH if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high is {high} and low is {low}; high must not be below low, and low not below 0")
        self.high = high
        self.low = low
        self.pressure()

    def get_write_buffer_limits(self):
        return self.low, self.high

    def get_write_buffer_size(self):
        return len(self.unsent)

    def write(self, data):
        """Encrypt and send; what the socket has no room for is kept."""
        cdef Py_ssize_t done = 0, size = len(data)
        if self.state != OPEN or self.broken is not None:
            return
        try:
            while done < size:
                done += self.secured.write(memoryview(data)[done:] if done else data)
        except SSLError as error:  # also if the other side renegotiates, which nodes do not
            self.fail(error)
            return
        self.flush()
        self.pressure()

    def writelines(self, parts):
        self.write(b"".join(parts))

    def can_write_eof(self):
        return False

    def write_eof(self):
        raise NotImplementedError("TLS ends both directions at once")

    cdef int flush(self) except -1:
        """Send what is encrypted; the loop says when there is room for the rest."""
        cdef bytes sealed
        cdef Py_ssize_t count, size
        waiting = len(self.unsent) > 0
        if self.outgoing.pending:
            sealed = self.outgoing.read()
            size = len(sealed)
            count = 0 if waiting else self.put(PyBytes_AS_STRING(sealed), size)
            if count < size:
                self.unsent += memoryview(sealed)[count:] if count else sealed
        if not waiting and self.unsent and self.broken is None:
            self.loop.add_writer(self.sock, self._on_writable)
        return 0

    cdef Py_ssize_t put(self, const char* data, Py_ssize_t size) except -1:
        """How many bytes the socket took; none if it failed, which is told when whoever writes has returned."""
        cdef Py_ssize_t count = send(self.fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if count >= 0:
            return count
        if errno != EAGAIN and errno != EINTR and self.broken is None:
            self.broken = socket_error()
            self.loop.call_soon(self._on_broken)
        return 0

    def _on_broken(self):
        """Writing failed; what the other side sent before that, such as an alert, says better why."""
        if self.state == OPEN and not self.paused:
            self._on_readable()
        self.fail(self.broken)

    def _on_writable(self):
        if self.state == CLOSED:
            return
        del self.unsent[:self.put(PyByteArray_AS_STRING(self.unsent), len(self.unsent))]
        if not self.unsent:
            self.loop.remove_writer(self.sock)
            if self.state == CLOSING:
                self.sent_all()
        self.pressure()

    cdef int pressure(self) except -1:
        """Tell the protocol when it should stop and go on writing."""
        if self.state == CLOSED:
            return 0
        if not self.full and len(self.unsent) > self.high:
            self.full = True
            self.protocol.pause_writing()
        elif self.full and len(self.unsent) <= self.low:
            self.full = False
            self.protocol.resume_writing()
        return 0

    # --- the end

    def close(self):
        """Send what was written and close_notify, and wait for the other side's end, for `linger_s` at most."""
        if self.state != OPEN:
            return
        self.state = CLOSING
        self.paused = False
        self.timer = self.loop.call_later(self.linger_s, self.abort)
        with suppress(SSLError):  # close_notify is in the buffer, and no answer to it has come yet
            self.secured.unwrap()
        self.flush()
        if not self.ended:
            self.watch()  # closing with unread input would reset the last bytes away
        if not self.unsent:
            self.sent_all()

    cdef int sent_all(self) except -1:
        if self.ended:
            self.finish(None)
        else:
            with suppress(OSError):
                self.sock.shutdown(SHUT_WR)
        return 0

    def abort(self):
        """End the connection now."""
        self.finish(None)

    cdef int fail(self, error) except -1:
        """End the connection with an error, after telling the other side by an alert if there is room for it."""
        if self.state != CLOSED and self.broken is None and self.outgoing.pending:
            self.flush()
        return self.finish(error)

    cdef int finish(self, error) except -1:
        if self.state == CLOSED:
            return 0
        self.state = CLOSED
        if self.timer is not None:
            self.timer.cancel()
        self.unwatch()
        self.loop.remove_writer(self.sock)
        self.sock.close()
        self.unsent.clear()
        self.loop.call_soon(self.protocol.connection_lost, error)
        return 0
