"""Links of a map as arrays, and what each costs by a profile: measured, unmeasured or static (MR-017, MR-018)."""

from __future__ import annotations

import math
from collections.abc import Set

import numpy as np
from numpy.typing import NDArray

from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH, cost
from chappe.netmap.topology import View
from chappe.netmap.units import static_cost

Floats = NDArray[np.float64]

FEW = 16  # links that are cheaper to compute one by one


class Costs:
    """What each link of a map costs."""

    def __init__(self, view: View, performance: bool) -> None:
        self.view = view
        self.performance = performance
        count = len(view.edges)
        self.level = np.array([edge.level for edge in view.edges], dtype=np.intp)
        self.static = np.array([static_cost(edge.a.level, edge.b.level) for edge in view.edges], dtype=np.float64)
        self.known = np.array([edge.known for edge in view.edges], dtype=np.int8)  # how many ends have measured it
        self._unknown = int((self.known < 2).sum())
        self.metrics = np.array([edge.metrics for edge in view.edges], dtype=np.float64).reshape(count, 4)
        self._strange: set[str] = set()  # profiles that give no number for some measured link
        self._measured: dict[str, Floats] = {}
        self._counted: dict[str, Floats] = {}

    def update(self, changed: Set[int]) -> bool:
        """Links have other metrics; whether only these cost something else."""
        numbers = list(changed)
        plain = self._plain()
        for number in numbers:
            known, worst = self.view.edges[number].known, self.view.edges[number].metrics
            self._unknown += int(known < 2) - int(self.known[number] < 2)
            self.known[number], self.metrics[number] = known, worst
            if len(numbers) <= FEW:
                for profile, costs in self._measured.items():
                    costs[number] = cost_of_one(profile, *worst)
                    if known and costs[number] != costs[number]:
                        self._strange.add(profile)
        if len(numbers) > FEW:
            self._strange.update(self._measured)  # until all are looked at
            for profile, costs in self._measured.items():
                costs[numbers] = cost(profile, *self.metrics[numbers].T)
        if plain and self._plain():
            return True
        self._counted.clear()
        return not changed

    def _plain(self) -> bool:
        """Whether all links count with what was measured, by every profile."""
        return self.performance and self._unknown == 0 and not self._strange

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
        if np.isnan(costs[self.known > 0]).any():
            self._strange.add(profile)
        elif self._unknown == 0:
            self._strange.discard(profile)
            return costs
        known = np.where(np.isnan(costs), 0, self.known)
        usual = np.empty_like(costs)
        for level in np.unique(self.level):
            here = self.level == level
            usual[here] = _median(costs[here & (known > 0)], costs[known > 0], self.static[here])
        return np.where(known == 2, costs, np.fmax(costs, usual))

    @property
    def measured(self) -> bool:
        """Whether costs are those that were measured."""
        return self.performance and (self._unknown < len(self.known) or bool(self.known.any()))


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


def _median(here: Floats, anywhere: Floats, static: Floats) -> Floats | float:
    """Of the costs measured at a level, else of all; a formula that gives no number at all leaves the static ones."""
    if len(here):
        return float(np.median(here))
    return float(np.median(anywhere)) if len(anywhere) else static
