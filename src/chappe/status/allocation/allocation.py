"""Admission: which routes a subscription gets, and what is reserved for it (GS-080 to GS-086)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chappe.graph.graph import Path
from chappe.status.allocation.demands import (
    Attempt,
    Demand,
    Grants,
    Plan,
    Refusal,
    Route,
    attempts,
    beyond,
    groups,
    usage_of,
)
from chappe.status.allocation.fabric import Fabric
from chappe.status.allocation.guarantees import LatencyGuarantee, LatencyGuarantees
from chappe.status.allocation.latency import LatencyModel
from chappe.status.allocation.path_request import FoundPaths, PathRequest
from chappe.status.allocation.planning import Planner
from chappe.status.allocation.rates import NANO, interval_of, publishing_rate
from chappe.status.allocation.resources import Blocked, Growth, Ledger, Usage, modes_of
from chappe.status.topology import Model
from chappe.wire.base import Grant, Qos, Variable
from chappe.wire.constants import MODES

__all__ = ["Allocator", "Demand", "Grants", "Plan", "Refusal", "Route"]

ROUNDS = 8
ENCRYPTED = 2  # level of security of what stays on one machine


@dataclass(frozen=True)
class _Reservation:
    variable: Variable
    routes: tuple[Route, ...]
    grants: tuple[Grant | None, ...]
    usage: Usage
    guarantees: tuple[LatencyGuarantee, ...]


@dataclass(frozen=True)
class _Piece:
    """What the modes of a mask get: all of them the same."""

    found: FoundPaths
    attempt: Attempt
    priority: int


class Allocator:
    """Routers, channels and all that is reserved on them, for one broker."""

    def __init__(self, model: Model) -> None:
        self._ledger = Ledger(LatencyModel(model))
        self._guarantees = LatencyGuarantees(self._ledger)
        self._fabric = Fabric(self._ledger)
        self._planner = Planner(self._ledger, self._guarantees, self._fabric)
        self._reservations: dict[str, _Reservation] = {}
        self._published: dict[int, tuple[str, int]] = {}  # router and load
        self._latest: tuple[int, Variable, Plan] | None = None  # with the version of the ledger it was made for

    # topology

    def add_router(self, name: str, events_per_s: float, edge: bool = True, owned: bool = True) -> None:
        """Add a router or change it. 0 events a second is no limit; of one not owned no load is enforced."""
        router = self._ledger.router(name)
        if not router.present:
            router.present = True
            self._fabric.changed()
        router.edge, router.owned = edge, owned
        if router.capacity != int(events_per_s * NANO):
            router.capacity = int(events_per_s * NANO)
            router.changed()
            self._guarantees.reconsider()
        self._ledger.version += 1

    def remove_router(self, name: str) -> None:
        """Forget a router; what is reserved through it stays reserved."""
        router = self._ledger.routers.get(name)
        if router is not None and router.present:
            router.present, router.owned, router.up = False, False, True
            self._ledger.forget_router(router)
            self._fabric.changed()

    def add_channel(self, a: str, b: str, bytes_per_s: float, latency_ns: int, security: int = 0,
                    owned: bool = True) -> None:  # fmt: skip
        """Add both directions of a channel or change them. 0 bytes a second is no limit."""
        for tail, head in ((a, b), (b, a)):
            channel = self._ledger.channel(tail, head)
            properties = True, int(bytes_per_s * NANO), latency_ns, security
            if properties != (channel.present, channel.capacity, channel.latency_ns, channel.security):
                channel.present, channel.capacity, channel.latency_ns, channel.security = properties
                self._fabric.changed()
            channel.owned = owned
        self._ledger.version += 1

    def security(self, routers: Sequence[str]) -> int:
        """Of a path: what its weakest channel has; 0 if one is not known (GS-162)."""
        channels = [self._ledger.channels.get(hop) for hop in pairwise(routers)]
        return min((channel.security if channel is not None else 0 for channel in channels), default=ENCRYPTED)

    def remove_channel(self, a: str, b: str) -> None:
        """Forget both directions; what is reserved on them stays reserved."""
        for hop in ((a, b), (b, a)):
            channel = self._ledger.channels.get(hop)
            if channel is not None and channel.present:
                channel.present, channel.owned, channel.up = False, False, True
                self._ledger.forget(channel)
                self._fabric.changed()

    def set_router_up(self, name: str, up: bool) -> None:
        """Use a router for new paths, or not."""
        router = self._ledger.routers.get(name)
        if router is not None and router.up != up:
            router.up = up
            self._fabric.changed()

    def set_channel_up(self, a: str, b: str, up: bool) -> None:
        """Use a channel for new paths, or not."""
        for hop in ((a, b), (b, a)):
            channel = self._ledger.channels.get(hop)
            if channel is not None and channel.up != up:
                channel.up = up
                self._fabric.changed()

    def used(self, a: str, b: str) -> bool:
        """True if a reservation uses the channel in either direction."""
        return any(hop in self._ledger.channels and self._ledger.channels[hop].streams for hop in ((a, b), (b, a)))

    # publications

    def publish(self, router: str, variable: Variable, force: bool = False) -> Refusal | None:
        """Count a variable at its full rate where it is published, instead of what it had. `force` as in `reserve`."""
        before = self._published.get(variable.variable_id)
        self.unpublish(variable.variable_id)
        rate = publishing_rate(variable)
        load = NANO * rate.numerator // rate.denominator
        at = self._ledger.router(router)
        growth = Growth(0, (), {at: (load,) * MODES}, published=load)
        blocked = None if force else self._ledger.blocked(growth) or self._guarantees.broken(growth)
        if blocked is None:
            self._guarantees.grew(growth)
            self._count(variable.variable_id, router, load)
            return None
        if before is not None:
            self._count(variable.variable_id, *before)
        self._ledger.forget_router(at)
        return Refusal(blocked.reason, obstacle=blocked.obstacle)

    def unpublish(self, variable_id: int) -> None:
        """Count it no longer; one that is not published is no error."""
        before = self._published.pop(variable_id, None)
        if before is not None:
            router = self._ledger.router(before[0])
            self._ledger.publish(router, -before[1])
            self._ledger.forget_router(router)

    def _count(self, variable_id: int, router: str, load: int) -> None:
        self._ledger.publish(self._ledger.router(router), load)
        self._published[variable_id] = router, load

    # plans

    def plan(self, demand: Demand, avoid: frozenset[str] = frozenset(), key: str = "") -> Plan | Refusal:
        """Routes and grants for a demand at the present loads; changes nothing. `avoid` are obstacles found before.

        With the key of a reservation it is planned as if that were released, and keeps its routes where they serve.
        """
        held = self._reservations.get(key)
        if held is None:
            answer = self._plan(demand, avoid, [])
            self._latest = (self._ledger.version, demand.variable, answer) if isinstance(answer, Plan) else None
            return answer
        self.release(key)
        try:
            return self._plan(demand, avoid, [route.routers for route in held.routes if not route.before + route.after])
        finally:
            self._hold(key, held)

    def _plan(self, demand: Demand, avoid: frozenset[str], known: list[Path]) -> Plan | Refusal:
        joint: Blocked | None = None
        for _ in range(ROUNDS):
            answers = list(self._pieces(demand, avoid, known))
            pieces = [answer for answer in answers if isinstance(answer, _Piece)]
            plan = _plan_of(demand, pieces)
            refused = next((answer for answer in answers if isinstance(answer, Blocked)), None)
            if refused is not None:
                refused = joint or refused
                return Refusal(refused.reason, obstacle=refused.obstacle, best=self._best(demand, avoid, plan.grants))
            # Each group fits by itself; together they can still be too much while modes change.
            joint = self._together(demand, plan) if len(pieces) > 1 else None
            if joint is None:
                return plan
            if joint.obstacle in avoid:
                break
            avoid, known = avoid | {joint.obstacle}, []
        assert joint is not None  # the loop ended by it
        return Refusal(joint.reason, obstacle=joint.obstacle, best=(None,) * MODES)

    def _together(self, demand: Demand, plan: Plan) -> Blocked | None:
        growth = self._ledger.growth(demand.variable, usage_of(plan.routes, plan.grants))
        return self._ledger.blocked(growth) or self._guarantees.broken(growth)

    def _pieces(self, demand: Demand, avoid: frozenset[str], known: Sequence[Path]) -> Iterator[_Piece | Blocked]:
        """What each group of modes gets; paths of one are taken for the next ones too, so that modes can change."""
        paths = list(known)
        for qos, modes in groups(demand.qos):
            for answer in self._solve(demand, qos, modes, avoid, paths):
                if isinstance(answer, _Piece):
                    paths = [*answer.found.paths, *(path for path in paths if path not in answer.found.paths)]
                yield answer

    def _solve(self, demand: Demand, qos: Qos, modes: int, avoid: frozenset[str],
               known: Sequence[Path]) -> list[_Piece | Blocked]:  # fmt: skip
        last: Blocked | None = None
        for attempt in attempts(demand.variable, qos):
            answer = self._planner.find(_request(demand, qos, modes, attempt, avoid), known)
            if isinstance(answer, FoundPaths):
                return [_Piece(answer, attempt, qos.priority)]
            if answer.obstacle:
                classes = self._planner.classes(modes)
                if len(classes) > 1:
                    return [piece for part in classes for piece in self._solve(demand, qos, part, avoid, known)]
            last = answer
        assert last is not None  # there is at least one attempt
        return [last]

    def _best(self, demand: Demand, avoid: frozenset[str], granted: Grants) -> tuple[Grant | None, ...]:
        """What could be granted: in modes that were refused by going on beyond the worst that is accepted."""
        best = list(granted)
        for qos, modes in groups(demand.qos):
            refused = sum(1 << mode for mode in modes_of(modes) if granted[mode] is None)
            pieces = [self._first(demand, qos, refused, avoid)] if refused else []
            if pieces == [None]:
                pieces = [self._first(demand, qos, part, avoid) for part in self._planner.classes(refused)]
            for piece in pieces:
                for mode, grant in _grants(demand, piece) if piece is not None else ():
                    best[mode] = grant
        return tuple(best)

    def _first(self, demand: Demand, qos: Qos, modes: int, avoid: frozenset[str]) -> _Piece | None:
        for attempt in beyond(demand.variable, qos):
            answer = self._planner.find(_request(demand, qos, modes, attempt, avoid))
            if isinstance(answer, FoundPaths):
                return _Piece(answer, attempt, qos.priority)
        return None

    # reservations

    def reserve(self, key: str, variable: Variable, routes: Sequence[Route], grants: Grants,
                force: bool = False) -> Refusal | None:  # fmt: skip
        """Reserve routes, all or nothing, instead of what the key had. `force` takes what was admitted before."""
        before = self._reservations.get(key)
        self.release(key)
        usage = usage_of(routes, grants)
        growth = self._ledger.growth(variable, usage)
        guarantees = tuple(self._guarantees_of(key, routes, grants))
        if not force and not self._planned(variable, routes, grants):
            blocked = self._ledger.blocked(growth) or self._late(guarantees, growth) or self._guarantees.broken(growth)
            if blocked is not None:
                if before is not None:
                    self._hold(key, before)
                return Refusal(blocked.reason, obstacle=blocked.obstacle)
        self._guarantees.grew(growth)
        self._hold(key, _Reservation(variable, tuple(routes), tuple(grants), usage, guarantees))
        return None

    def alter(self, before: Variable, variable: Variable, grants: Mapping[str, Grants],
              force: bool = False) -> Refusal | None:  # fmt: skip
        """Publish a variable on other terms and give all its reservations these grants on their routes, or nothing."""
        held = {key: self._reservations[key] for key in grants}
        router, _ = self._published[variable.variable_id]
        for key in held:
            self.release(key)
        refusal = self.publish(router, variable, force)
        for key, reservation in held.items():
            refusal = refusal or self.reserve(key, variable, reservation.routes, grants[key], force)
        if refusal is not None:
            for key in held:
                self.release(key)
            self.publish(router, before, force=True)
            for key, reservation in held.items():
                self.reserve(key, before, reservation.routes, reservation.grants, force=True)
        return refusal

    def release(self, key: str) -> bool:
        """Give back what a key has; False if it has nothing."""
        reservation = self._reservations.pop(key, None)
        if reservation is None:
            return False
        for guarantee in reservation.guarantees:
            self._guarantees.drop(guarantee)
        self._ledger.remove(reservation.variable.variable_id, reservation.usage)
        return True

    def reserved(self, key: str) -> tuple[Route, ...]:
        """The routes of a key."""
        reservation = self._reservations.get(key)
        return () if reservation is None else reservation.routes

    def loads(self) -> list[dict[str, Any]]:
        """One row a resource: its capacity, its load by mode, and the largest share of it that is taken."""
        return list(self._ledger.rows())

    def router_loads(self) -> dict[str, tuple[float, ...]]:
        """Events a second of each router, by mode."""
        return self._ledger.router_loads()

    def _planned(self, variable: Variable, routes: Sequence[Route], grants: Grants) -> bool:
        """True if this is the latest plan and nothing has changed since: it was checked then."""
        if self._latest is None:
            return False
        version, planned, plan = self._latest
        same = planned == variable and plan.routes == routes and plan.grants == grants
        return same and version == self._ledger.version

    def _hold(self, key: str, reservation: _Reservation) -> None:
        self._ledger.add(reservation.variable, reservation.usage)
        self._ledger.version += 1  # its guarantees count even where it adds no load
        self._reservations[key] = reservation
        for guarantee in reservation.guarantees:
            self._guarantees.make(guarantee)

    def _late(self, guarantees: Sequence[LatencyGuarantee], growth: Growth) -> Blocked | None:
        for guarantee in guarantees:
            missing = -guarantee.slack(self._ledger.delays(guarantee.routers, growth))
            if missing > 0:
                names = [router.name for router in guarantee.routers]
                busiest = max(guarantee.routers, key=lambda router: max(router.delays(self._ledger.model)))
                reason = f"latency: {' - '.join(names)} takes {missing / 1e6:.6g} ms more than its share of the bound"
                return Blocked(f"router/{busiest.name}", reason)
        return None

    def _guarantees_of(self, key: str, routes: Sequence[Route], grants: Grants) -> Iterator[LatencyGuarantee]:
        """The bound of each route; of a segment its share of the bound, by its latency without load."""
        for route in routes:
            bounds = [0] * MODES
            for mode in modes_of(route.modes):
                grant = grants[mode]
                if grant is not None and grant.bound_ns:
                    bounds[mode] = grant.bound_ns
            if not any(bounds):
                continue
            routers, fixed = self._planner.fixed(route.routers)
            if route.before or route.after:
                model = self._ledger.model
                fixed -= model.reference_ns
                alone = fixed + model.router_ns * len(routers)
                bounds = [bound * alone // max(alone, grant.latency_ns) if bound and grant is not None else 0
                          for bound, grant in zip(bounds, grants, strict=True)]  # fmt: skip
            yield LatencyGuarantee(key, routers, fixed, bounds)


def _request(demand: Demand, qos: Qos, modes: int, attempt: Attempt, avoid: frozenset[str]) -> PathRequest:
    every, bound, redundancy = attempt
    return PathRequest(
        demand.variable, demand.source, demand.target, modes, every, redundancy, bound, qos.security, avoid
    )


def _grants(demand: Demand, piece: _Piece) -> Iterable[tuple[int, Grant]]:
    every, bound, redundancy = piece.attempt
    interval = interval_of(demand.variable, every)
    for mode, latency in piece.found.latency_ns.items():
        yield mode, Grant(interval, every, latency, redundancy, piece.priority, bound)


def _plan_of(demand: Demand, pieces: Sequence[_Piece]) -> Plan:
    routes: dict[Path, Route] = {}
    grants: list[Grant | None] = [None] * MODES
    for piece in pieces:
        modes = sum(1 << mode for mode in piece.found.latency_ns)
        for mode, grant in _grants(demand, piece):
            grants[mode] = grant
        for number, path in enumerate(piece.found.paths):
            before = routes.get(path)
            routes[path] = (
                Route(path, number, modes) if before is None else Route(path, before.redundant, before.modes | modes)
            )
    return Plan(tuple(routes.values()), tuple(grants))
