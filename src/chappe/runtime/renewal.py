"""After a renewed certificate: neighbours are connected anew, one after the other, so that they see it.

A connection ends when the certificate that was shown on it expires, or its authority is removed. If that came to all
links of a node at once it would be out of every map for a moment.
"""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from chappe.runtime.links.connections import Connections
from chappe.runtime.links.peers import PeerLink, Peers
from chappe.wire.control import Goodbye

log = structlog.get_logger(__name__)

PAUSE_S = 1.0  # from one neighbour to the next: the mesh knows by then that the link is back
LOOK_S = 0.05
PATIENCE_S = 15.0  # for a neighbour that does not come back


class Renewal:
    """Shows the certificate of this node to each of its neighbours."""

    def __init__(self, node: str, peers: Peers, connections: Connections) -> None:
        self._node = node
        self._peers = peers
        self._connections = connections
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """There is a new certificate: begin with the first neighbour."""
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._show(), name=f"renew {self._node}")

    async def stop(self) -> None:
        """The node ends."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _show(self) -> None:
        """Those that are connected, then those that were not: their handshake may be older than the certificate."""
        shown: list[PeerLink] = []
        for _ in range(2):
            for peer in self._peers:
                connection = peer.connection
                if connection is None or connection.session.identity.how != "certificate" or peer in shown:
                    continue
                shown.append(peer)
                reason = f"{self._node} has a new certificate and connects again"
                log.info("connecting anew with the new certificate", node=self._node, peer=peer.name)
                self._connections.close(connection, reason, message=Goodbye(reason=reason))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PATIENCE_S):
                        await self._back(peer)
                await asyncio.sleep(PAUSE_S)
            await asyncio.sleep(PAUSE_S)

    async def _back(self, peer: PeerLink) -> None:
        while peer.connection is None:  # noqa: ASYNC110  either end may dial, and nobody announces it
            await asyncio.sleep(LOOK_S)
