"""What was in the map a moment ago and is not any more: it is still wanted there until others had time to advertise it.

A unit that falls apart is known to be in parts when each part has an originator, which takes a fraction of a second.
Until then each part has only lost the other one. An event for what is lost waits where its route is planned, and takes
the one that the next map has; without this, there would be no destination to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chappe.linkstate.choices import NEVER
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Vertex, View
from chappe.linkstate.units import Address, VertexId
from chappe.wire.patterns import Pattern

Patterns = tuple[Pattern, ...]
Wanted = Callable[[Vertex], set[Pattern]]


class GracePeriod:
    """Vertices that are missed, each for `missed_ns`, with what their plain subscribers wanted.

    A queue group is served by another member meanwhile. A node of the cluster is missed if it may be reached from
    outside: it has links there, or is out of reach together with others. Most that are missing have failed.
    """

    def __init__(self, me: Address, settings: Settings) -> None:
        self.me = me
        self.settings = settings
        self.next_ns = NEVER
        self._missed: dict[VertexId, tuple[int, Patterns]] = {}  # until when, and what

    def observe(self, old: View, new: View, wanted: Wanted, now_ns: int) -> None:
        """Another map is there; `wanted` says what a vertex wanted that was in the one before it."""
        here = set(new.vertices)
        missing = [vertex for vertex in old.vertices if vertex not in here]
        if not missing and not self._missed:
            return
        there = {VertexId(vertex.level, vertex.origin) for vertex in new.vertices}
        for vertex_id in there.intersection(self._missed):
            if not vertex_id.level:  # a node advertises its interest itself; a unit's originator may not know all yet
                del self._missed[vertex_id]
        outside = any(vertex.level for vertex in old.vertices)
        for vertex in missing:
            if outside and (vertex.level or vertex.vertex_id not in there) and self._may_live(vertex, new):
                self._miss(self._name(vertex), wanted(vertex), now_ns)
        self._plan()

    def withdrawn(self, vertex_id: VertexId, patterns: Patterns, now_ns: int) -> None:
        """An originator of a unit withdrew its interest: that of its successor may be heard later."""
        if vertex_id.name != self.me.path(vertex_id.level):  # a part of the own unit is still advertised by its links
            self._miss(vertex_id, patterns, now_ns)
            self._plan()

    def expire(self, now_ns: int) -> bool:
        """Miss what was missed for long enough no more; whether there was any."""
        if now_ns < self.next_ns:
            return False
        self._missed = {vertex_id: missed for vertex_id, missed in self._missed.items() if missed[0] > now_ns}
        self._plan()
        return True

    def wanted(self) -> dict[VertexId, Patterns]:
        """What is missed, and what is wanted there; of a unit whose originator is another one, by its own name."""
        return {vertex_id: patterns for vertex_id, (_, patterns) in self._missed.items()}

    def _miss(self, vertex_id: VertexId, patterns: Iterable[Pattern], now_ns: int) -> None:
        plain = {pattern for pattern in patterns if not pattern.group}
        _, before = self._missed.get(vertex_id, (0, ()))
        if len(plain) + len(before) <= self.settings.max_patterns:
            plain.update(before)
        if plain:
            self._missed[vertex_id] = now_ns + self.settings.missed_ns, tuple(sorted(plain))

    def _name(self, vertex: Vertex) -> VertexId:
        """What a vertex is missed as: a unit by its own name, a part of an own unit as that part."""
        whole = VertexId(vertex.level, vertex.origin)
        return vertex.vertex_id if vertex.origin == self.me.path(vertex.level) else whole

    def _may_live(self, vertex: Vertex, new: View) -> bool:
        if vertex.level:
            return vertex.origin != self.me.path(vertex.level) or not new.inside(vertex.level, vertex.originator)
        return vertex.vertex_id in new.lost or any(fact.level for fact in vertex.facts)

    def _plan(self) -> None:
        self.next_ns = min((until_ns for until_ns, _ in self._missed.values()), default=NEVER)
