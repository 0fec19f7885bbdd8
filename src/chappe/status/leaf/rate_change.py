"""Publishers change the rate of what they publish, in place: everything that depends on it goes on (GS-073)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from chappe.machine import NEVER
from chappe.status.allocation.demands import Grants
from chappe.status.flooding.leaf import LeafFlooding
from chappe.status.leaf.agenda import Decide, PathRefused
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.entities import Entities
from chappe.status.leaf.path_setup import ANSWER_NS, hops
from chappe.status.leaf.rate_change_checks import RateChangeChecks, named
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.routers import REGRANT, Key, TableEntry
from chappe.status.leaf.state import SETTING, Publication, Subscription
from chappe.status.leaf.subscriptions import Subscriptions, as_asked, regranted
from chappe.status.machine import Address
from chappe.wire.base import Variable
from chappe.wire.management import Condense, Issued, Publish, Regranted, SubscribeRequest

LOOK_AGAIN_NS = 50_000_000  # requests that wait for subscriptions to be set up

Asker = tuple[Address, int]
Announcement = tuple[str, Key, TableEntry | Regranted]


class _Change:
    """One variable on its way to another rate: all other routers and edges first, then the publisher's edge.

    One that is `decided` goes on whatever happens: a router that is away gets it when it is back.
    """

    def __init__(
        self, rate_changes: RateChanges, publication: Publication, stages: list[list[Announcement]], decided: bool
    ) -> None:
        self._rate_changes = rate_changes
        self.publication = publication
        self.decided = decided
        self.before = publication.variable
        self.grants: dict[str, Grants] = {}  # by subscription, as they were
        self.askers: dict[Asker, None] = {}
        self.held: list[tuple[Address, SubscribeRequest]] = []
        self.deadline_ns = 0
        self.over = False
        self._stages = stages
        self._waiting: set[tuple[str, Key]] = set()

    def go(self) -> None:
        """Announce to the next stage, or end."""
        while self._stages and not self._waiting:
            stage = self._stages.pop(0)
            self._waiting = {(router, key) for router, key, _ in stage}
            for router, key, entry in stage:
                self._rate_changes.announce(router, key, entry, self)
        if not self._waiting and not self.over:
            self.over = True
            self._rate_changes.done(self)

    def confirmed(self, router: str, key: Key) -> None:
        self._waiting.discard((router, key))
        if not self.over and not self._waiting:
            self.go()

    def refused(self, router: str, key: Key, reason: str) -> None:
        if self.decided:
            self._rate_changes.path_refused(key, f"{router} refuses it: {reason}")
            self.confirmed(router, key)
        else:
            self.fail(f"router {router} refuses the change: {reason}", "limit")

    def lost(self, router: str) -> None:
        if not self.decided:
            self.fail(f"router {router} was lost while the rate was changed", "unavailable")

    def expire(self) -> None:
        names = ", ".join(sorted({router for router, _ in self._waiting}))
        self.fail(f"no answer from {names} while the rate was changed", "unavailable")

    def fail(self, reason: str, code: str) -> None:
        if not self.over:
            self.over = True
            self._rate_changes.failed(self, reason, code)

    def ended(self, subscription: Subscription) -> None:
        """Nobody waits for its paths any more."""
        paths = {segment.path for segment in subscription.segments}
        self._waiting = {each for each in self._waiting if each[1][1] not in paths}
        self._stages = [[each for each in stage if each[1][1] not in paths] for stage in self._stages]
        if not self.over and not self._waiting:
            self.go()


class RateChanges:
    """Changes of rates that are under way, by variable, and requests that wait for their turn."""

    def __init__(
        self, cloud: Cloud, registry: Registry, subscriptions: Subscriptions, entities: Entities,
        flooding: LeafFlooding, checks: RateChangeChecks,
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._registry = registry
        self._subscriptions = subscriptions
        self._entities = entities
        self._flooding = flooding
        self._checks = checks
        self._changes: dict[int, _Change] = {}
        self._waiting: list[tuple[int, Address, Publish]] = []  # with the time when they are given up
        self._next = 1

    def resume(self) -> None:
        """What the broker before this one had decided is announced again."""
        for publication in self._registry.by_id.values():
            if not publication.announced:
                self._begin(publication, decided=True)

    # requests

    def under_way(self, variable_id: int) -> _Change | None:
        """A change that can still fail."""
        change = self._changes.get(variable_id)
        return change if change is not None and not change.decided else None

    def ask(self, address: Address, request: Publish, publication: Publication, until_ns: int = 0) -> None:
        """The publisher of a variable asks for other properties of it."""
        variable = msgspec.structs.replace(request.variable, variable_id=publication.variable.variable_id)
        change = self.under_way(variable.variable_id)
        if change is not None and publication.variable == variable:
            change.askers[address, request.id] = None
            return
        problem = self._checks.problem(address, publication, variable)
        if problem:
            self._cloud.fail(address, request.id, *problem)
            return
        subscriptions = self._subscribed(variable.variable_id)
        if change is not None or any(each.state == SETTING for each in subscriptions):
            self._waiting.append((until_ns or self._cloud.now_ns + ANSWER_NS, address, request))
            return
        away = self._away(publication, subscriptions)
        if away:
            reason = f"{named(variable)}: router {away} is not connected; ask again when it is back"
            self._cloud.fail(address, request.id, "unavailable", reason)
            return
        self._change((address, request.id), publication, variable, subscriptions)

    def _away(self, publication: Publication, subscriptions: Sequence[Subscription]) -> str:
        routers = {publication.edge, *(each.edge for each in subscriptions)}
        routers.update(router for each in subscriptions for segment in each.segments for router in segment.routers)
        return ", ".join(sorted(router for router in routers if not self._cloud.routers.joined(router)))

    def _subscribed(self, variable_id: int) -> list[Subscription]:
        return list(self._subscriptions.by_variable.get(variable_id, {}).values())

    # a change

    def _change(
        self, asker: Asker, publication: Publication, variable: Variable, subscriptions: Sequence[Subscription]
    ) -> None:
        before = publication.variable
        grants = {each.key: each.grants for each in subscriptions}
        renewed = {each.key: regranted(each, before, variable) for each in subscriptions}
        refusal = self._cloud.allocator.alter(before, variable, renewed)
        if refusal is not None:
            reason = f"{named(variable)} cannot be published at this rate: {refusal.reason}"
            self._cloud.fail(*asker, refusal.code, reason, obstacle=refusal.obstacle)
            return
        self._describe(publication, variable, renewed)
        change = self._begin(publication, decided=False, asker=asker)
        change.before, change.grants = before, dict(grants)
        change.go()

    def _describe(self, publication: Publication, variable: Variable, grants: dict[str, Grants]) -> None:
        """From now on it is this, for everybody who asks and for the broker that comes after this one."""
        publication.variable, publication.announced = variable, False
        self._cloud.outbox.put("publication", str(variable.variable_id), publication)
        for key, granted in grants.items():
            subscription = self._subscriptions.by_key[key]
            subscription.variable, subscription.grants = variable, tuple(granted)
            self._cloud.outbox.put("subscription", key, subscription)

    def _begin(self, publication: Publication, decided: bool, asker: Asker | None = None) -> _Change:
        number = publication.variable.variable_id
        former = self._changes.pop(number, None)
        if former is not None:
            former.over = True
        change = self._changes[number] = _Change(self, publication, self._stages(publication), decided)
        change.deadline_ns = self._cloud.now_ns + ANSWER_NS
        if decided:
            self._registry.undecided.discard(number)
        else:
            self._registry.undecided.add(number)
        if asker is not None:
            change.askers[asker] = None
        self._flooding.rate_changed(publication.variable)
        if decided:
            change.go()
        return change

    def _stages(self, publication: Publication) -> list[list[Announcement]]:
        stages: tuple[list[Announcement], list[Announcement]] = ([], [])
        variable = publication.variable
        for each in self._subscribed(variable.variable_id):
            if each.entity:
                granted = Regranted(entity=each.entity, variable=variable, grants=as_asked(each.grants, each.qos),
                                    modes=each.modes)  # fmt: skip
                stages[each.edge == publication.edge].append((each.edge, (self._next, REGRANT), granted))
                self._next += 1
            for router, path, first in hops(variable, each.grants, each.segments):
                stages[first].append((router, (variable.variable_id, path.path), path))
        return [stage for stage in stages if stage]

    def path_refused(self, key: Key, reason: str) -> None:
        self._cloud.agenda.add(PathRefused(key, reason))

    def announce(self, router: str, key: Key, entry: TableEntry | Regranted, change: _Change) -> None:
        if isinstance(entry, Regranted):
            self._cloud.routers.notify(router, key, entry, change)
        else:
            self._cloud.routers.set(router, key, entry, change)

    def done(self, change: _Change) -> None:
        publication = change.publication
        publication.announced = True
        self._cloud.outbox.put("publication", str(publication.variable.variable_id), publication)
        self._finish(change)
        for address, request in change.askers:
            self._cloud.answer(address, Issued(id=request, variable_id=publication.variable.variable_id))

    def failed(self, change: _Change, reason: str, code: str) -> None:
        """What was there before is restored and announced."""
        publication = change.publication
        alive = {key: grants for key, grants in change.grants.items() if key in self._subscriptions.by_key}
        self._cloud.allocator.alter(publication.variable, change.before, alive, force=True)
        self._describe(publication, change.before, alive)
        self._begin(publication, decided=True)
        for address, request in change.askers:
            self._cloud.fail(address, request, code, f"{named(change.before)}: {reason}")
        self._finish(change)

    def _finish(self, change: _Change) -> None:
        number = change.publication.variable.variable_id
        if self._changes.get(number) is change:
            del self._changes[number]
            self._registry.undecided.discard(number)
        for address, request in change.held:
            self._cloud.agenda.add(Decide(address, request))

    # what happens meanwhile

    def holds(self, publication: Publication, address: Address, request: SubscribeRequest) -> bool:
        """Whether a request for the variable waits until it is known how it is published."""
        change = self.under_way(publication.variable.variable_id)
        if change is not None:
            change.held.append((address, request))
        return change is not None

    def delays(self, address: Address, request: Condense) -> bool:
        """Whether an input of a function is being changed; the request has been answered then."""
        for each in request.function.inputs:
            known = self._registry.by_name.get((each.publisher, each.variable))
            if known is not None and self.under_way(known.variable.variable_id) is not None:
                reason = f"{each.publisher}/{each.variable} gets another rate just now; ask again"
                self._cloud.fail(address, request.id, "unavailable", reason)
                return True
        return False

    def ended(self, subscription: Subscription) -> None:
        """A subscription is over."""
        change = self._changes.get(subscription.variable_id)
        if change is not None:
            change.ended(subscription)

    def stop(self, variable_id: int, reason: str) -> list[tuple[Address, SubscribeRequest]]:
        """It is about to be withdrawn; the requests that waited for the change are to be decided after that."""
        change = self._changes.pop(variable_id, None)
        if change is None:
            return []
        self._registry.undecided.discard(variable_id)
        change.over = True
        for address, request in change.askers:
            self._cloud.fail(address, request, "unknown", reason)
        return change.held

    def next_tick(self) -> int:
        if self._waiting:
            return self._cloud.now_ns + LOOK_AGAIN_NS
        return min((each.deadline_ns for each in self._changes.values() if not each.decided), default=NEVER)

    def tick(self, now_ns: int) -> None:
        for change in [each for each in self._changes.values() if not each.decided and each.deadline_ns <= now_ns]:
            change.expire()
        waiting, self._waiting = self._waiting, []
        for until_ns, address, request in waiting:
            variable = request.variable
            publication = self._registry.by_name.get((variable.publisher, variable.variable))
            if publication is None or not self._entities.knows(address[7:], request.entity):
                self._cloud.fail(address, request.id, "stale", f"{named(variable)} was withdrawn meanwhile")
            elif until_ns <= now_ns:
                reason = f"{named(variable)}: its subscriptions are being changed; ask again"
                self._cloud.fail(address, request.id, "unavailable", reason)
            else:
                self.ask(address, request, publication, until_ns)
