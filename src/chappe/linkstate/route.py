"""What a route over the map looks like."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.linkstate.units import VertexId


@dataclass(frozen=True, slots=True)
class Route:
    """A route: what is passed, first hop first and destination last, by which links."""

    vertex_ids: tuple[VertexId, ...]
    links: tuple[bytes, ...]
    cost: float
    latency_ms: float  # NaN while a link on it is unmeasured


@dataclass(frozen=True, slots=True)
class Leave:
    """What leaves the cluster at a node: over this link into `next`, for these routes' ends."""

    link: bytes
    next: VertexId
    vertex_ids: tuple[
        tuple[VertexId, ...], ...
    ]  # of each destination the units passed, `next` first, the destination last


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the own cluster on the way, and what is reached through it. No name stands twice in a tree."""

    node: str
    deliver: bool
    leaves: tuple[Leave, ...]
    branches: tuple[Branch, ...]  # by neighbour, in the order of names


@dataclass(frozen=True, slots=True)
class Tree:
    """The route of an event from this node: `root` is this node itself."""

    root: Branch
    unreached: tuple[VertexId, ...]  # destinations without a route


@dataclass(frozen=True, slots=True)
class Explained:
    """One possible route to a destination."""

    name: str  # "in use", "best", "next best", "static"
    route: Route
    why: str
