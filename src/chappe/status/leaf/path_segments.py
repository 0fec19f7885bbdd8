"""Segments of inter-cloud paths: reserved when an ancestor asks, set up when it commits, freed when it releases.

A reservation is durable, every message may come twice, and the outcome of one that is not committed is asked for
(GS-088).
"""

from __future__ import annotations

from collections.abc import Iterable

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Route
from chappe.status.leaf.cloud import Cloud
from chappe.status.leaf.parent_link import ParentLink
from chappe.status.leaf.path_setup import PathSetup
from chappe.status.leaf.registry import Registry
from chappe.status.leaf.routers import Key
from chappe.status.leaf.state import COMMITTED, ENDING, INSTALLED, RESERVED, PathSegment, Reservation
from chappe.status.leaf.subscriptions import Name, Subscriptions
from chappe.status.machine import Address
from chappe.wire.base import Message
from chappe.wire.management import Ask, Commit, Describe, Described, Outcome, Release, Segment, Unseek

OUTCOME_NS = 10_000_000_000


class Segments:
    """Everything that was reserved or set up for ancestors."""

    def __init__(self, cloud: Cloud, registry: Registry, subscriptions: Subscriptions, parent: ParentLink) -> None:
        self._cloud = cloud
        self._registry = registry
        self._subscriptions = subscriptions
        self._parent = parent
        self.by_key: dict[str, Reservation] = {}
        self.by_variable: dict[int, dict[str, Reservation]] = {}
        self._setups: dict[str, PathSetup] = {}
        self._askers: dict[str, dict[tuple[Address, int], None]] = {}
        self._due_ns: dict[str, int] = {}  # not committed: when to ask for the outcome, earliest first

    def restore(self, items: dict[str, Reservation]) -> None:
        for item in items.values():
            self._index(item)
            self._cloud.allocator.reserve(item.key, item.variable, _routes(item.segments), item.grants, force=True)
            if item.state == RESERVED:
                self._cloud.keep_numbers(item.variable.variable_id, item.segments)
            else:
                self._cloud.restore_paths(item.variable, item.grants, item.segments)

    def resume(self) -> None:
        """Go on after a restart: outcomes are asked for at once, what was committed is completed."""
        for item in list(self.by_key.values()):
            if item.state == RESERVED:
                self._due_ns[item.key] = self._cloud.now_ns
            elif item.state == COMMITTED:
                self._set_up(item, patient=True)
            if item.ending:
                self._unseek(item, item.ending)

    # requests of the parent

    def describe(self, address: Address, request: Describe, made_of: tuple[Name, ...]) -> None:
        publication = self._registry.by_name.get((request.publisher, request.variable))
        if publication is None:
            reason = f"{self._cloud.role}: nobody publishes {request.publisher}/{request.variable} here"
            self._cloud.fail(address, request.id, "unknown", reason)
        else:
            described = Described(
                id=request.id, variable=publication.variable, edge=publication.edge, made_of=made_of
            )  # fmt: skip
            self._cloud.answer(address, described)

    def ask(self, address: Address, request: Ask) -> None:
        """Reserve, and keep it until it is released."""
        known = self.by_key.get(request.subscription)
        if known is not None:
            if _same(known, request):
                self._cloud.done(address, request.id)
                return
            self._remove(known)
        problem = self._problem(request)
        if problem:
            reason, obstacle = problem
            self._cloud.fail(address, request.id, "unavailable" if obstacle else "unknown", reason, obstacle=obstacle)
            return
        routes = [Route(s.routers, s.redundant, s.modes, s.source, s.target) for s in request.segments]
        refusal = self._cloud.allocator.reserve(request.subscription, request.variable, routes, request.grants)
        if refusal is not None:
            self._cloud.fail(address, request.id, refusal.code, refusal.reason, obstacle=refusal.obstacle)
            return
        item = Reservation(key=request.subscription, variable=request.variable, grants=request.grants,
                           segments=self._cloud.number_segments(request.variable, routes))  # fmt: skip
        self._index(item)
        self._due_ns[item.key] = self._cloud.now_ns + OUTCOME_NS
        self._cloud.outbox.put("reservation", item.key, item)
        self._cloud.done(address, request.id)

    def _problem(self, request: Ask) -> tuple[str, str] | None:
        for segment in request.segments:
            obstacle = self._cloud.topology_state.usable(segment.routers, segment.source, segment.target)
            if obstacle:
                return f"{obstacle} cannot be used now", obstacle
            if not segment.source:
                publication = self._registry.by_id.get(request.variable.variable_id)
                if publication is None or publication.edge != segment.routers[0]:
                    variable = request.variable
                    return f"{variable.publisher}/{variable.variable} is not published at {segment.routers[0]}", ""
                number = request.variable.variable_id
                if publication.variable != request.variable or number in self._registry.undecided:
                    name = f"{request.variable.publisher}/{request.variable.variable}"
                    return f"{name} gets another rate just now; ask again", ""
            if not segment.target:
                subscription = self._subscriptions.by_key.get(request.subscription)
                if subscription is None or subscription.state == ENDING:  # a request that was repeated and is over
                    return f"{self._cloud.role}: nobody waits for {request.subscription} any more", ""
        return None

    def commit(self, address: Address, request: Commit) -> None:
        """Set up what was reserved; answered when every router has it."""
        item = self.by_key.get(request.subscription)
        if item is None:
            reason = f"{self._cloud.role}: nothing is reserved for {request.subscription}"
            self._cloud.fail(address, request.id, "unknown", reason)
        elif item.state == INSTALLED:
            self._cloud.done(address, request.id)
        else:
            self._askers.setdefault(item.key, {})[address, request.id] = None
            self._due_ns.pop(item.key, None)
            if item.key not in self._setups:
                item.state = COMMITTED
                self._cloud.outbox.put("reservation", item.key, item)
                self._set_up(item)

    def release(self, address: Address, request: Release) -> None:
        item = self.by_key.get(request.subscription)
        if item is not None:
            self._remove(item, request.reason)
        self._cloud.done(address, request.id)

    # set-up and removal

    def _set_up(self, item: Reservation, patient: bool = False) -> None:
        def done() -> None:
            item.state = INSTALLED
            self._cloud.outbox.put("reservation", item.key, item)
            self._setups.pop(item.key, None)
            for address, request in self._askers.pop(item.key, {}):
                self._cloud.done(address, request)

        def failed(reason: str, code: str) -> None:
            self._setups.pop(item.key, None)
            for address, request in self._askers.pop(item.key, {}):
                self._cloud.fail(address, request, code, reason)

        path_setup = self._cloud.set_up(item.variable, item.grants, item.segments, done, failed, patient)
        if not path_setup.over:
            self._setups[item.key] = path_setup

    def _remove(self, item: Reservation, reason: str = "") -> None:
        path_setup = self._setups.pop(item.key, None)
        if path_setup is not None:
            path_setup.stop()
        for address, request in self._askers.pop(item.key, {}):
            self._cloud.fail(address, request, "stale", f"released: {reason}")
        if item.state != RESERVED:
            self._cloud.tear_down(item.variable.variable_id, item.segments)
        self._cloud.allocator.release(item.key)
        del self.by_key[item.key]
        self._due_ns.pop(item.key, None)
        keys = self.by_variable[item.variable.variable_id]
        del keys[item.key]
        if not keys:
            del self.by_variable[item.variable.variable_id]
        self._cloud.outbox.drop("reservation", item.key)
        self._cloud.forget(item.variable.variable_id)

    def _index(self, item: Reservation) -> None:
        self.by_key[item.key] = item
        self.by_variable.setdefault(item.variable.variable_id, {})[item.key] = item
        self._cloud.refer(item.variable.variable_id)

    # the end of a subscription seen from here

    def withdrawn(self, variable_id: int, reason: str) -> None:
        """Its publisher is here and has withdrawn the variable: the ancestors release every segment."""
        self._end(self.by_variable.get(variable_id, {}).values(), reason)

    def broken(self, key: Key, reason: str) -> None:
        """A router refuses for good a path that it had."""
        items = self.by_variable.get(key[0], {}).values()
        self._end([item for item in items if any(segment.path == key[1] for segment in item.segments)], reason)

    def _end(self, items: Iterable[Reservation], reason: str) -> None:
        for item in list(items):
            if not item.ending:
                item.ending = reason
                self._cloud.outbox.put("reservation", item.key, item)
                self._unseek(item, reason)

    def _unseek(self, item: Reservation, reason: str) -> None:
        def over(answer: Message) -> None:
            """`Release` comes from the ancestor that allocated it."""

        self._parent.ask(Unseek, over, subscription=item.key, reason=reason)

    def next_tick(self) -> int:
        return next(iter(self._due_ns.values()), NEVER) if self._parent.up else NEVER

    def tick(self, now_ns: int) -> None:
        if self._parent.up and self._due_ns:
            for key in [key for key, due in self._due_ns.items() if due <= now_ns]:
                del self._due_ns[key]
                self._due_ns[key] = now_ns + OUTCOME_NS
                self._parent.send(Outcome(id=0, subscription=key))


def _same(item: Reservation, request: Ask) -> bool:
    return (item.variable.variable_id, item.grants) == (request.variable.variable_id, request.grants) and [
        (segment.routers, segment.before, segment.after, segment.redundant, segment.modes) for segment in item.segments
    ] == [_shape(segment) for segment in request.segments]


def _shape(segment: Segment) -> tuple[tuple[str, ...], str, str, int, int]:
    return segment.routers, segment.source, segment.target, segment.redundant, segment.modes


def _routes(segments: tuple[PathSegment, ...]) -> list[Route]:
    return [
        Route(segment.routers, segment.redundant, segment.modes, segment.before, segment.after) for segment in segments
    ]
