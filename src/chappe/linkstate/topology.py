"""The things and links of a map, and what one node sees of them at one moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from chappe.linkstate.units import Address, Thing
from chappe.wire.mesh import LinkFact

Place = tuple[int, str, str]  # level, origin, speaker
Facts = tuple[LinkFact, ...]


class Vertex:
    """A thing of the map: a node of the cluster, or a unit as one speaker tells of it."""

    __slots__ = ("capabilities", "facts", "index", "level", "members", "origin", "sequence", "speaker", "thing")

    def __init__(self, place: Place) -> None:
        self.level, self.origin, self.speaker = place
        self.sequence = 0
        self.facts: Facts = ()
        self.members = 1
        self.capabilities: tuple[str, ...] = ()
        self.thing = Thing(self.level, self.origin)
        self.index = -1

    @property
    def place(self) -> Place:
        return self.level, self.origin, self.speaker


class Edge:
    """A link that both ends tell of; `a` is not of a higher level than `b`."""

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

    def tell(self, vertex: Vertex, fact: LinkFact) -> None:
        """One of the ends tells other metrics."""
        if vertex is self.a:
            self.fact_a = fact
        else:
            self.fact_b = fact
        self.combine()

    def combine(self) -> None:
        """How many ends have measured it, and the worse of what they told: latency, jitter, loss, bandwidth.

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
    index: dict[Thing, int] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)  # usable ones
    suspected: list[Edge] = field(default_factory=list)
    controllers: list[str] = field(default_factory=list)  # of the own units, by level; at level 0 the node itself
    parts: dict[Thing, tuple[Thing, ...]] = field(default_factory=dict)  # of units that fell apart
    lost: tuple[Thing, ...] = ()  # not to be reached, yet they tell of one another
    _ends: dict[bytes, tuple[int, ...]] | None = None

    def leaving(self, level: int) -> Facts:
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

    def capabilities(self, level: int) -> tuple[str, ...]:
        """What all nodes of the own unit of a level can do."""
        inside = [set(vertex.capabilities) for vertex in self.vertices if vertex.level < level]
        return tuple(sorted(set.intersection(*inside))) if inside else ()

    def resolve(self, thing: Thing) -> tuple[Thing, ...]:
        """What a name stands for here: the thing itself, the unit it is a part of, the parts of a unit, or none."""
        if thing in self.index:
            return (thing,)
        whole = Thing(thing.level, thing.path)
        return (whole,) if whole in self.index else self.parts.get(whole, ())

    def inside(self, level: int, speaker: str) -> bool:
        """Whether who speaks for a unit of that level can be reached inside the own one."""
        return any(vertex.speaker == speaker for vertex in self.vertices if vertex.level < level)

    def away(self, level: int, missed: Iterable[Thing]) -> bool:
        """Whether something inside the own unit of a level is out of reach, as far as is known."""
        return any(thing.level < level and not self.resolve(thing) for thing in (*self.lost, *missed))

    @property
    def ends(self) -> dict[bytes, tuple[int, ...]]:
        """Which edges are of a link: one, unless several things claim it."""
        if self._ends is None:
            self._ends = {}
            for number, edge in enumerate(self.edges):
                self._ends[edge.id] = (*self._ends.get(edge.id, ()), number)
        return self._ends

    def name(self, paths: list[str]) -> None:
        """Give things their names and numbers: units that fell apart are several things; `paths` are the own ones."""
        groups: dict[tuple[int, str], list[Vertex]] = {}
        for vertex in self.vertices:
            if vertex.level:
                groups.setdefault((vertex.level, vertex.origin), []).append(vertex)
        for (level, origin), group in groups.items():
            if len(group) > 1 or origin == paths[level]:
                for vertex in group:
                    vertex.thing = Thing(level, f"{origin}@{vertex.speaker}")
                self.parts[Thing(level, origin)] = tuple(sorted(vertex.thing for vertex in group))
            elif "@" in group[0].thing.name:
                group[0].thing = Thing(level, origin)
        self.vertices.sort(key=_thing)
        for number, vertex in enumerate(self.vertices):
            vertex.index = number
            self.index[vertex.thing] = number


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


def _thing(vertex: Vertex) -> Thing:
    return vertex.thing


def _worse(which: Callable[[float, float], float], a: float | None, b: float | None) -> float:
    """The worse of two; of one that is not measured, the other."""
    if a is None:
        return math.nan if b is None else b
    return a if b is None else which(a, b)
