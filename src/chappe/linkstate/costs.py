"""Links of a map as arrays, and what each costs by a profile: measured, unmeasured or static (MR-017, MR-018)."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chappe.linkstate.topology import Edge, View
from chappe.linkstate.units import static_cost
from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH, cost

Floats = NDArray[np.float64]

FEW = 16  # links that are cheaper to compute one by one


class Costs:
    """What each link of a map costs."""

    def __init__(self, view: View, performance: bool) -> None:
        self.view = view
        self.performance = performance
        self._known = [edge.known for edge in view.edges]  # how many ends have measured it
        self._unknown = sum(known < 2 for known in self._known)
        self._strange: set[str] = set()  # profiles that give no number for some measured link
        self._measured: dict[str, Floats] = {}
        self._counted: dict[str, Floats] = {}

    def update(self, changed: Set[int]) -> bool:
        """Links have other metrics; whether only these cost something else, and they are few."""
        numbers = list(changed)
        edges = [self.view.edges[number] for number in numbers]
        plain = self._plain()
        for number, edge in zip(numbers, edges, strict=True):
            self._unknown += int(edge.known < 2) - int(self._known[number] < 2)
            self._known[number] = edge.known
        for profile, costs in self._measured.items():
            for number, edge, found in zip(numbers, edges, costs_of(profile, edges), strict=True):
                costs[number] = found
                if edge.known and found != found:
                    self._strange.add(profile)
        if plain and self._plain() and len(numbers) <= FEW:
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
            self._measured[profile] = np.array(costs_of(profile, self.view.edges), dtype=np.float64)
        if not self.measured:
            return self.static
        counted = self._measured[profile].copy()
        values = counted.tolist()
        lacking = [
            number for number, (value, known) in enumerate(zip(values, self._known, strict=True))
            if known < 2 or value != value
        ]  # fmt: skip
        if any(self._known[number] and values[number] != values[number] for number in lacking):
            self._strange.add(profile)
        elif self._unknown == 0:
            self._strange.discard(profile)
            return self._measured[profile]
        edges = self.view.edges
        usual = {level: self._usual(values, level) for level in {edges[number].level for number in lacking}}
        for number in lacking:
            least, value = usual[edges[number].level], values[number]
            counted[number] = least if value != value else max(value, least)
        if any(cost != cost for cost in usual.values()):  # no link has a cost by this formula
            return np.where(np.isnan(counted), self.static, counted)
        return counted

    def _usual(self, values: list[float], level: int) -> float:
        """The median of the costs that were measured at a level, else of all; NaN if there is none."""
        measured = [
            (edge.level, value) for edge, value, known in zip(self.view.edges, values, self._known, strict=True)
            if known and value == value
        ]  # fmt: skip
        here = [value for other, value in measured if other == level]
        return _median(here or [value for _, value in measured])

    @cached_property
    def static(self) -> Floats:
        """What each link costs by its level alone."""
        return np.array([static_cost(edge.a.level, edge.b.level) for edge in self.view.edges], dtype=np.float64)

    @property
    def measured(self) -> bool:
        """Whether costs are those that were measured."""
        return self.performance and any(self._known)


def costs_of(profile: str, edges: Sequence[Edge]) -> list[float]:
    """What links cost by their metrics, NaN where there are none; each is computed once."""
    lacking = [edge for edge in edges if profile not in edge.costs]
    if len(lacking) > FEW:
        metrics = np.array([edge.metrics for edge in lacking], dtype=np.float64)
        for edge, found in zip(lacking, cost(profile, *metrics.T).tolist(), strict=True):
            edge.costs[profile] = found
    elif profile not in PROFILES:
        cost(profile, math.nan)  # which says so
    else:
        for edge in lacking:
            edge.costs[profile] = cost_of_one(profile, *edge.metrics)
    return [edge.costs[profile] for edge in edges]


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


def _median(values: list[float]) -> float:
    if not values:
        return math.nan
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
