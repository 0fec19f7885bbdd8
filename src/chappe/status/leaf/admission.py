"""What end-entities ask for through their edges: decided here, carried out by the parts of the leaf broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from chappe.status.leaf.parent_link import PARENT
from chappe.status.leaf.registry import problem as problem_of_variable
from chappe.status.leaf.registry import same
from chappe.status.leaf.state import ENDING, Publication, Subscription
from chappe.status.leaf.subscriptions import problem as problem_of_want
from chappe.status.leaf.subscriptions import refused, withdrawn
from chappe.status.machine import Address
from chappe.wire.management import Condense, Entity, Gone, Issued, Publish, Uncondense, Unpublish, Unwant, Want

if TYPE_CHECKING:
    from chappe.status.leaf.broker import LeafBroker


class Admission:
    """Accepts or denies publications and subscriptions, and ends them (GS-080)."""

    def __init__(self, leaf: LeafBroker) -> None:
        self._leaf = leaf
        self._cloud = leaf.cloud

    def refuses(self, address: Address, request: int, entity: Entity) -> bool:
        """Whether the one who asks is not who it should be; it has been told so."""
        reason = self._leaf.entities.arrived(address[7:], entity)
        if reason:
            self._cloud.fail(address, request, "exists", reason)
        return bool(reason)

    def _is_over(self, address: Address, request: int, entity: Entity) -> bool:
        """Whether the one who asked some time ago has gone meanwhile; it is told so."""
        over = not self._leaf.entities.knows(address[7:], entity)
        if over:
            self._cloud.fail(address, request, "stale", f"{entity.name!r} has restarted or moved since it asked")
        return over

    # publications

    def publish(self, address: Address, request: Publish) -> None:
        variable = request.variable
        if self.refuses(address, request.id, request.entity):
            return
        problem = problem_of_variable(variable)
        if problem:
            self._cloud.fail(address, request.id, "invalid", problem)
        elif not self._known(address, request):
            known = variable.publisher in self._leaf.registry.publishers
            self._leaf.publishers.claim(variable.publisher, known, lambda taken: self._claimed(address, request, taken))

    def _known(self, address: Address, request: Publish) -> bool:
        """Whether that name is taken; then it has been answered."""
        variable = request.variable
        name = f"{variable.publisher}/{variable.variable}"
        known = self._leaf.registry.by_name.get((variable.publisher, variable.variable))
        if known is None:
            if (variable.publisher, variable.variable) not in self._leaf.functions.by_name:
                return False
            self._cloud.fail(address, request.id, "exists", f"{name} is the result of a condensation function")
        elif known.entity != request.entity.name:
            owner = known.entity or "a function"
            self._cloud.fail(address, request.id, "exists", f"{name} is published by {owner!r}; take another name")
        elif same(known.variable, variable) and self._leaf.rate_changes.under_way(known.variable.variable_id) is None:
            self._cloud.answer(address, Issued(id=request.id, variable_id=known.variable.variable_id))
        else:
            self._leaf.rate_changes.ask(address, request, known)
        return True

    def _claimed(self, address: Address, request: Publish, taken: str) -> None:
        variable = request.variable
        if taken:
            self._cloud.fail(address, request.id, "exists", f"publisher {variable.publisher}: {taken}")
            return
        if self._is_over(address, request.id, request.entity) or self._known(address, request):
            self.give_back(variable.publisher)
            return
        publication = self._leaf.registry.add(variable, address[7:], request.entity.name)
        if not isinstance(publication, Publication):
            self._cloud.fail(address, request.id, publication.code, publication.reason)
            self.give_back(variable.publisher)
            return
        self._leaf.entities.keep(request.entity.name)
        self._cloud.answer(address, Issued(id=request.id, variable_id=publication.variable.variable_id))
        self.announce(publication)

    def give_back(self, publisher: str) -> None:
        """The name of a publisher was claimed for something that did not come about: others may have it."""
        if publisher not in self._leaf.registry.publishers and all(
            publisher != owner for owner, _ in self._leaf.functions.by_name
        ):
            self._leaf.publishers.released(publisher)

    def announce(self, publication: Publication) -> None:
        """A variable is there: flooding, waiting subscribers and functions get it."""
        variable = publication.variable
        self._leaf.flooding.published(variable)
        self._leaf.remote_subscriptions.published((variable.publisher, variable.variable))
        self._leaf.functions.published(publication)

    def unpublish(self, address: Address, request: Unpublish) -> None:
        if self.refuses(address, request.id, request.entity):
            return
        publication = self._leaf.registry.by_id.get(request.variable_id)
        if publication is not None and publication.entity != request.entity.name:
            variable = publication.variable
            reason = f"{variable.publisher}/{variable.variable} is published by {publication.entity or 'a function'!r}"
            self._cloud.fail(address, request.id, "denied", reason)
            return
        if publication is not None:
            self.withdraw(publication, "its publisher withdrew the variable")
        self._cloud.done(address, request.id)

    def withdraw(self, publication: Publication, reason: str) -> None:
        """End a publication and everything that lives of it."""
        variable_id = publication.variable.variable_id
        held = self._leaf.rate_changes.stop(variable_id, reason)
        self.over(list(self._leaf.subscriptions.by_variable.get(variable_id, {}).values()), reason)
        self._leaf.segments.withdrawn(variable_id, reason)
        if self._leaf.registry.remove(publication):
            self._leaf.publishers.released(publication.variable.publisher)
        for address, want in held:
            self.decide(address, want)

    # subscriptions

    def decide(self, address: Address, want: Want, tries: int = 0) -> None:
        """Grant, refuse or pass on a request, now or when it has waited."""
        if self._is_over(address, want.id, want.entity):
            return
        problem = problem_of_want(want)
        if problem:
            self._cloud.fail(address, want.id, "invalid", problem)
            return
        name = (want.publisher, want.variable)
        sought = self._leaf.remote_subscriptions.under_way(want.entity.name, name)
        if sought is not None:
            self._leaf.remote_subscriptions.join(sought, address, want)
            return
        existing = self._leaf.subscriptions.by_owner.get(want.entity.name, {}).get(name)
        publication = self._leaf.registry.by_name.get(name)
        if publication is not None and self._leaf.rate_changes.holds(publication, address, want):
            return
        variable = publication.variable if publication is not None else existing.variable if existing else None
        if variable is not None and want.type and want.type != variable.type:
            reason = f"{'/'.join(name)} is of type {variable.type}, not {want.type}"
            self._cloud.fail(address, want.id, "type", reason)
        elif existing is not None:
            self._again(address, want, existing, tries)
        elif publication is not None:
            self._admit(address, want, publication, tries)
        else:
            self._elsewhere(address, want)

    def _again(self, address: Address, want: Want, existing: Subscription, tries: int) -> None:
        changed = (existing.qos, existing.modes, existing.type) != (want.qos, want.modes, want.type)
        if existing.sought and changed:
            self._leaf.remote_subscriptions.seek(address, want, address[7:], replaces=existing)
        else:
            self._leaf.subscriptions.ask(existing, address, want, tries)

    def _admit(self, address: Address, want: Want, publication: Publication, tries: int) -> None:
        draft = Subscription(key=self._leaf.subscriptions.next_key(), entity=want.entity.name, edge=address[7:],
                             publisher=want.publisher, name=want.variable, type=want.type, qos=want.qos,
                             modes=want.modes)  # fmt: skip
        refusal = self._leaf.subscriptions.reserve(draft, publication)
        if refusal is None:
            self._leaf.entities.keep(want.entity.name)
            self._leaf.subscriptions.begin(draft, (address, want.id), want, tries)
        elif self._leaf.parent.up and self._cloud.topology_state.border():
            self._leaf.entities.keep(want.entity.name)
            self._leaf.remote_subscriptions.seek(address, want, address[7:], refusal)
        else:
            self._cloud.answer(address, refused(refusal, want))

    def _elsewhere(self, address: Address, want: Want) -> None:
        parent = self._leaf.parent
        name = f"{want.publisher}/{want.variable}"
        if parent.up:
            self._leaf.entities.keep(want.entity.name)
            self._leaf.remote_subscriptions.seek(address, want, address[7:])
        elif want.wait_ns > 0:
            self._leaf.remote_subscriptions.wait(address, want)
        elif parent.has_parent:
            reason = f"nobody publishes {name} in cloud {self._cloud.role}, and no broker above it can be reached"
            self._cloud.fail(address, want.id, "unavailable", reason)
        else:
            self._cloud.fail(address, want.id, "unknown", f"nobody publishes {name}; correct the name or wait for it")

    def unwant(self, address: Address, request: Unwant) -> None:
        if self.refuses(address, request.id, request.entity):
            return
        subscription = self._leaf.subscriptions.by_owner_id.get((request.entity.name, request.variable_id))
        if subscription is not None:
            self._end(subscription, "unsubscribed")
        self._cloud.done(address, request.id)

    def _end(self, subscription: Subscription, reason: str) -> None:
        if subscription.sought:
            self._leaf.remote_subscriptions.end(subscription, reason)
        else:
            self._leaf.subscriptions.end(subscription, reason)
            self._leaf.rate_changes.ended(subscription)

    def over(self, subscriptions: Iterable[Subscription], reason: str) -> None:
        """End subscriptions that their subscribers did not give up, and tell them (GS-053)."""
        ending = [each for each in subscriptions if each.state != ENDING]
        told = [each for each in ending if each.entity and each.variable is not None]
        for subscription in ending:
            self._end(subscription, reason)
        if told and told[0].variable is not None:
            for edge, notice in withdrawn(told[0].variable, reason, told).items():
                self._leaf.notices.tell(edge, notice)

    def gone(self, message: Gone) -> None:
        """An ancestor has ended an inter-cloud subscription."""
        subscription = self._leaf.subscriptions.by_key.get(message.subscription)
        if subscription is None or not subscription.sought or subscription.state == ENDING:
            return
        variable = subscription.variable
        self._leaf.remote_subscriptions.gone(subscription, message.reason)
        if variable is not None:
            for edge, notice in withdrawn(variable, message.reason, [subscription]).items():
                self._leaf.notices.tell(edge, notice)

    # condensation

    def condense(self, address: Address, request: Condense) -> None:
        """Place a function here, or pass it on: what comes from the parent is for this cloud and no other."""
        if request.entity is None:
            return
        creator = request.entity.name
        if address != PARENT:
            if self._is_over(address, request.id, request.entity):
                return
            if self._leaf.parent.has_parent and self._leaf.functions.is_abroad(request.function):
                self._leaf.remote_functions.condense(address, request, creator)
                return
        if self._leaf.rate_changes.delays(address, request):
            return
        publisher = request.function.publisher
        self._leaf.publishers.claim(publisher, publisher in self._leaf.registry.publishers, lambda taken:
                                    self._condense(address, request, creator, taken))  # fmt: skip

    def _condense(self, address: Address, request: Condense, creator: str, taken: str) -> None:
        if taken:
            reason = f"publisher {request.function.publisher}: {taken}"
            self._cloud.fail(address, request.id, "exists", reason)
        else:
            self._leaf.functions.condense(address, request, creator)
            self.give_back(request.function.publisher)

    def uncondense(self, address: Address, request: Uncondense) -> None:
        entity = request.entity
        if entity is None or (address != PARENT and self.refuses(address, request.id, entity)):
            return
        here = (request.publisher, request.variable) in self._leaf.functions.by_name
        if here or address == PARENT or not self._leaf.parent.has_parent:
            self._leaf.functions.uncondense(address, request, entity.name)
        else:
            self._leaf.remote_functions.uncondense(address, request, entity.name)

    # restarts

    def withdraw_all(self, entity: str, reason: str) -> None:
        """Everything an end-entity had is over, except the functions it created (GS-153)."""
        for publication in list(self._leaf.registry.by_entity.get(entity, {}).values()):
            self.withdraw(publication, reason)
        for subscription in list(self._leaf.subscriptions.by_owner.get(entity, {}).values()):
            self._end(subscription, reason)
        self._leaf.remote_subscriptions.forget(entity)
