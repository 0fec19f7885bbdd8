"""Which states of peers belong together and which stand alone, by density alone: no model, no training (CN-107).

A state is a point of a space whose dimensions all run from 0 to `EXTENT`. Two states are similar if they are no farther
apart than `reach`. Decision record 0025 says why the rule is this one. All that a decision looks at lies within twice
`reach` of it, so the owner of a region decides on its own after two rounds of notices (`chappe.pipeline.regions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma, log2, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from scipy.special import pdtrc

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Mask = NDArray[np.bool_]

BITS = 8
EXTENT = float(1 << BITS)
CHANCE = 0.125  # others that chance may bring where a cell speaks for them
ROUNDS = 50  # of k-means at most
ALONE = -1  # the cluster of an outlier


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a place dense: more peers near it than chance would bring there, if some were anywhere."""

    reach: float = 10.0  # states no farther apart are similar
    noise: float = 0.05  # the share of states that may lie anywhere without meaning anything
    doubt: float = 0.01  # how often chance alone may look dense
    least: int = 3  # peers, however improbable fewer are

    def __post_init__(self) -> None:
        if not 0 < self.reach < EXTENT:
            raise ValueError(f"reach is {self.reach}; it must be above 0 and below {EXTENT:g}, the extent of a space")
        if not (0 < self.noise <= 1 and 0 < self.doubt < 1):
            raise ValueError(f"noise {self.noise} and doubt {self.doubt} are shares: above 0 and below 1")
        if self.least < 2:
            raise ValueError(f"least is {self.least}; one peer alone is no cluster, give 2 or more")


