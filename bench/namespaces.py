"""Two network namespaces joined by TUN devices; an address of the far side says what the line to it is like.

Packets, not connections, are delayed and lost: TCP sees a line of that length, rate and queue. Needs root, iproute2 and
/dev/net/tun.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import math
import os
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from chappe.errors import ChappeError

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
NEAR = "10.213.0.1"
PACKET = 65_536
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Shape:
    """What each direction of a line is like; what finds its queue full is lost."""

    delay_ms: float
    rate: float = math.inf  # bytes a second
    queue_bytes: int = 1 << 20


class _Way:
    """One direction of a line: when a packet comes out of it."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._free_ns = 0.0  # when all before it have left

    def arrives_ns(self, size: int, now_ns: int) -> int | None:
        """None: lost."""
        shape = self._shape
        if (self._free_ns - now_ns) * shape.rate / 1e9 > shape.queue_bytes:
            return None
        self._free_ns = max(self._free_ns, now_ns) + size / shape.rate * 1e9
        return round(self._free_ns + shape.delay_ms * 1e6)


class Namespaces(Generic[Key]):
    """Near and far side; `far` gives the address of the far side for each line, `carried` the bytes sent there."""

    def __init__(self, lines: Mapping[Key, Shape]) -> None:
        self.near_name, self.far_name = (f"chappe-bench-{os.getpid()}-{side}" for side in ("near", "far"))
        self.far = {key: f"10.213.1.{number}" for number, key in enumerate(lines, 1)}
        self.carried = dict.fromkeys(lines, 0)
        self._lines = {socket.inet_aton(self.far[key]): (key, _Way(shape), _Way(shape)) for key, shape in lines.items()}
        self._tuns: list[int] = []
        self._relay: threading.Thread | None = None
        self._wake = os.pipe()

    @staticmethod
    def obstacle() -> str:
        """Why there can be no namespaces here; empty if there can."""
        granted = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
        if not granted >> CAP_NET_ADMIN & granted >> CAP_SYS_ADMIN & 1:
            return "only root may make them"
        if shutil.which("ip") is None:
            return "no iproute2"
        return "" if Path("/dev/net/tun").exists() else "no /dev/net/tun"

    def command(self, name: str, *command: str) -> list[str]:
        """That command inside a namespace."""
        return ["ip", "netns", "exec", name, *command]

    def __enter__(self) -> Self:
        if obstacle := self.obstacle():
            raise ChappeError(f"no network namespaces: {obstacle}")
        try:
            sides = ((self.near_name, [NEAR], "10.213.1.0/24"), (self.far_name, [*self.far.values()], "10.213.0.0/24"))
            for name, addresses, other in sides:
                run_tool("ip", "netns", "add", name)
                self._tuns.append(open_tun(name))
                for address in addresses:
                    run_tool("ip", "-n", name, "address", "add", f"{address}/32", "dev", "tun0")
                run_tool("ip", "-n", name, "link", "set", "lo", "up")
                run_tool("ip", "-n", name, "link", "set", "tun0", "up")
                run_tool("ip", "-n", name, "route", "add", other, "dev", "tun0")
        except BaseException:
            self.close()
            raise
        self._relay = threading.Thread(target=self._carry, name="namespaces", daemon=True)
        self._relay.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is left."""
        if self._relay is not None:
            os.write(self._wake[1], b"x")
            self._relay.join()
        for descriptor in (*self._tuns, *self._wake):
            os.close(descriptor)
        for name in (self.near_name, self.far_name):
            with contextlib.suppress(ChappeError):
                run_tool("ip", "netns", "delete", name)

    def _carry(self) -> None:
        """Each packet goes to the other side when the line of its far address says; anything else is dropped."""
        near, far = self._tuns
        waiting: list[tuple[int, int, int, bytes]] = []
        order = 0
        while True:
            pause_s = max(waiting[0][0] - time.monotonic_ns(), 0) / 1e9 if waiting else None
            ready, _, _ = select.select((near, far, self._wake[0]), (), (), pause_s)
            if self._wake[0] in ready:
                return
            now_ns = time.monotonic_ns()
            for source in ready:
                packet = os.read(source, PACKET)
                line = self._lines.get(packet[16:20] if source == near else packet[12:16])
                if packet[0] >> 4 != 4 or line is None:
                    continue
                key, there, back = line
                due_ns = (there if source == near else back).arrives_ns(len(packet), now_ns)
                if due_ns is not None:
                    order += 1
                    heapq.heappush(waiting, (due_ns, order, far if source == near else near, packet))
                    self.carried[key] += len(packet) if source == near else 0
            now_ns = time.monotonic_ns()
            while waiting and waiting[0][0] <= now_ns:
                _, _, sink, packet = heapq.heappop(waiting)
                os.write(sink, packet)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """This thread is in that namespace; its children stay there."""
    with open("/proc/thread-self/ns/net", "rb") as before, open(f"/run/netns/{namespace}", "rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET):
        raise ChappeError(f"no way into a network namespace: {os.strerror(ctypes.get_errno())}")


def run_tool(*command: str) -> None:
    """Run a tool of iproute2; ChappeError with what it said if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChappeError(f"{' '.join(command)}: {done.stderr.strip()}")


def open_tun(namespace: str, device: str = "tun0") -> int:
    """A device inside a namespace; the thread that opens it never comes back from there."""
    found: list[int | Exception] = []

    def enter() -> None:
        try:
            with open(f"/run/netns/{namespace}", "rb") as file:
                _enter(file.fileno())
            descriptor = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TUN | IFF_NO_PI))
            found.append(descriptor)
        except (OSError, ChappeError) as error:
            found.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise ChappeError(f"no TUN device in the namespace {namespace}: {found[0]}")
    return found[0]
