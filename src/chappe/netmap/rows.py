"""The network map as rows for people and programs."""

from __future__ import annotations

from typing import Any

from chappe.netmap.costs import combined
from chappe.netmap.topology import Edge, View


def map_rows(view: View, costs: dict[bytes, float]) -> list[dict[str, Any]]:
    """One row a link: its ends as this node sees them, what is known of it and what it counts with."""
    return [_row(edge, costs.get(edge.id)) for edge in view.edges] + [_row(edge, None) for edge in view.suspected]


def _row(edge: Edge, cost: float | None) -> dict[str, Any]:
    known, (latency_ms, jitter, loss, bandwidth) = combined(edge)
    return {
        "link": edge.id.hex(),
        "a": edge.a.thing.name,
        "b": edge.b.thing.name,
        "level_a": edge.a.level,
        "level_b": edge.b.level,
        "kind": edge.fact_a.kind or edge.fact_b.kind,
        "suspect": cost is None,
        "measured": known,  # by how many of its ends
        "latency_ms": latency_ms,
        "jitter": jitter,
        "loss": loss,
        "bandwidth": bandwidth,
        "cost": cost,
    }
