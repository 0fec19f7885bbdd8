"""Three nodes in a chain, without brokers: their files, as in examples/demo."""

from __future__ import annotations

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
