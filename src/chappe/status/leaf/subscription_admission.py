"""Subscriptions that end-entities ask for through their edges: granted, refused or passed on (GS-080)."""

from __future__ import annotations

from chappe.status.leaf.attachments import Attachments
from chappe.status.leaf.cancellations import Cancellations
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Entities
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.state import Publication, Subscription
from chappe.status.leaf.subscriptions import Subscriptions, problem, refused
from chappe.status.machine import Address
from chappe.wire.management import SubscribeRequest, UnsubscribeRequest


class SubscriptionAdmission:
    """Decides requests for subscriptions, now or when they have waited."""

    def __init__(
        self, cloud: Cloud, parent: ParentLink, entities: Entities, attachments: Attachments, registry: Registry,
        subscriptions: Subscriptions, remote_subscriptions: RemoteSubscriptions, rate_changes: RateChanges,
        cancellations: Cancellations,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._parent = parent
        self._entities = entities
        self._attachments = attachments
        self._registry = registry
        self._subscriptions = subscriptions
        self._remote_subscriptions = remote_subscriptions
        self._rate_changes = rate_changes
        self._cancellations = cancellations

    def decide(self, address: Address, request: SubscribeRequest, attempts: int = 0) -> None:
        """Grant, refuse or pass on a request that has been tried so often."""
        if self._attachments.is_stale(address, request.id, request.entity):
            return
        invalid = problem(request)
        if invalid:
            self._cloud.fail(address, request.id, "invalid", invalid)
            return
        name = (request.publisher, request.variable)
        pending = self._remote_subscriptions.under_way(request.entity.name, name)
        if pending is not None:
            self._remote_subscriptions.join(pending, address, request)
            return
        existing = self._subscriptions.by_owner.get(request.entity.name, {}).get(name)
        publication = self._registry.by_name.get(name)
        if publication is not None and self._rate_changes.holds(publication, address, request):
            return
        variable = publication.variable if publication is not None else existing.variable if existing else None
        if variable is not None and request.type and request.type != variable.type:
            reason = f"{'/'.join(name)} is of type {variable.type}, not {request.type}"
            self._cloud.fail(address, request.id, "type", reason)
        elif existing is not None:
            self._repeat(address, request, existing, attempts)
        elif publication is not None:
            self._admit(address, request, publication, attempts)
        else:
            self._pass_on(address, request)

    def _repeat(self, address: Address, request: SubscribeRequest, existing: Subscription, attempts: int) -> None:
        """A request for what its subscriber has: the same, or another quality."""
        changed = (existing.qos, existing.modes, existing.type) != (request.qos, request.modes, request.type)
        if existing.remote and changed:
            self._remote_subscriptions.seek(address, request, address[7:], replaces=existing)
        else:
            self._subscriptions.ask(existing, address, request, attempts)

    def _admit(self, address: Address, request: SubscribeRequest, publication: Publication, attempts: int) -> None:
        draft = Subscription(key=self._subscriptions.next_key(), entity=request.entity.name, edge=address[7:],
                             publisher=request.publisher, name=request.variable, type=request.type, qos=request.qos,
                             modes=request.modes)  # fmt: skip
        refusal = self._subscriptions.reserve(draft, publication)
        if refusal is None:
            self._entities.keep(request.entity.name)
            self._subscriptions.begin(draft, (address, request.id), request, attempts)
        elif self._parent.up and self._cloud.topology_state.border():
            self._entities.keep(request.entity.name)
            self._remote_subscriptions.seek(address, request, address[7:], refusal)
        else:
            self._cloud.answer(address, refused(refusal, request))

    def _pass_on(self, address: Address, request: SubscribeRequest) -> None:
        """Nobody publishes it in this cloud."""
        name = f"{request.publisher}/{request.variable}"
        if self._parent.up:
            self._entities.keep(request.entity.name)
            self._remote_subscriptions.seek(address, request, address[7:])
        elif request.wait_ns > 0:
            self._remote_subscriptions.wait(address, request)
        elif self._parent.has_parent:
            reason = f"nobody publishes {name} in cloud {self._cloud.role}, and no broker above it can be reached"
            self._cloud.fail(address, request.id, "unavailable", reason)
        else:
            self._cloud.fail(
                address, request.id, "unknown", f"nobody publishes {name}; correct the name or wait for it"
            )

    def unsubscribe(self, address: Address, request: UnsubscribeRequest) -> None:
        if self._attachments.refuses(address, request.id, request.entity):
            return
        subscription = self._subscriptions.by_owner_id.get((request.entity.name, request.variable_id))
        if subscription is not None:
            self._cancellations.end(subscription, "unsubscribed")
        self._cloud.done(address, request.id)
