"""Redis publish/subscribe."""

from __future__ import annotations

import re
from pathlib import Path

from bench.peers.common import Peer, first_line, program


def find() -> str | None:
    return program("redis-server")


def version() -> str:
    said = first_line(find() or "redis-server", "--version")
    number = re.search(r"v=(\S+)", said)
    return number.group(1) if number else said


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return [
        find() or "redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no",
        "--dir", str(folder), "--client-output-buffer-limit", "pubsub", "0", "0", "0", "--timeout", "0",
    ]  # fmt: skip


PEER = Peer(
    name="redis-server",
    protocol="resp",
    install="sudo apt install redis-server",
    find=find,
    version=version,
    command=command,
    settings=(
        "client-output-buffer-limit pubsub 0 0 0: a slow subscriber is not cut off",
        'save "", appendonly no: no disk in a measured interval',
    ),
)