@dataclass(frozen=True, slots=True)
class Cells:
    """Points summed up by cells so small that all in one are similar: what peers tell each other instead of points."""

    of: Numbers  # the cell of each point
    middle: Floats  # the mean of the points of each cell
    weight: Floats  # how many points each has
    peers: csr_array  # cells by peers


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of each point."""

    cluster: Numbers  # its number, ALONE for outliers
    near: Numbers  # peers within reach, itself included; at least so many where they are enough
    needed: int  # for a place to be dense
    expected: float  # peers within reach if all points were spread evenly


@dataclass(frozen=True, slots=True)
class Centroids:
    """Where clusters are: several centroids for one that is longer than twice the reach."""

    where: Floats
    cluster: Numbers
    weight: Floats  # points
    radius: Floats  # root of the mean squared distance of its points


def expected(points: float, share: float) -> float:
    """How many of these points a region with that share of the space holds if they are spread evenly (CN-103)."""
    return points * share


def ball(radius: float, dimensions: int) -> float:
    """The share of a space that lies within a radius."""
    return min(1.0, float(pi ** (dimensions / 2) / gamma(dimensions / 2 + 1) * (radius / EXTENT) ** dimensions))


@dataclass(frozen=True, slots=True)
class Limits:
    """What the rule means for a number of points."""

    dense: int  # peers within reach of a cell, its own included, that make it dense
    core: int  # peers nearer to it that make it a core
    near: float  # how near: half of the reach, less where chance would bring others so near
    reach: float  # how far a core speaks for others
    vouched: float  # how far a cell that is only dense does: where chance brings few


def limits(points: int, dimensions: int, rule: Rule) -> Limits:
    """The rule for so many points; a core speaks for more than itself, so that it must be surer."""
    chance = rule.noise * expected(points, ball(rule.reach, dimensions))
    alone, few = (rule.reach * (most / max(chance, most)) ** (1 / dimensions) for most in (1.0, CHANCE))
    near = min(rule.reach / 2, alone)
    cell = (side(rule.reach, dimensions) / EXTENT) ** dimensions  # no place is smaller
    inner = rule.noise * expected(points, max(ball(near, dimensions), cell))
    dense, core = _improbable(chance, rule.doubt), _improbable(inner, rule.doubt / (1 + chance))
    return Limits(max(dense + 1, rule.least), max(core + 1, rule.least), near, rule.reach, few)


def _improbable(chance: float, doubt: float) -> int:
    """The smallest number that chance reaches or exceeds no more often than that."""
    count = 1
    while pdtrc(count - 1, chance) > doubt:
        count += 1
    return count


def side(reach: float, dimensions: int) -> float:
    """The edge of a cell: the largest sub-cube of the curve within which everything is similar."""
    return float(2 ** int(np.floor(log2(reach / sqrt(dimensions)))))


def cells(where: Floats, peer: ArrayLike, weight: Floats, edge: float) -> Cells:
    """Points by cells; `peer` are numbers from 0."""
    of = _numbered(np.floor(where / edge).astype(np.int64))
    count = int(of.max(initial=-1)) + 1
    middle, total = _middles(where, weight, of)
    who = np.asarray(peer, dtype=np.int64)
    there = csr_array((np.ones(len(of), dtype=np.int32), (of, who)), shape=(count, int(who.max(initial=-1)) + 1))
    there.sum_duplicates()
    there.data[:] = 1
    return Cells(of, middle, total, there)


def judge(where: ArrayLike, peer: ArrayLike, rule: Rule, weight: ArrayLike | None = None) -> Verdict:
    """Clusters and outliers among points, each of a peer (a number from 0); `weight`: how many points each row is.

    A peer that says the same again and again is one peer: it cannot be a cluster on its own.
    """
    points = np.asarray(where, dtype=np.float64)
    if not len(points):
        nothing = np.zeros(0, dtype=np.int64)
        return Verdict(nothing, nothing, rule.least, 0.0)
    count = np.ones(len(points)) if weight is None else np.asarray(weight, dtype=np.float64)
    dimensions = points.shape[1]
    found = cells(points, peer, count, side(rule.reach, dimensions))
    total = int(found.peers.nnz)
    tree = cKDTree(found.middle)
    limit = limits(total, dimensions, rule)
    near = peers_near(tree, found.peers, rule.reach, limit.dense)
    dense = near >= limit.dense
    core = peers_near(tree, found.peers, limit.near, limit.core) >= limit.core
    label = grouped(found.middle, dense | core, rule.reach)
    cluster = joined(points, found.middle, dense, core, label, limit)
    return Verdict(cluster, near[found.of], limit.dense, expected(total, ball(rule.reach, dimensions)))


def peers_near(tree: cKDTree, peers: csr_array, radius: float, enough: int) -> Numbers:
    """How many different peers are in the cells whose middle is within a radius of each cell's.

    Exact below `enough`; where one cell alone has that many nobody needs to know who is in the others, too.
    """
    pairs = tree.query_pairs(radius, output_type="ndarray")
    own = np.arange(tree.n)
    rows, columns = np.concatenate((own, pairs[:, 0], pairs[:, 1])), np.concatenate((own, pairs[:, 1], pairs[:, 0]))
    adjacent = csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(tree.n, tree.n))
    count: Numbers = np.diff(peers.indptr).astype(np.int64)
    sure = count >= enough
    beside = adjacent @ sure.astype(np.int32) > 0
    count = np.where(sure, count, enough)
    rest = np.flatnonzero(~beside)
    union = adjacent[rest] @ peers
    count[rest] = np.diff(union.indptr)
    return count


def grouped(middle: Floats, dense: Mask, reach: float) -> Numbers:
    """The cluster of each dense cell: dense cells within reach of each other are one; ALONE for the others."""
    label = np.full(len(middle), ALONE, dtype=np.int64)
    chosen = np.flatnonzero(dense)
    if len(chosen):
        pairs = cKDTree(middle[chosen]).query_pairs(reach, output_type="ndarray")
        links = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(chosen), len(chosen)))
        label[chosen] = connected_components(links, directed=False)[1]
    return label


def joined(points: Floats, middle: Floats, dense: Mask, core: Mask, label: Numbers, limit: Limits) -> Numbers:
    """The cluster of each point: of the nearest core within reach, else of a dense cell that speaks for it.

    A cell may be dense because it lies beside a cluster; what is near such a cell is not yet near the cluster.
    """
    cluster = np.full(len(points), ALONE, dtype=np.int64)
    for which, within in ((dense, limit.vouched), (core, limit.reach)):
        chosen = np.flatnonzero(which)
        if len(chosen):
            far, at = cKDTree(middle[chosen]).query(points, distance_upper_bound=np.nextafter(within, np.inf))
            hit = np.isfinite(far)
            cluster[hit] = label[chosen[at[hit]]]
    return cluster


def centroids(where: ArrayLike, cluster: ArrayLike, reach: float, weight: ArrayLike | None = None) -> Centroids:
    """Centroids of clusters: as many as boxes of twice the reach hold points of it, moved by k-means (CN-108, 109).

    What moves are the middles of cells, however many points they have.
    """
    points, number = np.asarray(where, dtype=np.float64), np.asarray(cluster, dtype=np.int64)
    count = np.ones(len(points)) if weight is None else np.asarray(weight, dtype=np.float64)
    dimensions = points.shape[1] if points.ndim == 2 else 0
    parts = []
    for each in np.unique(number[number != ALONE]):
        own = number == each
        corners = np.floor(points[own] / side(reach, dimensions)).astype(np.int64)
        cell = _numbered(corners)
        middle, total = _middles(points[own], count[own], cell)
        within = np.bincount(cell, weights=count[own] * _squares(points[own] - middle[cell])).astype(np.float64)
        boxes = _numbered(np.floor((middle - middle.min(axis=0)) / (2 * reach)).astype(np.int64))
        parts.append((each, *kmeans(middle, total, boxes, within)))
    if not parts:
        return Centroids(np.zeros((0, dimensions)), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    return Centroids(
        np.concatenate([middle for _, middle, _, _ in parts]),
        np.concatenate([np.full(len(middle), each, dtype=np.int64) for each, middle, _, _ in parts]),
        np.concatenate([total for _, _, total, _ in parts]),
        np.concatenate([radius for _, _, _, radius in parts]),
    )


def kmeans(
    points: Floats, weight: Floats, start: Numbers, within: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Middle, weight and radius of groups of points, from a first grouping until no point moves.

    `within`: the sum of the squared distances that each of these stands for, if it is the middle of several.
    """
    group = start
    for _ in range(ROUNDS):
        moved = cKDTree(_middles(points, weight, group)[0]).query(points)[1]
        if (moved == group).all():
            break
        group = np.unique(moved, return_inverse=True)[1].reshape(-1)
    middle, total = _middles(points, weight, group)
    apart = weight * _squares(points - middle[group]) + (0.0 if within is None else within)
    return middle, total, np.sqrt(np.bincount(group, weights=apart) / total)


def _squares(apart: Floats) -> Floats:
    return np.asarray((apart**2).sum(axis=1), dtype=np.float64)


def _numbered(rows: Numbers) -> Numbers:
    """Equal rows have the same number, from 0."""
    low = rows.min(axis=0, initial=np.iinfo(np.int64).max)
    sizes = rows.max(axis=0, initial=0) - low + 1
    if float(np.prod(sizes.astype(np.float64))) < 2**62:  # one number a row sorts faster than rows do
        key = np.ravel_multi_index(tuple((rows - low).T), tuple(sizes.tolist()))
        return np.unique(key, return_inverse=True)[1].reshape(-1)
    return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)


def _middles(points: Floats, weight: Floats, group: Numbers) -> tuple[Floats, Floats]:
    total: Floats = np.bincount(group, weights=weight).astype(np.float64)
    return np.stack([np.bincount(group, weights=weight * axis) / total for axis in points.T], axis=1), total
