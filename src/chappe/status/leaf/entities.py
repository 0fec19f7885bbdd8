"""The end-entities of a cloud: who is attached where, who has restarted, who is refused (GS-153, GS-154)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.state import EntityItem
from chappe.wire.management import Entity

AWAY_NS = 24 * 3600 * 1_000_000_000  # one that is away for so long does not come back
SWEEP_NS = 60_000_000_000


class Attached(msgspec.Struct):
    """An end-entity: its issuer, its edge, and whether it is connected there."""

    issuer: bytes
    edge: str
    there: bool
    since_ns: int  # when that last changed
    durable: bool = False


class Entities:
    """By name. `restarted(name)` withdraws everything that an end-entity had."""

    def __init__(self, cloud: Cloud, restarted: Callable[[str, str], None]) -> None:
        self._cloud = cloud
        self._restarted = restarted
        self.by_name: dict[str, Attached] = {}
        self._at: dict[str, dict[str, None]] = {}  # edge -> names
        self._swept_ns = 0

    def restore(self, items: dict[str, EntityItem]) -> None:
        for name, item in items.items():
            self._enter(name, Attached(item.issuer, item.edge, False, 0, durable=True))

    def lead(self, now_ns: int) -> None:
        """How long somebody was away before is not known: it counts from now."""
        for known in self.by_name.values():
            known.since_ns = now_ns

    def arrived(self, edge: str, entity: Entity) -> str:
        """An end-entity is at this edge. Why it is not accepted; empty if it is."""
        known = self.by_name.get(entity.name)
        now_ns = self._cloud.now_ns
        if known is not None and known.issuer == entity.issuer and known.edge == edge:
            known.there, known.since_ns = True, now_ns
            return ""
        if known is not None:
            if self._present(known) and known.issuer != entity.issuer:
                return f"{entity.name!r} is connected at {known.edge}; a name belongs to one client at a time"
            self._restarted(entity.name, "its client has restarted")
            self._leave(entity.name)
        self._enter(entity.name, Attached(entity.issuer, edge, True, now_ns))
        return ""

    def knows(self, edge: str, entity: Entity) -> bool:
        """Whether this issuer is at that edge, or was last."""
        known = self.by_name.get(entity.name)
        return known is not None and (known.issuer, known.edge) == (entity.issuer, edge)

    def left(self, edge: str, entity: Entity) -> None:
        """Its link is lost; what it has stays, it may come back."""
        known = self.by_name.get(entity.name)
        if known is not None and (known.issuer, known.edge) == (entity.issuer, edge):
            known.there, known.since_ns = False, self._cloud.now_ns
            if not known.durable:
                self._leave(entity.name)

    def gone(self, edge: str, entity: Entity) -> None:
        """It said goodbye: what it has is over."""
        known = self.by_name.get(entity.name)
        if known is not None and (known.issuer, known.edge) == (entity.issuer, edge):
            known.there, known.since_ns = False, self._cloud.now_ns
            self._restarted(entity.name, "its client has ended")
            self._leave(entity.name)

    def joined(self, edge: str, entities: tuple[Entity, ...]) -> None:
        """Everybody who is attached to an edge now; others that were are away."""
        there = {(entity.name, entity.issuer) for entity in entities}
        for name in list(self._at.get(edge, ())):
            issuer = self.by_name[name].issuer
            if (name, issuer) not in there:
                self.left(edge, Entity(name, issuer))
        for entity in entities:
            known = self.by_name.get(entity.name)
            if known is None or known.edge == edge or not self._present(known):
                self.arrived(edge, entity)  # else it has moved on, and this edge has not noticed yet

    def _present(self, known: Attached) -> bool:
        return known.there and self._cloud.routers.joined(known.edge)

    def keep(self, name: str) -> None:
        """It has something: remember its issuer over restarts of the broker."""
        known = self.by_name.get(name)
        if known is not None and not known.durable:
            known.durable = True
            self._cloud.outbox.put("entity", name, EntityItem(issuer=known.issuer, edge=known.edge))

    def emptied(self, name: str) -> None:
        """It has nothing any more."""
        known = self.by_name.get(name)
        if known is not None and known.durable:
            known.durable = False
            self._cloud.outbox.drop("entity", name)
            if not known.there:
                self._leave(name)

    def tick(self, now_ns: int) -> None:
        """End-entities that are away for too long have gone for good."""
        if now_ns - self._swept_ns < SWEEP_NS:
            return
        self._swept_ns = now_ns
        for name, known in list(self.by_name.items()):
            if not known.there and now_ns - known.since_ns > AWAY_NS:
                self._restarted(name, "its client is away for too long")

    def _enter(self, name: str, attached: Attached) -> None:
        self.by_name[name] = attached
        self._at.setdefault(attached.edge, {})[name] = None

    def _leave(self, name: str) -> None:
        known = self.by_name.pop(name, None)
        if known is not None:
            names = self._at[known.edge]
            names.pop(name, None)
            if not names:
                del self._at[known.edge]
            if known.durable:
                self._cloud.outbox.drop("entity", name)
