"""The route in use to each destination by one profile, left only for one that is better by enough (MR-115, MR-129)."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from chappe.linkstate.arcs import Arcs, Floats
from chappe.linkstate.settings import Settings
from chappe.linkstate.shortest import Shortest
from chappe.linkstate.topology import View
from chappe.linkstate.units import VertexId

NEVER = 1 << 62
FEW = 16  # changed weights that are cheaper to look at one by one
ROUNDING = 1e-5  # of what a route must be better by: hops count a little, and sums are rounded

_Path = tuple[int, ...]


class Choices:
    """Routes in use from one node to everything in its map, as numbers of arcs."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.paths: list[_Path] = []
        self.next_ns = NEVER  # when a better route may be taken that is barred now
        self.computed = 0  # how often distances were, all or those that a change reached
        self._view: View | None = None
        self._arcs: Arcs
        self._here = 0
        self._weights: Floats = np.empty(0)
        self._shortest: Shortest | None = None
        self._cost: Floats = np.empty(0)  # of the routes in use
        self._known_users: dict[int, set[int]] | None = {}  # of an arc: destinations whose route has it; None: not now
        self._until: dict[int, int] = {}  # destinations whose route is held down
        self._touched = True  # some route in use costs something else
        self._moved = False  # some shortest route does

    @property
    def shortest(self) -> Shortest:
        """All that is shortest under the weights of this moment."""
        if self._shortest is None:
            self._shortest = Shortest(self._arcs, self._weights, self._here)
            self.computed += 1
        return self._shortest

    def adopt(self, view: View, arcs: Arcs, here: int, weights: Floats) -> set[VertexId]:
        """Carry the routes over to another map; destinations that are gone."""
        old = self._view
        paths: list[_Path] = [()] * arcs.size
        until: dict[int, int] = {}
        withdrawn: set[VertexId] = set()
        if old is not None:
            locations = [view.index.get(vertex.vertex_id, -1) for vertex in old.vertices]
            carried = [arcs.number.get((locations[a], locations[b]), -1) for a, b in self._arcs.pairs]
            for before, now in enumerate(locations):
                if now < 0:
                    withdrawn.add(old.vertices[before].vertex_id)
                    continue
                path = tuple([carried[arc] for arc in self.paths[before]])
                if -1 not in path:
                    paths[now] = path
                    if before in self._until:
                        until[now] = self._until[before]
        self._view, self._arcs, self._here, self.paths, self._until = view, arcs, here, paths, until
        self._known_users = None
        self._price(weights)
        return withdrawn

    @property
    def _users(self) -> dict[int, set[int]]:
        """Asked for when an arc costs something else: most maps are replaced before that."""
        if self._known_users is None:
            self._known_users = {}
            for target, path in enumerate(self.paths):
                for arc in path:
                    self._known_users.setdefault(arc, set()).add(target)
        return self._known_users

    def reprice(self, weights: Floats) -> None:
        """All arcs cost this now."""
        changed = np.flatnonzero(weights != self._weights)
        if len(changed) > FEW:
            self._price(weights)
        else:
            for arc in changed.tolist():
                self.adjust(arc, float(weights[arc]))

    def adjust(self, arc: int, weight: float) -> None:
        """One arc costs this now. Distances stay if it made, and makes, no route as short as the shortest."""
        old = self._weights.item(arc)
        shortest = self._shortest
        moved = shortest is not None and weight != old and (shortest.matters(arc, old) or shortest.matters(arc, weight))
        self._arcs.adjust(self._weights, arc, weight)
        if moved and shortest is not None:
            self._shortest, self._moved = shortest.repaired(arc, old), True
            self.computed += self._shortest is not None
        users = self._users.get(arc)
        if users:
            self._cost[list(users)] += weight - old
            self._touched = True

    def choose(self, now_ns: int, *, damped: bool) -> Collection[int]:
        """Leave routes that broke, and those that are worse by enough; the destinations that have another one now."""
        if self._shortest is not None and not self._touched and not self._moved and now_ns < self.next_ns:
            return ()
        settings, best = self.settings, self.shortest.distance
        self._touched, self._moved, self.next_ns = False, False, NEVER
        with np.errstate(invalid="ignore"):  # of what has no route
            gain = self._cost - best
            better = gain > ROUNDING
            if damped:
                better &= ~(gain < np.maximum(settings.gain * self._cost, settings.gain_ms) - ROUNDING)
        changed = []
        for target in np.flatnonzero(better).tolist():
            if damped and self.paths[target]:
                until_ns = self._until.get(target, 0)
                if until_ns > now_ns:
                    self.next_ns = min(self.next_ns, until_ns)
                    continue
                self._until[target] = now_ns + int(settings.hold_down * settings.interval_ns)
            self._take(target, self.shortest.path(target))
            changed.append(target)
        if changed:
            self._cost[changed] = best[changed]
        return changed

    def _price(self, weights: Floats) -> None:
        self._weights, self._shortest, self._touched = weights, None, True
        prices = weights.tolist()
        self._cost = np.array([sum([prices[arc] for arc in path]) if path else np.inf for path in self.paths])
        self._cost[self._here] = 0.0

    def _take(self, target: int, path: _Path) -> None:
        users = self._known_users
        if users is not None:
            for arc in self.paths[target]:
                users[arc].discard(target)
            for arc in path:
                users.setdefault(arc, set()).add(target)
        self.paths[target] = path
