"""Clustering by regions of a curve: the source's rule as it stands, and ours among owners who only send notices.

Owners of arcs of a Hilbert curve see the points of their region and nothing else but what neighbours send them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import numpy as np
from scipy.spatial import cKDTree

from chappe.pipeline import curve, density
from chappe.pipeline.curve import Arcs
from chappe.pipeline.density import ALONE, BITS, EXTENT, Floats, Mask, Numbers, Rule

STRATEGIES = ("none", "ring", "axis", "box")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The source's rule: a region is a cluster if it holds more than its share of all points (section 6.3)."""

    reach: float = 10.0
    cluster: float = 1.0  # times the expected count
    least: int = 2  # points of a cluster
    notices: str = "box"  # who is told of a centroid: none, ring, axis or box

    def __post_init__(self) -> None:
        if self.notices not in STRATEGIES:
            raise ValueError(f"notices {self.notices!r}: give one of {', '.join(STRATEGIES)}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the owners of all regions found together."""

    alone: Mask  # of each point
    centroids: Floats
    notices: int  # messages between owners


def owners(where: Floats, arcs: Arcs) -> Numbers:
    """The owner of each point."""
    return arcs.owner(curve.indices(cell(where), BITS))


def cell(where: Floats) -> Numbers:
    """The whole coordinates of points, inside the space."""
    return np.clip(np.floor(where), 0, EXTENT - 1).astype(np.int64)


def by_regions(where: Floats, arcs: Arcs, rule: Thresholds) -> Outcome:
    """The source's rule: every point of a sparse region that no centroid of a neighbour explains is an outlier."""
    owner = owners(where, arcs)
    count = np.bincount(owner, minlength=len(arcs))
    limit = np.maximum(rule.cluster * density.expected(len(where), 1.0) * arcs.shares, rule.least - 1)
    dense = count > limit
    told: dict[int, list[Floats]] = {}
    found: list[Floats] = []
    notices = 0
    for region in np.flatnonzero(dense).tolist():
        own = where[owner == region]
        for centroid in _region_centroids(own, rule.reach):
            found.append(centroid)
            for neighbour in told_of(centroid, region, arcs, rule):
                told.setdefault(neighbour, []).append(centroid)
                notices += 1
    alone = ~dense[owner]
    for region, received in told.items():
        own = np.flatnonzero(alone & (owner == region))
        if len(own):
            alone[own] = cKDTree(np.array(received)).query(where[own])[0] > rule.reach
    return Outcome(alone, np.array(found).reshape(-1, where.shape[1]), notices)


def told_of(centroid: Floats, region: int, arcs: Arcs, rule: Thresholds) -> list[int]:
    """The other owners that hear of a centroid."""
    if rule.notices == "none":
        return []
    if rule.notices == "ring":
        around = np.array([region - 1, region + 1]) % len(arcs)
    elif rule.notices == "axis":
        steps = rule.reach * np.concatenate((np.eye(len(centroid)), -np.eye(len(centroid))))
        around = owners(centroid + steps, arcs)
    else:
        around = within_box(centroid, rule.reach, arcs)
    return [each for each in np.unique(around).tolist() if each != region]


def within_box(middle: Floats, reach: float, arcs: Arcs) -> Numbers:
    """All owners of some part of the box around a point: complete, whatever the shape of their regions."""
    return arcs.owners(curve.runs(cell(middle - reach), cell(middle + reach), BITS))


def exchanged(where: Floats, peer: Numbers, arcs: Arcs, rule: Rule, total: int) -> Outcome:
    """Our rule (`density.judge`) among owners: each decides on its own cells by what it holds and was sent.

    `total`: states of all peers, which each owner must estimate (CN-104). First each owner sends its cells to the
    owners within reach of them; who then finds a cell dense tells the same owners, who ask for no more.
    """
    edge, dimensions = density.side(rule.reach, where.shape[1]), where.shape[1]
    limit = density.limits(total, dimensions, rule)
    found = density.cells(where, peer, np.ones(len(where)), edge)
    corner = np.zeros(found.middle.shape, dtype=np.int64)
    corner[found.of] = np.floor(where / edge).astype(np.int64)
    around = [np.unique(row[row >= 0]) for row in _owners_near(corner, rule.reach, edge, arcs)]
    owner = arcs.owner(curve.indices(corner * int(edge), BITS))  # cells are not divided
    heard: dict[int, list[int]] = {}
    for each, regions in enumerate(around):
        for region in regions.tolist():
            heard.setdefault(region, []).append(each)
    told: dict[int, list[tuple[int, bool]]] = {}
    sent = sum(len(regions) - 1 for regions in around)
    for region, known in heard.items():
        for each, core in _dense(found, np.array(known), owner == region, limit):
            sent += len(around[each]) - 1
            for neighbour in around[each].tolist():
                told.setdefault(neighbour, []).append((each, core))
    alone = np.ones(len(where), dtype=np.bool_)
    for region, notices in told.items():
        own = np.flatnonzero(owner[found.of] == region)
        middle, cores = found.middle[[each for each, _ in notices]], np.array([core for _, core in notices])
        every, label = np.ones(len(middle), dtype=np.bool_), np.zeros(len(middle), dtype=np.int64)
        alone[own] = density.joined(where[own], middle, every, cores, label, limit) == ALONE
    centroids = density.centroids(where, np.where(alone, ALONE, owner[found.of]), rule.reach)
    return Outcome(alone, centroids.where, sent)


def _owners_near(corner: Numbers, reach: float, edge: float, arcs: Arcs) -> Numbers:
    """The owners of all cells with some part within reach of each cell, in no order; -1 outside of the space."""
    steps = np.arange(-ceil(reach / edge), ceil(reach / edge) + 1)
    offsets = np.stack(np.meshgrid(*[steps] * corner.shape[1], indexing="ij"), axis=-1).reshape(-1, corner.shape[1])
    cells = corner[:, None] + offsets[None]
    inside = ((cells >= 0) & (cells < EXTENT / edge)).all(axis=2)
    near = np.full(inside.shape, -1, dtype=np.int64)
    near[inside] = arcs.owner(curve.indices(cells[inside] * int(edge), BITS))
    return near


def _dense(found: density.Cells, known: Numbers, own: Mask, limit: density.Limits) -> Iterator[tuple[int, bool]]:
    """The dense ones among the own cells of an owner by the cells it knows of, and whether each is a core."""
    tree = cKDTree(found.middle[known])
    peers = found.peers[known]
    dense = density.peers_near(tree, peers, limit.reach, limit.dense) >= limit.dense
    core = density.peers_near(tree, peers, limit.near, limit.core) >= limit.core
    for at in np.flatnonzero((dense | core) & own[known]).tolist():
        yield int(known[at]), bool(core[at])


def _region_centroids(points: Floats, reach: float) -> Floats:
    """The centroids of one region by the source: k from its extent, then k-means (CN-109)."""
    extent = points.max(axis=0) - points.min(axis=0)
    k = min(int(np.prod([max(1, ceil(length / (2 * reach))) for length in extent])), len(np.unique(points, axis=0)))
    spread = np.linspace(0, len(points) - 1, k).astype(int)  # first guesses from along the region
    seeds = points[np.lexsort(points.T)][spread]
    start = np.unique(cKDTree(seeds).query(points)[1], return_inverse=True)[1].reshape(-1)
    return density.kmeans(points, np.ones(len(points)), start)[0]
