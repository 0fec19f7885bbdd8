"""A chain of bare relays: what hops cost when a process does nothing but copy."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
from types import TracebackType

from bench.peers.common import environment
from chappe.errors import LinkError
from chappe.links.ports import free_ports


class RelayChain:
    """`hops` relays in a row: a publisher connects to `source`, its subscriber to `sink`."""

    def __init__(self, hops: int) -> None:
        *ports, _ = free_ports(hops + 1)
        self.source = ports[0]
        self.sink = ports[-1]  # its subscriber's port is the next; the protocol knows
        self._processes: list[subprocess.Popen[bytes]] = []
        onward: list[tuple[str, ...]] = [(str(port),) for port in ports[1:]]
        for port, target in zip(ports, [*onward, ()], strict=True):
            command = [sys.executable, "-m", "bench.peers.relay", str(port), *target]
            self._processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment()))
        try:
            # A connection would be taken for a publisher: wait for the listening sockets without touching them.
            for port in ports:
                _await_listening(port)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RelayChain:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def _await_listening(port: int, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            time.sleep(0.01)
            continue
        return
    raise LinkError(f"a relay does not listen on port {port}")
