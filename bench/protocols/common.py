"""What a protocol module offers, and the connection it works on."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Protocol as Shape

from chappe.errors import LinkError
from chappe.wire.constants import ALL_MODES

HEAD_BYTES = 24  # publisher 4, topic 4, sequence 8, send time 8: the start of every body
CONNECT_S = 10.0


@dataclass
class Link:
    """A connection after its handshake; `head` holds bytes that were read beyond it."""

    sock: socket.socket
    head: bytes = b""
    credit: int = 0
    serial: int = 0
    label: str = "bench"  # publisher of status variables: a node remembers the last values of an earlier run
    period_ns: int = 0  # of status variables; 0: 30 events a second
    interval_ns: int = 0  # at which they are watched; 0: every event
    redundancy: int = 0  # and over how many disjoint paths; 0: without quality of service
    modes: int = ALL_MODES  # and in which modes

    def fill(self, at_least: int) -> None:
        """Read until `head` has that many bytes."""
        while len(self.head) < at_least:
            chunk = self.sock.recv(65536)
            if not chunk:
                raise LinkError(f"the peer closed the connection in the handshake: {self.head[-200:]!r}")
            self.head += chunk

    def take(self, count: int) -> bytes:
        self.fill(count)
        taken, self.head = self.head[:count], self.head[count:]
        return taken

    def line(self) -> bytes:
        """The next line, without its end."""
        while (end := self.head.find(b"\r\n")) < 0:
            self.fill(len(self.head) + 1)
        return self.take(end + 2)[:-2]


@dataclass(frozen=True)
class Frames:
    """One ready-made message a topic, and the places that change from message to message.

    `places`: publisher and topic (8 bytes), sequence (8), time (8), sequence in a header (4); -1 where there is none.
    `run_head`: the frames are status records that share one frame header. `chatty`: the peer answers each message.
    """

    frames: list[bytes]
    places: tuple[int, int, int, int]
    run_head: bool = False
    chatty: bool = False


class Protocol(Shape):
    """A protocol module: blocking handshakes, then bytes for the compiled loops."""

    SCAN: str  # name of the compiled scanner

    def connect(self, address: tuple[str, int], tls: ssl.SSLContext | None, **credentials: str) -> Link: ...

    def subscribe(self, link: Link, topics: int) -> None: ...

    def frames(self, link: Link, topics: int, size: int) -> Frames: ...


def dial(address: tuple[str, int]) -> socket.socket:
    """A TCP connection with the same options for every peer."""
    try:
        sock = socket.create_connection(address, timeout=CONNECT_S)
    except OSError as error:
        raise LinkError(f"no connection to {address[0]}:{address[1]}: {error}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        sock.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    return sock


def secure(sock: socket.socket, tls: ssl.SSLContext | None) -> socket.socket:
    return sock if tls is None else tls.wrap_socket(sock, server_hostname="127.0.0.1")


def body(size: int) -> bytes:
    return bytes(HEAD_BYTES) + b"x" * (size - HEAD_BYTES)


def name(index: int, separator: str = "/") -> str:
    """Topic names have one length, so that all frames of a run do."""
    return f"bench{separator}t{index:06d}"


def at_body(frame: bytes, size: int, tail: int = 0, header: int = -1) -> tuple[int, int, int, int]:
    """Places in a frame whose body is followed by `tail` bytes."""
    start = len(frame) - tail - size
    return start, start + 8, start + 16, header
