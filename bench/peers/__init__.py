"""The systems that a benchmark puts side by side: how each is found, started, measured and stopped."""

from __future__ import annotations

from bench.peers import chappe, mosquitto, nats, redis, zeromq
from bench.peers.common import Peer, Running

ALL: tuple[Peer, ...] = (chappe.PEER, nats.PEER, mosquitto.PEER, redis.PEER, zeromq.PEER)

__all__ = ["ALL", "Peer", "Running", "found", "missing", "named"]


def named(name: str) -> Peer:
    return next(peer for peer in ALL if peer.name == name)


def found() -> list[Peer]:
    """Peers that this machine has, Chappe first."""
    return [peer for peer in ALL if peer.find() is not None]


def missing() -> list[Peer]:
    return [peer for peer in ALL if peer.find() is None]
