"""ZMTP 3.0 with the NULL mechanism: a PUB or SUB socket of its own, towards an XSUB/XPUB proxy.

The proxy listens on two ports; the address is that of XSUB, XPUB is the next one up.
"""

from __future__ import annotations

import ssl

from bench.protocols.common import Frames, Link, at_body, body, dial, name
from chappe.errors import LinkError

SCAN = "zmtp"
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    """The connection waits for its role: `subscribe` turns to the XPUB side, `frames` to XSUB."""
    if tls is not None:
        raise LinkError("ZMTP has no TLS: run the row without it")
    return Link(dial(address))


def subscribe(link: Link, topics: int) -> None:
    host, port = link.sock.getpeername()
    link.sock.close()
    link.sock = dial((host, port + 1))
    _greet(link, b"SUB")
    wanted = [b"\x01" + _prefix(i) for i in range(topics)]
    link.sock.sendall(b"".join(b"\x00" + bytes([len(message)]) + message for message in wanted))


def frames(link: Link, topics: int, size: int) -> Frames:
    _greet(link, b"PUB")
    made = []
    for i in range(topics):
        message = _prefix(i) + body(size)
        head = b"\x00" + bytes([len(message)]) if len(message) < 256 else b"\x02" + len(message).to_bytes(8, "big")
        made.append(head + message)
    return Frames(made, at_body(made[0], size))


def _prefix(index: int) -> bytes:
    """ZeroMQ matches prefixes of a message; the closing byte keeps names apart."""
    return name(index).encode() + b"\0"


def _greet(link: Link, role: bytes) -> None:
    ready = b"\x05READY" + b"\x0bSocket-Type" + len(role).to_bytes(4, "big") + role
    link.sock.sendall(GREETING)
    if link.take(64)[:1] != b"\xff":
        raise LinkError("the proxy does not speak ZMTP 3")
    link.sock.sendall(b"\x04" + bytes([len(ready)]) + ready)
    flags, length = link.take(2)
    if flags & 4 == 0 or not link.take(length).startswith(b"\x05READY"):
        raise LinkError("the proxy refused the ZMTP handshake")
