"""Publications that end, and everything that depends on them; what an end-entity leaves behind (GS-053, GS-153)."""

from __future__ import annotations

from chappe.status.leaf.agenda import Decide
from chappe.status.leaf.cancellations import Cancellations
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.path_segments import Segments
from chappe.status.leaf.publishers import Publishers
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.routers import Key
from chappe.status.leaf.state import Publication
from chappe.status.leaf.subscriptions import Subscriptions


class Withdrawals:
    """Ends publications with their subscriptions and segments."""

    def __init__(
        self, cloud: Cloud, registry: Registry, publishers: Publishers, subscriptions: Subscriptions,
        remote_subscriptions: RemoteSubscriptions, segments: Segments, rate_changes: RateChanges,
        cancellations: Cancellations,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._registry = registry
        self._publishers = publishers
        self._subscriptions = subscriptions
        self._remote_subscriptions = remote_subscriptions
        self._segments = segments
        self._rate_changes = rate_changes
        self._cancellations = cancellations

    def withdraw(self, publication: Publication, reason: str) -> None:
        """End a publication and everything that depends on it; nothing happens if it has ended before."""
        variable_id = publication.variable.variable_id
        if self._registry.by_id.get(variable_id) is not publication:
            return
        held = self._rate_changes.stop(variable_id, reason)
        self._cancellations.cancel(list(self._subscriptions.by_variable.get(variable_id, {}).values()), reason)
        self._segments.withdrawn(variable_id, reason)
        if self._registry.remove(publication):
            self._publishers.released(publication.variable.publisher)
        for address, request in held:
            self._cloud.agenda.add(Decide(address, request))

    def withdraw_all(self, entity: str, reason: str) -> None:
        """Everything an end-entity had is over, except the functions it created (GS-153)."""
        for publication in list(self._registry.by_entity.get(entity, {}).values()):
            self.withdraw(publication, reason)
        for subscription in list(self._subscriptions.by_owner.get(entity, {}).values()):
            self._cancellations.end(subscription, reason)
        self._remote_subscriptions.forget(entity)

    def path_refused(self, key: Key, reason: str) -> None:
        """A router refuses for good a path that it had: the subscriptions that use it are over."""
        for subscription in list(self._subscriptions.by_variable.get(key[0], {}).values()):
            if any(segment.path == key[1] for segment in subscription.segments):
                self._cancellations.cancel([subscription], reason)
        self._segments.broken(key, reason)
