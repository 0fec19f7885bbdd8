"""Rows of what a node lists of its links, its map and its routes, and the gauges of links."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from chappe.errors import RefusedError
from chappe.events.member import Member
from chappe.events.member_links import Link
from chappe.graph.spanning import spanning_tree
from chappe.linkstate.units import VertexId
from chappe.measure import cost
from chappe.measure.cost import Metrics
from chappe.measure.readings import Factor
from chappe.wire.control import List

Row = dict[str, Any]


def rows(member: Member, request: List, now_ns: int) -> list[Row]:
    """What was asked for; RefusedError says why it cannot be had."""
    match request.what:
        case "measured":
            return [plain(measured(member, link)) for link in member.links]
        case "factors":
            return [plain(row) for row in factors(member, request.of, request.to)]
        case "history":
            return [plain(row) for row in history(member, request.of, now_ns)]
    if not member.settings.mesh:
        raise RefusedError(f"{member.me.node} measures its links and is in no mesh: add [mesh] to its file", "invalid")
    match request.what:
        case "map":
            return [plain(row) for row in network(member)]
        case "tree":
            return [plain(row) for row in tree(member)]
        case "routes":
            return [plain(row) for row in routes(member, request.profile)]
        case "route":
            return [plain(row) for row in route(member, request.of, request.to, request.profile)]
    return members(member)


def plain(row: Row) -> Row:
    """What was not measured is None: NaN is not in JSON."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}


def measured(member: Member, link: Link) -> Row:
    """The line of one link in the live table (MR-073)."""
    reading = member.measurement.initiator.reading(link.port)
    metrics = reading.metrics if reading is not None else Metrics()
    return {
        "name": link.name,
        "role": link.role,
        "kind": link.kind,
        "status": "suspect" if link.suspect else "connected",
        "mean_ms": metrics.latency_ms,
        "deviation_ms": metrics.deviation_ms,
        "jitter_ms": metrics.jitter_ms,
        "jitter": metrics.jitter,
        "loss": metrics.loss,
        "bandwidth_bps": metrics.bandwidth,
        "cost": cost.of(metrics, member.settings.profile),
        "interval_s": reading.interval_ns / 1e9 if reading is not None else math.nan,
        "window": reading.window if reading is not None else 0,
        "outliers": reading.outliers if reading is not None else 0,
        "link": str(uuid.UUID(bytes=link.id)) if link.id else "",
        "unit": "/".join(link.address.unit) if link.address is not None else "",
    }


def factors(member: Member, name: str, type: str) -> list[Row]:
    """What is measured of a link, or of all: type, value and description of each factor that is on (MR-042, MR-053)."""
    initiator = member.measurement.initiator
    if not name or not type:
        links = [_link(member, name)] if name else list(member.links)
        return [_factor(link, each) for link in links for each in initiator.factors(link.port)
                if type in ("", each.type)]  # fmt: skip
    link = _link(member, name)
    try:
        return [_factor(link, initiator.factor(link.port, type))]
    except ValueError as error:
        raise RefusedError(str(error).replace(f"link {link.port}", f"the link to {name}"), "unknown") from None


def _factor(link: Link, factor: Factor) -> Row:
    return {"name": link.name, "role": link.role, "kind": link.kind, "type": factor.type, "value": factor.value,
            "description": factor.description}  # fmt: skip


