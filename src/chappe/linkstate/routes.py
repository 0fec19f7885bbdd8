"""Routes to everything in the map, by profile: the shortest at the moment, kept against flapping (MR-114 to MR-117)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Set

import numpy as np

from chappe.linkstate.arcs import Arcs, Floats
from chappe.linkstate.choices import NEVER, Choices
from chappe.linkstate.costs import Costs
from chappe.linkstate.route import Branch as Branch
from chappe.linkstate.route import Explained as Explained
from chappe.linkstate.route import Leave as Leave
from chappe.linkstate.route import Route as Route
from chappe.linkstate.route import Tree as Tree
from chappe.linkstate.settings import Settings
from chappe.linkstate.shortest import Shortest, next_best
from chappe.linkstate.topology import View
from chappe.linkstate.trees import grown
from chappe.linkstate.units import VertexId

DETOURS = 64  # routes around given vertices that are remembered until the next change


class Routes:
    """The route cache of a node. `refresh` brings the map up to date before an answer, and gives the time."""

    def __init__(self, view: View, settings: Settings, refresh: Callable[[], int]) -> None:
        self.settings = settings
        self.performance = settings.performance
        self._refresh = refresh
        self._asked = False
        self._waiting = False  # the choices are still those of an earlier map
        self._choices: dict[str, Choices] = {"default": Choices(settings)}
        self._cache: dict[str, dict[VertexId, Route]] = {}
        self._detours: dict[tuple[str, frozenset[VertexId]], Shortest] = {}
        self.adopt(view, 0)

    # --- when the map changes

    def offer(self, view: View, now_ns: int) -> dict[str, frozenset[VertexId]]:
        """Another map: the destinations that have another route, by profile.

        Where nobody has asked for a route since the last change, nobody holds one, and the work waits for the next
        question.
        """
        if self._asked:
            return self._states(self.adopt(view, now_ns))
        self.view, self._waiting = view, True
        return {}

    def adopt(self, view: View, now_ns: int) -> dict[str, frozenset[VertexId]]:
        """Choose routes over another map."""
        self.view, self._waiting = view, False
        self._here = view.index[VertexId(0, view.me.node)]
        self._arcs = Arcs(view)
        self._costs = Costs(view, self.performance)
        withdrawn = {}
        for profile, choices in self._choices.items():
            withdrawn[profile] = choices.adopt(view, self._arcs, self._here, self._weights(profile))
        return self._choose(now_ns, withdrawn)

    def update(self, numbers: Set[int], now_ns: int) -> dict[str, frozenset[VertexId]]:
        """Links of the map cost something else (MR-114); none: a time has come."""
        if self._waiting:
            return {}
        alone = self._costs.update(numbers)
        for profile, choices in self._choices.items():
            if alone:
                costs = self._costs.of(profile)
                for arc in {arc for number in numbers for arc in self._arcs.of_edge[number]}:
                    choices.adjust(arc, self._arcs.weight(arc, costs))
            else:
                choices.reprice(self._weights(profile))
        return self._states(self._choose(now_ns, {}))

    def perform(self, on: bool, now_ns: int) -> dict[str, frozenset[VertexId]]:
        """Use measured costs, or static ones (MR-117); all routes are chosen anew."""
        self._ready()
        before = {profile: choices.paths for profile, choices in self._choices.items()}
        self.performance = on
        self._choices = {profile: Choices(self.settings) for profile in self._choices}
        self.adopt(self.view, now_ns)
        changed = {}
        for profile, choices in self._choices.items():
            pairs = zip(self.view.vertices, choices.paths, before[profile], strict=True)
            vertex_ids = frozenset(vertex.vertex_id for vertex, now, then in pairs if now != then)
            if vertex_ids:
                changed[profile] = vertex_ids
        return changed

    @property
    def next_ns(self) -> int:
        """When a route may be left that is held down now."""
        return NEVER if self._waiting else min(choices.next_ns for choices in self._choices.values())

    @property
    def computed(self) -> int:
        """How often distances were computed, all of them or those that a change reached."""
        return sum(choices.computed for choices in self._choices.values())

    def _states(self, changed: dict[str, frozenset[VertexId]]) -> dict[str, frozenset[VertexId]]:
        """Whoever holds routes asks again after this."""
        if changed:
            self._asked = False
        return changed

    def _choose(self, now_ns: int, withdrawn: dict[str, set[VertexId]]) -> dict[str, frozenset[VertexId]]:
        changed = {}
        self._now_ns = now_ns
        self._detours.clear()
        for profile, choices in self._choices.items():
            vertex_ids = self._choose_one(profile, choices) | withdrawn.get(profile, set())
            if vertex_ids:
                changed[profile] = frozenset(vertex_ids)
        return changed

    def _choose_one(self, profile: str, choices: Choices) -> set[VertexId]:
        numbers = choices.choose(self._now_ns, damped=self._costs.measured)
        self._cache[profile] = {}
        return {self.view.vertices[number].vertex_id for number in numbers}

    def _ready(self) -> None:
        """Bring everything up to date for a question."""
        now_ns = self._refresh()
        self._asked = True
        if self._waiting:
            self.adopt(self.view, now_ns)

    def _weights(self, profile: str) -> Floats:
        return self._arcs.weights(self._costs.of(profile))

    def _of(self, profile: str) -> Choices:
        """The choices by a profile, which are kept from the first question on."""
        self._ready()
        choices = self._choices.get(profile)
        if choices is None:
            weights = self._weights(profile)  # ValueError before anything is kept
            choices = self._choices[profile] = Choices(self.settings)
            choices.adopt(self.view, self._arcs, self._here, weights)
            self._choose_one(profile, choices)
        return choices

    # --- questions

    def route(self, profile: str, vertex_id: VertexId, avoid: Collection[VertexId] = ()) -> Route | None:
        """The route to a node of the cluster or to a unit; None if there is none. `avoid` is never passed."""
        choices = self._of(profile)
        target = self.view.index.get(vertex_id)
        if target is None or target == self._here or vertex_id in avoid:
            return None
        route = self._cache[profile].get(vertex_id)
        if route is None:
            route = self._cache[profile][vertex_id] = self._route(choices.paths[target], self._costs.of(profile))
        if not avoid or not set(avoid).intersection(route.vertex_ids):
            return route
        around = self._around(profile, choices.shortest.weights, frozenset(avoid))
        if not np.isfinite(around.distance[target]):
            return None
        return self._route(around.path(target), self._costs.of(profile))

    def shortest(self, profile: str, vertex_id: VertexId, inside: int) -> Route | None:
        """The shortest route at the moment that passes only what lies inside the own unit of that level.

        It is not held against flapping: who forwards hop by hop, as `route` is not meant for, needs the route that all
        others take for the shortest.
        """
        choices = self._of(profile)
        target = self.view.index.get(vertex_id)
        if target is None or target == self._here:
            return None
        shortest = choices.shortest
        if not np.isfinite(shortest.distance[target]):
            return None
        if any(self.view.vertices[self._arcs.pairs[arc][1]].level >= inside for arc in shortest.path(target)[:-1]):
            outside = {vertex.vertex_id for vertex in self.view.vertices if vertex.level >= inside} - {vertex_id}
            shortest = self._around(profile, shortest.weights, frozenset(outside))
        if not np.isfinite(shortest.distance[target]):
            return None
        return self._route(shortest.path(target), self._costs.of(profile))

    def tree(self, profile: str, vertex_ids: Iterable[VertexId], avoid: Collection[VertexId] = ()) -> Tree:
        """One tree to all these: nodes of the own cluster, and the gateways at which it leaves for units."""
        wanted = [vertex_id for vertex_id in dict.fromkeys(vertex_ids) if vertex_id != VertexId(0, self.view.me.node)]
        found = {vertex_id: self.route(profile, vertex_id, avoid) for vertex_id in wanted}
        routes = [route for route in found.values() if route is not None]
        unreached = tuple(vertex_id for vertex_id, route in found.items() if route is None)
        return grown(self.view.me.node, wanted, routes, unreached)

    def costs(self, profile: str) -> dict[bytes, float]:
        """What each link of the map counts with."""
        self._ready()
        return dict(zip((edge.id for edge in self.view.edges), self._costs.of(profile).tolist(), strict=True))

    def explain(self, profile: str, vertex_id: VertexId) -> list[Explained]:
        """The route in use, the best and the next best one, the static one, and why each is (not) taken."""
        used = self.route(profile, vertex_id)
        if used is None:
            return []
        choices, target, costs = self._of(profile), self.view.index[vertex_id], self._costs.of(profile)
        path, best = choices.paths[target], choices.shortest.path(target)
        rows = [Explained("in use", used, self._why_used(profile, path == best))]
        if path != best:
            other = self._route(best, costs)
            rows.append(Explained("best", other, self._why_not_best(used.cost, other.cost)))
        second = next_best(choices.shortest, target, best)
        if second is not None and second != path:
            other = self._route(second, costs)
            rows.append(Explained("next best", other, f"costs {other.cost - used.cost:.3g} more than the route in use"))
        static = Shortest(self._arcs, self._arcs.weights(self._costs.static), self._here).path(target)
        why = "by the levels of its links only, then by hops and names"
        rows.append(Explained("static", self._route(static, self._costs.static), why))
        return rows

    # --- how

    def _why_used(self, profile: str, best: bool) -> str:
        if not self.performance:
            return "performance routing is off: static costs"
        if not self._costs.measured:
            return "nothing is measured yet: static costs"
        return (
            f"the least cost by the profile {profile!r}"
            if best
            else "it was the best, and no other is better by enough"
        )

    def _why_not_best(self, used: float, best: float) -> str:
        needed = max(self.settings.gain * used, self.settings.gain_ms)
        if used - best < needed:
            return f"better by {used - best:.3g}, less than the {needed:.3g} that are worth a change"
        return "better, and taken when the time since the last change is over"

    def _around(self, profile: str, weights: Floats, avoid: frozenset[VertexId]) -> Shortest:
        """Shortest routes that pass none of these vertices."""
        key = (profile, avoid)
        if key not in self._detours:
            if len(self._detours) >= DETOURS:
                self._detours.clear()
            numbers = [self.view.index[vertex_id] for vertex_id in avoid if vertex_id in self.view.index]
            barred = weights.copy()
            for number in numbers:
                for _, arc in self._arcs.into[number]:
                    barred[arc] = np.inf
            self._detours[key] = Shortest(self._arcs, barred, self._here)
        return self._detours[key]

    def _route(self, path: tuple[int, ...], costs: Floats) -> Route:
        edges = self.view.edges
        numbers = [min(self._arcs.links[arc], key=lambda number: (costs[number], edges[number].id)) for arc in path]
        return Route(
            tuple(self.view.vertices[self._arcs.pairs[arc][1]].vertex_id for arc in path),
            tuple(edges[number].id for number in numbers),
            float(sum(costs[number] for number in numbers)),
            float(sum(edges[number].metrics[0] for number in numbers)),
        )
