"""Plans for events from this node: over its own map, and on to the units that a route names."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from chappe.errors import ProtocolError
from chappe.events.interest import Wanted
from chappe.events.plan import Plan, mark, wanting
from chappe.events.source_route import MAX_REROUTES, SourceRoute, Step, Unit, branches, encode
from chappe.events.trace import crossed, related, visited, without_own
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.routes import Route
from chappe.linkstate.units import Address, VertexId, visible
from chappe.measure.cost import PROFILES

Marks = dict[VertexId, Wanted]

HASTY = 2  # reroutes in a row at once; then an event waits until whoever has it knows more, or it would go to and fro
MET = 1 << 16  # nodes and units that were once in the map
SPLITS = 2  # reroutes of an event for a part that is there no more which lead to all others: copies must not multiply


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A finished plan, and for each destination its place in the tree and the route behind it."""

    branches: tuple[tuple[str, bytes], ...] = ()
    undeliverable: tuple[VertexId, ...] = ()
    waiting: tuple[tuple[VertexId, Wanted], ...] = ()  # those of them that another map may lead to
    routes: dict[VertexId, tuple[tuple[VertexId, ...], Route]] = field(default_factory=dict)
    withheld: tuple[VertexId, ...] = ()  # destinations that lack a capability or a right, or all routes to which do

    def same(self, other: Planned) -> bool:
        """Whether both lead to the same places over the same ones and by the same links."""
        return (
            self.branches == other.branches
            and self.undeliverable == other.undeliverable
            and self.waiting == other.waiting
            and self.withheld == other.withheld
            and self.routes.keys() == other.routes.keys()
            and all(route.links == self.routes[vertex_id][1].links for vertex_id, (_, route) in other.routes.items())
        )


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    plan: Plan
    profile: str
    inside: int
    trace: tuple[str, ...]
    rerouted: int
    served: tuple[str, ...]
    patient: bool  # what cannot be reached as it was stated waits
    strays: bool  # something is not reached as it was stated: places that have the event may be touched again
    lost: Marks = field(default_factory=dict)  # what cannot be reached now,
    never: list[VertexId] = field(default_factory=list)  # and what will not be, whatever the map says
    handed: list[tuple[str, bytes]] = field(default_factory=list)  # to neighbours who plan it themselves
    needs: tuple[str, ...] = ()
    avoid: frozenset[VertexId] = frozenset()  # what may not be touched
    withheld: list[VertexId] = field(default_factory=list)


