"""What the engine and those who plan routes hand to each other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple


class ForwardingDecision(NamedTuple):
    """Answer of `plan_route` and `forward_route`: who gets the events of one topic that came by one source route."""

    deliver_here: bool  # to the subscribers of this node
    next_hops: Sequence[tuple[int, bytes]] = ()  # (port, source route) of each copy that leaves
    hold_ns: int = 0  # how long the first events of clients wait before they enter the mesh
    groups: Collection[str] | None = None  # queue groups served here; None: all that have members here
    unreachable: bytes = b""  # source route to destinations that have no route now; b"": there are none
    may_return: bool = False  # a next hop may be the port that the events came from
    withheld_by_rules: int = 0  # destinations that may not get them,
    withheld_for_capability: int = 0  # and those that lack a capability, or all routes to which do


class Undelivered(NamedTuple):
    """An event that a lost neighbour never confirmed, or that has no route now, with what is needed to send it on."""

    issuer: bytes
    epoch: int
    sequence: int
    kind: str
    topic: bytes
    source_route: bytes
    frame: bytes
    received: bool = False  # that neighbour had it, and may not have passed it on
