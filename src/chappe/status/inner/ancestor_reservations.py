"""What brokers above have reserved on channels of this one (GS-089): asked for, committed and released as of a leaf.

A path that is planned above may lead over channels between children of this broker, which manages their capacity. A
reservation is durable, every message may come twice, and the outcome of one that is not committed is asked for
(GS-088).
"""

from __future__ import annotations

import msgspec

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Allocator
from chappe.status.allocation.demands import Route
from chappe.status.inner.calls import Calls
from chappe.status.inner.netview import NetView
from chappe.status.leaf.state import Item
from chappe.status.leaf.topology_state import pair
from chappe.status.machine import PARENT
from chappe.status.outbox import Outbox
from chappe.wire.base import Done, Failed, Grant, Variable
from chappe.wire.management import Ask, Commit, Outcome, Release, Segment

OUTCOME_NS = 10_000_000_000


class AncestorReservation(Item):
    """Channels of this broker that a subscription allocated above leads over."""

    key: str
    variable: Variable
    grants: tuple[Grant | None, ...]
    segments: tuple[Segment, ...]
    committed: bool = False


class AncestorReservations:
    """Everything that is reserved here for brokers above."""

    def __init__(self, out: Outbox, calls: Calls, view: NetView, allocator: Allocator) -> None:
        self._out = out
        self._calls = calls
        self._view = view
        self._allocator = allocator
        self._due_ns: dict[str, int] = {}  # not committed: when to ask for the outcome, earliest first
        self.by_key: dict[str, AncestorReservation] = {}

    def restore(self, item: AncestorReservation) -> None:
        self.by_key[item.key] = item
        self._reserve(item, force=True)

    def lead(self, now_ns: int) -> None:
        """Go on after a restart: the outcome of what is not committed is asked for at once."""
        self._due_ns = {key: now_ns for key, item in self.by_key.items() if not item.committed}

    # --- requests of the parent -----------------------------------------------------------------------------------

    def ask(self, request: Ask, now_ns: int) -> None:
        """Reserve, and keep it until it is released."""
        item = AncestorReservation(key=request.subscription, variable=request.variable, grants=request.grants,
                           segments=request.segments)  # fmt: skip
        known = self.by_key.get(item.key)
        if known is not None and not _same(known, item):
            self._remove(known)
            known = None
        failed = self._keep(item, now_ns) if known is None else None
        self._out.send(PARENT, msgspec.structs.replace(failed, id=request.id) if failed else Done(id=request.id))

    def _keep(self, item: AncestorReservation, now_ns: int) -> Failed | None:
        for a, b in (segment.routers for segment in item.segments):
            managed = self._view.managed_channels.get(pair(a, b))
            if managed is None or managed.down:
                obstacle = f"channel/{a}/{b}"
                return Failed(id=0, reason=f"{obstacle} cannot be used now", code="unavailable", obstacle=obstacle)
        refused = self._reserve(item)
        if refused is None:
            self.by_key[item.key] = item
            self._due_ns[item.key] = now_ns + OUTCOME_NS
            self._out.put("promise", item.key, item)
        return refused

    def commit(self, request: Commit) -> None:
        item = self.by_key.get(request.subscription)
        if item is None:
            reason = f"{self._view.role}: nothing is reserved for {request.subscription}"
            self._out.send(PARENT, Failed(id=request.id, reason=reason, code="unknown"))
            return
        if not item.committed:
            item.committed = True
            self._due_ns.pop(item.key, None)
            self._out.put("promise", item.key, item)
        self._out.send(PARENT, Done(id=request.id))

    def release(self, request: Release) -> None:
        item = self.by_key.get(request.subscription)
        if item is not None:
            self._remove(item)
        self._out.send(PARENT, Done(id=request.id))

    # --- what follows from them -----------------------------------------------------------------------------------

    def _reserve(self, item: AncestorReservation, force: bool = False) -> Failed | None:
        """The load on own channels; leaves keep latencies below their bounds."""
        grants = [grant and msgspec.structs.replace(grant, bound_ns=0) for grant in item.grants]
        routes = [Route(segment.routers, segment.redundant, segment.modes) for segment in item.segments]
        refusal = self._allocator.reserve(_own(item.key), item.variable, routes, grants, force)
        if refusal is None:
            return None
        return Failed(id=0, reason=refusal.reason, code=refusal.code, obstacle=refusal.obstacle)

    def _remove(self, item: AncestorReservation) -> None:
        self._allocator.release(_own(item.key))
        del self.by_key[item.key]
        self._due_ns.pop(item.key, None)
        self._out.drop("promise", item.key)

    def next_tick(self) -> int:
        return next(iter(self._due_ns.values()), NEVER) if self._calls.parent_up else NEVER

    def tick(self, now_ns: int) -> None:
        if self._calls.parent_up and self._due_ns:
            for key in [key for key, due in self._due_ns.items() if due <= now_ns]:
                del self._due_ns[key]
                self._due_ns[key] = now_ns + OUTCOME_NS
                self._out.send(PARENT, Outcome(id=0, subscription=key, cloud=self._view.role))


def _same(one: AncestorReservation, other: AncestorReservation) -> bool:
    return (one.variable, one.grants, one.segments) == (other.variable, other.grants, other.segments)


def _own(key: str) -> str:
    """Apart from what this broker has decided itself."""
    return f"above/{key}"
