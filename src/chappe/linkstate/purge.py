"""Who spoke for a unit and is gone: without a word of its successor, what it told would stand until it is forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.linkstate.database import Database, Entry
from chappe.linkstate.settings import Settings
from chappe.linkstate.topology import Place, View
from chappe.linkstate.units import Address, Thing
from chappe.wire.mesh import Gone, LinkAdvert


def replaced(database: Database, place: Place) -> bool:
    """Whether another speaker of the unit has said that this one is gone, after what it told last."""
    level, origin, name = place
    speakers = database.speakers("l", level, origin)
    told = speakers[name].advert.sequence if name in speakers else 0
    return any(
        other == name and told <= sequence
        for entry in speakers.values()
        if isinstance(entry.advert, LinkAdvert)
        for other, sequence in entry.advert.gone
    )


def counts(database: Database, place: Place) -> bool:
    """Whether somebody speaks for a unit: it told of links, and nobody has said since that it is gone."""
    level, origin, name = place
    entry = database.speakers("l", level, origin).get(name)
    return entry is not None and bool(getattr(entry.advert, "links", ())) and not replaced(database, place)


def merged(database: Database, view: View, thing: Thing, missed: Iterable[Thing]) -> bool:
    """Whether a thing was another part of an own unit, and is one with this part now.

    Its speaker can be reached inside the unit; or its word counts no more, and nothing inside the unit is away.
    """
    path, _, speaker = thing.name.partition("@")
    if not speaker or path != view.me.path(thing.level) or thing in view.index:
        return False
    if view.inside(thing.level, speaker):
        return True
    return not counts(database, (thing.level, path, speaker)) and not view.away(thing.level, missed)


class Purge:
    """What a node knows of those who spoke for its units before it.

    One is gone if it could be reached, cannot be any more, and nobody else who cannot be reached has a link to it:
    else it may live on in another part of the unit. One that lives on all the same, with no link inside the unit, hears
    that it is called gone and speaks again: what it told after it was lost is believed.
    """

    def __init__(self, me: Address, settings: Settings, database: Database) -> None:
        self.me = me
        self.settings = settings
        self.database = database
        self._view: View | None = None
        self._reached: set[str] = set()
        self._lost_ns: dict[str, int] = {}
        self._gone: dict[int, dict[str, int]] = {}  # by level, with the sequence of what they told last

    def observe(self, view: View, now_ns: int) -> None:
        """Another map may be there."""
        if view is self._view:
            return
        self._view = view
        reached = {
            vertex.speaker for vertex in view.vertices
            if not vertex.level or vertex.origin != self.me.path(vertex.level)
        }  # fmt: skip
        for name in self._reached - reached:
            self._lost_ns[name] = now_ns
        for name in reached.intersection(self._lost_ns):
            del self._lost_ns[name]
        self._reached = reached
        if len(self._lost_ns) > self.settings.max_adverts:
            self._lost_ns.clear()

    def gone(self, level: int) -> tuple[Gone, ...]:
        """Speakers of the own unit of a level whose words do not count any more, by name, with their last sequence."""
        origin = self.me.path(level)
        before, found = self._gone.get(level, {}), {}
        for name, entry in self.database.speakers("l", level, origin).items():
            if name == self.me.node or not isinstance(entry.advert, LinkAdvert) or not entry.advert.links:
                continue
            sequence = entry.advert.sequence
            known = before.get(name) == sequence or replaced(self.database, (level, origin, name))
            if known or self._dead(name, entry):
                found[name] = sequence
        self._gone[level] = found
        return tuple(sorted(found.items())[: self.settings.max_speakers])

    def _dead(self, name: str, entry: Entry) -> bool:
        lost_ns = self._lost_ns.get(name)
        if lost_ns is None or entry.born_ns > lost_ns + self.settings.settle_ns:
            return False
        node = self.database.entries.get(("l", 0, name, name))
        if node is not None and isinstance(node.advert, LinkAdvert):
            return not any(self._tells(fact.far, fact.id) for fact in node.advert.links if not fact.level)
        spoken = ((level, self.database.spoken_for(level, name)) for level in range(1, self.me.depth))
        return any(origin is not None and replaced(self.database, (level, origin, name)) for level, origin in spoken)

    def _tells(self, name: str, link: bytes) -> bool:
        """Whether a node of the cluster tells of a link."""
        entry = self.database.entries.get(("l", 0, name, name))
        return entry is not None and any(fact.id == link for fact in getattr(entry.advert, "links", ()))
