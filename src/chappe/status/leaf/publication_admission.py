"""Publications that end-entities ask for through their edges: accepted, denied, changed, withdrawn (GS-080)."""

from __future__ import annotations

from chappe.status.condensation.placement import Functions
from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.attachments import Attachments
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Entities
from chappe.status.leaf.publishers import Publishers
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.registry import Registry, problem, same
from chappe.status.leaf.remote_subscriptions import RemoteSubscriptions
from chappe.status.leaf.state import Publication
from chappe.status.leaf.withdrawals import Withdrawals
from chappe.status.machine import Address
from chappe.status.names import NameSearch
from chappe.wire.management import Issued, Publish, Unpublish


class PublicationAdmission:
    """Accepts or denies publications."""

    def __init__(
        self, cloud: Cloud, entities: Entities, attachments: Attachments, registry: Registry, publishers: Publishers,
        functions: Functions, flooding: LeafFlooding, remote_subscriptions: RemoteSubscriptions,
        rate_changes: RateChanges, withdrawals: Withdrawals, names: NameSearch,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._entities = entities
        self._attachments = attachments
        self._registry = registry
        self._publishers = publishers
        self._functions = functions
        self._flooding = flooding
        self._remote_subscriptions = remote_subscriptions
        self._rate_changes = rate_changes
        self._withdrawals = withdrawals
        self._names = names

    def publish(self, address: Address, request: Publish) -> None:
        variable = request.variable
        if self._attachments.refuses(address, request.id, request.entity):
            return
        reason = problem(variable)
        if reason:
            self._cloud.fail(address, request.id, "invalid", reason)
        elif not self._known(address, request):
            known = variable.publisher in self._registry.publishers
            self._publishers.claim(variable.publisher, known, lambda taken: self._claimed(address, request, taken))

    def _known(self, address: Address, request: Publish) -> bool:
        """Whether that name is taken; then it has been answered."""
        variable = request.variable
        name = f"{variable.publisher}/{variable.variable}"
        known = self._registry.by_name.get((variable.publisher, variable.variable))
        if known is None:
            if (variable.publisher, variable.variable) not in self._functions.by_name:
                return False
            self._cloud.fail(address, request.id, "exists", f"{name} is the result of a condensation function")
        elif known.entity != request.entity.name:
            owner = known.entity or "a function"
            self._cloud.fail(address, request.id, "exists", f"{name} is published by {owner!r}; take another name")
        elif same(known.variable, variable) and known.variable.variable_id not in self._registry.undecided:
            self._cloud.answer(address, Issued(id=request.id, variable_id=known.variable.variable_id))
        else:
            self._rate_changes.ask(address, request, known)
        return True

    def _claimed(self, address: Address, request: Publish, taken: str) -> None:
        variable = request.variable
        if taken:
            self._cloud.fail(address, request.id, "exists", f"publisher {variable.publisher}: {taken}")
            return
        if self._attachments.is_stale(address, request.id, request.entity) or self._known(address, request):
            self.release_publisher(variable.publisher)
            return
        publication = self._registry.add(variable, address[7:], request.entity.name)
        if not isinstance(publication, Publication):
            self._cloud.fail(address, request.id, publication.code, publication.reason)
            self.release_publisher(variable.publisher)
            return
        self._entities.keep(request.entity.name)
        self._cloud.answer(address, Issued(id=request.id, variable_id=publication.variable.variable_id))
        self.published(publication)

    def release_publisher(self, publisher: str) -> None:
        """The name of a publisher was claimed for something that did not come about: others may have it."""
        if publisher not in self._registry.publishers and all(
            publisher != owner for owner, _ in self._functions.by_name
        ):
            self._publishers.released(publisher)

    def published(self, publication: Publication) -> None:
        """A variable is there: flooding, waiting subscribers, functions and whoever searches for it get it."""
        variable = publication.variable
        self._flooding.published(variable)
        self._remote_subscriptions.published((variable.publisher, variable.variable))
        self._functions.published(publication)
        self._names.published((variable.publisher, variable.variable))

    def unpublish(self, address: Address, request: Unpublish) -> None:
        if self._attachments.refuses(address, request.id, request.entity):
            return
        publication = self._registry.by_id.get(request.variable_id)
        if publication is not None and publication.entity != request.entity.name:
            variable = publication.variable
            reason = f"{variable.publisher}/{variable.variable} is published by {publication.entity or 'a function'!r}"
            self._cloud.fail(address, request.id, "denied", reason)
            return
        if publication is not None:
            self._withdrawals.withdraw(publication, "its publisher withdrew the variable")
        self._cloud.done(address, request.id)
