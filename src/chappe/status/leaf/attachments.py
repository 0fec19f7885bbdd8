"""End-entities come, go and restart; what one leaves behind is withdrawn (GS-153, GS-154)."""

from __future__ import annotations

from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Attachment, Entities
from chappe.status.leaf.withdrawals import Withdrawals
from chappe.status.machine import Address
from chappe.wire.management import Entity

AWAY_NS = 24 * 3600 * 1_000_000_000  # one that is away for so long does not come back
SWEEP_NS = 60_000_000_000


class Attachments:
    """Who is attached where, and who is refused."""

    def __init__(self, cloud: Cloud, entities: Entities, withdrawals: Withdrawals) -> None:
        self._cloud = cloud
        self._entities = entities
        self._withdrawals = withdrawals
        self._swept_ns = 0

    def refuses(self, address: Address, request: int, entity: Entity) -> bool:
        """Whether the one who asks is not who it should be; the request has been answered then."""
        reason = self.arrived(address[7:], entity)
        if reason:
            self._cloud.fail(address, request, "exists", reason)
        return bool(reason)

    def is_stale(self, address: Address, request: int, entity: Entity) -> bool:
        """Whether the one who asked some time ago has gone meanwhile; the request has been answered then."""
        stale = not self._entities.knows(address[7:], entity)
        if stale:
            self._cloud.fail(address, request, "stale", f"{entity.name!r} has restarted or moved since it asked")
        return stale

    def arrived(self, edge: str, entity: Entity) -> str:
        """An end-entity is at this edge. Why it is not accepted; empty if it is."""
        known = self._entities.by_name.get(entity.name)
        now_ns = self._cloud.now_ns
        if known is not None and known.issuer == entity.issuer and known.edge == edge:
            known.there, known.since_ns = True, now_ns
            return ""
        if known is not None:
            if self._present(known) and known.issuer != entity.issuer:
                return f"{entity.name!r} is connected at {known.edge}; a name belongs to one client at a time"
            self._end(entity.name, "its client has restarted")
        self._entities.enter(entity.name, Attachment(entity.issuer, edge, True, now_ns))
        return ""

    def left(self, edge: str, entity: Entity) -> None:
        """Its link is lost; what it has stays, it may come back."""
        known = self._entities.by_name.get(entity.name)
        if known is not None and (known.issuer, known.edge) == (entity.issuer, edge):
            known.there, known.since_ns = False, self._cloud.now_ns
            if not known.durable:
                self._entities.leave(entity.name)

    def gone(self, edge: str, entity: Entity) -> None:
        """It said goodbye: what it has is over."""
        known = self._entities.by_name.get(entity.name)
        if known is not None and (known.issuer, known.edge) == (entity.issuer, edge):
            self._end(entity.name, "its client has ended")

    def joined(self, edge: str, entities: tuple[Entity, ...]) -> None:
        """Everybody who is attached to an edge now; others that were are away."""
        there = {(entity.name, entity.issuer) for entity in entities}
        for name in self._entities.at(edge):
            issuer = self._entities.by_name[name].issuer
            if (name, issuer) not in there:
                self.left(edge, Entity(name, issuer))
        for entity in entities:
            known = self._entities.by_name.get(entity.name)
            if known is None or known.edge == edge or not self._present(known):
                self.arrived(edge, entity)  # else it has moved on, and this edge has not noticed yet

    def next_tick(self) -> int:
        return self._swept_ns + SWEEP_NS

    def tick(self, now_ns: int) -> None:
        """End-entities that are away for too long have gone for good."""
        if now_ns - self._swept_ns < SWEEP_NS:
            return
        self._swept_ns = now_ns
        for name, known in list(self._entities.by_name.items()):
            if not known.there and now_ns - known.since_ns > AWAY_NS:
                self._end(name, "its client is away for too long")

    def _end(self, name: str, reason: str) -> None:
        self._withdrawals.withdraw_all(name, reason)
        self._entities.leave(name)

    def _present(self, known: Attachment) -> bool:
        return known.there and self._cloud.routers.joined(known.edge)
