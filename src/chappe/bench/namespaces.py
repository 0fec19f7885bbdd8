"""Two network namespaces joined by TUN devices; what goes between them waits as long as an address says.

Packets, not connections, are delayed: TCP sees a line of that length. Needs root, iproute2 and /dev/net/tun.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from pathlib import Path
from typing import Self

from chappe.errors import ChappeError

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
NEAR = "10.213.0.1"
PACKET = 65_536


class Namespaces:
    """Near and far side; `far` gives an address of the far side for each delay."""

    def __init__(self, delays_ms: tuple[float, ...]) -> None:
        self.near_name, self.far_name = (f"chappe-bench-{os.getpid()}-{side}" for side in ("near", "far"))
        self.far = {delay_ms: f"10.213.1.{number}" for number, delay_ms in enumerate(delays_ms, 1)}
        self._delays_ns = {bytes(map(int, at.split("."))): round(ms * 1e6) for ms, at in self.far.items()}
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
                _ip("netns", "add", name)
                self._tuns.append(_open_tun(name))
                for address in addresses:
                    _ip("-n", name, "address", "add", f"{address}/32", "dev", "tun0")
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "set", "tun0", "up")
                _ip("-n", name, "route", "add", other, "dev", "tun0")
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
                _ip("netns", "delete", name)

    def _carry(self) -> None:
        """Each packet goes to the other side as much later as the far address in it says; anything else is dropped."""
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
                address = packet[16:20] if source == near else packet[12:16]
                if packet[0] >> 4 == 4 and address in self._delays_ns:
                    order += 1
                    due_ns = now_ns + self._delays_ns[address]
                    heapq.heappush(waiting, (due_ns, order, far if source == near else near, packet))
            now_ns = time.monotonic_ns()
            while waiting and waiting[0][0] <= now_ns:
                _, _, sink, packet = heapq.heappop(waiting)
                os.write(sink, packet)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChappeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _open_tun(namespace: str) -> int:
    """A device `tun0` inside a namespace; the thread that opens it never comes back from there."""
    found: list[int | OSError] = []

    def enter() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{namespace}", "rb") as file:
                if libc.setns(file.fileno(), CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            descriptor = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", b"tun0", IFF_TUN | IFF_NO_PI))
            found.append(descriptor)
        except OSError as error:
            found.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(found[0], OSError):
        raise ChappeError(f"no TUN device in the namespace {namespace}: {found[0]}")
    return found[0]
