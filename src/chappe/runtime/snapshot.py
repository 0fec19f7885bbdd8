"""Takes the counters of a node for its metrics, in slices."""

from __future__ import annotations

import asyncio

from chappe.engine._engine import Engine
from chappe.links._turns import LoopTurns
from chappe.runtime.build import Parts
from chappe.runtime.links.datagrams import Datagrams
from chappe.runtime.metrics import CLIENTS_BY_NAME, OTHERS, PortSample, Snapshot, TurnSample

PORTS_AT_ONCE = 50


async def take(parts: Parts, turns: LoopTurns | None, scrape: bool) -> Snapshot:
    """A snapshot; forwarding goes on between its slices. `scrape`: the longest turn is counted anew from now on."""
    core, shell = parts.core, parts.shell
    snapshot = await _ports(parts)
    snapshot.paused = shell.paused
    snapshot.shares = shell.accounts.shown()
    if turns is not None:
        recent_ns = turns.take_recent() if scrape else turns.recent_longest_ns
        snapshot.turns = TurnSample(turns.counts(), turns.busy_ns / 1e9, turns.longest_ns / 1e9, recent_ns / 1e9)
    snapshot.neighbours = {(name, action): value for (name, action), value in core.access.neighbours.refused.items()}
    if parts.role is not None:
        snapshot.gauges.update(parts.role.gauges())
    if core.cells is not None:
        from chappe.cells.rows import gauges  # a node that is no cell needs no NumPy

        snapshot.gauges.update(gauges(core.cells))
    if core.member is not None:
        from chappe.runtime.mesh.samples import samples  # a node that does not measure needs no NumPy

        snapshot.links, snapshot.stale = samples(core.member), dict(core.member.state.stale)
    return snapshot


async def _ports(parts: Parts) -> Snapshot:
    """What each peer and each client has sent and got, and the totals."""
    core, connections, datagrams = parts.core, parts.connections, parts.datagrams
    engine, peers, reception = core.engine, parts.peers, parts.reception
    snapshot = Snapshot(core.name, listeners=parts.listening.counters(), refused=dict(reception.refused))
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
        "variables": len(core.variables.directory),
        "subscriptions": engine.topics.subscriptions(),
        "mode": engine.status.slot,
        "open_ports": len(engine.open_ports()),
        "engine_memory_bytes": engine.memory_bytes(),
        "engine_memory_limit_bytes": engine.memory.limit,
        "status_table_bytes": engine.status.memory_bytes(),
        "topic_table_bytes": engine.topics.memory_bytes(),
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
