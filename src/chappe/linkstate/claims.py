"""Advertised links, link by link, and the map that follows from them (MR-011 to MR-016).

A link is an edge if both its ends advertise it, each naming the unit of the other; it is used if neither suspects it.
Nothing here depends on the order in which anything was heard, with one exception: of several vertices that claim the
same end of a link the one that had it before keeps it. A claim that comes later takes nothing from anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from chappe.linkstate.topology import Edge, Facts, Location, Vertex, View, changes
from chappe.linkstate.units import Address, VertexId
from chappe.wire.mesh import LinkFact

NOWHERE = 1 << 16  # a level that no mesh has

_Side = tuple[str, Vertex, LinkFact]  # path at the level of the link, who advertises it there, and what


class Update(NamedTuple):
    """What the links of a vertex change."""

    reshaped: int = NOWHERE  # the level from which the map is another one now
    measured: Set[bytes] = frozenset()  # links with new metrics
    outward: bool = True  # what is advertised for units around it may be something else


class _Ring:
    """The links of one level: between its vertices, and from smaller ones around this node to them."""

    __slots__ = ("_between", "_level", "_links", "_near", "_outward")

    def __init__(self, level: int, edges: Iterable[Edge] = ()) -> None:
        self._level = level
        self._between: dict[Edge, None] = {}
        self._outward: dict[Edge, None] = {}
        self._near: dict[Vertex, list[Vertex]] = {}  # over usable links
        self._links: dict[Vertex, int] = {}  # how many there are between it and others, usable or not
        for edge in edges:
            self.add(edge)

    def add(self, edge: Edge) -> None:
        """There is such a link."""
        if edge.a.level < self._level:
            self._outward[edge] = None
            return
        self._between[edge] = None
        for one, other in ((edge.a, edge.b), (edge.b, edge.a)):
            self._links[one] = self._links.get(one, 0) + 1
            if edge.usable:
                self._near.setdefault(one, []).append(other)

    def remove(self, edge: Edge) -> None:
        """There is none any more."""
        if edge in self._outward:
            del self._outward[edge]
            return
        del self._between[edge]
        for one, other in ((edge.a, edge.b), (edge.b, edge.a)):
            self._links[one] -= 1
            if edge.usable:
                self._near[one].remove(other)
            if not self._links[one]:
                del self._links[one]
                self._near.pop(one, None)

    def reached(self, inside: set[Vertex], here: Vertex) -> set[Vertex]:
        """Things that can be reached from this node over usable links without leaving the unit around them.

        `inside` are smaller ones that can be reached.
        """
        found = {edge.b for edge in self._outward if edge.usable and edge.a in inside} if self._level else {here}
        ahead = list(found)
        near = self._near
        while ahead:
            for vertex in near.get(ahead.pop(), ()):
                if vertex not in found:
                    found.add(vertex)
                    ahead.append(vertex)
        return found

    def show(self, view: View, inside: set[Vertex], found: set[Vertex], lost: set[VertexId]) -> None:
        """Put the links of what was found into a map, and what is linked to other vertices alone into `lost`."""
        edges = list(self._between)
        if not self._links.keys() <= found:
            for edge in edges:
                if edge.a not in found and edge.b not in found:
                    lost.update((VertexId(self._level, edge.a.origin), VertexId(self._level, edge.b.origin)))
            edges = [edge for edge in edges if edge.a in found and edge.b in found]
        edges += [edge for edge in self._outward if edge.a in inside and edge.b in found]
        view.edges += [edge for edge in edges if edge.usable]
        view.suspected += [edge for edge in edges if not edge.usable]


class Claims:
    """All advertised links, kept so that a map is made quickly after a small change."""

    def __init__(self, me: Address) -> None:
        self.me = me
        self._paths = [me.path(level) for level in range(me.depth + 1)]
        self._here = Vertex((0, me.node, me.node))
        self._vertices: dict[Location, Vertex] = {self._here.location: self._here}
        self._originated: list[dict[Location, Vertex]] = [{} for _ in self._paths]  # for the own units
        self._sides: dict[bytes, list[_Side]] = {}
        self._edges: list[dict[bytes, Edge]] = [{} for _ in self._paths]  # of links that two advertise, by level
        self._contested: list[dict[bytes, frozenset[str]]] = [{} for _ in self._paths]  # more than two; who had it
        self._rings = [_Ring(level) for level in range(len(self._paths))]  # of these edges
        self._passing: set[bytes] = set()  # links whose edges in the last map were made for it alone
        self._near: dict[str, int] = {}  # nodes and originators in the last map, and at which level first
        self._parted = False  # the last map had other parts of own units

    def update(
        self, location: Location, facts: Facts, sequence: int = 0, members: int = 1, capabilities: tuple[str, ...] = ()
    ) -> Update:
        """Apply the links of a vertex.

        The map is reshaped at the lowest level of a link that is an edge now or was one, NOWHERE if there is none: what
        one end alone advertises changes no map.
        """
        level, members = location[0], members if location[0] else 1
        vertex = self._vertices.get(location)
        outward = vertex is None or vertex.members != members or vertex.capabilities != capabilities
        if vertex is None:
            vertex = self._vertices[location] = Vertex(location)
        vertex.sequence, vertex.members, vertex.capabilities = sequence, members, capabilities
        old, vertex.facts = vertex.facts, facts
        if level and location[1] == self._paths[level]:
            self._originated[level][location] = vertex
            apart = self._near.get(vertex.originator, NOWHERE) >= level
            return Update(level if apart and (old != facts or self._rivals(vertex)) else NOWHERE)
        reshaped, measured = NOWHERE, set()
        for was, fact in changes(old, facts):
            if was and fact and was.far == fact.far and was.level == fact.level and was.suspect == fact.suspect:
                outward = outward or fact.level > level  # it leads out of a unit around the vertex
                if self._replace(vertex, fact):
                    measured.add(fact.id)
                else:
                    reshaped = min(reshaped, fact.level)
                continue
            outward = True
            if was and self._remove(vertex, was):
                reshaped = min(reshaped, was.level)
            if fact and self._add(vertex, fact):
                reshaped = min(reshaped, fact.level)
        for above, contested in enumerate(self._contested):  # who is believed may be another one by its sequence alone
            if contested and any(fact.id in contested for fact in facts):
                reshaped = min(reshaped, above)
        return Update(reshaped, measured, outward)

    def _rivals(self, vertex: Vertex) -> bool:
        """Whether another originator of the same own unit claims a link, too: then the higher sequence is believed."""
        links = {fact.id for fact in vertex.facts}
        others = (other for other in self._originated[vertex.level].values() if other is not vertex)
        return any(fact.id in links for other in others for fact in other.facts)

    def capabilities(self, location: Location) -> tuple[str, ...]:
        """What a vertex can do, as it stated."""
        vertex = self._vertices.get(location)
        return vertex.capabilities if vertex is not None else ()

    def known(self, location: Location) -> bool:
        """Whether a vertex has advertised links."""
        return location in self._vertices

    def forget(self, location: Location) -> bool:
        """Nobody advertises a vertex any more; whether somebody did."""
        if location not in self._vertices or location == self._here.location:
            return False
        self.update(location, ())
        del self._vertices[location]
        self._originated[location[0]].pop(location, None)
        return True

    # --- one link

    def _add(self, vertex: Vertex, fact: LinkFact) -> bool:
        """Another end advertises a link; whether that changes the map."""
        path = vertex.origin if vertex.level == fact.level else self._paths[fact.level]
        self._sides.setdefault(fact.id, []).append((path, vertex, fact))
        return self._match(fact.id)

    def _remove(self, vertex: Vertex, fact: LinkFact) -> bool:
        """An end advertises it no more; whether that changes the map."""
        sides = self._sides[fact.id] = [side for side in self._sides[fact.id] if side[1] is not vertex]
        edge = self._drop_edge(fact.level, fact.id)
        held = self._contested[fact.level].pop(fact.id, None)
        if sides:
            matched = self._match(fact.id)
        else:
            del self._sides[fact.id]
            matched = self._parted
        return matched or edge is not None or held is not None

    def _replace(self, vertex: Vertex, fact: LinkFact) -> bool:
        """Other metrics of a link; False if its edge in the map is one that is made anew each time."""
        sides = self._sides[fact.id]
        for number, side in enumerate(sides):
            if side[1] is vertex:
                sides[number] = (side[0], vertex, fact)
        edge = self._edges[fact.level].get(fact.id)
        if edge is not None:
            edge.update(vertex, fact)
        return fact.id not in self._passing

    def _match(self, link: bytes) -> bool:
        """Whether the link is another edge, or none, now; where own units are in parts nobody knows so quickly."""
        sides = self._sides[link]
        level = sides[0][2].level
        edge = self._drop_edge(level, link)
        changed = edge is not None or self._parted
        if len(sides) == 2:
            changed |= self._contested[level].pop(link, None) is not None
            (path_a, a, fact_a), (path_b, b, fact_b) = sides
            if fact_a.level == fact_b.level and path_a != path_b and fact_a.far == path_b and fact_b.far == path_a:
                made = self._edges[level][link] = Edge(level, a, fact_a, b, fact_b)
                self._rings[level].add(made)
                changed = True
        elif len(sides) > 2:
            changed = True
            for other in {side[2].level for side in sides}:
                held = frozenset((edge.a.origin, edge.b.origin)) if edge is not None else frozenset()
                self._contested[other].setdefault(link, held)
        return changed

    def _drop_edge(self, level: int, link: bytes) -> Edge | None:
        edge = self._edges[level].pop(link, None)
        if edge is not None:
            self._rings[level].remove(edge)
        return edge

    # --- the map

    def view(self) -> View:
        """The map: level by level, from the nodes of the own cluster outwards."""
        view = View(self.me, controllers=[self.me.node])
        self._passing.clear()
        self._near.clear()
        self._parted = False
        near = self._near
        reached: set[Vertex] = set()
        lost: set[VertexId] = set()
        for level, ring in enumerate(self._rings):
            if level:
                view.controllers.append(min(near))
            apart = self._apart(level, reached)
            if apart or self._contested[level]:
                ring = _Ring(level, self._around(level, reached, apart))
            found = ring.reached(reached, self._here)
            ring.show(view, reached, found, lost)
            reached |= found
            view.vertices += found
            for vertex in found:
                near.setdefault(vertex.originator, level)
        view.controllers.append(min(near))  # of the mesh: a notice may be about all of it
        view.name(self._paths)
        view.lost = tuple(sorted(lost - view.index.keys()))
        return view

    def _apart(self, level: int, reached: set[Vertex]) -> list[Vertex]:
        """Other parts of own units, which are advertised as units are."""
        apart = [vertex for vertex in self._originated[level].values() if vertex.originator not in self._near]
        if self._parted:
            for vertices in self._originated[:level]:
                apart += [vertex for vertex in vertices.values() if vertex in reached]
        self._parted = self._parted or bool(apart)
        return apart

    def _around(self, level: int, reached: set[Vertex], apart: list[Vertex]) -> list[Edge]:
        """The links of a level that both ends advertise; ends of smaller units count if they can be reached."""
        edges = [edge for edge in self._edges[level].values() if edge.a.level == level or edge.a in reached]
        contested: dict[bytes, list[_Side]] = {}
        for link in self._contested[level]:
            contested[link] = self._states(link, level, reached)
        if apart:
            for vertex in apart:
                for fact in vertex.facts:
                    if fact.level == level:
                        sides = contested.setdefault(fact.id, self._states(fact.id, level, reached))
                        sides.append((self._paths[level], vertex, fact))
            edges = [edge for edge in edges if edge.id not in contested]
        self._passing.update(contested)
        for link, sides in contested.items():
            edges.extend(_believed(level, sides, self._contested[level].get(link, frozenset())))
        return edges

    def _states(self, link: bytes, level: int, reached: set[Vertex]) -> list[_Side]:
        return [
            side for side in self._sides.get(link, ())
            if side[2].level == level and (side[1].level == level or side[1] in reached)
        ]  # fmt: skip


def _believed(level: int, sides: list[_Side], held: frozenset[str]) -> Iterable[Edge]:
    """One edge for each pair of units that advertise each other, between those ends that are believed.

    Of one unit's originators the one with the highest sequence is; of several vertices the nearest, then the one that
    had the link before.
    """

    def rank(side: _Side) -> tuple[int, bool, str, int, str]:
        vertex = side[1]
        return vertex.level, vertex.origin not in held, vertex.origin, -vertex.sequence, vertex.originator

    def end(path: str, far: str) -> _Side | None:
        return min((side for side in sides if side[0] == path and side[2].far == far), key=rank, default=None)

    paths = sorted({path for path, _, _ in sides})
    for location, path in enumerate(paths):
        for far in paths[location + 1 :]:
            a, b = end(path, far), end(far, path)
            if a is not None and b is not None:
                yield Edge(level, a[1], a[2], b[1], b[2])
