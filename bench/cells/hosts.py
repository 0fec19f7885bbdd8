"""Hosts in network namespaces, each pair of them joined by a line of its own: two TUN devices and a relay between.

A token bucket (`tbf`) on the device of each ordered pair limits its rate, the relay in this process delays packets. So
two lines share nothing but the processors of this machine. Hosts have addresses of loopback, though their packets cross
the lines: a node without authentication serves no other. Needs root, iproute2, /dev/net/tun and a kernel with tbf.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import os
import select
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from bench.namespaces import PACKET, Namespaces, inside, open_tun, run_tool
from chappe.errors import ChappeError

Pair = tuple[str, str]
"""From one host to another."""

BURST_BYTES = 16_000
QUEUE_BYTES = 256_000
SYN, ACK = 0x02, 0x10


@dataclass(frozen=True)
class Line:
    """One direction between two hosts."""

    rate: float  # bytes a second
    delay_ms: float = 0.0
    queue_bytes: int = QUEUE_BYTES  # of its token bucket; what finds no room is lost


class Hosts:
    """`address(host)`, `inside(host)`: what this thread starts there runs on that host."""

    def __init__(self, lines: Mapping[Pair, Line], closed: Iterable[str] = ()) -> None:
        """`closed`: hosts behind a firewall, to which nobody connects; they connect to others."""
        self.names = sorted({name for pair in lines for name in pair})
        self.lines = dict(lines)
        self.carried = dict.fromkeys(lines, 0)  # bytes of packets
        self._closed = frozenset(closed)
        self._tuns: dict[Pair, int] = {}
        self._relay: threading.Thread | None = None
        self._wake = os.pipe()

    obstacle = staticmethod(Namespaces.obstacle)

    def address(self, host: str) -> str:
        """Where that host is reached, from any of them."""
        return f"127.215.0.{self.names.index(host) + 1}"

    def limit(self, pair: Pair, rate: float) -> None:
        """From now on that line carries so many bytes a second."""
        self.lines[pair] = replace(self.lines[pair], rate=rate)
        self._bucket("change", pair)

    def inside(self, host: str) -> AbstractContextManager[None]:
        """This thread is on that host; its children stay there."""
        return inside(self._space(host))

    def __enter__(self) -> Self:
        if obstacle := self.obstacle():
            raise ChappeError(f"no network namespaces: {obstacle}")
        try:
            for host in self.names:
                self._make(host)
            for pair in self.lines:
                self._join(pair)
        except BaseException:
            self.close()
            raise
        self._relay = threading.Thread(target=self._carry, name="hosts", daemon=True)
        self._relay.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left."""
        if self._relay is not None:
            os.write(self._wake[1], b"x")
            self._relay.join()
        for descriptor in (*self._tuns.values(), *self._wake):
            os.close(descriptor)
        for host in self.names:
            with contextlib.suppress(ChappeError):
                run_tool("ip", "netns", "delete", self._space(host))

    def _space(self, host: str) -> str:
        return f"chappe-bench-{os.getpid()}-{self.names.index(host)}"

    def _device(self, pair: Pair) -> str:
        return f"to{self.names.index(pair[1])}"

    def _make(self, host: str) -> None:
        space = self._space(host)
        run_tool("ip", "netns", "add", space)
        with self.inside(host):
            settings = Path("/proc/sys/net/ipv4/conf/all")
            (settings / "route_localnet").write_text("1")
            (settings / "rp_filter").write_text("0")
        run_tool("ip", "-n", space, "link", "set", "lo", "up")
        run_tool("ip", "-n", space, "address", "flush", "dev", "lo")
        for address in (self.address(host), "127.0.0.1"):
            run_tool("ip", "-n", space, "address", "add", f"{address}/32", "dev", "lo")

    def _join(self, pair: Pair) -> None:
        host, other = pair
        space, device = self._space(host), self._device(pair)
        self._tuns[pair] = open_tun(space, device)
        run_tool("ip", "-n", space, "link", "set", device, "up")
        route = ("dev", device, "src", self.address(host))
        run_tool("ip", "-n", space, "route", "add", f"{self.address(other)}/32", *route)
        self._bucket("add", pair)

    def _bucket(self, verb: str, pair: Pair) -> None:
        line = self.lines[pair]
        run_tool(
            "tc", "-n", self._space(pair[0]), "qdisc", verb, "dev", self._device(pair), "root", "tbf",
            "rate", f"{round(line.rate * 8)}bit", "burst", str(BURST_BYTES), "limit", str(line.queue_bytes),
        )  # fmt: skip

    def _carry(self) -> None:
        """Each packet comes out of the device at the other end after the delay of its line."""
        pairs = {descriptor: pair for pair, descriptor in self._tuns.items()}
        poll = select.epoll()
        for descriptor in (*pairs, self._wake[0]):
            poll.register(descriptor, select.EPOLLIN)
        waiting: list[tuple[int, int, int, bytes]] = []
        order = itertools.count()
        with poll:
            while True:
                pause_s = max(waiting[0][0] - time.monotonic_ns(), 0) / 1e9 if waiting else None
                ready = poll.poll(pause_s)
                now_ns = time.monotonic_ns()
                for descriptor, _ in ready:
                    if descriptor == self._wake[0]:
                        return
                    pair = pairs[descriptor]
                    packet = os.read(descriptor, PACKET)
                    if packet[0] >> 4 != 4 or self._refused(pair[1], packet):
                        continue
                    self.carried[pair] += len(packet)
                    due_ns = now_ns + round(self.lines[pair].delay_ms * 1e6)
                    heapq.heappush(waiting, (due_ns, next(order), self._tuns[pair[1], pair[0]], packet))
                now_ns = time.monotonic_ns()
                while waiting and waiting[0][0] <= now_ns:
                    _, _, sink, packet = heapq.heappop(waiting)
                    os.write(sink, packet)

    def _refused(self, host: str, packet: bytes) -> bool:
        """Whether that host's firewall drops it: the first packet of a connection."""
        if host not in self._closed or packet[9] != 6:
            return False
        flags = packet[4 * (packet[0] & 15) + 13]
        return bool(flags & SYN) and not flags & ACK


def between(sites: Mapping[str, str], rates: Mapping[frozenset[str], tuple[float, float]]) -> dict[Pair, Line]:
    """A line for every ordered pair of hosts; `sites` of hosts, `rates` (bytes/s, delay in ms) of one or two sites."""
    lines = {}
    for one, other in itertools.permutations(sites, 2):
        rate, delay_ms = rates[frozenset((sites[one], sites[other]))]
        lines[one, other] = Line(rate, delay_ms, max(QUEUE_BYTES, math.ceil(rate * 0.05)))
    return lines
