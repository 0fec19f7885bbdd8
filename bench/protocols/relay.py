"""Status records, or events, straight through a bare relay: no handshake, subscribers on the next port."""

from __future__ import annotations

import ssl

from bench.protocols.common import Frames, Link, at_body, body, dial
from chappe.errors import LinkError

SCAN = "chappe"
RECORD = 24  # bytes of a status record; larger messages are events


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    if tls is not None:
        raise LinkError("the relay has no TLS: run the row without it")
    return Link(dial(address))


def subscribe(link: Link, topics: int) -> None:
    host, port = link.sock.getpeername()
    link.sock.close()
    link.sock = dial((host, port + 1))


def frames(link: Link, topics: int, size: int) -> Frames:
    if size > RECORD:
        head = bytes([0x02]) + (12 + size).to_bytes(3, "big")
        events = [head + (i + 1).to_bytes(4, "big") + b"\x03" + bytes(7) + body(size) for i in range(topics)]
        return Frames(events, at_body(events[0], size, header=12))
    made = [bytes(8) + (i + 1).to_bytes(4, "big") + bytes(12) for i in range(topics)]
    return Frames(made, (-1, 16, 0, -1), run_head=True)
