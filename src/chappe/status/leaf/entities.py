"""The end-entities of a cloud: who is or was attached where, and whose issuer is durable."""

from __future__ import annotations

import msgspec

from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.state import EntityItem
from chappe.wire.management import Entity


class Attachment(msgspec.Struct):
    """An end-entity: its issuer, its edge, and whether it is connected there."""

    issuer: bytes
    edge: str
    there: bool
    since_ns: int  # when that last changed
    durable: bool = False


class Entities:
    """By name."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.by_name: dict[str, Attachment] = {}
        self._at: dict[str, dict[str, None]] = {}  # edge -> names

    def restore(self, items: dict[str, EntityItem]) -> None:
        for name, item in items.items():
            self.enter(name, Attachment(item.issuer, item.edge, False, 0, durable=True))

    def lead(self, now_ns: int) -> None:
        """How long somebody was away before is not known: it counts from now."""
        for known in self.by_name.values():
            known.since_ns = now_ns

    def knows(self, edge: str, entity: Entity) -> bool:
        """Whether this issuer is at that edge, or was last."""
        known = self.by_name.get(entity.name)
        return known is not None and (known.issuer, known.edge) == (entity.issuer, edge)

    def at(self, edge: str) -> list[str]:
        """The names of those that are at an edge, or were last."""
        return list(self._at.get(edge, ()))

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
                self.leave(name)

    def enter(self, name: str, attached: Attachment) -> None:
        self.by_name[name] = attached
        self._at.setdefault(attached.edge, {})[name] = None

    def leave(self, name: str) -> None:
        known = self.by_name.pop(name, None)
        if known is not None:
            names = self._at[known.edge]
            names.pop(name, None)
            if not names:
                del self._at[known.edge]
            if known.durable:
                self._cloud.outbox.drop("entity", name)
