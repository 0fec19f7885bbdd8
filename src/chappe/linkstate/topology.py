"""Vertices and edges of a map, and what one node sees of them at one moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chappe.linkstate.units import Address, VertexId
from chappe.wire.mesh import LinkFact

Location = tuple[int, str, str]  # level, origin, originator
Facts = tuple[LinkFact, ...]
Change = tuple[LinkFact | None, LinkFact | None]  # a link before and after; None where there is none


class Vertex:
    """A vertex of the map: a node of the cluster, or a unit as one originator advertises it."""

    __slots__ = ("capabilities", "facts", "index", "level", "members", "origin", "originator", "sequence", "vertex_id")

    def __init__(self, location: Location) -> None:
        self.level, self.origin, self.originator = location
        self.sequence = 0
        self.facts: Facts = ()
        self.members = 1
        self.capabilities: tuple[str, ...] = ()
        self.vertex_id = VertexId(self.level, self.origin)
        self.index = -1

    @property
    def location(self) -> Location:
        return self.level, self.origin, self.originator


class Edge:
    """A link that both ends advertise; `a` is not of a higher level than `b`."""

    __slots__ = ("a", "b", "costs", "fact_a", "fact_b", "id", "known", "level", "metrics", "usable")

    def __init__(self, level: int, a: Vertex, fact_a: LinkFact, b: Vertex, fact_b: LinkFact) -> None:
        if a.level > b.level:
            a, fact_a, b, fact_b = b, fact_b, a, fact_a
        self.id = fact_a.id
        self.level = level
        self.a, self.b = a, b
        self.fact_a, self.fact_b = fact_a, fact_b
        self.usable = not (fact_a.suspect or fact_b.suspect)
        self.combine()

    def update(self, vertex: Vertex, fact: LinkFact) -> None:
        """One of the ends advertises other metrics."""
        if vertex is self.a:
            self.fact_a = fact
        else:
            self.fact_b = fact
        self.combine()

    def combine(self) -> None:
        """How many ends have measured it, and the worse of what they advertised: latency, jitter, loss, bandwidth.

        So a liar makes only its own links dearer.
        """
        a, b = self.fact_a, self.fact_b
        self.known = (a.latency_ms is not None) + (b.latency_ms is not None)
        self.metrics = (
            _worse(max, a.latency_ms, b.latency_ms),
            _worse(max, a.jitter, b.jitter),
            _worse(max, a.loss, b.loss),
            _worse(min, a.bandwidth, b.bandwidth),
        )
        self.costs: dict[str, float] = {}  # of these metrics, by profile, as far as they were computed


@dataclass(slots=True)
class View:
    """The map of one node at one moment; only the metrics of its links change."""

    me: Address
    vertices: list[Vertex] = field(default_factory=list)  # what can be reached, by (level, name)
    index: dict[VertexId, int] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)  # usable ones
    suspected: list[Edge] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)  # of the own units, by level; at level 0 the node itself
    parts: dict[VertexId, tuple[VertexId, ...]] = field(default_factory=dict)  # of units that fell apart
    lost: tuple[VertexId, ...] = ()  # not to be reached, yet they advertise one another
    _ends: dict[bytes, tuple[int, ...]] | None = None

    def leaving(self, level: int) -> Facts:
        """What the controller of the own unit of a level advertises outside: its links to other units, by id."""
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

    def capabilities(self, level: int) -> tuple[str, ...]:
        """What all nodes of the own unit of a level can do."""
        inside = [set(vertex.capabilities) for vertex in self.vertices if vertex.level < level]
        return tuple(sorted(set.intersection(*inside))) if inside else ()

    def resolve(self, vertex_id: VertexId) -> tuple[VertexId, ...]:
        """What a name stands for here: the vertex itself, the unit it is a part of, the parts of a unit, or none."""
        if vertex_id in self.index:
            return (vertex_id,)
        whole = VertexId(vertex_id.level, vertex_id.path)
        return (whole,) if whole in self.index else self.parts.get(whole, ())

    def inside(self, level: int, originator: str) -> bool:
        """Whether who originates for a unit of that level can be reached inside the own one."""
        return any(vertex.originator == originator for vertex in self.vertices if vertex.level < level)

    def away(self, level: int, missed: Iterable[VertexId]) -> bool:
        """Whether something inside the own unit of a level is out of reach, as far as is known."""
        return any(vertex_id.level < level and not self.resolve(vertex_id) for vertex_id in (*self.lost, *missed))

    @property
    def ends(self) -> dict[bytes, tuple[int, ...]]:
        """Which edges are of a link: one, unless several vertices claim it."""
        if self._ends is None:
            self._ends = {}
            for number, edge in enumerate(self.edges):
                self._ends[edge.id] = (*self._ends.get(edge.id, ()), number)
        return self._ends

    def name(self, paths: list[str]) -> None:
        """Give vertices names and numbers: units that fell apart are several vertices; `paths` are the own ones."""
        groups: dict[tuple[int, str], list[Vertex]] = {}
        for vertex in self.vertices:
            if vertex.level:
                groups.setdefault((vertex.level, vertex.origin), []).append(vertex)
        for (level, origin), group in groups.items():
            if len(group) > 1 or origin == paths[level]:
                for vertex in group:
                    vertex.vertex_id = VertexId(level, f"{origin}@{vertex.originator}")
                self.parts[VertexId(level, origin)] = tuple(sorted(vertex.vertex_id for vertex in group))
            elif "@" in group[0].vertex_id.name:
                group[0].vertex_id = VertexId(level, origin)
        self.vertices.sort(key=_vertex_id)
        for number, vertex in enumerate(self.vertices):
            vertex.index = number
            self.index[vertex.vertex_id] = number


def changes(old: Facts, new: Facts) -> list[Change]:
    """What is other between two advertisements, each of which has a link once."""
    found: list[Change] = []
    if len(old) == len(new):  # mostly the same links in the same order, some with other metrics
        for was, fact in zip(old, new, strict=True):
            if was != fact:
                if was.id != fact.id:
                    break
                found.append((was, fact))
        else:
            return found
    before = {fact.id: fact for fact in old}
    found = [(before.pop(fact.id, None), fact) for fact in new]
    return [change for change in found if change[0] != change[1]] + [(was, None) for was in before.values()]


def difference(old: Facts, new: Facts) -> int:
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


def _vertex_id(vertex: Vertex) -> VertexId:
    return vertex.vertex_id


def _worse(which: Callable[[float, float], float], a: float | None, b: float | None) -> float:
    """The worse of two; of one that is not measured, the other."""
    if a is None:
        return math.nan if b is None else b
    return a if b is None else which(a, b)
