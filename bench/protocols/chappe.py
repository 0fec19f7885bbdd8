"""Chappe's own protocol: EVENT frames over topics."""

from __future__ import annotations

import itertools
import os
import ssl

from bench.protocols import common
from bench.protocols.common import Frames, Link, at_body, body, dial, secure
from chappe.errors import LinkError, RefusedError
from chappe.wire import control

SCAN = "chappe"
CONTROL, PROBE, TOPIC = 0x05, 0x04, 0x12
HEARTBEAT_NS = 60_000_000_000


_serial = itertools.count(1)


def connect(
    address: tuple[str, int], tls: ssl.SSLContext | None, name: str = "", token: str | None = None
) -> Link:  # fmt: skip
    """`name` as the node shows it; by default one that no other connection has, as brokers want it."""
    link = Link(secure(dial(address), tls))
    name = name or f"bench-{os.getpid()}-{next(_serial)}"
    hello = control.Hello(
        role="client", name=name, session=os.urandom(16), capabilities=control.CAPABILITIES, heartbeat_ns=HEARTBEAT_NS,
        token=token,
    )  # fmt: skip
    link.sock.sendall(b"CHAPPE" + bytes([control.MAJOR, control.MINOR]) + frame(CONTROL, control.encode(hello)))
    preamble = link.take(8)
    if preamble[:6] != b"CHAPPE":
        raise LinkError(f"{address[0]}:{address[1]} does not speak Chappe: {preamble!r}")
    welcome = next_message(link)
    if not isinstance(welcome, control.Welcome):
        raise RefusedError(f"the node refused the load generator: {getattr(welcome, 'reason', welcome)}")
    link.credit = welcome.credit
    return link


def subscribe(link: Link, topics: int) -> None:
    requests = [control.Subscribe(id=link.serial + i + 1, pattern=common.name(i)) for i in range(topics)]
    ask(link, list(requests))


def frames(link: Link, topics: int, size: int) -> Frames:
    definitions = [frame(TOPIC, (i + 1).to_bytes(4, "big") + b"s\x00" + common.name(i).encode()) for i in range(topics)]
    link.sock.sendall(b"".join(definitions))
    made = [
        frame(0x02, (i + 1).to_bytes(4, "big") + b"\x03\x00\x00\x00" + bytes(4) + body(size)) for i in range(topics)
    ]
    return Frames(made, at_body(made[0], size, header=12))


def frame(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + len(payload).to_bytes(3, "big") + payload


def next_message(link: Link) -> control.Message:
    """The next CONTROL message; a heartbeat in between is answered, other frames are passed over."""
    while True:
        head = link.take(4)
        payload = link.take(int.from_bytes(head[1:], "big"))
        if head[0] == CONTROL:
            return control.decode(payload)
        if head[0] == PROBE:
            link.sock.sendall(frame(0x14, payload))
        elif head[0] == 0x25:
            link.credit = int.from_bytes(payload[:8], "big")


def ask(link: Link, requests: list[control.Request], at_once: int = 1000) -> list[control.Answer]:
    """The answers to all requests, in their order; RefusedError at the first that failed."""
    answers: dict[int, control.Answer] = {}
    for first in range(0, len(requests), at_once):
        part = requests[first : first + at_once]
        link.sock.sendall(b"".join(frame(CONTROL, control.encode(request)) for request in part))
        while any(request.id not in answers for request in part[-1:]) or len(answers) < first + len(part):
            answer = next_message(link)
            if isinstance(answer, control.Failed):
                raise RefusedError(f"the node did not carry out {part[0].__class__.__name__}: {answer.reason}")
            if isinstance(answer, control.Refused):
                raise RefusedError(f"the node closed the connection: {answer.reason}")
            if isinstance(answer, control.Answer):
                answers[answer.id] = answer
    link.serial = max([link.serial, *answers])
    return [answers[request.id] for request in requests]
