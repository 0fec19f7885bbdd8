"""The subscriptions of a cloud: admitted, set up, changed in place, ended (GS-040 to GS-042, GS-080)."""

from __future__ import annotations

from collections.abc import Callable

from chappe.status.allocation.allocation import Demand, Refusal, Route
from chappe.status.leaf.agenda import Decide, EntityReleased
from chappe.status.leaf.cloud import Cloud, Numbers
from chappe.status.leaf.path_setup import PathSetup, hops
from chappe.status.leaf.state import ENDING, GRANTED, SETTING, CounterItem, Held, Leg, Publication, Subscription
from chappe.status.machine import Address
from chappe.wire.base import Failed, Grant, Qos, Variable
from chappe.wire.constants import MODES
from chappe.wire.management import Granted, SubscribeRequest, Withdrawn

TRIES = 3  # a path whose router is lost while it is set up is looked for again

Asker = tuple[Address, int]
Name = tuple[str, str]


class Subscriptions:
    """Every subscription of this cloud; those whose paths an ancestor allocates are `sought`, see `seeking`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.by_key: dict[str, Subscription] = {}
        self.by_owner: dict[str, dict[Name, Subscription]] = {}
        self.by_variable: dict[int, dict[str, Subscription]] = {}
        self.by_owner_id: dict[tuple[str, int], Subscription] = {}
        self._numbers = Numbers(cloud.outbox, "subscription")
        self._askers: dict[str, dict[Asker, SubscribeRequest]] = {}
        self._layings: dict[str, PathSetup] = {}
        self._queued: dict[str, list[tuple[Address, SubscribeRequest]]] = {}
        self._tries: dict[str, int] = {}
        self._finished: dict[str, Callable[[str, str], None]] = {}  # of functions: told (reason, code) or ("", "")

    # after a restart

    def restore(self, counter: CounterItem | None, items: dict[str, Subscription]) -> None:
        self._numbers.restore(counter)
        for subscription in items.values():
            self.index(subscription)
            variable = subscription.variable
            if variable is not None and not subscription.sought:
                self.cloud.allocator.reserve(
                    subscription.key, variable, _routes(subscription.legs), subscription.grants, force=True
                )
                self.cloud.restore_paths(variable, subscription.grants, subscription.legs)
                if subscription.held is not None:
                    self.cloud.keep_numbers(variable.variable_id, subscription.held.legs)

    def resume(self) -> None:
        """Go on with what the broker before this one had begun."""
        for subscription in list(self.by_key.values()):
            if not subscription.sought and subscription.state == SETTING:
                self._lay(subscription, patient=True)

    # admission

    def next_key(self) -> str:
        return f"{self.cloud.role}/{self._numbers.take()}"

    def reserve(self, draft: Subscription, publication: Publication) -> Refusal | None:
        """Find and reserve paths for a subscription that is not indexed yet; it has legs and grants afterwards."""
        variable = publication.variable
        demand = Demand(variable, publication.edge, draft.edge, by_mode(draft.qos, draft.modes))
        plan = self.cloud.allocator.plan(demand)
        if isinstance(plan, Refusal):
            return plan
        refusal = self.cloud.allocator.reserve(draft.key, variable, plan.routes, plan.grants)
        if refusal is not None:
            return refusal
        draft.variable = variable
        draft.grants, draft.legs = plan.grants, self.cloud.legs(variable, plan.routes)
        return None

    def begin(self, subscription: Subscription, asker: Asker | None = None, want: SubscribeRequest | None = None,
              tries: int = 0, finished: Callable[[str, str], None] | None = None) -> None:  # fmt: skip
        """Make a reserved subscription durable and set it up."""
        self.index(subscription)
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        if asker is not None and want is not None:
            self._askers[subscription.key] = {asker: want}
        self._tries[subscription.key] = tries
        if finished is not None:
            self._finished[subscription.key] = finished
        self._lay(subscription)

    def ask(self, subscription: Subscription, address: Address, want: SubscribeRequest, tries: int = 0) -> None:
        """A request for what exists already: the same answer, or a change in place that was tried so often."""
        if not _same(subscription, want):
            if subscription.state == SETTING:
                self._queued.setdefault(subscription.key, []).append((address, want))
            else:
                self._change(subscription, address, want, tries)
        elif subscription.state == GRANTED:
            self.cloud.answer(address, granted(subscription, want.id))
        else:
            self._askers.setdefault(subscription.key, {})[address, want.id] = want

    def _change(self, subscription: Subscription, address: Address, want: SubscribeRequest, tries: int) -> None:
        """Other quality for a subscription: the new paths first, then the old ones go, so that nothing is lost."""
        variable = subscription.variable
        assert variable is not None
        held = Held(subscription.type, subscription.qos, subscription.modes, subscription.grants, subscription.legs)
        source = subscription.legs[0].routers[0]
        demand = Demand(variable, source, subscription.edge, by_mode(want.qos, want.modes))
        allocator = self.cloud.allocator
        plan = allocator.plan(demand)
        if isinstance(plan, Refusal):  # what it has may be what is missing
            allocator.release(subscription.key)
            plan = allocator.plan(demand)
        refusal = plan if isinstance(plan, Refusal) else allocator.reserve(
            subscription.key, variable, plan.routes, plan.grants)  # fmt: skip
        if isinstance(plan, Refusal) or refusal is not None:
            allocator.reserve(subscription.key, variable, _routes(held.legs), held.grants, force=True)
            assert refusal is not None
            self.cloud.answer(address, refused(refusal, want))
            return
        subscription.type, subscription.qos, subscription.modes = want.type, want.qos, want.modes
        subscription.grants = plan.grants
        subscription.legs = self.cloud.legs(variable, plan.routes, held.legs)
        subscription.state, subscription.held = SETTING, held
        self._askers[subscription.key] = {(address, want.id): want}
        self._tries[subscription.key] = tries
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        self._lay(subscription)

    # set-up

    def _lay(self, subscription: Subscription, patient: bool = False) -> None:
        assert subscription.variable is not None
        path_setup = self.cloud.lay(
            subscription.variable, subscription.grants, subscription.legs, lambda: self._laid(subscription),
            lambda reason, code: self._failed(subscription, reason, code), patient,
        )  # fmt: skip
        if not path_setup.over:
            self._layings[subscription.key] = path_setup

    def _laid(self, subscription: Subscription) -> None:
        self._forget_attempt(subscription)
        held, subscription.held = subscription.held, None
        subscription.state = GRANTED
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        if held is not None:
            self.cloud.strip(subscription.variable_id, _without(held.legs, subscription.legs))
        for address, request in self._askers.pop(subscription.key, {}):
            self.cloud.answer(address, granted(subscription, request))
        self._answer_waiting(subscription, "", "")

    def _failed(self, subscription: Subscription, reason: str, code: str) -> None:
        """An attempt is over: a new one begins for whoever asked, unless it was the last."""
        askers = self._askers.pop(subscription.key, {})
        tries = self._tries.get(subscription.key, 0) + 1
        self._forget_attempt(subscription)  # before the next one begins under the same key
        if subscription.held is not None:
            self._restore_held(subscription, subscription.held)
        else:
            self._remove(subscription)
        for (address, request), want in askers.items():
            if code == "unavailable" and tries < TRIES:
                self.cloud.agenda.add(Decide(address, want, tries))
            else:
                self.cloud.fail(address, request, code, reason)
        self._answer_waiting(subscription, reason, code)

    def _forget_attempt(self, subscription: Subscription) -> None:
        """Its set-up is over, whatever came of it."""
        self._tries.pop(subscription.key, None)
        path_setup = self._layings.pop(subscription.key, None)
        if path_setup is not None:
            path_setup.stop()

    def _answer_waiting(self, subscription: Subscription, reason: str, code: str) -> None:
        finished = self._finished.pop(subscription.key, None)
        if finished is not None:
            finished(reason, code)
        for address, want in self._queued.pop(subscription.key, ()):
            self.cloud.agenda.add(Decide(address, want))

    def _restore_held(self, subscription: Subscription, held: Held) -> None:
        """A change did not succeed: what was there before is there again."""
        variable = subscription.variable
        assert variable is not None
        self.cloud.strip(variable.variable_id, _without(subscription.legs, held.legs))
        self.cloud.allocator.reserve(subscription.key, variable, _routes(held.legs), held.grants, force=True)
        subscription.type, subscription.qos, subscription.modes = held.type, held.qos, held.modes
        subscription.grants, subscription.legs = held.grants, held.legs
        subscription.state, subscription.held = GRANTED, None
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        for router, path, _ in hops(variable, held.grants, held.legs):
            self.cloud.routers.set(router, (variable.variable_id, path.path), path)

    # the end

    def end(self, subscription: Subscription, reason: str) -> None:
        """Remove one whose paths are of this cloud; whoever still waits for it is told."""
        askers = self._askers.pop(subscription.key, {})
        self._remove(subscription)
        for address, request in askers:
            self.cloud.fail(address, request, "unknown", reason)
        self._finished.pop(subscription.key, None)
        self._answer_waiting(subscription, reason, "unknown")

    def _remove(self, subscription: Subscription) -> None:
        self._forget_attempt(subscription)
        legs = subscription.legs
        if subscription.held is not None:
            legs += _without(subscription.held.legs, subscription.legs)
        self.cloud.strip(subscription.variable_id, legs)
        self.cloud.allocator.release(subscription.key)
        self.drop(subscription)

    # indices

    def index(self, subscription: Subscription) -> None:
        self.by_key[subscription.key] = subscription
        if subscription.state != ENDING and not subscription.replaces:
            self.by_owner.setdefault(owner(subscription), {})[subscription.publisher, subscription.name] = subscription
        if subscription.variable is not None:
            self.index_variable(subscription)

    def index_variable(self, subscription: Subscription) -> None:
        self.by_variable.setdefault(subscription.variable_id, {})[subscription.key] = subscription
        self.cloud.refer(subscription.variable_id)
        if subscription.state != ENDING:
            self.by_owner_id[owner(subscription), subscription.variable_id] = subscription

    def unlist(self, subscription: Subscription) -> None:
        """Its owner does not have it any more, though it still exists."""
        numbered = (owner(subscription), subscription.variable_id)
        if self.by_owner_id.get(numbered) is subscription:
            del self.by_owner_id[numbered]
        own = self.by_owner.get(owner(subscription), {})
        name = (subscription.publisher, subscription.name)
        if own.get(name) is subscription:
            del own[name]
            if not own:
                del self.by_owner[owner(subscription)]
                self.cloud.agenda.add(EntityReleased(subscription.entity))

    def drop(self, subscription: Subscription) -> None:
        self.unlist(subscription)
        del self.by_key[subscription.key]
        if subscription.variable is not None:
            keys = self.by_variable[subscription.variable_id]
            del keys[subscription.key]
            if not keys:
                del self.by_variable[subscription.variable_id]
            self.cloud.forget(subscription.variable_id)
        self.cloud.outbox.drop("subscription", subscription.key)


def owner(subscription: Subscription) -> str:
    """The name of the end-entity, or the function it feeds."""
    return subscription.entity if not subscription.function else f"function:{subscription.function}"


def by_mode(qos: tuple[Qos, ...], modes: int) -> tuple[Qos | None, ...]:
    """16 of them, None outside of the modes."""
    return tuple((qos[mode] if len(qos) == MODES else qos[0]) if modes >> mode & 1 else None for mode in range(MODES))


def as_asked(grants: tuple[Grant | None, ...], qos: tuple[Qos, ...]) -> tuple[Grant | None, ...]:
    """Grants in the form of the request: one if one was asked for and all modes got the same."""
    found = {grant for grant in grants if grant is not None}
    return (found.pop(),) if len(qos) == 1 and len(found) == 1 else grants


def granted(subscription: Subscription, request: int) -> Granted:
    variable = subscription.variable
    assert variable is not None
    return Granted(id=request, variable=variable, grants=as_asked(subscription.grants, subscription.qos),
                   modes=subscription.modes)  # fmt: skip


def refused(refusal: Refusal, want: SubscribeRequest) -> Failed:
    return Failed(id=want.id, reason=refusal.reason, code=refusal.code, best=as_asked(refusal.best, want.qos))


def problem(want: SubscribeRequest) -> str:
    """What is wrong with a request; empty if nothing is."""
    name = f"subscription to {want.publisher}/{want.variable}"
    if len(want.qos) not in (1, MODES):
        return f"{name}: {len(want.qos)} qualities; give one for all modes, or {MODES}"
    if not 0 < want.modes < 1 << MODES:
        return f"{name}: mask {want.modes:#x} has none of the {MODES} modes, or others"
    for qos in want.qos:
        if min(qos.interval_ns, qos.latency_ns, qos.worst_interval_ns, qos.worst_latency_ns) < 0:
            return f"{name}: intervals and latencies must not be negative"
        if qos.redundancy < 1 or not 0 <= qos.worst_redundancy <= qos.redundancy:
            return (
                f"{name}: redundancy {qos.redundancy} (worst {qos.worst_redundancy}); it is at least 1, worst is below"
            )
        if not 0 <= qos.priority <= 6 or not 0 <= qos.security <= 2:
            return f"{name}: priority is 0 to 6, security 0 to 2"
    return ""


def withdrawn(variable: Variable, reason: str, subscriptions: list[Subscription]) -> dict[str, Withdrawn]:
    """The notices for subscribers, by edge."""
    edges: dict[str, list[str]] = {}
    for subscription in subscriptions:
        edges.setdefault(subscription.edge, []).append(subscription.entity)
    return {edge: Withdrawn(variable_id=variable.variable_id, reason=reason, entities=tuple(entities))
            for edge, entities in edges.items()}  # fmt: skip


def _same(subscription: Subscription, want: SubscribeRequest) -> bool:
    return (subscription.qos, subscription.modes, subscription.type) == (want.qos, want.modes, want.type)


def _routes(legs: tuple[Leg, ...]) -> list[Route]:
    return [Route(leg.routers, leg.redundant, leg.modes, leg.before, leg.after) for leg in legs]


def _without(legs: tuple[Leg, ...], others: tuple[Leg, ...]) -> tuple[Leg, ...]:
    kept = {leg.path for leg in others}
    return tuple(leg for leg in legs if leg.path not in kept)
