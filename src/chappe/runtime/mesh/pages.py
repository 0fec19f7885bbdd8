"""The pages /links and /map of a node: tables and drawings in plain HTML and SVG (MR-073 to MR-075)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from chappe.runtime.web import HTML, JSON, Page

Row = dict[str, Any]
REFRESH_S = 2
PUBLICATIONS = "/publications.json"
COLUMNS = (
    ("name", "link", ""),
    ("status", "state", ""),
    ("kind", "kind", ""),
    ("mean_ms", "mean", "ms"),
    ("deviation_ms", "deviation", "ms"),
    ("jitter_ms", "jitter", "ms"),
    ("loss", "loss", "%"),
    ("bandwidth_bps", "bandwidth", "Mbit/s"),
    ("cost", "cost", ""),
    ("interval_s", "measured every", "s"),
)
STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.3rem}nav a{margin-right:1rem}
table{border-collapse:collapse;width:100%}
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),th:nth-child(3),td:nth-child(3){text-align:left}
svg{width:100%;height:auto}text{fill:currentColor;font:11px system-ui,sans-serif}
.axis{stroke:#8888}.line{fill:none;stroke:#2a78d6;stroke-width:1.5}.mean{fill:none;stroke:#d65f2a;stroke-width:1.5}
.edge{stroke:#8889;stroke-width:1.2}.slow{stroke:#d65f2a}.gone{stroke:#c33;stroke-dasharray:4 4}
.node{fill:#2a78d6}.me{fill:#d65f2a}.unit{fill:#3a9d5d}.note{color:#888}
"""


def pages(rows: Callable[[str, str], tuple[str, list[Row]]]) -> dict[str, Page]:
    """`rows(what, name)` gives the node's name and its `links`, `map`, or `history` of the link of that name."""

    def links(asked: dict[str, str]) -> tuple[int, str, bytes]:
        if asked.get("link"):
            node, found = rows("history", asked["link"])
            if not found:
                return 404, HTML, _page(node, "no such link", "<p>There is no such link, or nothing was measured.</p>")
            return 200, HTML, _page(node, f"link to {asked['link']}", chart(found), f"/links?link={asked['link']}")
        node, found = rows("links", "")
        return 200, HTML, _page(node, f"links of {node}", table(found), "/links")

    def drawing(_: dict[str, str]) -> tuple[int, str, bytes]:
        node, found = rows("map", "")
        body = picture(node, found) + published_table(rows("publications", "")[1])
        return 200, HTML, _page(node, f"the map of {node}", body, "/map")

    def raw(what: str) -> Page:
        def page(asked: dict[str, str]) -> tuple[int, str, bytes]:
            name = asked.get("link", "")
            node, found = rows("history" if name and what == "links" else what, name)
            return 200, JSON, json.dumps({"node": node, "rows": [_plain(row) for row in found]}).encode()

        return page

    return {
        "/links": links, "/map": drawing, "/links.json": raw("links"), "/map.json": raw("map"),
        PUBLICATIONS: raw("publications"),
    }  # fmt: skip


