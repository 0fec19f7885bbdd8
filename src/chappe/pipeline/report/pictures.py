"""A heat map by hour of the week, and a map of a network: the two pictures that are no plots over axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import rustworkx as rx

from chappe.pipeline.report.plot import figure, scale, shade
from chappe.pipeline.report.ticks import number_text

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CELL, _ROW = 29, 26


def heat(values: np.ndarray, title: str, unit: str) -> str:
    """A week of hours, Monday first, as 7 by 24 cells; where there is no number the page shows through."""
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    pieces = []
    for day in range(7):
        y = 22 + day * _ROW
        pieces.append(f'<text x="38" y="{y + 17}" text-anchor="end">{DAYS[day]}</text>')
        for hour in range(24):
            value = float(values[day, hour])
            x = 44 + hour * _CELL
            if math.isfinite(value):
                share = (value - low) / (high - low) if high > low else 0.0
                told = f"{DAYS[day]} {hour:02d}:00 UTC: {number_text(value)} {unit}"
                pieces.append(
                    f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" rx="2" fill="{shade(share)}">'
                    f"<title>{escape(told)}</title></rect>"
                )
            else:
                pieces.append(f'<rect class="none" x="{x}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" rx="2"/>')
    pieces.extend(
        f'<text x="{44 + hour * _CELL + _CELL / 2}" y="16" text-anchor="middle">{hour:02d}</text>'
        for hour in range(0, 24, 3)
    )
    drawn = figure(title, 44 + 24 * _CELL + 6, 22 + 7 * _ROW + 6, "".join(pieces))
    return drawn + scale(number_text(low), number_text(high), f"{unit}, by hour of the week (UTC)")


@dataclass(frozen=True)
class Edge:
    """A link of the map; `share` of the way from calm to alarming, NaN if its cost is not known."""

    node: str
    peer: str
    share: float
    told: str
    marked: bool = False  # somebody was alerted about it


def network(edges: Sequence[Edge], title: str, places: Mapping[str, tuple[float, float]] | None = None) -> str:
    """Nodes and their links; where places are not given, links pull and nodes push."""
    names = sorted({name for edge in edges for name in (edge.node, edge.peer)})
    where = _fitted(places if places and set(names) <= set(places) else _laid_out(names, edges))
    drawn = []
    for edge in sorted(edges, key=lambda each: (each.marked, each.share if each.share == each.share else -1)):
        (x1, y1), (x2, y2) = where[edge.node], where[edge.peer]
        bend_x, bend_y = (x1 + x2) / 2 - (y2 - y1) * 0.06, (y1 + y2) / 2 + (x2 - x1) * 0.06  # two directions, two lines
        colour = shade(edge.share) if edge.share == edge.share else "var(--muted)"
        look = ' stroke-width="4" stroke-dasharray="7 3"' if edge.marked else ' stroke-width="2"'
        drawn.append(
            f'<path d="M{x1:.1f} {y1:.1f}Q{bend_x:.1f} {bend_y:.1f} {x2:.1f} {y2:.1f}" fill="none" stroke="{colour}"'
            f"{look}><title>{escape(edge.told)}</title></path>"
        )
    radius = 5 if len(names) <= 60 else 2.5
    for name in names:
        x, y = where[name]
        drawn.append(
            f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{escape(name)}</title></circle>'
        )
        if len(names) <= 60:
            drawn.append(f'<text x="{x + 7:.1f}" y="{y - 6:.1f}">{escape(name)}</text>')
    return figure(title, 760, 480, "".join(drawn))


def _laid_out(names: Sequence[str], edges: Sequence[Edge]) -> dict[str, tuple[float, float]]:
    graph: rx.PyGraph[str, None] = rx.PyGraph(multigraph=False)
    number = dict(zip(names, graph.add_nodes_from(list(names)), strict=True))
    graph.add_edges_from([(number[edge.node], number[edge.peer], None) for edge in edges if edge.node != edge.peer])
    found = rx.spring_layout(graph, seed=7, num_iter=150)  # the same map for the same network
    return {name: (float(found[number[name]][0]), float(found[number[name]][1])) for name in names}


def _fitted(places: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Places on a paper of 760 by 480 with room for names."""
    points = np.array(list(places.values()), float).reshape(-1, 2)
    low, span = points.min(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9)
    fitted = (points - low) / span * np.array([640, 420]) + np.array([40, 30])
    return {name: (float(x), float(y)) for name, (x, y) in zip(places, fitted, strict=True)}
