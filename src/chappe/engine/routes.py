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


class ParcelRoute(NamedTuple):
    """Answer of `parcel_routes`: one path to a destination, and which part of its parcels takes it."""

    share: float  # relative to the other paths: above 0
    hops: tuple[bytes, ...]  # ids of cells, without this one; the last is the next main cell or the destination's


class ParcelRow(NamedTuple):
    """A path to a destination, as listings show it."""

    destination: bytes
    hops: tuple[bytes, ...]  # empty: a client of this node has the name
    base_share: float
    share: float  # corrected by what was acknowledged
    window_bytes: int  # of flows that begin here
    in_flight_bytes: int
    sent_bytes: int
    acked_bytes: int
    lost_bytes: int
    returned: int  # parcels that came back
    excluded_ns: int  # for so long yet; 0: it is in use
    delay_ns: int  # waiting in queues on the way, of the last parcel that was acknowledged
    round_trip_ns: int


class FlowRow(NamedTuple):
    """A flow that begins at a client of this node, as listings show it."""

    flow: int
    port: int
    source: bytes
    destination: bytes
    received_bytes: int
    granted_bytes: int
    waiting_bytes: int
    in_flight_bytes: int


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
