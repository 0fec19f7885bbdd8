"""Where the processes of a run live: a network namespace each, joined by a bridge, so that any two can be parted.

Everything is in a namespace of the bench itself, so that nothing of it meets the network of the machine. A cut drops
packets in silence, in one direction or in both. Where namespaces are not permitted all processes share loopback, and
nothing can be cut.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from bench.namespaces import CLONE_NEWNET, Namespaces
from chappe.errors import ChappeError

BRIDGE = "chappe"
HUB = "10.214.0.254"  # of the bench itself


class Network:
    """Addresses of members, commands that run where they live, and cuts between them."""

    def __init__(self, members: Iterable[str]) -> None:
        self.obstacle = _obstacle()
        names = list(members)
        self._spaces = {} if self.obstacle else {name: f"chappe-history-{os.getpid()}-{name}" for name in names}
        self.addresses = {
            name: "127.0.0.1" if self.obstacle else f"10.214.0.{number}" for number, name in enumerate(names, 1)
        }
        self.hub = "127.0.0.1" if self.obstacle else HUB
        self._home = -1
        self._made: list[str] = []

    def __enter__(self) -> Self:
        if self.obstacle:
            return self
        self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc().unshare(CLONE_NEWNET))
            _ip("link", "set", "lo", "up")
            _ip("link", "add", BRIDGE, "type", "bridge")
            _ip("address", "add", f"{HUB}/24", "dev", BRIDGE)
            _ip("link", "set", BRIDGE, "up")
            for name, space in self._spaces.items():
                self._add(name, space)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, name: str, space: str) -> None:
        number = self.addresses[name].rpartition(".")[2]
        _ip("netns", "add", space)
        self._made.append(space)
        _ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", f"port{number}", "master", BRIDGE, "up")
        _ip("-n", space, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")

    def __exit__(self, *_: object) -> None:
        for space in self._made:
            with contextlib.suppress(ChappeError):
                _ip("netns", "delete", space)
        if self._home >= 0:
            _check(_libc().setns(self._home, CLONE_NEWNET))
            os.close(self._home)
            self._home = -1

    def command(self, name: str) -> list[str]:
        """What comes before a command that runs where the member lives."""
        return ["ip", "netns", "exec", self._spaces[name]] if name in self._spaces else []

    def cut(self, one: str, other: str, both: bool = True) -> None:
        """Packets from one to the other vanish; with `both` also those back."""
        for source, sink in self._directions(one, other, both):
            _ip("-n", self._spaces[source], "route", "replace", "blackhole", f"{self.addresses.get(sink, HUB)}/32")

    def mend(self, one: str, other: str, both: bool = True) -> None:
        for source, sink in self._directions(one, other, both):
            _ip("-n", self._spaces[source], "route", "delete", "blackhole", f"{self.addresses.get(sink, HUB)}/32")

    def _directions(self, one: str, other: str, both: bool) -> Iterator[tuple[str, str]]:
        if one in self._spaces:
            yield one, other
        if both and other in self._spaces:
            yield other, one


def _obstacle() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if found := Namespaces.obstacle():
        return found
    return "" if Path("/proc/thread-self/ns/net").exists() else "no /proc/thread-self/ns"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> None:
    if result:
        raise ChappeError(f"no network namespace: {os.strerror(ctypes.get_errno())}")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChappeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
