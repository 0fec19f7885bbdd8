"""The map that follows from a set of advertisements: what can be reached, over which links, and who speaks for whom.

Level by level, from the nodes of the own cluster outwards. A link is an edge if both its ends tell of it, each naming
the unit of the other, and it is used if neither suspects it. Nothing here depends on the order in which anything was
heard, except that of several ends that claim the same link the one that had it before keeps it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chappe.netmap.units import Address, Thing
from chappe.wire.mesh import LinkAdvert, LinkFact

Place = tuple[int, str, str]  # level, origin, speaker
_Side = tuple[str, "Vertex", LinkFact]  # path at the level of the link, who tells it there, and what


class Vertex:
    """A thing of the map: a node of the cluster, or a unit as one speaker tells of it."""

    __slots__ = ("facts", "index", "level", "members", "origin", "sequence", "speaker", "thing")

    def __init__(self, advert: LinkAdvert) -> None:
        self.level = advert.level
        self.origin = advert.origin
        self.speaker = advert.speaker
        self.sequence = advert.sequence
        self.facts = advert.links
        self.members = advert.members if advert.level else 1
        self.thing = Thing(advert.level, advert.origin)
        self.index = -1

    @property
    def place(self) -> Place:
        return self.level, self.origin, self.speaker


class Edge:
    """A link that both ends tell of; `a` is before `b` in the order of levels and names."""

    __slots__ = ("a", "b", "fact_a", "fact_b", "id", "level")

    def __init__(self, level: int, a: Vertex, fact_a: LinkFact, b: Vertex, fact_b: LinkFact) -> None:
        if a.level > b.level:
            a, fact_a, b, fact_b = b, fact_b, a, fact_a
        self.id = fact_a.id
        self.level = level
        self.a, self.fact_a = a, fact_a
        self.b, self.fact_b = b, fact_b

    @property
    def usable(self) -> bool:
        return not (self.fact_a.suspect or self.fact_b.suspect)


@dataclass(slots=True)
class View:
    """The map of one node at one moment; only the metrics of its links change."""

    me: Address
    vertices: list[Vertex] = field(default_factory=list)  # what can be reached, by (level, name)
    index: dict[Thing, int] = field(default_factory=dict)
    places: dict[Place, Vertex] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)  # usable ones
    suspected: list[Edge] = field(default_factory=list)
    ends: dict[bytes, list[int]] = field(default_factory=dict)  # edges of a link
    controllers: list[str] = field(default_factory=list)  # of the own units, by level; at level 0 the node itself
    parts: dict[Thing, tuple[Thing, ...]] = field(default_factory=dict)  # of units that fell apart
    lost: tuple[Thing, ...] = ()  # not to be reached, yet they tell of one another

    def update(self, place: Place, facts: tuple[LinkFact, ...]) -> set[int]:
        """Take other metrics of the links that a thing tells of; the edges that this is about."""
        vertex = self.places.get(place)
        if vertex is None:
            return set()
        old, vertex.facts = vertex.facts, facts
        found = set()
        for before, fact in zip(old, facts, strict=True):
            if before == fact:
                continue
            for number in self.ends.get(fact.id, ()):
                edge = self.edges[number]
                if edge.a is vertex:
                    edge.fact_a = fact
                elif edge.b is vertex:
                    edge.fact_b = fact
                else:
                    continue
                found.add(number)
        return found

    def leaving(self, level: int) -> tuple[LinkFact, ...]:
        """What the controller of the own unit of a level tells outside: its links to other units, by id."""
        facts: dict[bytes, LinkFact] = {}
        for vertex in self.vertices:
            if vertex.level >= level:
                break
            for fact in vertex.facts:
                if fact.level >= level:
                    facts.setdefault(fact.id, fact)
        return tuple(facts[link] for link in sorted(facts))

    def members(self, level: int) -> int:
        """How many nodes the own unit of a level has, as far as it is known."""
        return sum(vertex.members for vertex in self.vertices if vertex.level < level)


def difference(old: tuple[LinkFact, ...], new: tuple[LinkFact, ...]) -> int:
    """0: the same links and metrics; 1: other metrics; 2: other links."""
    if len(old) != len(new):
        return 2
    worst = 0
    for a, b in zip(old, new, strict=True):
        if a != b:
            if a.id != b.id or a.far != b.far or a.level != b.level or a.suspect != b.suspect:
                return 2
            worst = 1
    return worst


def build(
    me: Address, own: tuple[LinkFact, ...], adverts: Iterable[LinkAdvert], held: Mapping[bytes, frozenset[str]]
) -> View:
    """The map of a node with these links that heard these advertisements; `held`: origins that had a link before."""
    told: list[list[LinkAdvert]] = [[] for _ in range(me.depth + 1)]
    for advert in adverts:
        if advert.links and not (advert.level == 0 and advert.origin == me.node):
            told[advert.level].append(advert)
    here = Vertex(
        LinkAdvert(origin=me.node, level=0, scope=me.scope(0), speaker=me.node, sequence=1, links=own, members=1)
    )
    view = View(me, controllers=[me.node])
    inner: list[list[_Side]] = [[] for _ in range(me.depth + 1)]
    names: set[str] = set()  # of nodes of the cluster, and of those who speak for other units around
    lost: set[Thing] = set()
    for level in range(me.depth + 1):
        path = me.path(level)
        if level:
            view.controllers.append(min(names))
        outer = [
            Vertex(advert)
            for advert in told[level]
            if not (level and advert.origin == path and advert.speaker in names)
        ]
        if level == 0:
            outer.append(here)
        edges = _edges(level, inner[level], outer, held)
        reached = _reached(level, edges, here)
        for edge in edges:
            if id(edge.b) in reached and (edge.a.level < level or id(edge.a) in reached):
                (view.edges if edge.usable else view.suspected).append(edge)
            elif edge.a.level == level and id(edge.a) not in reached and id(edge.b) not in reached:
                lost.update((edge.a.thing, edge.b.thing))
        for vertex in reached.values():
            view.vertices.append(vertex)
            names.add(vertex.speaker)
            for fact in vertex.facts:
                if fact.level > level:
                    inner[fact.level].append((me.path(fact.level), vertex, fact))
    _name(view)
    view.lost = tuple(sorted(lost - set(view.index)))
    return view


def _edges(level: int, inner: list[_Side], outer: list[Vertex], held: Mapping[bytes, frozenset[str]]) -> list[Edge]:
    """The links of a level of which both ends tell."""
    told: dict[bytes, list[_Side]] = {}
    for side in inner:
        told.setdefault(side[2].id, []).append(side)
    for vertex in outer:
        for fact in vertex.facts:
            if fact.level == level:
                told.setdefault(fact.id, []).append((vertex.origin, vertex, fact))
    edges = []
    for sides in told.values():
        if len(sides) == 2:
            (path_a, a, fact_a), (path_b, b, fact_b) = sides
            if path_a != path_b and fact_a.far == path_b and fact_b.far == path_a:
                edges.append(Edge(level, a, fact_a, b, fact_b))
        elif len(sides) > 2:
            edges.extend(_contested(level, sides, held.get(sides[0][2].id, frozenset())))
    return edges


def _contested(level: int, sides: list[_Side], held: frozenset[str]) -> Iterable[Edge]:
    """One edge for each pair of units that tell of each other, between those ends that are believed.

    Of one unit's speakers the one with the highest sequence is; of several things the nearest, then the one that had
    the link before: a claim that comes later takes nothing from anybody.
    """

    def rank(side: _Side) -> tuple[int, bool, str, int, str]:
        vertex = side[1]
        return vertex.level, vertex.origin not in held, vertex.origin, -vertex.sequence, vertex.speaker

    def believed(path: str, far: str) -> _Side | None:
        return min((side for side in sides if side[0] == path and side[2].far == far), key=rank, default=None)

    paths = sorted({path for path, _, _ in sides})
    for place, path in enumerate(paths):
        for far in paths[place + 1 :]:
            a, b = believed(path, far), believed(far, path)
            if a is not None and b is not None:
                yield Edge(level, a[1], a[2], b[1], b[2])


def _reached(level: int, edges: list[Edge], here: Vertex) -> dict[int, Vertex]:
    """Things of a level that can be reached from this node over usable links without leaving the unit around them."""
    near: dict[int, list[Vertex]] = {}
    reached: dict[int, Vertex] = {id(here): here} if level == 0 else {}
    for edge in edges:
        if not edge.usable:
            continue
        if edge.a.level == level:
            near.setdefault(id(edge.a), []).append(edge.b)
            near.setdefault(id(edge.b), []).append(edge.a)
        else:
            reached[id(edge.b)] = edge.b
    ahead = list(reached.values())
    while ahead:
        for vertex in near.get(id(ahead.pop()), ()):
            if id(vertex) not in reached:
                reached[id(vertex)] = vertex
                ahead.append(vertex)
    return reached


def _name(view: View) -> None:
    """Give things their names and numbers: units that fell apart are several things."""
    groups: dict[tuple[int, str], list[Vertex]] = {}
    for vertex in view.vertices:
        groups.setdefault((vertex.level, vertex.origin), []).append(vertex)
    for (level, origin), group in groups.items():
        if level and (len(group) > 1 or origin == view.me.path(level)):
            for vertex in group:
                vertex.thing = Thing(level, f"{origin}@{vertex.speaker}")
            view.parts[Thing(level, origin)] = tuple(sorted(vertex.thing for vertex in group))
    view.vertices.sort(key=lambda vertex: vertex.thing)
    for number, vertex in enumerate(view.vertices):
        vertex.index = number
        view.index[vertex.thing] = number
        view.places[vertex.place] = vertex
    for edge in (*view.edges, *view.suspected):
        if edge.a.index > edge.b.index:
            edge.a, edge.fact_a, edge.b, edge.fact_b = edge.b, edge.fact_b, edge.a, edge.fact_a
    view.edges.sort(key=lambda edge: (edge.a.index, edge.b.index, edge.id))
    for number, edge in enumerate(view.edges):
        view.ends.setdefault(edge.id, []).append(number)