def _plain(row: Row) -> Row:
    """JSON knows no NaN: what was not measured is null."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def _page(node: str, title: str, body: str, again: str = "") -> bytes:
    refresh = f'<meta http-equiv="refresh" content="{REFRESH_S}">' if again else ""
    links = '<nav><a href="/links">links</a><a href="/map">map</a><a href="/metrics">metrics</a>'
    links += f'<a href="{escape(again)}">refresh</a></nav>' if again else "</nav>"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{refresh}<title>{escape(node)}: {escape(title)}'
        f'</title><meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>{links}<h1>{escape(title)}</h1>{body}</body></html>"
    ).encode()


def table(rows: Sequence[Row]) -> str:
    """One row a link, with its name leading to its chart."""
    if not rows:
        return '<p class="note">No link is measured. Add [mesh] or [measure] to the file of the node.</p>'
    head = "".join(f"<th>{title}{f' ({unit})' if unit else ''}</th>" for _, title, unit in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{_cell(row, key)}</td>" for key, _, _ in COLUMNS) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(row: Row, key: str) -> str:
    value = row.get(key)
    if key == "name":
        name = escape(str(value))
        return f'<a href="/links?link={name}">{name}</a>'
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        if not math.isfinite(value):
            return "–"
        scaled = value * 100 if key == "loss" else value * 8e-6 if key == "bandwidth_bps" else value
        return f"{scaled:,.3g}" if abs(scaled) < 1000 else f"{scaled:,.0f}"
    return "–" if value is None else escape(str(value))


def chart(rows: Sequence[Row], width: int = 900, height: int = 260) -> str:
    """Round trips, their mean and deviation over time, as one SVG; rows have `age_s`, `rtt_ms` and maybe `mean_ms`."""
    left, bottom, top = 50, height - 24, 10
    points = [row for row in rows if isinstance(row.get("rtt_ms"), int | float) and math.isfinite(row["rtt_ms"])]
    if not points:
        return '<p class="note">No answer came yet.</p>'
    oldest = max(row["age_s"] for row in points) or 1.0
    values = [row["rtt_ms"] for row in points] + [row["mean_ms"] for row in points if _known(row.get("mean_ms"))]
    highest = max(*values, 0.001) * 1.1

    def at(row: Row, key: str) -> str:
        x = left + (1 - row["age_s"] / oldest) * (width - left - 10)
        return f"{x:.1f},{bottom - row[key] / highest * (bottom - top):.1f}"

    line = " ".join(at(row, "rtt_ms") for row in points)
    mean = " ".join(at(row, "mean_ms") for row in points if _known(row.get("mean_ms")))
    heights = {share: bottom - share * (bottom - top) + 4 for share in (0, 0.5, 1)}
    marks = "".join(
        f'<text x="{left - 6}" y="{y:.1f}" text-anchor="end">{highest * share:.3g}</text>'
        for share, y in heights.items()
    )
    last = rows[-1]
    summary = ", ".join(
        f"{title} {_cell(last, key)}{f' {unit}' if unit else ''}" for key, title, unit in COLUMNS[3:] if key in last
    )
    return (
        f'<p>{summary}</p><svg viewBox="0 0 {width} {height}" role="img" aria-label="round trips in ms over time">'
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{width - 10}" y2="{bottom}"/>'
        f'<line class="axis" x1="{left}" y1="{top}" x2="{left}" y2="{bottom}"/>{marks}'
        f'<text x="{left}" y="{height - 6}">{oldest:.0f} s ago</text>'
        f'<text x="{width - 10}" y="{height - 6}" text-anchor="end">now</text>'
        f'<polyline class="line" points="{line}"/><polyline class="mean" points="{mean}"/></svg>'
        '<p class="note">Blue: round trips in ms; orange: twice the mean latency.</p>'
    )


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def picture(node: str, rows: Sequence[Row], size: int = 640) -> str:
    """The map as a drawing: things on a circle, links with their costs; what is far is a unit."""
    names = sorted({str(row[end]) for row in rows for end in ("from", "to")} | {node})
    middle, radius = size / 2, size / 2 - 70
    places = {
        name: (
            middle + radius * math.cos(2 * math.pi * at / len(names) - math.pi / 2),
            middle + radius * math.sin(2 * math.pi * at / len(names) - math.pi / 2),
        )
        for at, name in enumerate(names)
    }
    costs = sorted(row["cost"] for row in rows if _known(row.get("cost")))
    dear = costs[len(costs) * 3 // 4] if costs else math.inf
    edges = "".join(_edge(row, places, dear) for row in rows)
    dots = "".join(_dot(name, node, places[name], middle) for name in names)
    head = "".join(f"<th>{title}</th>" for title in ("from", "to", "kind", "latency (ms)", "loss (%)", "cost"))
    listed = "".join(
        "<tr>"
        + "".join(f"<td>{escape(str(row.get(key, '')))}</td>" for key in ("from", "to", "kind"))
        + "".join(f"<td>{_cell(row, key)}</td>" for key in ("latency_ms", "loss", "cost"))
        + "</tr>"
        for row in rows
    )
    return (
        f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="network map">{edges}{dots}</svg>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{listed}</tbody></table>"
    )


def published_table(rows: Sequence[Row]) -> str:
    """What is advertised to be published, and where (MR-133); nothing if nothing is."""
    if not rows:
        return ""
    head = "".join(f"<th>{title}</th>" for title in ("advertised topic", "at", "clients"))
    body = "".join(
        f"<tr><td>{escape(_topic(row))}</td><td>{escape(str(row['at']))}</td><td>{_cell(row, 'clients')}</td></tr>"
        for row in rows
    )
    return f"<h2>Publications</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _topic(row: Row) -> str:
    return str(row["topic"]) if row["kind"] == "s" else f"{'int' if row['kind'] == 'i' else 'long'}:{row['topic']}"


def _edge(row: Row, places: dict[str, tuple[float, float]], dear: float) -> str:
    (x1, y1), (x2, y2) = places[str(row["from"])], places[str(row["to"])]
    style = "gone" if row.get("suspect") or not row.get("up", True) else "slow" if _above(row, dear) else "edge"
    label = _cell(row, "cost")
    return (
        f'<line class="edge {style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'
        f'<text x="{(x1 * 2 + x2) / 3:.1f}" y="{(y1 * 2 + y2) / 3:.1f}">{label}</text>'
    )


def _above(row: Row, dear: float) -> bool:
    return _known(row.get("cost")) and row["cost"] > dear


def _dot(name: str, me: str, place: tuple[float, float], middle: float) -> str:
    x, y = place
    style = "me" if name == me else "unit" if "/" in name or "@" in name else "node"
    anchor = "start" if x > middle + 1 else "end" if x < middle - 1 else "middle"
    aside = 10 if anchor == "start" else -10 if anchor == "end" else 0
    below = 4 if aside else -10
    return (
        f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
        f'<text x="{x + aside:.1f}" y="{y + below:.1f}" text-anchor="{anchor}">{escape(name)}</text>'
    )
