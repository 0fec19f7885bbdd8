"""MQTT 3.1.1 with QoS 0."""

from __future__ import annotations

import os
import ssl

from bench.protocols.common import Frames, Link, at_body, body, dial, name, secure
from chappe.errors import LinkError

SCAN = "mqtt"


def connect(address: tuple[str, int], tls: ssl.SSLContext | None) -> Link:
    link = Link(secure(dial(address), tls))
    client = f"bench-{os.urandom(6).hex()}".encode()
    link.sock.sendall(_packet(0x10, _text(b"MQTT") + b"\x04\x02\x00\x00" + _text(client)))
    answer = link.take(4)
    if answer[0] != 0x20 or answer[3] != 0:
        raise LinkError(f"the MQTT broker refused the connection with code {answer[3]}")
    return link


def subscribe(link: Link, topics: int) -> None:
    for first in range(0, topics, 500):
        chosen = range(first, min(topics, first + 500))
        link.serial += 1
        wanted = b"".join(_text(name(i).encode()) + b"\x00" for i in chosen)
        link.sock.sendall(_packet(0x82, link.serial.to_bytes(2, "big") + wanted))
        kind, length = link.take(1)[0], _remaining(link)
        codes = link.take(length)[2:]
        if kind != 0x90 or any(code > 2 for code in codes):
            raise LinkError("the MQTT broker refused a subscription")


def frames(link: Link, topics: int, size: int) -> Frames:
    made = [_packet(0x30, _text(name(i).encode()) + body(size)) for i in range(topics)]
    return Frames(made, at_body(made[0], size))


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _packet(head: int, rest: bytes) -> bytes:
    length, digits = len(rest), bytearray()
    while True:
        length, low = divmod(length, 128)
        digits.append(low | (0x80 if length else 0))
        if not length:
            return bytes([head]) + bytes(digits) + rest


def _remaining(link: Link) -> int:
    value = shift = 0
    while True:
        byte = link.take(1)[0]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value
