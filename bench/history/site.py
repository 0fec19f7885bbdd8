"""The files of a run: certificates, nodes of a mesh under a pair of brokers, an archive, and the tasks of clients."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import msgspec

from bench.history.client import Task
from bench.history.network import Network
from chappe.links.ports import free_ports
from chappe.security.authority import Authority
from chappe.security.config import Action

NODES = ("n1", "n2", "n3", "n4", "n5")
LINKS = (("n1", "n2"), ("n2", "n3"), ("n3", "n4"), ("n4", "n5"), ("n5", "n1"), ("n2", "n4"))
BROKERS = ("cloud-1", "cloud-2")
ARCHIVE = "kept"
SPACES = (*NODES, ARCHIVE, "left", "right")  # where processes live; clients share the last two
VARIABLES = tuple((f"plant{number}", "power") for number in range(4))
AHEAD = timedelta(days=2)  # certificates hold for so long around now: clocks jump


@dataclass(frozen=True)
class Client:
    """A client: what it does, at which nodes, and where it lives."""

    name: str
    does: str
    nodes: tuple[str, ...]
    space: str


CLIENTS = (
    Client("p1", "publish", ("n1",), "left"),
    Client("p2", "publish", ("n3",), "right"),
    Client("p3", "publish", ("n4", "n5"), "right"),  # it moves when its node is lost
    Client("s1", "subscribe", ("n1",), "left"),
    Client("s2", "subscribe", ("n4",), "right"),
    Client("s3", "subscribe", ("n5",), "left"),
    Client("v1", "register", ("n2",), "left"),
    Client("w1", "watch", ("n5",), "right"),
    Client("o1", "operate", (), ""),
)


class Site:
    """Everything in one folder; `tmpfs` is where the archive writes."""

    def __init__(self, folder: Path, network: Network, seed: int, store: str) -> None:
        self.folder = folder
        self.network = network
        self.seed = seed
        self.disk = folder / "disk"
        self.disk.mkdir()
        ports = iter(free_ports(len(NODES) + len(BROKERS)))
        self.urls = {name: f"tls://{network.addresses[name]}:{next(ports)}" for name in NODES}
        self.brokers = {name: f"tls://{network.hub}:{next(ports)}" for name in BROKERS}
        self._certify()
        self._write("deployment.toml", self._deployment(store))
        for name in NODES:
            self._write(f"{name}.toml", self._node(name))
        self._write("archive.toml", self._archive())
        for client in CLIENTS:
            (folder / f"{client.name}.json").write_bytes(msgspec.json.encode(self._task(client)))

    def tls(self, name: str) -> tuple[str, str, str]:
        made = self.folder / "pki"
        return str(made / "ca.pem"), str(made / f"{name}.pem"), str(made / f"{name}.key")

    def history(self, name: str) -> Path:
        return self.folder / f"{name}.history"

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def _certify(self) -> None:
        now = datetime.now(UTC) - AHEAD
        authority = Authority.create(self.folder / "pki", now, name="history", days=6)
        for name in (*NODES, *BROKERS):
            host = self.network.addresses.get(name, self.network.hub)
            authority.issue(name, "node", now, hosts=[host, "127.0.0.1"], days=5)
        for client in CLIENTS:
            authority.issue(client.name, "admin" if client.does == "operate" else "client", now, days=5)
        authority.issue(ARCHIVE, "client", now, days=5)
        authority.issue("checker", "admin", now, days=5)

    def _deployment(self, store: str) -> str:
        broker = {"name": "cloud", "listen": list(self.brokers.values()), "store": store, "number": 1}
        routers = [{"name": name, "cloud": "cloud", "listen": self.urls[name]} for name in NODES]
        channels = [{"between": list(link), "latency_ms": 1.0} for link in LINKS]
        ca, cert, key = self.tls("{name}")
        return _tables([
            ("[[broker]]", [broker]), ("[[router]]", routers), ("[[channel]]", channels),
            ("[tls]", [{"ca": ca, "cert": cert, "key": key}]), ("[log]", [{"level": "warning"}]),
        ])  # fmt: skip

    def _node(self, name: str) -> str:
        ca, cert, key = self.tls(name)
        everything = [action for action in get_args(Action) if action not in ("control", "admin")]
        rules = [
            {"action": everything, "pattern": "#"},
            {"action": "control", "pattern": f"{name}/#", "names": list(BROKERS)},
        ]
        peers = [  # also those that the broker tells: the mesh does not depend on it
            {"name": other, **({"url": self.urls[other]} if name == one else {})}
            for one, another in LINKS if name in (one, another)
            for other in (another if name == one else one,)
        ]  # fmt: skip
        return _tables([
            ("[node]", [{"name": name}]), ("[[peer]]", peers), ("[[listen]]", [{"url": self.urls[name]}]),
            ("[broker]", [{"name": "cloud", "urls": list(self.brokers.values())}]), ("[mesh]", [{}]),
            ("[tls]", [{"ca": ca, "cert": cert, "key": key}]), ("[[rule]]", rules), ("[log]", [{"level": "info"}]),
        ])  # fmt: skip

    def _archive(self) -> str:
        ca, cert, key = self.tls(ARCHIVE)
        return _tables([
            ("[archive]", [{
                "name": ARCHIVE, "url": [self.urls["n3"], self.urls["n5"]], "folder": str(self.disk / "history"),
                "log": str(self.disk / "log"), "topics": ["history/#"], "age_s": 5.0, "ca": ca, "cert": cert,
                "key": key,
            }]),
        ])  # fmt: skip

    def _task(self, client: Client) -> Task:
        urls = [self.urls[name] for name in client.nodes] or list(self.brokers.values())
        return Task(client.name, client.does, ",".join(urls), self.tls(client.name), str(self.history(client.name)),
                    self.seed, variables=VARIABLES if client.does in ("register", "watch") else ())  # fmt: skip


def _tables(tables: Sequence[tuple[str, Sequence[Mapping[str, object]]]]) -> str:
    """TOML; strings, numbers and lists of JSON are also those of TOML."""
    lines: list[str] = []
    for heading, entries in tables:
        for entry in entries:
            lines += [heading, *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    return "\n".join(lines) + "\n"
