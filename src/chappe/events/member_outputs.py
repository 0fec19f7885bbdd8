"""What a member of the mesh is told by its configuration, and what it asks of the node that holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from chappe.linkstate.settings import Settings as MapSettings
from chappe.measure.bandwidth import TrainSettings
from chappe.measure.readings import Reading
from chappe.measure.readings import Settings as MeasureSettings
from chappe.wire.base import Message

SECOND = 1_000_000_000
Places = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """What a member is told; the parts that it is made of have settings of their own."""

    mesh: bool = True  # False: links are measured, and that is all
    measures: bool = True  # whether probes are sent from the start (MR-059)
    bandwidth: bool = False  # whether trains are sent
    readings: bool = False  # whether each new reading is an output
    costs: bool = True  # whether costs that are told are events
    factors: tuple[str, ...] = ("latency", "deviation", "jitter", "loss")
    places: Places = ()  # (unit, names or patterns of the nodes that may lie in it); none: whoever says so
    profile: str = "default"  # of topics for which nothing else is said
    profiles: tuple[tuple[str, str], ...] = ()  # (pattern of topics, profile); the first that matches counts
    needs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (pattern of topics, capabilities that all on their way have)
    measure: MeasureSettings = field(default_factory=MeasureSettings)
    map: MapSettings = field(default_factory=MapSettings)
    trains: TrainSettings = field(default_factory=TrainSettings)
    undeliverable_ns: int = 60 * SECOND  # how long events wait for a route after a neighbour was lost
    undeliverable_bytes: int = 32 << 20
    slice: int = 500  # events of a lost neighbour that are given new routes in one tick


@dataclass(frozen=True, slots=True)
class Send:
    """A control message for the other end of a link. One advertisement goes to many: it is the same object then."""

    port: int
    message: Message


@dataclass(frozen=True, slots=True)
class Publish:
    """An event of this node itself."""

    topic: str
    body: bytes
    content_type: str = "application/json"


@dataclass(frozen=True, slots=True)
class Refuse:
    """The other end of a link does not belong here: end the connection; the reason is for a person."""

    port: int
    reason: str


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log."""

    event: str
    level: str = "info"
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measured:
    """A link has a new reading."""

    port: int
    reading: Reading
    told: bool = False  # whether the mesh is told of it


Output = Send | Publish | Refuse | Log | Measured
