"""The three nodes of the demo, in a chain: their files."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

CHAIN = ("a", "b", "c")

_NODE = """\
[node]
name = "{name}"
leaf = {leaf}

[[listen]]
url = "tcp://127.0.0.1:{port}"

[limits]
queue_bytes = 67_108_864  # seconds of everything: a loaded machine makes it late, not lost
heartbeat_s = 10

[log]
level = "warning"
"""

_PEER = """
[[peer]]
name = "{name}"
{url}queue_bytes = 67_108_864
heartbeat_s = 10
"""

_ONWARD = """
[[path]]
variables = "pmu/#"
to = ["{name}"]

[[topic_route]]
pattern = "alarms/#"
to = ["{name}"]

[[topic_route]]
pattern = "jobs/#"
to = ["{name}"]
"""


def node_file(place: int, ports: list[int]) -> str:
    """The TOML of one node of the chain: it waits for the one before it and dials the one after it."""
    text = _NODE.format(name=CHAIN[place], leaf=place + 1, port=ports[place])
    if place > 0:
        text += _PEER.format(name=CHAIN[place - 1], url="")
    if place + 1 < len(CHAIN):
        onward = CHAIN[place + 1]
        text += _PEER.format(name=onward, url=f'url = "tcp://127.0.0.1:{ports[place + 1]}"\n')
        text += _ONWARD.format(name=onward)
    return text


def write_files(folder: Path, ports: list[int]) -> list[Path]:
    """The files of all nodes."""
    paths = [folder / f"{name}.toml" for name in CHAIN]
    for place, path in enumerate(paths):
        path.write_text(node_file(place, ports))
    return paths


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on: nodes that dial each other name them before they start."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
