"""Condensation functions that end-entities or ancestors ask for: placed here, passed on, removed (GS-134, GS-136)."""

from __future__ import annotations

from chappe.status.condensation.placement import Functions
from chappe.status.condensation.remote_functions import RemoteFunctions
from chappe.status.leaf.agenda import PublisherReleased
from chappe.status.leaf.attachments import Attachments
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.publishers import Publishers
from chappe.status.leaf.rate_change import RateChanges
from chappe.status.leaf.registry import Registry
from chappe.status.machine import PARENT, Address
from chappe.wire.management import Condense, Uncondense


class FunctionAdmission:
    """Decides where a function is asked for; what comes from the parent is for this cloud and no other."""

    def __init__(
        self, cloud: Cloud, parent: ParentLink, attachments: Attachments, registry: Registry, publishers: Publishers,
        functions: Functions, remote_functions: RemoteFunctions, rate_changes: RateChanges,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._parent = parent
        self._attachments = attachments
        self._registry = registry
        self._publishers = publishers
        self._functions = functions
        self._remote_functions = remote_functions
        self._rate_changes = rate_changes

    def condense(self, address: Address, request: Condense) -> None:
        """Place a function here, or pass it on."""
        if request.entity is None:
            return
        creator = request.entity.name
        if address != PARENT:
            if self._attachments.is_stale(address, request.id, request.entity):
                return
            if self._parent.has_parent and self._functions.is_remote(request.function):
                self._remote_functions.condense(address, request, creator)
                return
        if self._rate_changes.delays(address, request):
            return
        publisher = request.function.publisher
        self._publishers.claim(publisher, publisher in self._registry.publishers, lambda taken:
                               self._claimed(address, request, creator, taken))  # fmt: skip

    def _claimed(self, address: Address, request: Condense, creator: str, taken: str) -> None:
        if taken:
            reason = f"publisher {request.function.publisher}: {taken}"
            self._cloud.fail(address, request.id, "exists", reason)
        else:
            self._functions.condense(address, request, creator)
            self._cloud.agenda.add(PublisherReleased(request.function.publisher))

    def uncondense(self, address: Address, request: Uncondense) -> None:
        entity = request.entity
        if entity is None or (address != PARENT and self._attachments.refuses(address, request.id, entity)):
            return
        here = (request.publisher, request.variable) in self._functions.by_name
        if here or address == PARENT or not self._parent.has_parent:
            self._functions.uncondense(address, request, entity.name)
        else:
            self._remote_functions.uncondense(address, request, entity.name)
