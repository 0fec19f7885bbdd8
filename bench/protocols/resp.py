"""RESP, the protocol of Redis: PUBLISH and SUBSCRIBE."""

from __future__ import annotations

import ssl

from bench.protocols.common import Frames, Link, at_body, body, dial, name, secure

SCAN = "resp"


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    link = Link(secure(dial(address), tls))
    link.sock.sendall(_command(b"PING"))
    link.line()
    return link


def subscribe(link: Link, topics: int) -> None:
    for first in range(0, topics, 500):
        chosen = range(first, min(topics, first + 500))
        link.sock.sendall(_command(b"SUBSCRIBE", *(name(i).encode() for i in chosen)))
        for _ in chosen:
            for _ in range(6):  # *3, $9 subscribe, $n channel, :count
                link.line()


def frames(link: Link, topics: int, size: int) -> Frames:
    made = [_command(b"PUBLISH", name(i).encode(), body(size)) for i in range(topics)]
    return Frames(made, at_body(made[0], size, tail=2), chatty=True)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