def history(member: Member, name: str, now_ns: int) -> list[Row]:
    """The last readings of a link, oldest first (MR-074)."""
    link = _link(member, name)
    return [
        {
            "age_s": (now_ns - int(each["now_ns"])) / 1e9,
            "rtt_ms": 2 * float(each["latency_ms"]),
            **{key: float(each[key]) for key in ("latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "cost")},
        }
        for each in member.measurement.initiator.history(link.port)
    ]


def _link(member: Member, name: str) -> Link:
    link = member.links.named(name)
    if link is None:
        known = ", ".join(sorted(each.name for each in member.links)) or "none"
        raise RefusedError(f"there is no link to {name[:64]!r} (links: {known})", "unknown")
    return link


def network(member: Member) -> list[Row]:
    """Every link of the map, between the things that this node sees."""
    return [
        {
            "from": row["a"], "to": row["b"], "level": max(row["level_a"], row["level_b"]), "kind": row["kind"],
            "latency_ms": row["latency_ms"], "jitter": row["jitter"], "loss": row["loss"],
            "bandwidth_bps": row["bandwidth"], "cost": row["cost"], "suspect": row["suspect"],
            "measured": row["measured"], "link": str(uuid.UUID(hex=row["link"])),
        }
        for row in member.state.map_rows()
    ]  # fmt: skip


def tree(member: Member) -> list[Row]:
    """The links over which a copy for everybody costs least in all: a minimum spanning tree of the map (MR-132)."""
    best: dict[tuple[str, str], Row] = {}
    for row in network(member):
        pair = (min(row["from"], row["to"]), max(row["from"], row["to"]))
        if not row["suspect"] and (pair not in best or row["cost"] < best[pair]["cost"]):
            best[pair] = row
    return [best[pair] for pair in spanning_tree({pair: row["cost"] for pair, row in best.items()})]


def routes(member: Member, profile: str) -> list[Row]:
    """The route in use to everything in the map."""
    found = []
    for vertex_id in member.state.vertex_ids():
        best = member.state.routes.route(profile or member.settings.profile, vertex_id)
        if best is not None:
            found.append({
                "to": str(vertex_id), "level": vertex_id.level, "way": [str(step) for step in best.vertex_ids],
                "hops": len(best.vertex_ids), "cost": best.cost, "latency_ms": best.latency_ms,
            })  # fmt: skip
    return found


def route(member: Member, origin: str, to: str, profile: str) -> list[Row]:
    """The routes from this node to a node or unit, and why one of them is in use."""
    me = member.me.node
    if profile and profile not in cost.PROFILES:
        raise RefusedError(
            f"there is no profile {profile[:64]!r} (profiles: {', '.join(sorted(cost.PROFILES))})", "unknown"
        )
    vertex_id = _vertex_id(member, to)
    if origin and origin != me:
        return [_elsewhere(member, origin, me if to == me else str(vertex_id or to), profile)]
    if vertex_id is None:
        known = ", ".join(sorted(str(each) for each in member.state.vertex_ids())) or "nothing"
        raise RefusedError(f"{to[:64]!r} is not in the map of {me}, which has {known[:500]}", "unknown")
    return [
        {
            "what": each.name, "used": each.name == "in use",
            "way": [me, *(str(step) for step in each.route.vertex_ids)], "hops": len(each.route.vertex_ids),
            "cost": each.route.cost, "latency_ms": each.route.latency_ms, "why": each.why,
        }
        for each in member.state.routes.explain(profile or member.settings.profile, vertex_id)
    ]  # fmt: skip


def _elsewhere(member: Member, origin: str, to: str, profile: str) -> Row:
    """The best route between two others, by the map of this node: what they do is known to them alone."""
    import rustworkx

    named = profile or member.settings.profile
    graph: rustworkx.PyGraph[str, Row] = rustworkx.PyGraph()
    places: dict[str, int] = {}
    for row in network(member):
        if row["suspect"]:
            continue
        metrics = Metrics(row["latency_ms"], jitter=row["jitter"], loss=row["loss"], bandwidth=row["bandwidth_bps"])
        price = cost.of(metrics, named)
        ends = []
        for name in (row["from"], row["to"]):
            if name not in places:
                places[name] = graph.add_node(name)
            ends.append(places[name])
        graph.add_edge(ends[0], ends[1], {**row, "cost": row["cost"] if math.isnan(price) else price})
    for name in (origin, to):
        if name not in places:
            known = ", ".join(sorted(places)) or "nothing"
            raise RefusedError(
                f"{name[:64]!r} is not in the map of {member.me.node}, which has {known[:500]}", "unknown"
            )
    found = rustworkx.dijkstra_shortest_paths(graph, places[origin], places[to], lambda edge: edge["cost"] + 1e-9)
    if places[to] not in found:
        raise RefusedError(f"the map of {member.me.node} has no route from {origin} to {to}", "unknown")
    hops = list(found[places[to]])
    edges = [min(graph.get_all_edge_data(a, b), key=lambda edge: edge["cost"]) for a, b in pairwise(hops)]
    return {
        "what": "best", "used": False, "way": [graph[place] for place in hops], "hops": len(edges),
        "cost": sum(edge["cost"] for edge in edges), "latency_ms": sum(edge["latency_ms"] for edge in edges),
        "why": f"by the map of {member.me.node}; {origin} itself knows which one it uses",
    }  # fmt: skip


def _vertex_id(member: Member, name: str) -> VertexId | None:
    """What a person means: a node of the cluster, a unit, or a node inside a unit that is seen from here as one."""
    vertex_ids = member.state.vertex_ids()
    for vertex_id in vertex_ids:
        if str(vertex_id) == name:
            return vertex_id
    inside = [vertex_id for vertex_id in vertex_ids if vertex_id.level and name.startswith(f"{vertex_id.path}/")]
    return max(inside, key=lambda vertex_id: len(vertex_id.path), default=None)


def members(member: Member) -> list[Row]:
    """What this node sees: nodes of its cluster, units above, and who speaks for its own units."""
    state = member.state
    found: list[Row] = [{"thing": name, "level": 0, "own": True} for name in state.members()]
    parted = {str(vertex_id) for vertex_id in state.parted}
    for level in range(1, member.me.depth + 1):
        path = member.me.path(level)
        found.append({"thing": path, "level": level, "own": True, "controller": state.controller(level),
                      "parted": path in parted})  # fmt: skip
    found += [
        {"thing": str(vertex_id), "level": vertex_id.level, "own": False, "parted": str(vertex_id) in parted}
        for vertex_id in state.vertex_ids()
        if vertex_id.level
    ]
    return found


def publications(member: Member) -> Iterator[Row]:
    """What is advertised to be published, by the node or unit that does (MR-133)."""
    for vertex_id, patterns in sorted(member.state.publications().items()):
        for pattern in patterns:
            yield {
                "topic": pattern.text,
                "kind": pattern.kind,
                "at": str(vertex_id),
                "level": vertex_id.level,
                "clients": None,
            }
