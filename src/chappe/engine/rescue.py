"""What the engine and those who decide about ways hand to each other."""

from __future__ import annotations

from typing import NamedTuple

RawOutputs = tuple[bool, list[tuple[int, bytes]], int, tuple[str, ...] | None]
"""Answer of `publish_way` and `forward_way`: deliver here?, (port, way) of each branch, how long the first events wait
before they enter the mesh (ns, for events of clients), the queue groups served here (None = all)."""


class Rescued(NamedTuple):
    """An event that a lost neighbour never confirmed, with what is needed to send it another way."""

    session: bytes
    epoch: int
    sequence: int
    kind: str
    topic: bytes
    way: bytes
    frame: bytes
