"""The network by cost: every link in the colour of what it costs at the end of the report, and what it costs most."""

from __future__ import annotations

import math

from chappe.pipeline.report import alerted
from chappe.pipeline.report.page import sentence, table
from chappe.pipeline.report.pictures import Edge, network
from chappe.pipeline.report.plot import scale
from chappe.pipeline.report.stored import Lacking, Scope, Stored
from chappe.pipeline.report.ticks import number_text

NEWEST_NS = 600_000_000_000  # what links cost now is their mean over so long
EDGES, ROWS = 1500, 15
_COLUMNS = ("node", "peer", "link", "transport", "created_ns", "cost", "latency_ms", "loss")


def map_by_cost(stored: Stored, scope: Scope) -> str:
    """Nodes and links; links that are or were in an alert are drawn thick and broken."""
    last = min(scope.to_ns, (stored.span_ns("measurements", "created_ns") or (0, scope.to_ns))[1])
    newest = Scope(max(scope.from_ns, last - NEWEST_NS), last)
    found = stored.read("measurements", "ingest", _COLUMNS, newest.within("created_ns"))
    means = found.groupby(["node", "peer", "link", "transport"], as_index=False)[["cost", "latency_ms", "loss"]].mean()
    costs = means["cost"].dropna()
    low, high = (float(costs.min()), float(costs.max())) if len(costs) else (0.0, 0.0)
    marked = _alerted(stored, scope)
    dear = means.sort_values("cost", ascending=False)
    edges = [
        Edge(row.node, row.peer, _share(row.cost, low, high), _told(row), row.link in marked)
        for row in dear.head(EDGES).itertuples()
    ]
    rows = [
        (f"{row.node} → {row.peer}", row.transport, float(row.cost), float(row.latency_ms), float(row.loss * 100),
         "alert" if row.link in marked else None)
        for row in dear.head(ROWS).itertuples()
    ]  # fmt: skip
    said = (
        f"{len(means):,} links between {means['node'].nunique():,} nodes, by their mean cost over the last ten minutes."
    )
    more = f" The {EDGES:,} dearest are drawn." if len(means) > EDGES else ""
    legend = scale(number_text(low), number_text(high), "cost; thick and broken: there was an alert about it")
    return (
        sentence(said + more)
        + network(edges, "Links of the network, coloured by cost")
        + legend
        + table(["link", "transport", "cost", "latency, ms", "loss, %", ""], rows)
    )


def _alerted(stored: Stored, scope: Scope) -> set[str]:
    try:
        return set(alerted.read(stored, scope)["link"])
    except Lacking:
        return set()


def _share(cost: float, low: float, high: float) -> float:
    """On a logarithmic scale: the costs of a network differ by orders of magnitude."""
    if cost != cost:
        return math.nan
    if low <= 0 or high <= low:
        return (cost - low) / (high - low) if high > low else 0.0
    return math.log(cost / low) / math.log(high / low)


def _told(row: object) -> str:
    values = {"cost": "", "latency_ms": " ms", "loss": ""}
    parts = [f"{name.removesuffix('_ms')} {number_text(getattr(row, name))}{unit}" for name, unit in values.items()]
    return f"{getattr(row, 'node', '')} → {getattr(row, 'peer', '')}: {', '.join(parts)}"
