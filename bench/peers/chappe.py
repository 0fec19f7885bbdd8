"""Chappe itself: one node process, started as a user would, with default limits but for what a bench names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

from bench.certificates import write_certificates
from bench.peers.common import Peer

CONFIG = """\
[node]
name = "peer"
layout = "{layout}"

[limits]
subscriptions = 2000000

[log]
level = "warning"

[[listen]]
url = "{scheme}://127.0.0.1:{port}"
"""
SECURE = """
[tls]
ca = "{pki}/ca.pem"
cert = "{pki}/peer.pem"
key = "{pki}/peer.key"

[[rule]]
action = ["publish", "subscribe", "register", "watch"]
pattern = "#"
"""


def find() -> str | None:
    """The node needs its compiled modules."""
    wanted = ("chappe.engine._engine", "chappe.links._socket", "chappe.node")
    return "chappe" if all(importlib.util.find_spec(module) for module in wanted) else None


def version() -> str:
    try:
        return importlib.metadata.version("chappe")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def write_config(folder: Path, port: int, tls: bool, layout: str) -> list[str]:
    text = CONFIG.format(layout=layout, scheme="tls" if tls else "tcp", port=port)
    if tls:
        text += SECURE.format(pki=write_certificates(folder))
    file = folder / "node.toml"
    file.write_text(text)
    return [sys.executable, "-m", "chappe.node", *([] if tls else ["--dev"]), str(file)]


def command(folder: Path, port: int, tls: bool) -> list[str]:
    return write_config(folder, port, tls, "sparse")


def with_layout(layout: str) -> Peer:
    """A node whose status table has that layout."""
    return replace(PEER, command=lambda folder, port, tls: write_config(folder, port, tls, layout))


PEER = Peer(
    name="chappe",
    protocol="chappe",
    install="make test (builds the compiled modules)",
    find=find,
    version=version,
    command=command,
    tls=True,
    settings=("subscriptions 2,000,000: a bench watches more variables than one client may by default",),
)
