"""Links of a map as arrays, and what each costs by a profile: measured, unmeasured or static (MR-017, MR-018)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH, cost
from chappe.netmap.topology import Edge, View
from chappe.netmap.units import static_cost

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

FEW = 16  # links that are cheaper to compute one by one
HOP = 1e-7  # each hop costs this much more, so that of equal ways the one with fewer hops is the shortest


class Arcs:
    """Directed pairs of things with at least one link, sorted as SciPy wants them; never down into a smaller unit."""

    def __init__(self, view: View) -> None:
        self.size = len(view.vertices)
        pairs: dict[tuple[int, int], list[int]] = {}
        for number, edge in enumerate(view.edges):
            a, b = edge.a.index, edge.b.index
            pairs.setdefault((a, b), []).append(number)
            if edge.a.level == edge.b.level:
                pairs.setdefault((b, a), []).append(number)
        ordered = sorted(pairs)
        self.count = len(ordered)
        self.number = {pair: place for place, pair in enumerate(ordered)}
        self.links = [pairs[pair] for pair in ordered]  # edges of each arc
        self.tail: Integers = np.fromiter((a for a, _ in ordered), dtype=np.intp, count=self.count)
        self.head: Integers = np.fromiter((b for _, b in ordered), dtype=np.intp, count=self.count)
        self.single = all(len(links) == 1 for links in self.links)
        self._order: Integers = np.array([edge for links in self.links for edge in links], dtype=np.intp)
        lengths = np.array([len(links) for links in self.links], dtype=np.intp)
        self._starts: Integers = np.concatenate(([0], np.cumsum(lengths)[:-1])) if self.count else lengths
        counts = np.bincount(self.tail, minlength=self.size) if self.count else np.zeros(self.size, dtype=np.intp)
        self.matrix = csr_array(
            (
                np.zeros(self.count),
                self.head.astype(np.int32),
                np.concatenate(([0], np.cumsum(counts))).astype(np.int32),
            ),
            shape=(self.size, self.size),
        )

    def weights(self, costs: Floats) -> Floats:
        """Of each arc the cost of its cheapest link, and the hop."""
        found = costs[self._order]
        if not self.single:
            found = np.minimum.reduceat(found, self._starts)
        return found + HOP


class Costs:
    """What is known of each link: the worse of what its ends told, so that a liar makes only its own links dearer."""

    def __init__(self, view: View, performance: bool) -> None:
        self.view = view
        self.performance = performance
        count = len(view.edges)
        self.level = np.fromiter((edge.level for edge in view.edges), dtype=np.intp, count=count)
        self.static = np.fromiter(
            (static_cost(edge.a.level, edge.b.level) for edge in view.edges), dtype=np.float64, count=count
        )
        told = [combined(edge) for edge in view.edges]
        self.known = np.array([known for known, _ in told], dtype=np.int8)  # how many ends have measured it
        self.metrics = np.array([worst for _, worst in told], dtype=np.float64).reshape(count, 4)
        self._measured: dict[str, Floats] = {}
        self._counted: dict[str, Floats] = {}

    def update(self, numbers: list[int]) -> None:
        """Links have other metrics."""
        if not numbers:
            return
        self._counted.clear()
        for number in numbers:
            self.known[number], worst = combined(self.view.edges[number])
            self.metrics[number] = worst
            if len(numbers) <= FEW:
                for profile, costs in self._measured.items():
                    costs[number] = cost_of_one(profile, *worst)
        if len(numbers) > FEW:
            for profile, costs in self._measured.items():
                costs[numbers] = cost(profile, *self.metrics[numbers].T)

    def of(self, profile: str) -> Floats:
        """What each link counts with; ValueError names a profile that does not exist.

        Links that nobody has measured count like the median of those that are, at their level or of all; links that one
        end has measured count with at least that, since nobody confirms what it says (MR-018).
        """
        counted = self._counted.get(profile)
        if counted is None:
            counted = self._counted[profile] = self._count(profile)
        return counted

    def _count(self, profile: str) -> Floats:
        if profile not in self._measured:
            self._measured[profile] = np.atleast_1d(cost(profile, *self.metrics.T))
        if not self.measured:
            return self.static
        costs = self._measured[profile]
        known = np.where(np.isnan(costs), 0, self.known)
        if (known == 2).all():
            return costs
        usual = np.empty_like(costs)
        for level in np.unique(self.level):
            here = self.level == level
            usual[here] = _median(costs[here & (known > 0)], costs[known > 0], self.static[here])
        return np.where(known == 2, costs, np.fmax(costs, usual))

    @property
    def measured(self) -> bool:
        """Whether costs are those that were measured."""
        return self.performance and bool(self.known.any())


def cost_of_one(profile: str, latency_ms: float, jitter: float, loss: float, bandwidth: float) -> float:
    """As `cost`, of one link, without the price of arrays."""
    if latency_ms != latency_ms:
        return math.nan
    try:
        total = PROFILES[profile](
            latency_ms,
            jitter if jitter == jitter else 0.0,
            loss if loss == loss else 0.0,
            bandwidth if bandwidth > 0 else UNKNOWN_BANDWIDTH,
        )
        return max(float(total), 0.0) if math.isfinite(total) else math.nan
    except (ArithmeticError, TypeError):  # a formula that is made for arrays
        return float(cost(profile, latency_ms, jitter, loss, bandwidth))


def combined(edge: Edge) -> tuple[int, tuple[float, float, float, float]]:
    """How many ends have measured a link, and the worse of what they told: latency, jitter, loss, bandwidth."""
    a, b = edge.fact_a, edge.fact_b
    known = (a.latency_ms == a.latency_ms) + (b.latency_ms == b.latency_ms)
    return known, (
        _larger(a.latency_ms, b.latency_ms),
        _larger(a.jitter, b.jitter),
        _larger(a.loss, b.loss),
        -_larger(-a.bandwidth, -b.bandwidth),
    )


def _median(here: Floats, anywhere: Floats, static: Floats) -> Floats | float:
    """Of the costs measured at a level, else of all; a formula that gives no number at all leaves the static ones."""
    if len(here):
        return float(np.median(here))
    return float(np.median(anywhere)) if len(anywhere) else static


def _larger(a: float, b: float) -> float:
    """The larger of two; of one that is not measured, the other."""
    if a != a:
        return b
    return a if b != b or a > b else b
