"""Bare socket relays, copying or splicing: the least that any process between two others can cost."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench._relay import relay, splice_relay
from bench.peers.common import Peer

Carry = Callable[[int, int], int]  # from one descriptor to another until either ends


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return [sys.executable, "-m", "bench.peers.relay", str(port)]


def serve(port: int, carry: Carry = relay) -> None:
    """One publisher on that port at a time, its subscriber on the next."""
    with socket.create_server(("127.0.0.1", port + 1)) as outer, socket.create_server(("127.0.0.1", port)) as inner:
        while True:
            inward, _ = inner.accept()
            # A publisher is silent until its subscriber is there; one that is readable before has left again.
            ready, _, _ = select.select([inward, outer], [], [])
            if outer in ready:
                outward, _ = outer.accept()
                _carry(inward, outward, carry)
            inward.close()


def link(port: int, onward: int) -> None:
    """What comes in on that port goes on to the other: one hop of a chain."""
    with socket.create_server(("127.0.0.1", port)) as inner:
        while True:
            inward, _ = inner.accept()
            _carry(inward, socket.create_connection(("127.0.0.1", onward)), relay)
            inward.close()


def spliced(inward: int, outward: int) -> int:
    """Through a pipe: the bytes are never copied to this process."""
    ends = os.pipe()
    try:
        return splice_relay(inward, outward, *ends)
    finally:
        for end in ends:
            os.close(end)


def _carry(inward: socket.socket, outward: socket.socket, carry: Carry) -> None:
    for sock in (inward, outward):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    carry(inward.fileno(), outward.fileno())
    outward.close()


PEER = Peer(
    name="relay",
    protocol="relay",
    install="make test (builds the compiled modules)",
    find=lambda: "relay",
    version=lambda: "of this package",
    command=command,
)

SPLICE = replace(PEER, name="splice relay", find=lambda: "splice", command=lambda *asked: [*command(*asked), "splice"])

if __name__ == "__main__":
    if sys.argv[2:] == ["splice"]:
        serve(int(sys.argv[1]), spliced)
    elif len(sys.argv) > 2:
        link(int(sys.argv[1]), int(sys.argv[2]))
    serve(int(sys.argv[1]))
