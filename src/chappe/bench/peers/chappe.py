"""Chappe itself: one node process, started as a user would."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from chappe.bench.peers.common import Peer


def find() -> str | None:
    return "chappe" if importlib.util.find_spec("chappe.cli.node") or importlib.util.find_spec("chappe.node.app") else None


def version() -> str:
    try:
        return importlib.metadata.version("chappe")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return [sys.executable, "-m", "chappe.cli", "node", "--dev", "--listen", f"tcp://127.0.0.1:{port}"]


PEER = Peer(
    name="chappe",
    protocol="chappe",
    install="make test (builds the compiled modules)",
    find=find,
    version=version,
    command=command,
    tls=True,
    settings=(),
)
