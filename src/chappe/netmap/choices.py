"""The way in use to each destination by one profile, left only for one that is better by enough (MR-115, MR-129).

Ways are kept as rows of arc numbers, so that what all of them cost under new weights is one sum over an array.
"""

from __future__ import annotations

import numpy as np

from chappe.netmap.costs import Arcs, Floats
from chappe.netmap.settings import Settings
from chappe.netmap.shortest import Shortest
from chappe.netmap.topology import View
from chappe.netmap.units import Thing

NEVER = 1 << 62
ROUNDING = 1e-5  # of what a way must be better by: hops count a little, and sums are rounded


class Choices:
    """Ways in use from one node to everything in its map."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.shortest: Shortest
        self.cost: Floats = np.empty(0)  # of the ways in use
        self.next_ns = NEVER  # when a better way may be taken that is barred now
        self._view: View | None = None
        self._arcs: Arcs
        self._rows = np.empty((0, 4), dtype=np.intp)
        self._until = np.empty(0, dtype=np.int64)

    def path(self, target: int) -> tuple[int, ...]:
        """The arcs of the way in use; empty for this node itself."""
        return tuple(arc for arc in self._rows[target].tolist() if arc < self._arcs.count)

    def adopt(self, view: View, arcs: Arcs) -> set[Thing]:
        """Carry the ways over to another map; destinations that are gone."""
        old, size = self._view, arcs.size
        rows = np.full((size, self._rows.shape[1]), arcs.count, dtype=np.intp)
        until = np.zeros(size, dtype=np.int64)
        gone: set[Thing] = set()
        if old is not None:
            numbers = [view.index.get(vertex.thing, -1) for vertex in old.vertices]
            tails, heads = self._arcs.tail.tolist(), self._arcs.head.tolist()
            carried = [arcs.number.get((numbers[a], numbers[b]), -1) for a, b in zip(tails, heads, strict=True)]
            carried.append(arcs.count)
            for before, now in enumerate(numbers):
                if now < 0:
                    gone.add(old.vertices[before].thing)
                    continue
                row = [carried[arc] for arc in self._rows[before].tolist()]
                if -1 not in row:
                    rows[now] = row
                    until[now] = self._until[before]
        self._view, self._arcs, self._rows, self._until = view, arcs, rows, until
        return gone

    def choose(self, shortest: Shortest, now_ns: int, *, damped: bool) -> list[int]:
        """Leave ways that broke, and those that are worse by enough; the destinations that have another one now."""
        settings, best = self.settings, shortest.distance
        cost: Floats = np.append(shortest.weights, 0.0)[self._rows].sum(axis=1)
        broke = self._rows[:, 0] == self._arcs.count
        broke[shortest.source] = False
        gain = cost - best
        better = gain > ROUNDING
        self.next_ns = NEVER
        if damped and better.any():
            better &= gain >= np.maximum(settings.gain * cost, settings.gain_ms) - ROUNDING
            barred = better & (self._until > now_ns)
            if barred.any():
                better &= ~barred
                self.next_ns = int(self._until[barred].min())
            self._until[better] = now_ns + int(settings.hold_down * settings.interval_ns)
        changed: list[int] = np.flatnonzero(better | broke).tolist()
        for target in changed:
            self._set(target, shortest.path(target))
        cost[changed] = best[changed]
        self.cost, self.shortest = cost, shortest
        return changed

    def _set(self, target: int, path: tuple[int, ...]) -> None:
        width = self._rows.shape[1]
        if len(path) > width:
            more = np.full((len(self._rows), len(path) - width + 2), self._arcs.count, dtype=np.intp)
            self._rows = np.hstack((self._rows, more))
        self._rows[target, : len(path)] = path
        self._rows[target, len(path) :] = self._arcs.count
