"""Purging originators of a unit that failed: else what they advertised would stand until it expires."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.linkstate.database import Database, Entry
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Location, View
from chappe.linkstate.units import Address, VertexId
from chappe.wire.mesh import LinkAdvert, Withdrawn


def replaced(database: Database, location: Location) -> bool:
    """Whether another originator of the unit has withdrawn this one, after what it advertised last."""
    level, origin, name = location
    if not level:
        return False  # a node originates for itself alone
    originators = database.originators("l", level, origin)
    advertised = originators[name].advert.sequence if name in originators else 0
    for entry in originators.values():
        assert isinstance(entry.advert, LinkAdvert)
        for other, sequence in entry.advert.withdrawn:
            if other == name and advertised <= sequence:
                return True
    return False


def counts(database: Database, location: Location) -> bool:
    """Whether an originator of a unit counts: it advertised links, and none has withdrawn it since."""
    level, origin, name = location
    entry = database.originators("l", level, origin).get(name)
    return entry is not None and bool(getattr(entry.advert, "links", ())) and not replaced(database, location)


def merged(database: Database, view: View, vertex_id: VertexId, missed: Iterable[VertexId]) -> bool:
    """Whether a vertex was another part of an own unit, and is one with this part now.

    Its originator can be reached inside the unit; or its word counts no more, and nothing inside the unit is away.
    """
    path, _, originator = vertex_id.name.partition("@")
    if not originator or path != view.me.path(vertex_id.level) or vertex_id in view.index:
        return False
    if view.inside(vertex_id.level, originator):
        return True
    return not counts(database, (vertex_id.level, path, originator)) and not view.away(vertex_id.level, missed)


class Purge:
    """What a node knows of earlier originators of its units.

    One has failed if it could be reached, cannot be any more, and nobody else who cannot be reached has a link to it:
    else it may live on in another part of the unit. One that lives on all the same, with no link inside the unit, hears
    that it was withdrawn and originates again: what it advertised after it was lost is believed.
    """

    def __init__(self, me: Address, settings: Settings, database: Database) -> None:
        self.me = me
        self.settings = settings
        self.database = database
        self._view: View | None = None
        self._reached: set[str] = set()
        self._lost_ns: dict[str, int] = {}
        self._withdrawn: dict[int, dict[str, int]] = {}  # by level, with the sequence of what they advertised last
        self._paths = [me.path(level) for level in range(me.depth + 1)]

    def observe(self, view: View, now_ns: int) -> None:
        """Another map may be there."""
        before, self._view = self._view, view
        if before is not None and (before is view or before.vertices == view.vertices):
            return
        reached = {
            vertex.originator for vertex in view.vertices
            if not vertex.level or vertex.origin != self._paths[vertex.level]
        }  # fmt: skip
        for name in self._reached - reached:
            self._lost_ns[name] = now_ns
        for name in reached.intersection(self._lost_ns):
            del self._lost_ns[name]
        self._reached = reached
        if len(self._lost_ns) > self.settings.max_adverts:
            self._lost_ns.clear()

    def withdrawn(self, level: int) -> tuple[Withdrawn, ...]:
        """Originators of the own unit of a level that do not count any more, by name, with their last sequence."""
        origin = self._paths[level]
        before, found = self._withdrawn.get(level, {}), {}
        for name, entry in self.database.originators("l", level, origin).items():
            assert isinstance(entry.advert, LinkAdvert)
            if name == self.me.node or not entry.advert.links:
                continue
            sequence = entry.advert.sequence
            known = before.get(name) == sequence or replaced(self.database, (level, origin, name))
            if known or self._failed(name, entry):
                found[name] = sequence
        self._withdrawn[level] = found
        return tuple(sorted(found.items())[: self.settings.max_originators])

    def _failed(self, name: str, entry: Entry) -> bool:
        lost_ns = self._lost_ns.get(name)
        if lost_ns is None or entry.born_ns > lost_ns + self.settings.settle_ns:
            return False
        node = self.database.entries.get(("l", 0, name, name))
        if node is not None and isinstance(node.advert, LinkAdvert):
            return not any(self._advertises(fact.far, fact.id) for fact in node.advert.links if not fact.level)
        spoken = ((level, self.database.unit_of_originator(level, name)) for level in range(1, self.me.depth))
        return any(origin is not None and replaced(self.database, (level, origin, name)) for level, origin in spoken)

    def _advertises(self, name: str, link: bytes) -> bool:
        """Whether a node of the cluster advertises a link."""
        entry = self.database.entries.get(("l", 0, name, name))
        return entry is not None and any(fact.id == link for fact in getattr(entry.advert, "links", ()))
