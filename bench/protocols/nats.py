"""NATS client protocol, as text lines."""

from __future__ import annotations

import json
import ssl

from bench.protocols.common import Frames, Link, at_body, body, dial, name, secure
from chappe.errors import LinkError

SCAN = "nats"


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    link = Link(dial(address))
    link.line()  # INFO comes in clear, TLS starts after it
    link.sock = secure(link.sock, tls)
    options = {"verbose": False, "pedantic": False, "tls_required": tls is not None, "name": "bench", "lang": "c",
               "version": "1", "protocol": 1, "echo": True}  # fmt: skip
    link.sock.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
    _settle(link)
    return link


def subscribe(link: Link, topics: int) -> None:
    lines = [f"SUB {name(i, '.')} {i + 1}\r\n".encode() for i in range(topics)]
    for at in range(0, topics, 4096):
        link.sock.sendall(b"".join(lines[at : at + 4096]))
        _settle(link)


def frames(link: Link, topics: int, size: int) -> Frames:
    made = [f"PUB {name(i, '.')} {size}\r\n".encode() + body(size) + b"\r\n" for i in range(topics)]
    return Frames(made, at_body(made[0], size, tail=2))


def _settle(link: Link) -> None:
    """Everything sent so far has been carried out."""
    link.sock.sendall(b"PING\r\n")
    while (line := link.line()) != b"PONG":
        if line.startswith(b"-ERR"):
            raise LinkError(f"nats-server says {line.decode()}")