class Planner:
    """Makes plans from the network map as it is; until `changed`, it keeps what it asked of it."""

    def __init__(self, me: Address, state: LinkState, connected: Callable[[str], bool]) -> None:
        self.me = me
        self._state = state
        self._connected = connected
        self._own: dict[int, str] = {}
        self._direct_routes: dict[tuple[str, VertexId, int, frozenset[VertexId]], Route | None] = {}
        self._lacking: dict[tuple[str, ...], frozenset[VertexId]] = {}
        self._exits: dict[tuple[str, VertexId], str | None] = {}
        self._met: dict[VertexId, None] = {}  # all that was ever in the map, the newest last

    def changed(self) -> None:
        """The map is another one."""
        self._met.update(dict.fromkeys(self._state.routes.view.index))  # not computed anew for this
        while len(self._met) > MET:
            del self._met[next(iter(self._met))]
        self._own.clear()
        self._direct_routes.clear()
        self._exits.clear()
        self._lacking.clear()

    def locate(self, address: Address, below: int = 1 << 16) -> list[VertexId]:
        """Where the map has a node, seen from here, among the vertices under a level; nothing if it never had it.

        While a unit that holds both has fallen apart it may be in several places, of which one will know it.
        A node out of reach is where it was: what is sent to it waits. One that was never there is not waited for, or
        whoever invents names could fill the memory that is kept for those who are missed.
        """
        if address.depth != self.me.depth:
            return []
        vertex_id = visible(self.me, address)
        found = dict.fromkeys(self._state.resolve(vertex_id))
        if vertex_id.level or not found:
            found.update(dict.fromkeys(self._elsewhere(vertex_id)))
        if not found and vertex_id in self._met:
            found[vertex_id] = None
        return [each for each in found if each.level < below]

    def latency_ms(self, links: Iterable[bytes]) -> tuple[float, float]:
        """What the map says now of the route over these links, and by how much that varies: the sum of mean deviations.

        NaN if one of them is gone or not measured.
        """
        view = self._state.routes.view
        total = spread = 0.0
        for link in links:
            numbers = view.ends.get(link)
            if not numbers:
                return math.nan, 0.0
            latency_ms, jitter, *_ = view.edges[numbers[0]].metrics
            total += latency_ms
            spread += latency_ms * min(jitter, 1.0) if math.isfinite(jitter) else 0.0
        return total, spread

    def plan(
        self,
        profile: str,
        marks: Marks,
        onward: Iterable[Sequence[Unit]] = (),
        inside: int = 1,
        trace: tuple[str, ...] = (),
        rerouted: int = 0,
        served: tuple[str, ...] = (),
        repair: bool = False,
        needs: tuple[str, ...] = (),
        denied: frozenset[VertexId] = frozenset(),
    ) -> Planned:
        """A tree to all that is marked in the own map, and on to the units that a route named.

        These are to be entered from `inside` the own unit of that level, so that nothing else is passed. Nothing that
        lacks a capability of `needs` is touched, and nothing that is `denied`: what cannot be reached for that reason
        is withheld, and not waited for.
        """
        patient = not repair and rerouted >= HASTY
        avoid = denied | self.lacking(needs) if needs else denied
        draft = _Draft(
            Plan(self.me.node), profile, inside, trace, rerouted, served, patient, repair, needs=needs, avoid=avoid
        )
        routes: dict[VertexId, Route] = {}
        for vertex_id in sorted(marks):
            route = self._route(profile, vertex_id, avoid) if self._seen(vertex_id) not in avoid else None
            if route is not None:
                mark(draft.plan.graft(route.vertex_ids), *marks[vertex_id])
                routes[vertex_id] = route
            elif avoid and self._route(profile, vertex_id) is not None:
                draft.withheld.append(vertex_id)
            elif not repair or not self._around(draft, vertex_id, marks[vertex_id]):
                draft.lost[vertex_id] = marks[vertex_id]
        self._onward(draft, onward)
        ready = self._ready(draft, rerouted + draft.strays)
        paths = {vertex_id: (draft.plan.path(vertex_id), route) for vertex_id, route in routes.items()}
        ready += draft.handed
        left = (*draft.lost, *draft.never)
        return Planned(tuple(ready), left, tuple(draft.lost.items()), paths, tuple(draft.withheld))

    def lacking(self, needs: tuple[str, ...]) -> frozenset[VertexId]:
        """What of the map does not have all of these capabilities."""
        found = self._lacking.get(needs)
        if found is None:
            found = self._lacking[needs] = self._state.lacking(needs)
        return found

    def repair(self, source_route: SourceRoute, steps: Iterable[Step], onward: Iterable[Sequence[Unit]]) -> Planned:
        """A new plan for all that a route was to reach through what is lost, but for nodes that had the event."""
        marks, onward = self._asked(source_route, steps, onward)
        if source_route.reroutes >= MAX_REROUTES:
            return Planned((), (*marks, *(vertex_id for tree in onward for vertex_id in destinations(tree))), ())
        trace = without_own(self.me, source_route.trace)
        return self.plan(
            source_route.profile,
            marks,
            onward,
            1,
            trace,
            source_route.reroutes,
            source_route.served,
            repair=True,
            needs=source_route.needs,
        )

    def waiting(self, source_route: SourceRoute, steps: Iterable[Step], onward: Iterable[Sequence[Unit]]) -> Planned:
        """The same destinations, none of them tried now: the maps of those who have passed the event on differ."""
        marks, onward = self._asked(source_route, steps, onward)
        for units in onward:
            marks.update(destinations(units))
        return Planned((), tuple(marks), tuple(marks.items()))

    def parts(self, unit: Unit, groups: tuple[str, ...]) -> list[tuple[Unit]]:
        """Other parts of a unit that this node is in, if who named it took it for whole; the first gets the groups."""
        if "@" in unit.name:
            return []
        others = [seen for seen in self._state.vertex_ids() if seen.level == unit.level and seen.path == unit.name]
        parts = [(other, groups if at == 0 else ()) for at, other in enumerate(others)]
        return [(Unit(*other, 0, unit.deliver, left),) for other, left in parts if unit.deliver or left]

    def _asked(
        self, source_route: SourceRoute, steps: Iterable[Step], onward: Iterable[Sequence[Unit]]
    ) -> tuple[Marks, list[Sequence[Unit]]]:
        """Nodes and trees of units that a part of a route was to reach."""
        steps = list(steps)
        marks = {
            VertexId(0, step.node): Wanted(step.deliver, step.groups)
            for step in steps
            if (step.deliver or step.groups) and step.node != self.me.node and step.node not in source_route.served
        }
        return marks, [*onward, *(tree for step in steps for tree in branches(step.leaves))]

    def _ready(self, draft: _Draft, reroutes: int) -> list[tuple[str, bytes]]:
        """The routes of a finished tree, as bytes, for peers that can be sent to."""
        ready = []
        entry = partial(self.exit, draft.profile)
        for vertex, peer, source_route in draft.plan.source_routes(
            entry, draft.trace, draft.profile, reroutes, draft.served, draft.needs
        ):
            try:
                raw = encode(source_route) if peer and self._connected(peer) else b""
            except ProtocolError:
                raw = b""
            if raw:
                ready.append((peer, raw))
            else:
                draft.lost.update(wanting(vertex))
        return ready

    def _onward(self, draft: _Draft, onward: Iterable[Sequence[Unit]]) -> None:
        """Put units that a route names, and those beyond them, into the plan.

        Where one cannot be entered as stated any more, it is reached by this node's own map, which may touch
        places that have the event already.
        """
        waiting = list(onward)
        while waiting:
            units = waiting.pop()
            vertex_id = VertexId(units[0].level, units[0].name)
            left = visited(vertex_id.name, draft.trace)
            route = None if left else self._direct(draft.profile, vertex_id, draft.inside, draft.avoid)
            if route is not None:
                draft.plan.hang(units, draft.plan.graft(route.vertex_ids))
            elif draft.avoid and not left and self._direct(draft.profile, vertex_id, draft.inside) is not None:
                draft.withheld += destinations(units)
            elif left or draft.rerouted >= MAX_REROUTES:
                draft.never += destinations(units)
            elif draft.patient:
                draft.lost.update(destinations(units))
            else:
                draft.strays = True
                if not self._around(draft, vertex_id, Wanted(units[0].deliver, units[0].groups)):
                    draft.lost.update(destinations(units[:1]))
                waiting += branches(units[1:])

    def _around(self, draft: _Draft, vertex_id: VertexId, wanted: Wanted) -> bool:
        """Reach a destination, or all parts of it, by any route; through units that were left as a last resort."""
        if self._state.merged(vertex_id):
            return self._hand_over(draft, vertex_id, wanted)
        avoid = {
            seen for seen in self._state.vertex_ids() if seen.level and visited(seen.name, draft.trace)
        } | draft.avoid
        parts = (
            [vertex_id]
            if self._seen(vertex_id) != vertex_id
            else [*(self._state.resolve(vertex_id) or self._elsewhere(vertex_id))]
        )
        if "@" in vertex_id.name and draft.rerouted >= SPLITS:
            del parts[1:]
        found = 0
        for part in parts:
            route = self._route(draft.profile, part, avoid) or self._route(draft.profile, part, draft.avoid)
            if route is not None and not visited(part.name, draft.trace):
                mark(draft.plan.graft(route.vertex_ids), wanted.plain, () if found else wanted.groups)
                found += 1
        return 0 < found == len(parts)

    def _hand_over(self, draft: _Draft, vertex_id: VertexId, wanted: Wanted) -> bool:
        """Reach a part of an own unit that is whole again: by a neighbour in it, who plans the inside of all of it."""
        peer = next(filter(self._connected, self._state.neighbours(vertex_id.level)), None)
        if peer is None:
            return False
        unit = Unit(vertex_id.level, vertex_id.path, 0, wanted.plain, wanted.groups)
        left = tuple(name for name in draft.trace if not related(name.partition("@")[0], vertex_id.path))
        branch = (
            peer,
            encode(SourceRoute((), (unit,), left, draft.profile, draft.rerouted + 1, draft.served, draft.needs)),
        )
        if branch not in draft.handed:  # several parts may have become one
            draft.handed.append(branch)
        return True

    def _elsewhere(self, vertex_id: VertexId) -> list[VertexId]:
        """Parts of the own units in which a vertex may be that was in this map before they fell apart."""
        path = vertex_id.path if vertex_id.level else self.me.path(1)
        return [
            seen for seen in self._state.vertex_ids() if "@" in seen.name and f"{path}/".startswith(seen.path + "/")
        ]

    def _direct(
        self, profile: str, vertex_id: VertexId, inside: int, avoid: frozenset[VertexId] = frozenset()
    ) -> Route | None:
        """The route into a unit that passes nothing but what is inside the own unit of a level, and not `avoid`."""
        key = (profile, vertex_id, inside, avoid)
        if key not in self._direct_routes:
            route = self._route(profile, vertex_id, avoid) if self._seen(vertex_id) not in avoid else None
            if route is not None and any(passed.level >= inside for passed in route.vertex_ids[:-1]):
                others = {
                    seen for seen in self._state.vertex_ids() if seen.level >= inside and seen != self._seen(vertex_id)
                }
                route = self._route(profile, vertex_id, others | avoid)
            self._direct_routes[key] = route
        return self._direct_routes[key]

    def exit(self, profile: str, vertex_id: VertexId, trace: tuple[str, ...]) -> tuple[str, tuple[str, ...]] | None:
        """The peer over whose link this node enters a unit, and the trace of what goes there; None without a link."""
        key = (profile, vertex_id)
        if key not in self._exits:
            route = self._route(profile, vertex_id)
            if route is not None and len(route.vertex_ids) > 1:
                others = {seen for seen in self._state.vertex_ids() if seen != self._seen(vertex_id)}
                route = self._route(profile, vertex_id, others)
            self._exits[key] = self._state.peer(route.links[0]) if route is not None else None
        peer = self._exits[key]
        if peer is None or not self._connected(peer):
            return None
        passed = crossed(self.me, vertex_id.level, self.names()[vertex_id.level], trace)
        return (peer, passed) if passed else None

    def _route(self, profile: str, vertex_id: VertexId, avoid: Collection[VertexId] = ()) -> Route | None:
        """A route by the map; a route may carry a profile that only others have a formula for."""
        seen = self._seen(vertex_id)
        route = self._state.routes.route(profile if profile in PROFILES else "default", seen, avoid)
        if route is None or not _rises(route):
            return None
        return route if seen == vertex_id else replace(route, vertex_ids=(*route.vertex_ids[:-1], vertex_id))

    def _seen(self, vertex_id: VertexId) -> VertexId:
        """What a vertex is called in this map: a part of a unit that others know of may be the whole unit here.

        It keeps its own name on the way: who takes the unit for whole leads to it, and whoever is in another part of
        it, and gets the event for that reason, knows where else it has to go.
        """
        whole = VertexId(vertex_id.level, vertex_id.path)
        return whole if vertex_id.name != whole.name and self._state.resolve(vertex_id) == (whole,) else vertex_id

    def elsewhere(self, unit: Unit) -> bool:
        """Whether a unit is a part of one that this node is in another part of."""
        vertex_id = VertexId(unit.level, unit.name)
        mine = self.names()[unit.level]
        return "@" in unit.name and "@" in mine and mine != unit.name and self._state.resolve(vertex_id) == (vertex_id,)

    def names(self) -> dict[int, str]:
        """The own unit of each level, as others call it: if it fell apart, the part."""
        if not self._own:
            parted = {
                (vertex_id.level, vertex_id.path) for vertex_id in self._state.vertex_ids() if "@" in vertex_id.name
            }
            for level in range(1, self.me.depth + 1):
                path = self.me.path(level)
                broken = (level, path) in parted
                self._own[level] = f"{path}@{self._state.controller(level)}" if broken else path
        return self._own


def destinations(units: Iterable[Unit]) -> Marks:
    """Those of the units of a route that want the event, and are not only passed."""
    found = {VertexId(unit.level, unit.name): Wanted(unit.deliver, unit.groups) for unit in units}
    return {vertex_id: wanted for vertex_id, wanted in found.items() if wanted}


def _rises(route: Route) -> bool:
    """Whether it goes from nodes to units and from these to wider ones only: no unit is left and entered again."""
    return all(a.level <= b.level for a, b in zip(route.vertex_ids, route.vertex_ids[1:], strict=False))
