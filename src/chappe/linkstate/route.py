"""What a way over the map looks like."""

from __future__ import annotations

from dataclasses import dataclass

from chappe.linkstate.units import Thing


@dataclass(frozen=True, slots=True)
class Route:
    """A way: what is passed, first hop first and destination last, by which links."""

    things: tuple[Thing, ...]
    links: tuple[bytes, ...]
    cost: float
    latency_ms: float  # NaN while a link on it is unmeasured


@dataclass(frozen=True, slots=True)
class Leave:
    """What leaves the cluster at a node: over this link into `next`, for these routes' ends."""

    link: bytes
    next: Thing
    things: tuple[tuple[Thing, ...], ...]  # of each destination the units passed, `next` first, the destination last


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the own cluster on the way, and what is reached through it. No name stands twice in a tree."""

    node: str
    deliver: bool
    leaves: tuple[Leave, ...]
    branches: tuple[Branch, ...]  # by neighbour, in the order of names


@dataclass(frozen=True, slots=True)
class Tree:
    """The way of an event from this node: `root` is this node itself."""

    root: Branch
    unreached: tuple[Thing, ...]  # destinations without a way


@dataclass(frozen=True, slots=True)
class Explained:
    """One possible way to a destination."""

    name: str  # "in use", "best", "next best", "static"
    route: Route
    why: str
