"""Socket options by configuration, and what the kernel made of them."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from chappe.links.meter import Gate

SO_RXQ_OVFL = 40  # Linux; the socket module does not name it


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """How a link's sockets are set up (GS-006). Buffer sizes in bytes; 0 leaves the kernel's choice ."""

    send_buffer: int = 0
    receive_buffer: int = 0
    nodelay: bool = True
    congestion: str = "cubic"  # TCP congestion control, see decision 0010; "" = the system's own
    keepalive_s: int = 15  # first probe of an idle TCP connection; 0 = none
    user_timeout_ms: int = 0  # unacknowledged for this long ends a TCP connection; also hits readers that only pause
    connect_timeout_s: float = 5.0
    handshake_timeout_s: float = 10.0
    backlog: int = 1024
    max_pending: int = 4096  # connections that have not finished their handshake; the oldest one goes first
    max_pending_of_host: int = 2048  # of them from one host: a flood from there leaves room for others
    max_held_of_host: int = 256  # connections of one host that wait at the gate
    budget: int = 262_144  # bytes read in one callback
    gate: Gate | None = None  # says when the handshake of an accepted connection begins; None: at once


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """What the kernel grants, already without the half it adds for its own bookkeeping."""

    send: int
    receive: int


def apply(sock: socket.socket, options: LinkOptions) -> BufferSizes:
    """Set the options on a socket before it connects or listens; the sizes that are in effect."""
    sock.setblocking(False)
    if options.send_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
    if options.receive_buffer:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)
    if sock.type == socket.SOCK_DGRAM:
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    elif sock.family in (socket.AF_INET, socket.AF_INET6):
        _apply_tcp(sock, options)
    return effective(sock)


def _apply_tcp(sock: socket.socket, options: LinkOptions) -> None:
    if options.nodelay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.congestion:
        _control_congestion(sock, options.congestion)
    if options.keepalive_s:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, options.keepalive_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, options.keepalive_s // 3))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    if options.user_timeout_ms:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, options.user_timeout_ms)


def _control_congestion(sock: socket.socket, wanted: str) -> None:
    """The wanted algorithm or, where only the administrator may choose that one, Reno, which everybody may."""
    for name in (wanted, "reno"):
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            return


def effective(sock: socket.socket) -> BufferSizes:
    """The buffer sizes in effect; below the configured ones where net.core.rmem_max or wmem_max is lower."""
    return BufferSizes(
        send=sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2,
        receive=sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2,
    )
