"""Plans for events from this node: over its own map, and on to the units that a way names."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from chappe.errors import ProtocolError
from chappe.events.interest import Wanted
from chappe.events.plan import Plan, mark, wanting
from chappe.events.trace import crossed, visited, without_own
from chappe.events.way import MAX_RESCUES, Step, Unit, Way, branches, encode
from chappe.measure.cost import PROFILES
from chappe.netmap.linkstate import LinkState
from chappe.netmap.routes import Route
from chappe.netmap.units import Address, Thing

Marks = dict[Thing, Wanted]


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A finished plan, and for each destination its place in the tree and the route behind it."""

    branches: tuple[tuple[str, bytes], ...] = ()
    undeliverable: tuple[Thing, ...] = ()
    routes: dict[Thing, tuple[tuple[Thing, ...], Route]] = field(default_factory=dict)


class Planner:
    """Makes plans from the network map as it is; until `changed`, it keeps what it asked of it."""

    def __init__(self, me: Address, state: LinkState, connected: Callable[[str], bool]) -> None:
        self.me = me
        self._state = state
        self._connected = connected
        self._own: dict[int, str] = {}
        self._direct_routes: dict[tuple[str, Thing, int], Route | None] = {}
        self._exits: dict[tuple[str, Thing], str | None] = {}

    def changed(self) -> None:
        """The map is another one."""
        self._own.clear()
        self._direct_routes.clear()
        self._exits.clear()

    def latency_ms(self, links: Iterable[bytes]) -> float:
        """What the map says now of the way over these links; NaN if one of them is gone or not measured."""
        view = self._state.routes.view
        total = 0.0
        for link in links:
            numbers = view.ends.get(link)
            if not numbers:
                return math.nan
            edge = view.edges[numbers[0]]
            told = [fact.latency_ms for fact in (edge.fact_a, edge.fact_b) if fact.latency_ms is not None]
            total += max(told, default=math.nan)
        return total

    def plan(
        self,
        profile: str,
        marks: Marks,
        onward: Iterable[Sequence[Unit]] = (),
        inside: int = 1,
        trace: tuple[str, ...] = (),
        rescues: int = 0,
    ) -> Planned:
        """A tree to all that is marked in the own map, and on to the units that a way named.

        These are to be entered from `inside` the own unit of that level, so that nothing else is passed.
        """
        plan = Plan(self.me.node)
        lost: list[Thing] = []
        routes: dict[Thing, Route] = {}
        for thing in sorted(marks):
            route = self._route(profile, thing)
            if route is None or not _rises(route):
                lost.append(thing)
                continue
            mark(plan.graft(route.things), *marks[thing])
            routes[thing] = route
        if not self._onward(plan, onward, profile, inside, trace, lost, astray=rescues < MAX_RESCUES):
            rescues += 1
        ready = []
        for place, peer, way in plan.ways(lambda t: self.exit(profile, t, trace), trace, profile, rescues):
            try:
                raw = encode(way) if peer and self._connected(peer) else b""
            except ProtocolError:
                raw = b""
            if raw:
                ready.append((peer, raw))
            else:
                lost += wanting(place)
        paths = {thing: (plan.path(thing), route) for thing, route in routes.items()}
        return Planned(tuple(ready), tuple(lost), paths)

    def repair(self, way: Way, steps: Iterable[Step], onward: Iterable[Sequence[Unit]]) -> Planned:
        """A new plan for all that a way was to reach through what is lost."""
        steps = list(steps)
        onward = [*onward, *(tree for step in steps for tree in branches(step.leaves))]
        marks = {
            Thing(0, step.node): Wanted(step.deliver, step.groups)
            for step in steps
            if (step.deliver or step.groups) and step.node != self.me.node
        }
        if way.rescues >= MAX_RESCUES:
            return Planned((), (*marks, *(thing for tree in onward for thing in destinations(tree))))
        return self.plan(way.profile, marks, onward, 1, without_own(self.me, way.trace), way.rescues + 1)

    def _onward(
        self,
        plan: Plan,
        onward: Iterable[Sequence[Unit]],
        profile: str,
        inside: int,
        trace: tuple[str, ...],
        lost: list[Thing],
        *,
        astray: bool,
    ) -> bool:
        """Put units that a way names, and those beyond them, into the plan; False if one is not entered as told.

        Where that is not possible any more, and if it may go `astray`, it is reached by this node's own map, which may
        touch places that have the event already.
        """
        as_told = True
        waiting = list(onward)
        while waiting:
            units = waiting.pop()
            thing = Thing(units[0].level, units[0].name)
            left = visited(thing.name, trace)
            route = None if left else self._direct(profile, thing, inside)
            if route is not None:
                plan.hang(units, plan.graft(route.things))
            elif left or not astray:
                lost += destinations(units)
            else:
                as_told = False
                if not self._around(plan, units[0], profile, trace):
                    lost += destinations(units[:1])
                waiting += branches(units[1:])
        return as_told

    def _around(self, plan: Plan, unit: Unit, profile: str, trace: tuple[str, ...]) -> bool:
        """Reach a unit, or all parts of it, by any way that does not lead into units that were left."""
        avoid = {seen for seen in self._state.things() if seen.level and visited(seen.name, trace)}
        parts = self._state.resolve(Thing(unit.level, unit.name))
        found = 0
        for part in parts:
            route = None if visited(part.name, trace) else self._route(profile, part, avoid)
            if route is not None and _rises(route):
                mark(plan.graft(route.things), unit.deliver, () if found else unit.groups)
                found += 1
        return 0 < found == len(parts)

    def _direct(self, profile: str, thing: Thing, inside: int) -> Route | None:
        """The route into a unit that passes nothing but what is inside the own unit of a level."""
        key = (profile, thing, inside)
        if key not in self._direct_routes:
            route = self._route(profile, thing)
            if route is not None and any(passed.level >= inside for passed in route.things[:-1]):
                others = {seen for seen in self._state.things() if seen.level >= inside and seen != thing}
                route = self._route(profile, thing, others)
            self._direct_routes[key] = route
        return self._direct_routes[key]

    def exit(self, profile: str, thing: Thing, trace: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """The peer over whose link this node enters a unit, and the trace of what goes there; None without a link."""
        key = (profile, thing)
        if key not in self._exits:
            route = self._route(profile, thing)
            if route is not None and len(route.things) > 1:
                route = self._route(profile, thing, {seen for seen in self._state.things() if seen != thing})
            self._exits[key] = self._state.peer(route.links[0]) if route is not None else None
        peer = self._exits[key]
        if peer is None or not self._connected(peer):
            return None
        passed = crossed(self.me, thing.level, self.names()[thing.level], trace)
        return (peer, passed) if passed else None

    def _route(self, profile: str, thing: Thing, avoid: Collection[Thing] = ()) -> Route | None:
        """A route by the map; a way may carry a profile that only others have a formula for."""
        return self._state.routes.route(profile if profile in PROFILES else "default", thing, avoid)

    def names(self) -> dict[int, str]:
        """The own unit of each level, as others call it: if it fell apart, the part."""
        if not self._own:
            parted = {(thing.level, thing.path) for thing in self._state.things() if "@" in thing.name}
            for level in range(1, self.me.depth + 1):
                path = self.me.path(level)
                broken = (level, path) in parted
                self._own[level] = f"{path}@{self._state.controller(level)}" if broken else path
        return self._own


def destinations(units: Iterable[Unit]) -> list[Thing]:
    """Those of the units of a way that want the event, and are not only passed."""
    return [Thing(unit.level, unit.name) for unit in units if unit.deliver or unit.groups]


def _rises(route: Route) -> bool:
    """Whether it goes from nodes to units and from these to wider ones only: no unit is left and entered again."""
    return all(a.level <= b.level for a, b in zip(route.things, route.things[1:], strict=False))
