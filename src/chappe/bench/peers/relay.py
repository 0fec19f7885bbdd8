"""A bare socket relay: the least that any process between two others can cost."""

from __future__ import annotations

import select
import socket
import sys
from pathlib import Path

from chappe.bench._relay import relay
from chappe.bench.peers.common import Peer


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return [sys.executable, "-m", "chappe.bench.peers.relay", str(port)]


def serve(port: int) -> None:
    """One publisher on that port at a time, its subscriber on the next."""
    with socket.create_server(("127.0.0.1", port + 1)) as outer, socket.create_server(("127.0.0.1", port)) as inner:
        while True:
            inward, _ = inner.accept()
            # A publisher is silent until its subscriber is there; one that is readable before has left again.
            ready, _, _ = select.select([inward, outer], [], [])
            if outer in ready:
                outward, _ = outer.accept()
                _carry(inward, outward)
            inward.close()


def link(port: int, onward: int) -> None:
    """What comes in on that port goes on to the other: one hop of a chain."""
    with socket.create_server(("127.0.0.1", port)) as inner:
        while True:
            inward, _ = inner.accept()
            _carry(inward, socket.create_connection(("127.0.0.1", onward)))
            inward.close()


def _carry(inward: socket.socket, outward: socket.socket) -> None:
    for sock in (inward, outward):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    relay(inward.fileno(), outward.fileno())
    outward.close()


PEER = Peer(
    name="relay",
    protocol="relay",
    install="make test (builds the compiled modules)",
    find=lambda: "relay",
    version=lambda: "of this package",
    command=command,
)

if __name__ == "__main__":
    if len(sys.argv) > 2:
        link(int(sys.argv[1]), int(sys.argv[2]))
    serve(int(sys.argv[1]))
