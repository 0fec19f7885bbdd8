"""Where the nodes and links of a simulated mesh come from: networks of topohub, or grown ones of any size."""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial import Delaunay, KDTree

from chappe.errors import ConfigError
from chappe.sim.link import Quality
from chappe.sim.network import Network

KM_A_MS = 200.0  # light in a fibre
LEAST_MS = 0.1
UNKNOWN_MS = 1.0  # of a link whose length is not known


@dataclass(frozen=True)
class Plan:
    """Named nodes and links with their latency in ms; no pair twice."""

    name: str
    nodes: tuple[str, ...]
    links: tuple[tuple[str, str, float], ...]

    def matrix(self) -> csr_array:
        """Latencies as SciPy wants them, in the order of `nodes`."""
        index = {name: at for at, name in enumerate(self.nodes)}
        rows = [index[a] for a, _, _ in self.links]
        columns = [index[b] for _, b, _ in self.links]
        weights = [max(ms, 1e-6) for _, _, ms in self.links]
        size = len(self.nodes)
        return csr_array((weights * 2, (rows + columns, columns + rows)), shape=(size, size))


def topology(key: str) -> Plan:
    """The largest connected part of a network of topohub, such as `sndlib/germany50` or `topozoo/Abilene`."""
    try:
        import topohub
    except ImportError:
        raise ConfigError("topohub is not installed; pip install 'chappe[grid]'") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves its file open
            found: dict[str, Any] = topohub.get(key)
    except (KeyError, OSError):
        raise ConfigError(
            f"topohub has no network {key!r}; names look like sndlib/germany50, topozoo/Abilene"
        ) from None
    names = {str(node["id"]): f"n{node['id']}" for node in found["nodes"]}
    links: dict[tuple[str, str], float] = {}
    for edge in found["edges"]:
        a, b = sorted((names[str(edge["source"])], names[str(edge["target"])]))
        if a != b:
            length_km = float(edge.get("dist") or 0.0)
            links[a, b] = max(LEAST_MS, length_km / KM_A_MS) if length_km else UNKNOWN_MS
    whole = Plan(key, tuple(names.values()), tuple((a, b, ms) for (a, b), ms in links.items()))
    return _largest(whole)


def grown(count: int, rng: random.Random, width_km: float = 0.0, dense: bool = False) -> Plan:
    """A Gabriel graph over random points: like wide-area networks in degree and locality; always connected.

    Without a width the area grows with the number of nodes, so that neighbours stay about 100 km apart. `dense`: all
    neighbours of the Delaunay triangulation, six on average instead of four.
    """
    if count < 2:
        raise ConfigError(f"a mesh of {count} nodes: it needs at least 2")
    width = width_km or 100.0 * math.sqrt(count)
    points = np.array([(rng.uniform(0, width), rng.uniform(0, width)) for _ in range(count)])
    digits = len(str(count - 1))
    nodes = tuple(f"n{at:0{digits}d}" for at in range(count))
    pairs = _neighbours(points, dense)
    links = []
    for a, b in pairs:
        length_km = float(np.hypot(*(points[a] - points[b])))
        links.append((nodes[a], nodes[b], max(LEAST_MS, length_km / KM_A_MS)))
    return Plan(f"grown/{count}", nodes, tuple(links))


def units(plan: Plan, fan_out: int, depth: int, outermost: int = 0) -> dict[str, tuple[str, ...]]:
    """A unit path for each node: at each level `fan_out` parts of about the same size, each connected in itself.

    `outermost`: so many units at the top, where the mesh is not large enough for `fan_out` of them.
    """
    distances = shortest_path(plan.matrix(), directed=False)
    adjacency = plan.matrix()
    paths: dict[int, tuple[str, ...]] = dict.fromkeys(range(len(plan.nodes)), ())

    def divide(members: NDArray[np.intp], level: int) -> None:
        if level == depth:
            return
        count = min(outermost or fan_out if level == 0 else fan_out, len(members))
        for at, part in enumerate(_parts(members, count, distances, adjacency)):
            for node in part:
                paths[int(node)] = (*paths[int(node)], f"{'uvwxyz'[level % 6]}{at:02d}")
            divide(part, level + 1)

    divide(np.arange(len(plan.nodes)), 0)
    return {plan.nodes[at]: path for at, path in paths.items()}


def thinned(plan: Plan, places: dict[str, tuple[str, ...]], most: int) -> Plan:
    """At most so many links between any two units that lie in the same one around them, over different nodes first.

    As people build it: a unit has some gateways, not a link from each of its nodes; so what is known of a unit does not
    grow with its size.
    """
    between: dict[tuple[tuple[str, ...], tuple[str, ...]], list[tuple[str, str, float]]] = {}
    kept = []
    for link in plan.links:
        a, b = places[link[0]], places[link[1]]
        same = next((at for at, (mine, its) in enumerate(zip(a, b, strict=True)) if mine != its), None)
        if same is None:
            kept.append(link)
        else:
            one, other = sorted((a[: same + 1], b[: same + 1]))
            between.setdefault((one, other), []).append(link)
    for links in between.values():
        kept += _spread(sorted(links, key=lambda link: link[2]), most)
    order = {link: at for at, link in enumerate(plan.links)}
    return Plan(plan.name, plan.nodes, tuple(sorted(kept, key=order.__getitem__)))


