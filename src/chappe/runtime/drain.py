"""The end of a node without losing what it accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from chappe.engine._engine import Engine
from chappe.links.tick import FlushTick
from chappe.runtime.links.connections import Connections
from chappe.runtime.links.peers import Peers
from chappe.wire.control import Goodbye

log = structlog.get_logger(__name__)

POLL_S = 0.01
LEAVE_S = 1.0  # clients that were notified may flush and go by themselves for so long
WRITE_S = 1.0  # of the time for draining is kept for the last writes


async def drain(engine: Engine, connections: Connections, peers: Peers, tick: FlushTick, timeout_s: float) -> bool:
    """Notify everybody, then forward until queues are empty and peers have confirmed; False if time was not enough.

    Clients are read until they have left or LEAVE_S is over, peers until they have confirmed what they got. Nothing
    is read after that, so that nothing is confirmed which cannot be delivered: peers keep it and send it again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    for connection in connections:
        connections.send(connection.port, Goodbye(reason="this node is going away"))
    tick.soon()

    def clients() -> int:
        return sum(connection.session.role == "client" for connection in connections)

    await _until(lambda: not clients(), min(LEAVE_S, timeout_s / 2))
    for connection in connections:
        if connection.session.role == "client":
            connection.link.pause_reading()

    def confirmed() -> bool:
        return all(engine.unacknowledged(peer.port) == 0 for peer in peers) and written()

    def written() -> bool:
        return all(engine.pending(connection.port) == 0 for connection in connections)

    done = await _until(confirmed, deadline - loop.time() - WRITE_S)
    for connection in connections:
        connection.link.pause_reading()
    done = await _until(written, deadline - loop.time()) and done
    if not done:
        left = {peer.name: engine.unacknowledged(peer.port) for peer in peers if engine.unacknowledged(peer.port)}
        log.warning("not everything was delivered in time", seconds=timeout_s, unconfirmed_bytes=left)
    return done


async def _until(condition: Callable[[], bool], timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(0.0, timeout_s)
    while not condition():
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(POLL_S)
    return True
