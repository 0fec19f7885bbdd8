"""eclipse-zenoh from peer to peer, with no node between: shown, because zenoh's users may choose it."""

from __future__ import annotations

from typing import Any

from bench.clients import zenoh_router as zenoh_client
from bench.clients.common import Ready
from bench.peers.common import Peer

PACKAGE = "eclipse-zenoh"
COUNT = zenoh_client.COUNT
BROKER: Peer | None = None


def _join(port: int, listens: bool) -> Any:
    return zenoh_client.session("peer", listen=port) if listens else zenoh_client.session("peer", connect=port)


async def publish(port: int, count: int) -> int:
    return zenoh_client.run_publisher(_join(port, False), count)


async def subscribe(port: int, count: int, ready: Ready) -> int:
    return zenoh_client.run_subscriber(_join(port, True), count, ready)


async def ping(port: int, rounds: int) -> list[int]:
    return zenoh_client.run_ping(_join(port, False), rounds)


async def pong(port: int, rounds: int, ready: Ready) -> None:
    zenoh_client.run_pong(_join(port, True), rounds, ready)
