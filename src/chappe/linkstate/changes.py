"""What the network map reports to the member that holds it: messages for neighbours, named, and what has changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from chappe.linkstate.units import VertexId
from chappe.machine import Send
from chappe.measure.cost import Metrics


@dataclass(frozen=True, slots=True)
class RoutesChanged:
    """By profile, the destinations that have another route now, have one for the first time, or have none any more.

    Whoever holds routes asks for them again: changes of routes that nobody asked for since are left out.
    """

    profiles: dict[str, frozenset[VertexId]]


@dataclass(frozen=True, slots=True)
class InterestChanged:
    """Somebody has another interest, or advertises other publications."""


@dataclass(frozen=True, slots=True)
class CostAdvertised:
    """The cost of an own link was advertised; what an event on `PBR/PerformanceData/<scope>` says (MR-110)."""

    link: bytes
    cost: float  # by the profile `default`; infinite: the link is gone
    metrics: Metrics
    scope: str  # path of the smallest unit that holds both ends
    sequence: int  # of this link, ascending
    stamp_ns: int  # the `now_ns` at which it was advertised


@dataclass(frozen=True, slots=True)
class Notice:
    """For people and membership events: a vertex joined or left, a unit parted or merged, input was refused, or the
    clock of this node corrected."""

    kind: Literal["joined", "left", "parted", "merged", "refused", "clock"]
    vertex_id: VertexId
    reason: str


MapResult = Send | RoutesChanged | InterestChanged | CostAdvertised | Notice
