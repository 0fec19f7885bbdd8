"""Floodings and functions that are over, until every router has confirmed their removal."""

from __future__ import annotations

from collections.abc import Iterable

from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.routers import Key
from chappe.status.leaf.state import PendingRemoval
from chappe.wire.base import Variable


class _RemovalTicket:
    """Waits until every router has confirmed."""

    def __init__(self, pending_removals: PendingRemovals, item: PendingRemoval) -> None:
        self._pending_removals = pending_removals
        self.item = item
        self._waiting = set(item.routers)

    def confirmed(self, router: str, key: Key) -> None:
        self._waiting.discard(router)
        if not self._waiting:
            self._pending_removals.forget(self.item.variable.variable_id)

    def refused(self, router: str, key: Key, reason: str) -> None:
        self.confirmed(router, key)

    def lost(self, router: str) -> None:
        """Its command is sent when it is back."""


class PendingRemovals:
    """One kind of them; durable, so that a broker that comes after this one removes them too."""

    def __init__(self, cloud: Cloud, kind: str, number: int) -> None:
        self._cloud = cloud
        self._kind = kind
        self._number = number  # FLOOD or FUNCTION
        self._leaving: dict[int, _RemovalTicket] = {}

    def restore(self, items: dict[str, PendingRemoval]) -> None:
        for item in items.values():
            self._begin(item)

    def remove(self, variable: Variable, routers: Iterable[str]) -> None:
        """These routers are not to have it any more."""
        item = PendingRemoval(variable=variable, routers=tuple(routers))
        self.forget(variable.variable_id)
        self._cloud.outbox.put(self._kind, str(variable.variable_id), item)
        self._begin(item)

    def forget(self, variable_id: int) -> None:
        """All know, or it is there again."""
        if self._leaving.pop(variable_id, None) is not None:
            self._cloud.outbox.drop(self._kind, str(variable_id))
            self._cloud.forget(variable_id)

    def _begin(self, item: PendingRemoval) -> None:
        variable_id = item.variable.variable_id
        leaving = self._leaving[variable_id] = _RemovalTicket(self, item)
        self._cloud.refer(variable_id)
        for router in item.routers:
            self._cloud.routers.unset(router, (variable_id, self._number), leaving, item.variable)
        if not item.routers:
            self.forget(variable_id)
