"""The subscriptions of a cloud: admitted, set up, changed in place, ended (GS-040 to GS-042, GS-080)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from chappe.status.allocation.allocation import Demand, Refusal, Route
from chappe.status.allocation.demands import Grants
from chappe.status.allocation.rates import every_of, interval_of
from chappe.status.leaf.agenda import Decide, EntityReleased
from chappe.status.leaf.cloud import Cloud, Numbers
from chappe.status.leaf.path_setup import PathSetup, hops
from chappe.status.leaf.state import (
    ENDING,
    GRANTED,
    SETTING,
    CounterItem,
    PathSegment,
    PreviousTerms,
    Publication,
    Subscription,
)
from chappe.status.machine import Address
from chappe.wire.base import Failed, Grant, Qos, Variable
from chappe.wire.constants import MODES
from chappe.wire.management import Granted, SubscribeRequest, Withdrawn

TRIES = 3  # a path whose router is lost while it is set up is looked for again

Asker = tuple[Address, int]
Name = tuple[str, str]


class Subscriptions:
    """Every subscription of this cloud; those whose paths an ancestor allocates are `remote`."""

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        self.by_key: dict[str, Subscription] = {}
        self.by_owner: dict[str, dict[Name, Subscription]] = {}
        self.by_variable: dict[int, dict[str, Subscription]] = {}
        self.by_owner_id: dict[tuple[str, int], Subscription] = {}
        self._numbers = Numbers(cloud.outbox, "subscription")
        self._askers: dict[str, dict[Asker, SubscribeRequest]] = {}
        self._setups: dict[str, PathSetup] = {}
        self._queued: dict[str, list[tuple[Address, SubscribeRequest]]] = {}
        self._tries: dict[str, int] = {}
        self._finished: dict[str, Callable[[str, str], None]] = {}  # of functions; get (reason, code) or ("", "")

    # after a restart

    def restore(self, counter: CounterItem | None, items: dict[str, Subscription]) -> None:
        self._numbers.restore(counter)
        for subscription in items.values():
            self.index(subscription)
            variable = subscription.variable
            if variable is not None and not subscription.remote:
                self.cloud.allocator.reserve(
                    subscription.key, variable, _routes(subscription.segments), subscription.grants, force=True
                )
                self.cloud.restore_paths(variable, subscription.grants, subscription.segments)
                if subscription.held is not None:
                    self.cloud.keep_numbers(variable.variable_id, subscription.held.segments)

    def resume(self) -> None:
        """Go on with what the broker before this one had begun."""
        for subscription in list(self.by_key.values()):
            if not subscription.remote and subscription.state == SETTING:
                self._set_up(subscription, patient=True)

    # admission

    def next_key(self) -> str:
        return f"{self.cloud.role}/{self._numbers.take()}"

    def reserve(self, draft: Subscription, publication: Publication) -> Refusal | None:
        """Find and reserve paths for a subscription that is not indexed yet; it has segments and grants afterwards."""
        variable = publication.variable
        demand = Demand(variable, publication.edge, draft.edge, by_mode(draft.qos, draft.modes))
        plan = self.cloud.allocator.plan(demand)
        if isinstance(plan, Refusal):
            return plan
        refusal = self.cloud.allocator.reserve(draft.key, variable, plan.routes, plan.grants)
        if refusal is not None:
            return refusal
        draft.variable = variable
        draft.grants, draft.segments = plan.grants, self.cloud.number_segments(variable, plan.routes)
        return None

    def begin(self, subscription: Subscription, asker: Asker | None = None, request: SubscribeRequest | None = None,
              tries: int = 0, finished: Callable[[str, str], None] | None = None) -> None:  # fmt: skip
        """Make a reserved subscription durable and set it up."""
        self.index(subscription)
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        if asker is not None and request is not None:
            self._askers[subscription.key] = {asker: request}
        self._tries[subscription.key] = tries
        if finished is not None:
            self._finished[subscription.key] = finished
        self._set_up(subscription)

    def ask(self, subscription: Subscription, address: Address, request: SubscribeRequest, tries: int = 0) -> None:
        """A request for what exists already: the same answer, or a change in place that was tried so often."""
        if not _same(subscription, request):
            if subscription.state == SETTING:
                self._queued.setdefault(subscription.key, []).append((address, request))
            else:
                self._change(subscription, address, request, tries)
        elif subscription.state == GRANTED:
            self.cloud.answer(address, granted(subscription, request.id))
        else:
            self._askers.setdefault(subscription.key, {})[address, request.id] = request

    def _change(self, subscription: Subscription, address: Address, request: SubscribeRequest, tries: int) -> None:
        """Other quality for a subscription: the new paths first, then the old ones go, so that nothing is lost."""
        variable = subscription.variable
        assert variable is not None
        held = PreviousTerms(
            subscription.type, subscription.qos, subscription.modes, subscription.grants, subscription.segments
        )
        source = subscription.segments[0].routers[0]
        demand = Demand(variable, source, subscription.edge, by_mode(request.qos, request.modes))
        allocator = self.cloud.allocator
        plan = allocator.plan(demand)
        if isinstance(plan, Refusal):  # what it has may be what is missing
            allocator.release(subscription.key)
            plan = allocator.plan(demand)
        refusal = plan if isinstance(plan, Refusal) else allocator.reserve(
            subscription.key, variable, plan.routes, plan.grants)  # fmt: skip
        if isinstance(plan, Refusal) or refusal is not None:
            allocator.reserve(subscription.key, variable, _routes(held.segments), held.grants, force=True)
            assert refusal is not None
            self.cloud.answer(address, refused(refusal, request))
            return
        subscription.type, subscription.qos, subscription.modes = request.type, request.qos, request.modes
        subscription.grants = plan.grants
        subscription.segments = self.cloud.number_segments(variable, plan.routes, held.segments)
        subscription.state, subscription.held = SETTING, held
        self._askers[subscription.key] = {(address, request.id): request}
        self._tries[subscription.key] = tries
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        self._set_up(subscription)

    # set-up

    def _set_up(self, subscription: Subscription, patient: bool = False) -> None:
        assert subscription.variable is not None
        path_setup = self.cloud.set_up(
            subscription.variable, subscription.grants, subscription.segments, lambda: self._finish_setup(subscription),
            lambda reason, code: self._failed(subscription, reason, code), patient,
        )  # fmt: skip
        if not path_setup.over:
            self._setups[subscription.key] = path_setup

    def _finish_setup(self, subscription: Subscription) -> None:
        self._forget_attempt(subscription)
        held, subscription.held = subscription.held, None
        subscription.state = GRANTED
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        if held is not None:
            self.cloud.tear_down(subscription.variable_id, _without(held.segments, subscription.segments))
        for address, request_id in self._askers.pop(subscription.key, {}):
            self.cloud.answer(address, granted(subscription, request_id))
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
        for (address, request_id), request in askers.items():
            if code == "unavailable" and tries < TRIES:
                self.cloud.agenda.add(Decide(address, request, tries))
            else:
                self.cloud.fail(address, request_id, code, reason)
        self._answer_waiting(subscription, reason, code)

    def _forget_attempt(self, subscription: Subscription) -> None:
        """Its set-up is over, whatever came of it."""
        self._tries.pop(subscription.key, None)
        path_setup = self._setups.pop(subscription.key, None)
        if path_setup is not None:
            path_setup.stop()

    def _answer_waiting(self, subscription: Subscription, reason: str, code: str) -> None:
        finished = self._finished.pop(subscription.key, None)
        if finished is not None:
            finished(reason, code)
        for address, request in self._queued.pop(subscription.key, ()):
            self.cloud.agenda.add(Decide(address, request))

    def _restore_held(self, subscription: Subscription, held: PreviousTerms) -> None:
        """A change did not succeed: what was there before is there again."""
        variable = subscription.variable
        assert variable is not None
        self.cloud.tear_down(variable.variable_id, _without(subscription.segments, held.segments))
        self.cloud.allocator.reserve(subscription.key, variable, _routes(held.segments), held.grants, force=True)
        subscription.type, subscription.qos, subscription.modes = held.type, held.qos, held.modes
        subscription.grants, subscription.segments = held.grants, held.segments
        subscription.state, subscription.held = GRANTED, None
        self.cloud.outbox.put("subscription", subscription.key, subscription)
        for router, path, _ in hops(variable, held.grants, held.segments):
            self.cloud.routers.set(router, (variable.variable_id, path.path), path)

    # the end

    def end(self, subscription: Subscription, reason: str) -> None:
        """Remove one whose paths are of this cloud; whoever still waits for it gets the reason."""
        askers = self._askers.pop(subscription.key, {})
        self._remove(subscription)
        for address, request_id in askers:
            self.cloud.fail(address, request_id, "unknown", reason)
        self._finished.pop(subscription.key, None)
        self._answer_waiting(subscription, reason, "unknown")

    def _remove(self, subscription: Subscription) -> None:
        self._forget_attempt(subscription)
        segments = subscription.segments
        if subscription.held is not None:
            segments += _without(subscription.held.segments, subscription.segments)
        self.cloud.tear_down(subscription.variable_id, segments)
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


def granted(subscription: Subscription, request_id: int) -> Granted:
    variable = subscription.variable
    assert variable is not None
    return Granted(id=request_id, variable=variable, grants=as_asked(subscription.grants, subscription.qos),
                   modes=subscription.modes)  # fmt: skip


def refused(refusal: Refusal, request: SubscribeRequest) -> Failed:
    return Failed(id=request.id, reason=refusal.reason, code=refusal.code, best=as_asked(refusal.best, request.qos))


def problem(request: SubscribeRequest) -> str:
    """What is wrong with a request; empty if nothing is."""
    name = f"subscription to {request.publisher}/{request.variable}"
    if len(request.qos) not in (1, MODES):
        return f"{name}: {len(request.qos)} qualities; give one for all modes, or {MODES}"
    if not 0 < request.modes < 1 << MODES:
        return f"{name}: mask {request.modes:#x} has none of the {MODES} modes, or others"
    for qos in request.qos:
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


def _same(subscription: Subscription, request: SubscribeRequest) -> bool:
    return (subscription.qos, subscription.modes, subscription.type) == (request.qos, request.modes, request.type)


def _routes(segments: tuple[PathSegment, ...]) -> list[Route]:
    return [
        Route(segment.routers, segment.redundant, segment.modes, segment.before, segment.after) for segment in segments
    ]


def _without(segments: tuple[PathSegment, ...], others: tuple[PathSegment, ...]) -> tuple[PathSegment, ...]:
    kept = {segment.path for segment in others}
    return tuple(segment for segment in segments if segment.path not in kept)


def regranted(subscription: Subscription, before: Variable, variable: Variable) -> Grants:
    """The grants of a subscription rounded to the new publishing interval; what was relaxed stays relaxed."""
    renewed: list[Grant | None] = []
    requested = by_mode(subscription.qos, subscription.modes)
    for grant, qos in zip(subscription.grants, requested, strict=True):
        if grant is None or qos is None:
            renewed.append(grant)
            continue
        as_desired = grant.every == every_of(before, qos.interval_ns)
        every = every_of(variable, qos.interval_ns if as_desired else grant.interval_ns)
        renewed.append(msgspec.structs.replace(grant, every=every, interval_ns=interval_of(variable, every)))
    return tuple(renewed)
