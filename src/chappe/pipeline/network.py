"""A measured network at one time: which links carry what, which are missed most, and what others would change.

Costs are those of measurements, one an arc: each end of a link measures it for itself. Ways are the cheapest ones, as
nodes choose them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import rustworkx
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from chappe.graph.disjoint import disjoint
from chappe.graph.graph import Graph, Path
from chappe.linkstate.arcs import HOP

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

SCALE = 1_000_000  # costs are milliseconds, weights of paths whole nanoseconds
NOWHERE = -9999  # of SciPy: nothing before


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes by name, and what each arc costs; infinite where there is no link."""

    names: tuple[str, ...]
    cost: Floats  # from, to

    @classmethod
    def of(cls, arcs: Iterable[tuple[str, str, float]]) -> Network:
        """From (node, peer, cost); what only one end measured counts for both, of parallel links the cheapest."""
        best: dict[tuple[str, str], float] = {}
        for node, peer, cost in arcs:
            if node != peer and np.isfinite(cost) and cost >= 0:
                best[node, peer] = min(cost, best.get((node, peer), np.inf))
        names = tuple(sorted({name for pair in best for name in pair}))
        place = {name: at for at, name in enumerate(names)}
        matrix = np.full((len(names), len(names)), np.inf)
        for (node, peer), cost in best.items():
            a, b = place[node], place[peer]
            matrix[a, b] = cost
            if (peer, node) not in best:
                matrix[b, a] = cost
        return cls(names, matrix)

    @property
    def links(self) -> list[tuple[int, int]]:
        """Pairs of nodes with a link, the smaller number first."""
        there = np.isfinite(self.cost)
        found = np.argwhere(np.triu(there | there.T, 1))
        return [(int(a), int(b)) for a, b in found]

    def without(self, a: int, b: int) -> Network:
        """The same without a link."""
        cost = self.cost.copy()
        cost[a, b] = cost[b, a] = np.inf
        return Network(self.names, cost)


@dataclass(frozen=True, slots=True)
class Ways:
    """The cheapest ways between all pairs."""

    distance: Floats
    before: Numbers  # the node before the last on the way from one to another


def ways(network: Network) -> Ways:
    """All pairs; of equal ways one with fewer hops."""
    there = np.isfinite(network.cost)
    rows, columns = np.nonzero(there)
    size = len(network.names)
    matrix = csr_array((network.cost[there] + HOP, (rows, columns)), shape=(size, size))
    if not size:
        return Ways(np.zeros((0, 0)), np.zeros((0, 0), dtype=np.int64))
    distance, before = dijkstra(matrix, return_predecessors=True)
    return Ways(distance, before.astype(np.int64))


def demand(names: tuple[str, ...], sent: Mapping[str, float], received: Mapping[str, float]) -> Floats:
    """The share of all traffic between each pair of nodes, by what clients sent and got at each (a gravity model).

    The same for all pairs where nothing is known.
    """
    size = len(names)
    out = np.array([max(0.0, sent.get(name, 0.0)) for name in names])
    into = np.array([max(0.0, received.get(name, 0.0)) for name in names])
    shares = np.outer(out, into)
    np.fill_diagonal(shares, 0.0)
    if not shares.sum() > 0:
        shares = np.ones((size, size)) - np.eye(size)
    total = shares.sum()
    return shares / total if total else shares


def loads(found: Ways, wanted: Floats) -> tuple[Floats, Numbers]:
    """What each arc carries of what is wanted, and how many pairs use it."""
    size = len(wanted)
    load, pairs = np.zeros((size, size)), np.zeros((size, size), dtype=np.int64)
    for source in range(size):
        reached = np.flatnonzero(np.isfinite(found.distance[source]))
        order = reached[np.argsort(-found.distance[source, reached], kind="stable")]
        amount = np.where(np.isfinite(found.distance[source]), wanted[source], 0.0)
        count = np.isfinite(found.distance[source]).astype(np.int64)
        for node in order.tolist():  # the farthest first: what goes beyond a node goes through it
            previous = int(found.before[source, node])
            if previous != NOWHERE:
                load[previous, node] += amount[node]
                pairs[previous, node] += count[node]
                amount[previous] += amount[node]
                count[previous] += count[node]
    return load, pairs


def total(found: Ways, wanted: Floats) -> float:
    """The mean cost of what is wanted, without what cannot get through."""
    there = np.isfinite(found.distance)
    share = float(wanted[there].sum())
    return float((wanted[there] * found.distance[there]).sum()) / share if share else 0.0


