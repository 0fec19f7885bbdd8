"""What the network map asks of the node that holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chappe.linkstate.units import Thing
from chappe.measure.cost import Metrics
from chappe.wire.base import Message


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a neighbour. One advertisement goes to many: it is the same object, encode it once."""

    peer: str
    message: Message


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """By profile, the destinations that have another way now, have one for the first time, or have none any more.

    Whoever holds ways asks for them again: changes of ways that nobody asked for since the last time are not told.
    """

    profiles: dict[str, frozenset[Thing]]


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """Somebody wants something else, or advertises other publications."""


@dataclass(frozen=True, slots=True)
class CostAdvertised:
    """The cost of an own link was told; what an event on `PBR/PerformanceData/<scope>` says (MR-110)."""

    link: bytes
    cost: float  # by the profile `default`; infinite: the link is gone
    metrics: Metrics
    scope: str  # path of the smallest unit that holds both ends
    sequence: int  # of this link, ascending
    stamp_ns: int  # the `now_ns` at which it was told


@dataclass(frozen=True, slots=True)
class Notice:
    """For people and membership events: a thing joined or left, a unit parted or merged, input was refused, or the
    clock of this node corrected."""

    kind: Literal["joined", "left", "parted", "merged", "refused", "clock"]
    thing: Thing
    reason: str


Output = Send | RoutesChanged | InterestChanged | CostAdvertised | Notice
