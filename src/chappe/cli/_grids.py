"""Where a generated deployment comes from: a GraphML or JSON file, a case of pandapower, a network of topohub.

Each becomes sites and branches. The latency of a branch follows from the best thing that is known of it: `latency_ms`,
its length, the way between its coordinates, its reactance; DEFAULT_MS if nothing is.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chappe.errors import ConfigError

KM_A_MS = 200.0  # light in a fibre
OHM_A_KM = 0.4  # reactance of an overhead line
LEAST_MS = 0.05  # two routers in one substation
DEFAULT_MS = 1.0
EARTH_KM = 6371.0
MISSING = "is not installed; pip install 'chappe[grid]'"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Site:
    """A substation, bus or node: it gets a router."""

    name: str
    x: float | None
    y: float | None


@dataclass(frozen=True, slots=True)
class Grid:
    """Sites, and branches as (place of a site, place of another, latency in ms); no pair twice."""

    sites: tuple[Site, ...]
    branches: tuple[tuple[int, int, float], ...]


def from_file(path: Path) -> Grid:
    """The grid of a GraphML or node-link JSON file."""
    if path.suffix.lower() in (".graphml", ".xml"):
        return _graphml(path)
    if path.suffix.lower() == ".json":
        try:
            return from_node_link(json.loads(path.read_text(encoding="utf-8")), str(path))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(f"{path}: not JSON: {error}") from None
    raise ConfigError(f"{path}: the name must end in .graphml, .xml or .json")


def _graphml(path: Path) -> Grid:
    import rustworkx

    try:
        path.stat()
        graph = rustworkx.read_graphml(str(path))[0]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except Exception as error:  # rustworkx has no class of its own for what is wrong with a file
        raise ConfigError(f"{path}: not GraphML: {error}") from None
    places = {index: place for place, index in enumerate(graph.node_indices())}
    edges = ((places[a], places[b], edge or {}) for a, b, edge in graph.weighted_edge_list())
    return _grid([node or {} for node in graph.nodes()], edges, str(path))


def from_node_link(table: Any, source: str) -> Grid:
    """`{"nodes": [{"id": …}], "links" or "edges": [{"source": …, "target": …}]}`."""
    if not isinstance(table, dict) or not isinstance(table.get("nodes"), list):
        raise ConfigError(f"{source}: nodes: there is no list of nodes; write it as networkx.node_link_data does")
    nodes, links = table["nodes"], table.get("links", table.get("edges"))
    if not isinstance(links, list) or not all(isinstance(row, dict) for row in (*nodes, *links)):
        raise ConfigError(f"{source}: links: there is no list of objects with source and target")
    places: dict[Any, int] = {}
    for place, node in enumerate(nodes):
        if places.setdefault(node.get("id", place), place) != place:
            raise ConfigError(f"{source}: nodes[{place}].id: {node['id']!r} is there twice")
    edges = []
    for at, link in enumerate(links):
        for key in ("source", "target"):
            if link.get(key) not in places:
                raise ConfigError(f"{source}: links[{at}].{key}: there is no node {link.get(key)!r}")
        edges.append((places[link["source"]], places[link["target"]], link))
    return _grid(nodes, edges, source)


def from_topohub(name: str) -> Grid:
    """A network of topohub, by its key such as `topozoo/Abilene`."""
    import warnings

    try:
        import topohub
    except ModuleNotFoundError:
        raise ConfigError(f"--topohub {name}: topohub {MISSING}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves its file open
            table = topohub.get(name)
    except (KeyError, OSError):
        raise ConfigError(
            f"--topohub {name}: there is no such network; write its key, such as sndlib/germany50"
        ) from None
    return from_node_link(table, f"--topohub {name}")


def from_case(name: str) -> Grid:
    """A case of pandapower: a router a bus, channels along lines and transformers that are in service."""
    try:
        import pandapower.networks as networks
    except ModuleNotFoundError:
        raise ConfigError(f"--case {name}: pandapower {MISSING}") from None
    make: Callable[[], Any] | None = getattr(networks, name, None) if re.fullmatch(r"case\w+", name) else None
    if make is None:
        names = ", ".join(sorted((each for each in dir(networks) if re.fullmatch(r"case\d+", each)), key=len))
        raise ConfigError(f"--case {name}: pandapower has no such case; there are {names}")
    net = make()
    places = {bus: place for place, bus in enumerate(net.bus.index)}
    nodes: list[Row] = [
        {"label": f"bus-{row['name'] or bus}", **_schematic(row.get("geo"))} for bus, row in net.bus.iterrows()
    ]
    edges: list[tuple[int, int, Row]] = []
    for _, line in net.line[net.line.in_service].iterrows():
        length: Row = {"length_km": line.length_km} if line.std_type else {"x_ohm": line.x_ohm_per_km * line.length_km}
        edges.append((places[line.from_bus], places[line.to_bus], length))
    for _, unit in net.trafo[net.trafo.in_service].iterrows():
        edges.append((places[unit.hv_bus], places[unit.lv_bus], {"latency_ms": LEAST_MS}))
    return _grid(nodes, edges, f"--case {name}")


def _schematic(geo: Any) -> dict[str, float]:
    """Coordinates of a drawing: for the map, not for distances."""
    if not isinstance(geo, str):
        return {}
    x, y = json.loads(geo)["coordinates"][:2]
    return {"drawn_x": x, "drawn_y": y}


def _grid(nodes: list[Row], edges: Iterable[tuple[int, int, Row]], source: str) -> Grid:
    if not nodes:
        raise ConfigError(f"{source}: there are no nodes")
    where = [_coordinates(node) for node in nodes]
    latencies: dict[tuple[int, int], float] = {}
    for a, b, edge in edges:
        if a == b:
            continue
        pair = min(a, b), max(a, b)
        latency_ms = _latency_ms(edge, nodes[a], nodes[b])
        latencies[pair] = min(latency_ms, latencies.get(pair, math.inf))
    sites = tuple(Site(name, *at) for name, at in zip(_unique(nodes), where, strict=True))
    branches = tuple((a, b, latency_ms) for (a, b), latency_ms in sorted(latencies.items()))
    return Grid(sites, branches)


def _unique(nodes: list[Row]) -> list[str]:
    """Names of routers: letters, digits, `.`, `_` and `-`; numbered where two would be the same."""
    found: dict[str, None] = {}
    for place, node in enumerate(nodes):
        given = str(next((node[key] for key in ("label", "name", "id") if node.get(key) not in (None, "")), place))
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", given).strip("-._")[:56] or "site"
        name = plain
        for number in range(2, len(nodes) + 2):
            if name not in found:
                break
            name = f"{plain}-{number}"
        found[name] = None
    return [*found]


def _number(row: Row, *keys: str) -> float | None:
    for key in keys:
        value = row.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None


def _geographic(node: Row) -> tuple[float, float] | None:
    position = node.get("pos")
    if isinstance(position, list | tuple) and len(position) == 2:
        node = {"lon": position[0], "lat": position[1]}
    longitude, latitude = _number(node, "lon", "longitude", "Longitude"), _number(node, "lat", "latitude", "Latitude")
    return None if longitude is None or latitude is None else (longitude, latitude)


def _coordinates(node: Row) -> tuple[float | None, float | None]:
    return _geographic(node) or (_number(node, "x", "drawn_x"), _number(node, "y", "drawn_y"))


def _latency_ms(edge: Row, a: Row, b: Row) -> float:
    given = _number(edge, "latency_ms", "latency")
    if given is not None:
        return round(given, 3)
    km = _number(edge, "length_km", "length", "dist", "distance")
    if km is None:
        km = _distance_km(a, b)
    if km is None and (ohm := _number(edge, "x_ohm", "reactance")) is not None:
        km = abs(ohm) / OHM_A_KM
    return DEFAULT_MS if km is None else round(max(LEAST_MS, km / KM_A_MS), 3)


def _distance_km(a: Row, b: Row) -> float | None:
    """Great circle between degrees; x and y are kilometres."""
    one, other = _geographic(a), _geographic(b)
    if one is not None and other is not None:
        (lon1, lat1), (lon2, lat2) = ((math.radians(each) for each in place) for place in (one, other))
        half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
        return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half)))
    x1, y1, x2, y2 = _number(a, "x"), _number(a, "y"), _number(b, "x"), _number(b, "y")
    if x1 is None or y1 is None or x2 is None or y2 is None:
        return None
    return math.hypot(x2 - x1, y2 - y1)
