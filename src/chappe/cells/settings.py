"""The settings of a cell."""

from __future__ import annotations

from dataclasses import dataclass

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class CellSettings:
    """How a cell behaves; `[cells]` of a node's file says the first ones."""

    neighbours: int = 2  # K: links to each side of each name
    random: int = 1  # M
    far: int = 1  # P
    radius: int = 2  # R
    paths: int = 8  # D
    names: int = 4096  # T: names of others that a trim keeps
    slack: float = 1.5  # f
    update_ns: int = 2 * SECOND
    reachable: bool = True
    names_per_identity: int = 64
    most_links: int = 64  # that are dialled
    patience_ns: int = 5 * SECOND  # for a connection to a cell that was dialled; then the next one is tried
    shunned_ns: int = 30 * SECOND  # how long, the first time
    longest_shunned_ns: int = 600 * SECOND
    reluctance: int = 3  # updates for which a link is not wanted before it is hung up
    refresh_ns: int = 60 * SECOND  # a cell repeats its record
    lifetime_ns: int = 180 * SECOND  # without one it is forgotten
    messages_per_s: float = 200.0  # of one neighbour; what is beyond is dropped and counted
    burst: float = 2000.0
