"""Takes the counters of a node for its metrics, in slices."""

from __future__ import annotations

import asyncio

from chappe.core.variables import Variables
from chappe.engine._engine import Engine
from chappe.runtime.links.connections import Connections
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.links.peers import Peers
from chappe.runtime.metrics import CLIENTS_BY_NAME, OTHERS, PortSample, Snapshot
from chappe.runtime.reception import Reception

PORTS_AT_ONCE = 50


async def take(
    node: str, engine: Engine, connections: Connections, peers: Peers, variables: Variables, reception: Reception,
    datagrams: Datagrams, listeners: dict[str, dict[str, int]],
) -> Snapshot:  # fmt: skip
    """A snapshot; forwarding goes on between its slices."""
    snapshot = Snapshot(node, listeners=listeners, refused=dict(reception.refused))
    for peer in peers:
        sample = PortSample("node", peer.name, connected=peer.connection is not None)
        _fill(sample, engine, peer.port, datagrams)
        snapshot.ports.append(sample)
    clients: dict[str, PortSample] = {}
    for at, connection in enumerate(connections):
        if at % PORTS_AT_ONCE == 0:
            await asyncio.sleep(0)
        if connection.session.role != "client" or connection.lost.is_set():
            continue
        name = connection.session.identity.name  # proven: nobody fills the counters of another
        if name not in clients and len(clients) >= CLIENTS_BY_NAME:
            name = OTHERS
        sample = clients.setdefault(name, PortSample("client", name))
        sample.connected += 1
        _fill(sample, engine, connection.port, datagrams)
    snapshot.ports += clients.values()
    snapshot.totals = engine.counters()
    snapshot.gauges = {
        "connections": len(connections),
        "variables": len(variables.directory),
        "subscriptions": engine.topics.subscriptions(),
        "mode": engine.status.slot,
        "engine_memory_bytes": engine.memory_bytes(),
    }
    return snapshot


def _fill(sample: PortSample, engine: Engine, port: int, datagrams: Datagrams) -> None:
    sample.add(engine.port_counters(port))
    beside = datagrams.counters(port)
    sample.kernel_drops += beside.pop("kernel_drops", 0)
    sample.add(beside)
    sample.queued_bytes += engine.pending(port)
    sample.unacknowledged_bytes += engine.unacknowledged(port)
    sample.silent_s = max(sample.silent_s, (engine.mono_ns - engine.last_heard(port)) / 1e9)
