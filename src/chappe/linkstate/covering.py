"""Who hears an advertisement from whom, so that a link carries it only if its other end lacks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chappe.linkstate.database import Database
from chappe.linkstate.units import VertexId
from chappe.wire.mesh import LinkAdvert, LinkFact

Split = tuple[tuple[str, ...], tuple[str, ...]]


class Covering:
    """What a node knows of its cluster shows which neighbours need not wait for it.

    Who sent an advertisement sends it to all its own neighbours in the cluster, too. Of those that it cannot reach
    itself each hears it from one of the nodes between, and a unit next to the cluster from one of those that are linked
    to it: the one with the smallest name. Where maps differ somebody may be left out: therefore all others are offered
    it later, and ask if they lack it.
    """

    def __init__(self, me: str, database: Database) -> None:
        self.me = me
        self._database = database
        self._far: dict[str, frozenset[str]] = {}
        self._near: dict[str, frozenset[str]] = {}
        self._splits: dict[tuple[str, int], Split] = {}

    def changed(self) -> None:
        """Links of the cluster, or neighbours of this node, are others."""
        self._far.clear()
        self._near.clear()
        self._splits.clear()

    def relinked(self, name: str) -> None:
        """Links of one node of the cluster are others."""
        self._far.pop(name, None)
        self._near.clear()
        self._splits.clear()

    def split(self, source: str, level: int, peers: Iterable[str], locations: Mapping[str, VertexId]) -> Split:
        """Of these neighbours those that hear what came from `source` from this node, and those to be asked later.

        `peers` get advertisements of a level; `locations` says which vertex each is to this node.
        """
        known = self._splits.get((source, level))
        if known is None:
            now: list[str] = []
            later: list[str] = []
            served = {locations[source]} if source in locations else set()  # units that one link is enough for
            near = self._of(source) if not any(vertex_id.level for vertex_id in served) else None
            for peer in sorted(peers):
                vertex_id = locations[peer]
                if peer == source:
                    continue
                if vertex_id.level:
                    first = vertex_id not in served and self._first_to(vertex_id)
                    served.add(vertex_id)
                else:
                    first = near is None or self._first(near, peer)
                (now if first else later).append(peer)
            known = self._splits[source, level] = tuple(now), tuple(later)
        return known

    def _first(self, near: frozenset[str], peer: str) -> bool:
        """Whether a node hears it from this one, and neither from the source nor from another next to it."""
        return peer not in near and all(self.me <= between for between in near & self._of(peer))

    def _first_to(self, unit: VertexId) -> bool:
        """Whether no node of the cluster with a smaller name is linked to that unit."""
        return not any(
            fact.far == unit.name and fact.level == unit.level and not fact.suspect
            for name in self._of(self.me) if name < self.me
            for fact in self._facts(name)
        )  # fmt: skip

    def _of(self, name: str) -> frozenset[str]:
        """Nodes of the cluster that advertise a link to that one, and it of one to them."""
        found = self._near.get(name)
        if found is None:
            found = frozenset([other for other in self._states(name) if name in self._states(other)])
            self._near[name] = found
        return found

    def _states(self, name: str) -> frozenset[str]:
        found = self._far.get(name)
        if found is None:
            found = frozenset([fact.far for fact in self._facts(name) if fact.level == 0 and not fact.suspect])
            self._far[name] = found
        return found

    def _facts(self, name: str) -> tuple[LinkFact, ...]:
        entry = self._database.entries.get(("l", 0, name, name))
        return entry.advert.links if entry is not None and isinstance(entry.advert, LinkAdvert) else ()
