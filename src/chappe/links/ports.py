"""Ports for servers that must be named before they start: those of a demonstration, a benchmark or a test.

`CHAPPE_PORTS=22000-24000` keeps a process and its children to a range: tests that run side by side have one each.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

from chappe.errors import LinkError

# Below those that the system gives to outgoing connections: none of them can take a port before its server listens.
FIRST, LAST = 20_000, 32_000
RANGE = "CHAPPE_PORTS"
# Processes of a machine begin at different places, and none gives a port again for as long as there are others.
_starts = itertools.count(os.getpid() * 389)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many neighbouring ports that nobody uses now, neither for streams nor for datagrams."""
    lowest, _, above = os.environ.get(RANGE, f"{FIRST}-{LAST}").partition("-")
    begin, end = int(lowest), int(above)
    for _ in range(end - begin):
        first = begin + next(_starts) % (end - begin)
        ports = range(first, first + count)
        if first + count <= end and all(_is_free(host, port) for port in ports):
            for _ in ports[1:]:
                next(_starts)
            return list(ports)
    raise LinkError(f"no {count} neighbouring free ports between {begin} and {end} on {host}: end what uses them")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as stream, socket.socket(type=socket.SOCK_DGRAM) as datagram, contextlib.suppress(OSError):
        stream.bind((host, port))
        datagram.bind((host, port))
        return True
    return False
