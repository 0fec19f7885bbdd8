"""The deployment of the demo: two clouds of three routers below one root, joined by two channels."""

from __future__ import annotations

from pathlib import Path

BROKERS = ("root", "north", "south")
CLOUDS = {"north": ("n1", "n2", "n3"), "south": ("s1", "s2", "s3")}
ROUTERS = tuple(router for cloud in CLOUDS.values() for router in cloud)
# Two ways that share no router lead from n1 to s3: by n2 and s1, and by n3 and s2.
CHANNELS = (("n1", "n2"), ("n1", "n3"), ("n2", "n3"), ("s1", "s2"), ("s1", "s3"), ("s2", "s3"), ("n2", "s1"),
            ("n3", "s2"))  # fmt: skip
BETWEEN = CHANNELS[-2:]
PLACES = {"n1": (0, 10), "n2": (20, 20), "n3": (20, 0), "s1": (50, 20), "s2": (50, 0), "s3": (70, 10)}
PUBLISHING, WATCHING = "n1", "s3"
NEEDED = len(BROKERS) + len(ROUTERS)  # ports

_HEAD = """\
# Two clouds below one root; two ways lead from n1 to s3 that share no router.  chappe up examples/two-clouds.toml
dev = true

[limits]
queue_bytes = 67_108_864  # seconds of everything: a loaded machine makes it late, not lost
heartbeat_s = 10

[log]
level = "warning"
"""
_BROKER = """
[[broker]]
name = "{name}"
{parent}listen = ["{url}"]
"""
_ROUTER = """
[[router]]
name = "{name}"
cloud = "{cloud}"
listen = "{url}"
process = "routers-{cloud}"
x = {x}
y = {y}
"""
_CHANNEL = """
[[channel]]
between = ["{a}", "{b}"]
latency_ms = {latency_ms}
"""


def urls(ports: list[int]) -> dict[str, str]:
    """The address of each broker and router."""
    return {name: f"tcp://127.0.0.1:{port}" for name, port in zip((*BROKERS, *ROUTERS), ports, strict=True)}


def deployment(ports: list[int]) -> str:
    """The TOML of the deployment."""
    at, text = urls(ports), _HEAD
    for number, name in enumerate(BROKERS):
        text += _BROKER.format(name=name, parent=f'parent = "root"\nnumber = {number}\n' * bool(number), url=at[name])
    for cloud, routers in CLOUDS.items():
        for name in routers:
            text += _ROUTER.format(name=name, cloud=cloud, url=at[name], x=PLACES[name][0], y=PLACES[name][1])
    for a, b in CHANNELS:
        text += _CHANNEL.format(a=a, b=b, latency_ms=2.0 if (a, b) in BETWEEN else 0.5)
    return text


def write(folder: Path, ports: list[int]) -> Path:
    """The file of the deployment."""
    path = folder / "two-clouds.toml"
    path.write_text(deployment(ports))
    return path
