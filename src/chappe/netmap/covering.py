"""Who of a cluster hears an advertisement from whom, so that a link carries it only if its other end lacks it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chappe.netmap.database import Database
from chappe.wire.mesh import LinkAdvert

Split = tuple[tuple[str, ...], tuple[str, ...]]


class Covering:
    """What a node knows of its cluster tells it which neighbours need not wait for it.

    Who sent an advertisement sends it to all its own neighbours, too. Of those that it cannot reach itself each hears it
    from one of the nodes between, the one with the smallest name. Where maps differ a node may be left out: therefore
    all others are offered it later, and ask if they lack it.
    """

    def __init__(self, me: str, database: Database) -> None:
        self.me = me
        self._database = database
        self._near: dict[str, frozenset[str]] = {}
        self._splits: dict[tuple[str, int], Split] = {}

    def changed(self) -> None:
        """Links of the cluster, or neighbours of this node, are others."""
        self._near.clear()
        self._splits.clear()

    def split(self, source: str, level: int, peers: Iterable[str], cluster: Collection[str]) -> Split:
        """Of these neighbours those that hear what came from `source` from this node, and those to be asked later.

        `peers` are those that are told things of a level; `cluster` are the neighbours in the own cluster: of others
        nobody knows here whom they are linked to.
        """
        known = self._splits.get((source, level))
        if known is None:
            now, later = [], []
            near = self._of(source) if source in cluster else None
            for peer in peers:
                if peer == source:
                    continue
                alone = near is None or peer not in cluster
                (now if alone or self._first(near or frozenset(), peer) else later).append(peer)
            known = self._splits[source, level] = tuple(now), tuple(later)
        return known

    def _first(self, near: frozenset[str], peer: str) -> bool:
        """Whether a node hears it from this one, and neither from the source nor from another next to it."""
        return peer not in near and all(self.me <= between for between in near & self._of(peer))

    def _of(self, name: str) -> frozenset[str]:
        """Nodes of the cluster that tell of a link to that one, and it of one to them."""
        found = self._near.get(name)
        if found is None:
            found = frozenset(other for other in self._told(name) if name in self._told(other))
            self._near[name] = found
        return found

    def _told(self, name: str) -> set[str]:
        entry = self._database.entries.get(("l", 0, name, name))
        if entry is None or not isinstance(entry.advert, LinkAdvert):
            return set()
        return {fact.far for fact in entry.advert.links if fact.level == 0 and not fact.suspect}
