"""The network map as rows for people and programs."""

from __future__ import annotations

from typing import Any

from chappe.linkstate.topology import Edge, View


def map_rows(view: View, costs: dict[bytes, float]) -> list[dict[str, Any]]:
    """One row a link: its ends as this node sees them, what is known of it and what it counts with."""
    rows = [_row(edge, costs.get(edge.id)) for edge in view.edges] + [_row(edge, None) for edge in view.suspected]
    return sorted(rows, key=lambda row: (row["level_a"], row["a"], row["level_b"], row["b"], row["link"]))


def _row(edge: Edge, cost: float | None) -> dict[str, Any]:
    latency_ms, jitter, loss, bandwidth = edge.metrics
    a, b = sorted((edge.a.vertex_id, edge.b.vertex_id))
    return {
        "link": edge.id.hex(),
        "a": a.name,
        "b": b.name,
        "level_a": a.level,
        "level_b": b.level,
        "kind": edge.fact_a.kind or edge.fact_b.kind,
        "suspect": cost is None,
        "measured": edge.known,  # by how many of its ends
        "latency_ms": latency_ms,
        "jitter": jitter,
        "loss": loss,
        "bandwidth": bandwidth,
        "cost": cost,
    }
