"""What all peers share: a process of their own on a free port, in a temporary folder, pinned to a core or not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chappe.errors import LinkError
from chappe.links.ports import free_ports

START_S = 60.0  # of a machine that is busy with something else
ROOT = Path(__file__).resolve().parents[2]  # of the source tree: holds `src` and `bench`


@dataclass(frozen=True)
class Peer:
    """A system under test; `command(folder, port, tls)` writes what it needs there and gives its command line."""

    name: str
    protocol: str
    install: str  # the line that installs it
    find: Callable[[], str | None]
    version: Callable[[], str]
    command: Callable[[Path, int, bool], list[str]]
    tls: bool = False  # has a TLS variant that the bench runs
    settings: tuple[str, ...] = ()  # what was set apart from address and port, and why
    tree: Path | None = None  # the source tree of a Chappe of another commit; None: this one


@dataclass
class Running:
    """A started peer."""

    peer: Peer
    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    pinned: bool
    tls: bool
    log: Path = field(default=Path())

    @property
    def pki(self) -> str | None:
        """The folder of certificates, if it speaks TLS."""
        return str(self.folder / "pki") if self.tls else None

    def cpu_s(self) -> float:
        """CPU time of the process and its children so far, from the kernel's clock of each process (ns, not ticks)."""
        return sum(process_cpu_s(pid) for pid in self._pids())

    def rss_bytes(self) -> int:
        return sum(psutil.Process(pid).memory_info().rss for pid in self._pids())

    def _pids(self) -> list[int]:
        return [self.process.pid, *(child.pid for child in psutil.Process(self.process.pid).children(recursive=True))]

    def stop(self) -> None:
        for sig in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)
                self.process.send_signal(sig)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
                break
        shutil.rmtree(self.folder, ignore_errors=True)


def process_cpu_s(pid: int) -> float:
    """User and system time of a process; the clock id of another process is built as clock_getcpuclockid does."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def environment(tree: Path | None = None) -> dict[str, str]:
    """For child processes that import the packages of `tree`, or those of this very one, wherever they run."""
    tree = tree or ROOT
    path = (str(tree / "src"), str(tree), os.environ.get("PYTHONPATH", ""))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def program(name: str) -> str | None:
    """Beside this Python first, then on PATH and where Debian puts servers."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"]
    return shutil.which(name, path=os.pathsep.join(places))


def first_line(*command: str) -> str:
    """What a program says about its version."""
    out = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return (out.stdout or out.stderr).strip().splitlines()[0]


@contextlib.contextmanager
def on_one_core(pinned: bool) -> Iterator[None]:
    """Children started inside inherit the affinity of this thread: one core, or all."""
    allowed = os.sched_getaffinity(0)
    if pinned:
        os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def start(peer: Peer, *, pinned: bool = False, tls: bool = False) -> Running:
    """A running peer that accepts connections."""
    folder = Path(tempfile.mkdtemp(prefix=f"chappe-bench-{peer.name}-"))
    port = free_ports(2)[0]  # ZeroMQ's proxy listens on two
    log = folder / "output"
    with on_one_core(pinned), log.open("wb") as out:
        command = peer.command(folder, port, tls)
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, env=environment(peer.tree)
        )
    running = Running(peer, process, port, folder, pinned, tls, log)
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return running
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace")[-1500:]
                running.stop()
                raise LinkError(f"{peer.name} does not listen on port {port}; it said: {said}") from None
            time.sleep(0.02)


@contextlib.contextmanager
def running(peer: Peer, *, pinned: bool = False, tls: bool = False) -> Iterator[Running]:
    """A peer for the length of a block."""
    one = start(peer, pinned=pinned, tls=tls)
    try:
        yield one
    finally:
        one.stop()