def weak_points(network: Network) -> tuple[list[int], list[tuple[int, int]]]:
    """Nodes and links without which the network falls apart: articulation nodes and bridges."""
    graph: rustworkx.PyGraph[int, None] = rustworkx.PyGraph()
    graph.add_nodes_from(range(len(network.names)))
    graph.add_edges_from_no_data(network.links)
    nodes = sorted(rustworkx.articulation_points(graph))
    return nodes, sorted((min(pair), max(pair)) for pair in rustworkx.bridges(graph))


@dataclass(frozen=True, slots=True)
class Addition:
    """A link that is not there, what it may cost, and what that saves."""

    a: int
    b: int
    now: float  # the way there is
    estimate: float  # what the link would cost
    gain: float  # of the mean cost of all traffic


def candidates(network: Network, found: Ways, most: int, direct: float) -> list[tuple[int, int, float]]:
    """Links that could be added, with what each may cost, those that shorten a way most first.

    No direct way is shorter than the triangle inequality allows: what it may cost lies between that bound and what the
    way costs now, at the share `direct` of the difference.
    """
    size = len(network.names)
    if size < 3:
        return []
    distance = np.minimum(found.distance, found.distance.T)
    listed = []
    for a, b in combinations(range(size), 2):
        now = distance[a, b]
        if np.isfinite(network.cost[a, b]) or np.isfinite(network.cost[b, a]) or not np.isfinite(now):
            continue
        both = np.isfinite(distance[a]) & np.isfinite(distance[b])
        bound = float(np.abs(distance[a, both] - distance[b, both])[_others(both, a, b)].max(initial=0.0))
        listed.append((a, b, bound + direct * (float(now) - bound)))
    listed.sort(key=lambda each: (each[2] - distance[each[0], each[1]], each))
    return listed[:most]


def _others(both: NDArray[np.bool_], a: int, b: int) -> NDArray[np.bool_]:
    """Among the nodes that are in reach of two those that are neither."""
    places = np.flatnonzero(both)
    others: NDArray[np.bool_] = (places != a) & (places != b)
    return others


def gains(found: Ways, wanted: Floats, links: Iterable[tuple[int, int, float]]) -> Iterator[Addition]:
    """What each of these links would save, each added alone."""
    distance = found.distance
    before = total(found, wanted)
    there = np.isfinite(distance)
    share = float(wanted[there].sum())
    for a, b, estimate in links:
        forward = distance[:, a, None] + estimate + distance[None, b, :]
        backward = distance[:, b, None] + estimate + distance[None, a, :]
        after = np.minimum(np.minimum(distance, forward), backward)
        mean = float((wanted[there] * after[there]).sum()) / share if share else 0.0
        yield Addition(a, b, float(min(distance[a, b], distance[b, a])), estimate, before - mean)


def loss(network: Network, found: Ways, wanted: Floats, link: tuple[int, int]) -> tuple[float, bool]:
    """How much dearer traffic becomes without a link, and whether some cannot get through any more."""
    without = ways(network.without(*link))
    cut = bool((np.isfinite(found.distance) & ~np.isfinite(without.distance)).any())
    return total(without, wanted) - total(found, wanted), cut


@dataclass(frozen=True, slots=True)
class Alternate:
    """Two ways between a pair that share no node but their ends; the second is empty if there is none."""

    way: Path
    cost: float
    second: Path
    second_cost: float


def alternates(network: Network, pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, Alternate]]:
    """The cheapest way of each pair, and the cheapest that shares nothing with it."""
    names = network.names
    there = np.argwhere(np.isfinite(network.cost))
    arcs = {(names[a], names[b]): round(float(network.cost[a, b]) * SCALE) for a, b in there.tolist()}
    graph = Graph(arcs)
    for a, b in pairs:
        first = disjoint(graph, names[a], names[b], 1)
        if not first:
            continue
        best = first[0]
        if len(best) == 2:
            rest = Graph({arc: weight for arc, weight in arcs.items() if set(arc) != {names[a], names[b]}})
        else:
            rest = graph.without(frozenset(best[1:-1]))
        other = disjoint(rest, names[a], names[b], 1)
        second: Path = other[0] if other else ()
        price = graph.weight(second) / SCALE if second else float("inf")
        yield a, b, Alternate(best, graph.weight(best) / SCALE, second, price)
