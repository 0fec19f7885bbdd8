"""Mosquitto, MQTT 3.1.1 with QoS 0."""

from __future__ import annotations

from pathlib import Path

from bench.peers.common import Peer, first_line, program

CONFIG = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages 0
set_tcp_nodelay true
log_type error
"""


def find() -> str | None:
    return program("mosquitto")


def command(folder: Path, port: int, tls: bool) -> list[str]:
    config = folder / "mosquitto.conf"
    config.write_text(CONFIG.format(port=port))
    return [find() or "mosquitto", "-c", str(config)]


PEER = Peer(
    name="mosquitto",
    protocol="mqtt",
    install="sudo apt install mosquitto",
    find=find,
    version=lambda: first_line(find() or "mosquitto", "-h").removeprefix("mosquitto version "),
    command=command,
    settings=(
        "max_queued_messages 0, max_queued_bytes 0, max_inflight_messages 0: no limit on queues, nothing is dropped",
        "persistence false, log_type error: no disk in a measured interval",
    ),
)
