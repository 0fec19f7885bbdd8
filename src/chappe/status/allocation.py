"""Admission: which routes a subscription gets, and what is reserved for it (GS-080 to GS-086)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chappe.netmap.graph import Path
from chappe.status.latency import LatencyModel
from chappe.status.planning import Found, Planner, Wish
from chappe.status.promises import Promise, Promises
from chappe.status.rates import MODES, NANO, every_of, interval_of, is_alert, publishing_rate
from chappe.status.resources import Blocked, Growth, Ledger, Usage, modes_of
from chappe.status.topology import Model
from chappe.wire.base import Grant, Qos, Variable
import itertools

Grants = Sequence[Grant | None]
"""16, None outside of the modes of the subscription."""


@dataclass(frozen=True)
class Demand:
    """A subscription as it is asked for: 16 qualities, None in a mode that it does not live in."""

    variable: Variable
    source: str
    target: str
    qos: tuple[Qos | None, ...]


@dataclass(frozen=True)
class Route:
    """One path in the order of the events, from the publisher's edge to the subscriber's.

    A segment inside one cloud has `before` and `after`: the router of another cloud it comes from and goes to.
    Publisher and subscriber at one edge have one route of that router alone.
    """

    routers: tuple[str, ...]
    redundant: int
    modes: int
    before: str = ""
    after: str = ""

    @property
    def hops(self) -> list[tuple[str, str]]:
        """Its directed channels, those to and from other clouds too."""
        names = [name for name in (self.before, *self.routers, self.after) if name]
        return list(itertools.pairwise(names))


@dataclass(frozen=True)
class Plan:
    """What can be granted now."""

    routes: tuple[Route, ...]
    grants: tuple[Grant | None, ...]


@dataclass(frozen=True)
class Refusal:
    """Why not; `obstacle` is `router/NAME`, `channel/A/B` (directed) or empty, `best` is what could be granted."""

    reason: str
    code: str = "capacity"
    obstacle: str = ""
    best: tuple[Grant | None, ...] = (None,) * MODES


@dataclass(frozen=True)
class _Reservation:
    variable: Variable
    routes: tuple[Route, ...]
    grants: tuple[Grant | None, ...]
    usage: Usage
    promises: tuple[Promise, ...]


class Allocator:
    """Routers, channels and all that is reserved on them, for one broker."""

    def __init__(self, model: Model) -> None:
        self._ledger = Ledger(LatencyModel(model))
        self._promises = Promises(self._ledger)
        self._planner = Planner(self._ledger, self._promises)
        self._reservations: dict[str, _Reservation] = {}
        self._published: dict[int, tuple[str, int]] = {}  # router and rate

    # topology

    def add_router(self, name: str, events_per_s: float, edge: bool = True, owned: bool = True) -> None:
        """Add a router or change it. 0 events a second is no limit; of one not owned no load is enforced."""
        router = self._ledger.router(name)
        router.capacity, router.edge, router.owned, router.present = int(events_per_s * NANO), edge, owned, True
        router.changed()

    def remove_router(self, name: str) -> None:
        router = self._ledger.routers.get(name)
        if router is not None:
            router.present = router.owned = False
            self._ledger.forget_router(router)

    def add_channel(self, a: str, b: str, bytes_per_s: float, latency_ns: int, security: int = 0,
                    owned: bool = True) -> None:  # fmt: skip
        """Add both directions of a channel or change them. 0 bytes a second is no limit."""
        for tail, head in ((a, b), (b, a)):
            channel = self._ledger.channel(tail, head)
            channel.capacity, channel.latency_ns, channel.security = int(bytes_per_s * NANO), latency_ns, security
            channel.owned, channel.present = owned, True

    def remove_channel(self, a: str, b: str) -> None:
        for hop in ((a, b), (b, a)):
            channel = self._ledger.channels.get(hop)
            if channel is not None:
                channel.present = channel.owned = False
                self._ledger.forget(channel)

    def set_router_up(self, name: str, up: bool) -> None:
        router = self._ledger.routers.get(name)
        if router is not None:
            router.up = up

    def set_channel_up(self, a: str, b: str, up: bool) -> None:
        for hop in ((a, b), (b, a)):
            channel = self._ledger.channels.get(hop)
            if channel is not None:
                channel.up = up

    def used(self, a: str, b: str) -> bool:
        """True if a reservation uses the channel in either direction."""
        return any(hop in self._ledger.channels and self._ledger.channels[hop].streams for hop in ((a, b), (b, a)))

    # publications

    def publish(self, router: str, variable: Variable) -> Refusal | None:
        """Count a variable at its full rate where it is published; replaces what the variable had."""
        before = self._published.pop(variable.variable_id, None)
        if before is not None:
            self._ledger.publish(self._ledger.router(before[0]), -before[1])
        rate = publishing_rate(variable)
        load = NANO * rate.numerator // rate.denominator
        at = self._ledger.router(router)
        growth = Growth(0, (), {at: (load,) * MODES}, published=load)
        blocked = self._ledger.blocked(growth) or self._promises.broken(growth)
        if blocked is not None:
            if before is not None:
                self._ledger.publish(self._ledger.router(before[0]), before[1])
                self._published[variable.variable_id] = before
            return Refusal(blocked.reason, obstacle=blocked.obstacle)
        self._promises.grew(growth)
        self._ledger.publish(at, load)
        self._published[variable.variable_id] = router, load
        return None

    def unpublish(self, variable_id: int) -> None:
        before = self._published.pop(variable_id, None)
        if before is not None:
            router = self._ledger.router(before[0])
            self._ledger.publish(router, -before[1])
            self._ledger.forget_router(router)

    # subscriptions

    def plan(self, demand: Demand, avoid: frozenset[str] = frozenset()) -> Plan | Refusal:
        """Routes and grants for a demand as things are; changes nothing. `avoid` are obstacles named before."""
        routes: dict[tuple[str, ...], Route] = {}
        grants: list[Grant | None] = [None] * MODES
        for qos, modes in _groups(demand.qos):
            answer = self._group(demand, qos, modes, avoid)
            if isinstance(answer, Blocked):
                return Refusal(answer.reason, obstacle=answer.obstacle, best=tuple(grants))
            found, given = answer
            for mode, grant in given.items():
                grants[mode] = grant
            for number, path in enumerate(found.paths):
                before = routes.get(path)
                routes[path] = Route(path, number if before is None else before.redundant,
                                     modes | (0 if before is None else before.modes))  # fmt: skip
        return Plan(tuple(routes.values()), tuple(grants))

    def _group(self, demand: Demand, qos: Qos, modes: int,
               avoid: frozenset[str]) -> tuple[Found, dict[int, Grant]] | Blocked:  # fmt: skip
        last: Blocked | None = None
        for every, bound, redundancy in _attempts(demand.variable, qos):
            wish = Wish(
                demand.variable, demand.source, demand.target, modes, every, redundancy, bound, qos.security, avoid
            )
            answer = self._planner.find(wish)
            if isinstance(answer, Found):
                interval = interval_of(demand.variable, every)
                return answer, {
                    mode: Grant(interval, every, latency, redundancy, qos.priority, bound)
                    for mode, latency in answer.latency_ns.items()
                }
            last = answer
        assert last is not None  # there is at least one attempt
        return last

    def reserve(self, key: str, variable: Variable, routes: Sequence[Route], grants: Grants,
                force: bool = False) -> Refusal | None:  # fmt: skip
        """Reserve routes, all or nothing, instead of what the key had. `force` takes what was admitted before."""
        before = self._reservations.get(key)
        if before is not None:
            self.release(key)
        usage = _usage(routes, grants)
        growth = self._ledger.growth(variable, usage)
        promises = tuple(self._promised(key, routes, grants))
        if not force:
            blocked = self._ledger.blocked(growth) or self._late(promises, growth) or self._promises.broken(growth)
            if blocked is not None:
                if before is not None:
                    self._hold(key, before)
                return Refusal(blocked.reason, obstacle=blocked.obstacle)
        self._promises.grew(growth)
        self._hold(key, _Reservation(variable, tuple(routes), tuple(grants), usage, promises))
        return None

    def _hold(self, key: str, reservation: _Reservation) -> None:
        self._ledger.add(reservation.variable, reservation.usage)
        self._reservations[key] = reservation
        for promise in reservation.promises:
            promise.kept = True
            self._promises.make(promise)

    def release(self, key: str) -> bool:
        """Give back what a key has; False if it has nothing."""
        reservation = self._reservations.pop(key, None)
        if reservation is None:
            return False
        for promise in reservation.promises:
            promise.kept = False
        self._ledger.remove(reservation.variable.variable_id, reservation.usage)
        return True

    def reserved(self, key: str) -> tuple[Route, ...]:
        reservation = self._reservations.get(key)
        return () if reservation is None else reservation.routes

    def loads(self) -> list[dict[str, Any]]:
        """One row a resource: its capacity, its load by mode, and the largest share of it that is taken."""
        return list(self._ledger.rows())

    def _late(self, promises: Sequence[Promise], growth: Growth) -> Blocked | None:
        for promise in promises:
            missing = -promise.slack(self._ledger.delays(promise.routers, growth))
            if missing > 0:
                return Blocked("", f"latency: {' - '.join(r.name for r in promise.routers)} takes {missing / 1e6:.6g} ms "
                               "more than its share of the bound")  # fmt: skip
        return None

    def _promised(self, key: str, routes: Sequence[Route], grants: Grants) -> Iterator[Promise]:
        """The bound of each route; of a segment its share by its latency without load."""
        for route in routes:
            bounds = [0] * MODES
            fixed, _ = self._planner.latency(route.routers)
            for mode in modes_of(route.modes):
                grant = grants[mode]
                if grant is not None and grant.bound_ns:
                    bounds[mode] = grant.bound_ns
            if route.before or route.after:
                model = self._ledger.model
                fixed -= model.reference_ns
                alone = fixed + model.router_ns * len(route.routers)
                bounds = [bound * alone // max(alone, grant.latency_ns) if bound and grant is not None else 0
                          for bound, grant in zip(bounds, grants, strict=True)]  # fmt: skip
            if any(bounds):
                yield Promise(key, tuple(self._ledger.router(name) for name in route.routers), fixed, bounds)


def _usage(routes: Sequence[Route], grants: Grants) -> Usage:
    usage: Usage = {}
    for route in routes:
        terms: dict[int, int] = {}
        for mode in modes_of(route.modes):
            grant = grants[mode]
            if grant is not None:
                terms[grant.every] = terms.get(grant.every, 0) | 1 << mode
        for hop in route.hops:
            carried = usage.setdefault(hop, {})
            for every, modes in terms.items():
                carried[every] = carried.get(every, 0) | modes
    return usage


def _groups(qos: Sequence[Qos | None]) -> list[tuple[Qos, int]]:
    """Modes that ask for the same, those that ask for most paths first."""
    groups: dict[Qos, int] = {}
    for mode, wanted in enumerate(qos):
        if wanted is not None:
            groups[wanted] = groups.get(wanted, 0) | 1 << mode
    return sorted(groups.items(), key=lambda item: (-item[0].redundancy, item[1]))


def _attempts(variable: Variable, qos: Qos) -> Iterator[tuple[int, int, int]]:
    """(every, bound, redundancy) from what is desired to the worst that is accepted: redundancy gives way first."""
    every = every_of(variable, qos.interval_ns)
    worst = max(every, every_of(variable, qos.worst_interval_ns))
    bounds = [qos.latency_ns]
    if qos.latency_ns and qos.worst_latency_ns > qos.latency_ns:
        bounds.append(qos.worst_latency_ns)
    least = min(qos.redundancy, qos.worst_redundancy or qos.redundancy)
    while True:
        for bound in bounds:
            for redundancy in range(qos.redundancy, least - 1, -1):
                yield every, bound, redundancy
        if every == worst:
            return
        every = min(2 * every, worst)


__all__ = ["Allocator", "Demand", "Path", "Plan", "Refusal", "Route", "is_alert"]
