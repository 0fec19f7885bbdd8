"""Ports of the links to other nodes: one a peer, kept while its connections come and go (GS-035)."""

from __future__ import annotations

from collections.abc import Sequence

from chappe.core.sections import Peer
from chappe.engine._engine import Engine
from chappe.security.patterns import NODES
from chappe.wire.addresses import KIND, neighbour_pattern

MAX_FRAME = 0xFF_FFFF  # what a peer accepted from its clients fits, whatever limit it has


class PeerPorts:
    """Ports by the names of peers, whether they are connected or not."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ports: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        return self._ports.get(name)

    def names(self) -> list[str]:
        return list(self._ports)

    def open(self, peer: Peer, *, group: bool = False) -> int:
        """A port for a peer; `group`: for a multicast group, which has no connection. It is parked."""
        if group:
            port = self._engine.open_port(
                datagram=True, level=peer.level, queue_bytes=peer.queue_bytes, packing=peer.packing
            )
        else:
            port = self._engine.open_port(
                peer=True, retain=True, level=peer.level, queue_bytes=peer.queue_bytes, max_frame=MAX_FRAME,
                packing=peer.packing, loss=False, max_topics=1 << 24, account=f"node '{peer.name}'",
            )  # fmt: skip
            self._engine.park_port(port)
        self._ports[peer.name] = port
        return port

    def route(self, name: str, patterns: Sequence[str]) -> None:
        """Send a peer what static routes say, and whatever has its own address (a node of a mesh goes by its map)."""
        port, topics = self._ports[name], self._engine.topics
        wanted = {(neighbour_pattern(name), KIND), *(key for pattern in patterns for key in _keys(pattern))}
        for pattern, kind, group, _ in topics.patterns(port):
            if (pattern, kind) not in wanted:
                topics.unsubscribe(port, pattern, kind, group)
        for pattern, kind in sorted(wanted):
            topics.subscribe(port, pattern, kind)

    def remove(self, name: str) -> None:
        """Forget a peer; its port is freed by the caller."""
        self._ports.pop(name, None)


def _keys(pattern: str) -> list[tuple[str, str]]:
    """What a static route stands for in the topic table: `node:NAME` for addresses at a node, `#` for all of them."""
    if pattern.startswith(NODES):
        name = pattern.removeprefix(NODES)
        return [(neighbour_pattern("" if name == "#" else name), KIND)]
    return [(pattern, "s"), (neighbour_pattern(""), KIND)] if pattern == "#" else [(pattern, "s")]
