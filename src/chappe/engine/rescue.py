"""What the engine and those who decide about ways hand to each other."""

from __future__ import annotations

from typing import NamedTuple

Branches = list[tuple[int, bytes]]
RawOutputs = (
    tuple[bool, Branches, int, tuple[str, ...] | None]
    | tuple[bool, Branches, int, tuple[str, ...] | None, bytes, bool]
    | tuple[bool, Branches, int, tuple[str, ...] | None, bytes, bool, int, int]
)
"""Answer of `publish_way` and `forward_way`: deliver here?, (port, way) of each branch, how long the first events wait
before they enter the mesh (ns, for events of clients), the queue groups served here (None = all); then, if there is
more to say, the way to those that cannot be reached now (empty = none), whether a branch may lead back to the port
that the event came from, and how many destinations it is withheld from: by rules, and for a lacking capability."""


class Rescued(NamedTuple):
    """An event that a lost neighbour never confirmed, or that has no way now, with what is needed to send it on."""

    issuer: bytes
    epoch: int
    sequence: int
    kind: str
    topic: bytes
    way: bytes
    frame: bytes
    received: bool = False  # that neighbour had it, and may not have passed it on
