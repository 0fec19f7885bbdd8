"""The node under attack: a process of its own with certificates, tokens, rules, limits, an audit log and metrics."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.hostile.attack import Target
from bench.hostile.evidence import Evidence
from bench.peers import chappe as peer
from bench.peers.common import START_S, Peer, Running, start
from chappe.errors import LinkError
from chappe.links.ports import free_ports
from chappe.security.authority import Authority
from chappe.security.config import Role
from chappe.security.tokens import create_key, issue

TOKEN_S = 3_600
CLIENTS: dict[str, Role] = {"honest": "client", "mallory": "client", "nobody": "client", "operator": "admin"}
NODES = ("target", "mallet", "mute")

CONFIG = """\
[node]
name = "target"
{listens}
[[peer]]
name = "mallet"
[[peer]]
name = "mute"
[mesh]
[measure]
interval_s = 1.0
[limits]
connections = 2000
per_identity = 24
rate = 60000
handshake_s = 2.0
subscriptions = 20000
variables = 20000
[tls]
ca = "{pki}/ca.pem"
cert = "{pki}/target.pem"
key = "{pki}/target.key"
crl = "{pki}/ca.crl"
[tokens]
keys = ["{folder}/tokens/token.pub"]
[audit]
path = "{folder}/audit.jsonl"
[metrics]
address = "127.0.0.1:{metrics}"
[log]
format = "json"
[[rule]]
action = ["publish", "subscribe"]
pattern = "bench/#"
names = ["honest"]
[[rule]]
action = ["register", "watch"]
pattern = "#"
names = ["honest"]
[[rule]]
action = ["publish", "subscribe"]
pattern = "{{name}}/#"
roles = ["client"]
names = ["mallory", "honest"]
[[rule]]
action = ["register", "watch"]
pattern = "{{name}}/#"
roles = ["client"]
names = ["mallory"]
[[rule]]
action = ["publish", "register"]
pattern = "bench/#"
names = ["mallet"]
deny = true
"""


@dataclass
class HostileNode:
    """A running node, how attackers reach it and what it shows."""

    running: Running
    target: Target
    operator: str  # token of its administrator
    evidence: Evidence


@contextlib.contextmanager
def attacked_node(*, pinned: bool = False) -> Iterator[HostileNode]:
    """A node to attack, on a core of its own if `pinned`."""
    made: list[tuple[Target, str, int]] = []

    def command(folder: Path, port: int, tls: bool) -> list[str]:
        made.append(_write(folder, port))
        return [sys.executable, "-m", "chappe.node", str(folder / "node.toml")]

    running = start(
        Peer("chappe", "chappe", peer.PEER.install, peer.find, peer.version, command), pinned=pinned
    )  # fmt: skip
    try:
        target, operator, metrics = made[0]
        url = f"http://127.0.0.1:{metrics}/metrics"
        evidence = Evidence(url, running.log, running.folder / "audit.jsonl")
        _await_metrics(evidence, running)
        yield HostileNode(running, target, operator, evidence)
    finally:
        running.stop()


def _await_metrics(evidence: Evidence, running: Running) -> None:
    """Wait until its pages are served, which is after it listens."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            evidence.mark()
            return
        except OSError:
            if running.process.poll() is not None or time.monotonic() > deadline:
                said = running.log.read_text(errors="replace")[-1_500:]
                raise LinkError(f"the node does not serve its metrics; it said: {said}") from None
            time.sleep(0.05)


def _write(folder: Path, tcp: int) -> tuple[Target, str, int]:
    """The files of the node; what attackers know of it, the token of its operator and the port of its metrics."""
    pki = folder / "pki"
    now = datetime.now(UTC)
    authority = Authority.create(pki, now, name="hostile authority", days=2)
    for name in NODES:
        authority.issue(name, "node", now, hosts=["127.0.0.1"], days=1)
    key = create_key(folder / "tokens")
    tokens = {name: issue(key, name, role, TOKEN_S, time.time_ns()) for name, role in CLIENTS.items()}
    tls, ws, parallel, udp, metrics = free_ports(5)
    urls = (
        f"tcp://127.0.0.1:{tcp}", f"tls://127.0.0.1:{tls}", f"ws://127.0.0.1:{ws}/",
        f"tcp://127.0.0.1:{parallel}?parallel=4", f"udp://127.0.0.1:{udp}",
    )  # fmt: skip
    listens = "".join(f"[[listen]]\nurl = {json.dumps(url)}\n" for url in urls)
    text = CONFIG.format(listens=listens, pki=pki, folder=folder, metrics=metrics)
    (folder / "node.toml").write_text(text)
    operator = tokens.pop("operator")
    return (
        Target(tcp=tcp, tls=tls, ws=ws, parallel=parallel, udp=udp, pki=str(pki), tokens=tokens), operator, metrics
    )  # fmt: skip
