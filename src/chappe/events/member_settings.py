"""The settings of a member of the mesh."""

from __future__ import annotations

from dataclasses import dataclass, field

from chappe.linkstate.settings import Settings as MapSettings
from chappe.measure.bandwidth import TrainSettings
from chappe.measure.readings import Settings as MeasureSettings

SECOND = 1_000_000_000
Places = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member behaves; the parts that it is made of have settings of their own."""

    mesh: bool = True  # False: links are measured, and that is all
    measures: bool = True  # whether probes are sent from the start (MR-059)
    bandwidth: bool = False  # whether trains are sent
    costs: bool = True  # whether costs that are advertised are events
    factors: tuple[str, ...] = ("latency", "deviation", "jitter", "loss")
    places: Places = ()  # (unit, names or patterns of the nodes that may lie in it); none: whoever says so
    profile: str = "default"  # of topics for which nothing else is said
    profiles: tuple[tuple[str, str], ...] = ()  # (pattern of topics, profile); the first that matches counts
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (pattern of topics, capabilities of all on their route)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    map: MapSettings = field(default_factory=MapSettings)
    trains: TrainSettings = field(default_factory=TrainSettings)
    undeliverable_ns: int = 60 * SECOND  # how long events wait for a route after a neighbour was lost
    undeliverable_bytes: int = 32 << 20
    slice: int = 500  # events of a lost neighbour that are given new routes in one tick
