"""What the mesh publishes of itself, as events on reserved topics that anybody may subscribe to and only nodes publish.

`mesh/members/<unit>`: who joined or left, which units fell apart or are whole again. `mesh/publications`: what is
advertised to be published (MR-133). `PBR/PerformanceData/<unit>`: advertised costs of links (MR-110, MR-111).
All bodies are JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from chappe.linkstate.changes import CostAdvertised, Notice
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.units import Address, VertexId
from chappe.wire.events import TOPIC_LIMIT
from chappe.wire.patterns import Pattern, overlaps

MEMBERS = "mesh/members"
PUBLICATIONS = "mesh/publications"
PERFORMANCE = "PBR/PerformanceData"
RESERVED = ("mesh", PERFORMANCE)


def reserved(kind: str, topic: bytes) -> bool:
    """Whether only nodes may publish there; asked when a client defines a topic, whatever its access rules are."""
    return kind == "s" and any(topic == name or topic.startswith(name + b"/") for name in _RESERVED)


_RESERVED = tuple(name.encode() for name in RESERVED)


def membership(me: Address, notice: Notice, wall_ns: int = 0) -> tuple[str, bytes]:
    """Topic and body of a change of members; the topic names the unit in which it happened."""
    return _under(MEMBERS, me.scope(notice.vertex_id.level)), _json(
        {
            "change": notice.kind,
            "name": notice.vertex_id.name,
            "level": notice.vertex_id.level,
            "reason": notice.reason,
            "seen_by": me.node,
            "stamp": wall_ns,
        }
    )


def publishes(me: Address, state: LinkState, vertex_id: VertexId) -> bool:
    """Whether it is this node that tells of a change of that vertex: one of all that see it does.

    It is the controller of the smallest vertex of that level, the changed one left aside. Of a unit that fell apart or
    is whole again those inside hear from their own controller, too.
    """
    if vertex_id.level and state.controller(vertex_id.level) != me.node:
        return False
    mine = me.path(vertex_id.level)
    if mine == vertex_id.path:
        return vertex_id.level > 0
    others = (seen.path for seen in state.vertex_ids() if seen.level == vertex_id.level and seen.path != vertex_id.path)
    return all(mine <= other for other in others)


def publications(me: Address, patterns: Iterable[Pattern], wall_ns: int = 0) -> tuple[str, bytes]:
    """Topic and body of what a node advertises to publish, in place of what it said before."""
    listed = [{"kind": pattern.kind, "topic": pattern.text} for pattern in patterns]
    return PUBLICATIONS, _json({"node": me.node, "unit": "/".join(me.unit), "publications": listed, "stamp": wall_ns})


def publishers(advertised: Mapping[VertexId, Iterable[Pattern]], wanted: Pattern) -> list[VertexId]:
    """Nodes and units that advertise something which a pattern takes in, nearest level first."""
    found = (
        vertex_id
        for vertex_id, patterns in advertised.items()
        if any(overlaps(pattern, wanted) for pattern in patterns)
    )
    return sorted(found)


def performance(me: Address, advertised: CostAdvertised, wall_ns: int = 0) -> tuple[str, bytes]:
    """Topic and body of the cost of an own link; what is not known, and the cost of a link that is gone, is null."""
    metrics = advertised.metrics
    return _under(PERFORMANCE, advertised.scope), _json(
        {
            "link": advertised.link.hex(),
            "cost": _number(advertised.cost),
            "gone": math.isinf(advertised.cost),
            "latency_ms": _number(metrics.latency_ms),
            "deviation_ms": _number(metrics.deviation_ms),
            "jitter_ms": _number(metrics.jitter_ms),
            "jitter": _number(metrics.jitter),
            "loss": _number(metrics.loss),
            "bandwidth": _number(metrics.bandwidth),
            "origin": me.node,
            "sequence": advertised.sequence,
            "stamp": wall_ns,
        }
    )


def _under(topic: str, path: str) -> str:
    """The topic of a unit; of one whose path is too long for a topic that of the unit around it."""
    names = path.split("/") if path else []
    while len("/".join((topic, *names)).encode()) > TOPIC_LIMIT:
        names.pop()
    return "/".join((topic, *names))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _json(fields: dict[str, Any]) -> bytes:
    return msgspec.json.encode(fields)