def meshed(plan: Plan, places: dict[str, tuple[str, ...]], least: int) -> Plan:
    """Each node has at least so many links inside its cluster, to the nearest others: a few failures do not part it."""
    distances = shortest_path(plan.matrix(), directed=False)
    index = {name: at for at, name in enumerate(plan.nodes)}
    clusters: dict[tuple[str, ...], list[str]] = {}
    for name in plan.nodes:
        clusters.setdefault(places[name], []).append(name)
    linked: dict[str, set[str]] = {name: set() for name in plan.nodes}
    for a, b, _ in plan.links:
        if places[a] == places[b]:
            linked[a].add(b)
            linked[b].add(a)
    added: list[tuple[str, str, float]] = []
    for name in plan.nodes:
        near = sorted(clusters[places[name]], key=lambda other: (distances[index[name], index[other]], other))
        for other in near:
            if len(linked[name]) >= least:
                break
            if other != name and other not in linked[name]:
                linked[name].add(other)
                linked[other].add(name)
                added.append((min(name, other), max(name, other), float(distances[index[name], index[other]])))
    return Plan(plan.name, plan.nodes, (*plan.links, *added))


def _spread(links: list[tuple[str, str, float]], most: int) -> list[tuple[str, str, float]]:
    """So many links, shortest first, but those with unused ends before others."""
    chosen: list[tuple[str, str, float]] = []
    used: set[str] = set()
    for fresh in (True, False):
        for link in links:
            if len(chosen) < most and link not in chosen and (not fresh or not used & {link[0], link[1]}):
                chosen.append(link)
                used |= {link[0], link[1]}
    return chosen


def build(
    network: Network, plan: Plan, places: dict[str, tuple[str, ...]] | None = None, *, jitter_ms: float = 0.0,
    loss: float = 0.0, rate: float = math.inf,
) -> None:  # fmt: skip
    """Add the nodes and links of a plan to a network."""
    for name in plan.nodes:
        network.add(name, (places or {}).get(name, ()))
    for a, b, ms in plan.links:
        network.join(a, b, Quality(delay_ms=ms, jitter_ms=jitter_ms, loss=loss, rate=rate))


def _largest(plan: Plan) -> Plan:
    count, label = connected_components(plan.matrix(), directed=False)
    if count == 1:
        return plan
    keep = int(np.bincount(label).argmax())
    nodes = tuple(name for name, own in zip(plan.nodes, label, strict=True) if own == keep)
    return Plan(plan.name, nodes, tuple(link for link in plan.links if link[0] in nodes))


def _neighbours(points: NDArray[np.float64], dense: bool) -> list[tuple[int, int]]:
    """Pairs that share a side of the triangulation; unless dense, only if no point is in the circle over it."""
    if len(points) < 4:
        return [(a, b) for a in range(len(points)) for b in range(a)]
    sides = ((int(t[i]), int(t[i - 1])) for t in Delaunay(points).simplices for i in range(3))
    edges = {(min(side), max(side)) for side in sides}
    if dense:
        return sorted(edges)
    tree = KDTree(points)
    found = []
    for a, b in sorted(edges):
        middle = (points[a] + points[b]) / 2
        radius = float(np.hypot(*(points[a] - points[b]))) / 2
        if all(other in (a, b) for other in tree.query_ball_point(middle, radius * (1 - 1e-9))):
            found.append((a, b))
    return found


def _parts(
    members: NDArray[np.intp], count: int, distances: NDArray[np.float64], adjacency: csr_array
) -> list[NDArray[np.intp]]:
    """Cut again and again between the two nodes that are farthest apart."""
    if count <= 1 or len(members) <= 1:
        return [members]
    own = distances[np.ix_(members, members)]
    a, b = np.unravel_index(int(own.argmax()), own.shape)
    order = np.argsort(own[a] - own[b], kind="stable")
    size = round(len(members) * (count // 2) / count)
    near, far = _mended(members[order[:size]], members[order[size:]], adjacency)
    return [
        *_parts(near, count // 2, distances, adjacency),
        *_parts(far, count - count // 2, distances, adjacency),
    ]


def _mended(
    near: NDArray[np.intp], far: NDArray[np.intp], adjacency: csr_array
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Both sides connected: what is cut off from the largest part of its side goes to the other."""
    for _ in range(4):
        near, off_near = _whole(near, adjacency)
        far, off_far = _whole(far, adjacency)
        near, far = np.concatenate((near, off_far)), np.concatenate((far, off_near))
        if not len(off_near) and not len(off_far):
            break
    return near, far


def _whole(members: NDArray[np.intp], adjacency: csr_array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    if not len(members):
        return members, members
    _, label = connected_components(adjacency[members][:, members], directed=False)
    keep = label == int(np.bincount(label).argmax())
    return members[keep], members[~keep]
