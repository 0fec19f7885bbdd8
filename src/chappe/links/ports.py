"""Ports for servers that must be named before they start: those of a demonstration, a benchmark or a test."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

from chappe.errors import LinkError

# Below those that the system gives to outgoing connections: none of them can take a port before its server listens.
FIRST, LAST = 20_000, 32_000
# Processes of a machine begin at different places, and none gives a port again for as long as there are others.
_starts = itertools.count(os.getpid() * 389)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many neighbouring ports that nobody uses now, neither for streams nor for datagrams."""
    for _ in range(LAST - FIRST):
        first = FIRST + next(_starts) % (LAST - FIRST)
        ports = range(first, first + count)
        if first + count <= LAST and all(_is_free(host, port) for port in ports):
            for _ in ports[1:]:
                next(_starts)
            return list(ports)
    raise LinkError(f"no {count} neighbouring free ports between {FIRST} and {LAST} on {host}: end what uses them")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram, contextlib.suppress(OSError):
        stream.bind((host, port))
        datagram.bind((host, port))
        return True
    return False
