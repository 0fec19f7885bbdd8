"""Two network namespaces joined by a pair of veth devices, of which the near one sends no faster than a token bucket.

Both ends have addresses of loopback, though their packets cross the line: a node without authentication serves no
other. Needs root, iproute2 and a kernel with veth and tbf.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from bench.namespaces import Namespaces, inside, run_tool
from chappe.errors import ChappeError

NEAR, FAR = "127.214.0.1", "127.214.0.2"
DEVICE = "shaped"
BURST, LATENCY = "16kb", "100ms"


class ShapedPair:
    """`inside(NEAR)` or `inside(FAR)`: what this thread opens or starts there belongs to that side."""

    def __init__(self, bits_per_s: int) -> None:
        self._rate = bits_per_s
        self._names = {NEAR: f"chappe-bench-{os.getpid()}-shaped", FAR: f"chappe-bench-{os.getpid()}-behind"}

    @staticmethod
    def obstacle() -> str:
        """Why there can be none here; empty if there can."""
        return Namespaces.obstacle()

    def __enter__(self) -> Self:
        near, far = self._names.values()
        try:
            for name in (near, far):
                run_tool("ip", "netns", "add", name)
            run_tool("ip", "link", "add", DEVICE, "netns", near, "type", "veth", "peer", "name", DEVICE, "netns", far)
            for address, other in ((NEAR, FAR), (FAR, NEAR)):
                self._address(address, other)
            rate = f"{self._rate}bit"
            run_tool(
                "tc", "-n", near, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", rate, "burst", BURST,
                "latency", LATENCY,
            )  # fmt: skip
        except BaseException:
            self.close()
            raise
        return self

    def _address(self, address: str, other: str) -> None:
        """Only its own address is local on each side; the other is reached by the line."""
        name = self._names[address]
        with self.inside(address):
            Path("/proc/sys/net/ipv4/conf/all/route_localnet").write_text("1")
        run_tool("ip", "-n", name, "link", "set", "lo", "up")
        run_tool("ip", "-n", name, "address", "flush", "dev", "lo")
        run_tool("ip", "-n", name, "address", "add", f"{address}/32", "dev", DEVICE)
        run_tool("ip", "-n", name, "link", "set", DEVICE, "up")
        run_tool("ip", "-n", name, "route", "add", f"{other}/32", "dev", DEVICE, "src", address)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left."""
        for name in self._names.values():
            with contextlib.suppress(ChappeError):
                run_tool("ip", "netns", "delete", name)

    def inside(self, side: str) -> AbstractContextManager[None]:
        """This thread is in that namespace; its children stay there."""
        return inside(self._names[side])
