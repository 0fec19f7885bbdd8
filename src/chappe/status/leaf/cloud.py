"""What the parts of a leaf broker share: outputs, time, routers, allocation, paths in and out of tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from chappe.machine import NEVER
from chappe.status.allocation.allocation import Allocator, Route
from chappe.status.leaf.agenda import Agenda, PathRefused
from chappe.status.leaf.path_setup import ANSWER_NS, PathSetup, hops
from chappe.status.leaf.routers import Key, Routers
from chappe.status.leaf.state import CounterItem, PathSegment, PendingTeardown
from chappe.status.leaf.topology_state import TopologyState
from chappe.status.machine import Address
from chappe.status.outbox import Outbox
from chappe.status.topology import Topology
from chappe.wire.base import Done, Failed, Grant, Message, Variable

RETURN_NS = 10_000_000_000  # after a restart: how long a path waits for routers that are away
HIGHEST_PATH = (1 << 20) - 1  # a router gives those above to its own clients
BLOCK = 256  # numbers that are made durable at once


class Numbers:
    """Numbers that are never given twice, not even by the broker that comes after this one."""

    def __init__(self, outbox: Outbox, name: str, first: int = 1) -> None:
        self._outbox, self._name = outbox, name
        self._next = first
        self._durable = first

    def restore(self, item: CounterItem | None) -> None:
        if item is not None:
            self._next = self._durable = item.next

    def take(self) -> int:
        number = self._next
        self._next += 1
        if self._next > self._durable:
            self._durable = self._next + BLOCK
            self._outbox.put("counter", self._name, CounterItem(next=self._durable))
        return number


class PathTeardown:
    """A path that is leaving routers; its item stays in the store until all of them have confirmed."""

    def __init__(self, cloud: Cloud, item: PendingTeardown) -> None:
        self._cloud = cloud
        self.item = item
        self._waiting = set(item.routers)

    def start(self) -> None:
        key = (self.item.variable_id, self.item.path)
        for router in self.item.routers:
            self._cloud.routers.unset(router, key, self)

    def confirmed(self, router: str, key: Key) -> None:
        self._waiting.discard(router)
        if not self._waiting:
            self._cloud.torn_down(self.item)

    def refused(self, router: str, key: Key, reason: str) -> None:
        self.confirmed(router, key)

    def lost(self, router: str) -> None:
        """Its command is sent when it is back."""


class Cloud:
    """One cloud under one leaf broker."""

    def __init__(self, role: str, topology: Topology) -> None:
        self.role = role
        self.agenda = Agenda()
        self.outbox = Outbox()
        self.allocator = Allocator(topology.latency_model)
        self.topology_state = TopologyState(role, topology, self.allocator)
        self.routers = Routers(self.outbox, lambda key, reason: self.agenda.add(PathRefused(key, reason)))
        for name in self.topology_state.routers:
            self.routers.add(name)
        self.now_ns = 0
        self.teardowns: dict[Key, PathTeardown] = {}
        self.used: dict[int, int] = {}  # variable id -> paths, publications, floodings and functions that refer to it
        self._next_path: dict[int, int] = {}
        self._setups: deque[PathSetup] = deque()  # by deadline
        self._patient: deque[PathSetup] = deque()  # those with more time, by deadline

    # answers

    def answer(self, to: Address, message: Message) -> None:
        if to:
            self.outbox.send(to, message)

    def done(self, to: Address, request: int) -> None:
        self.answer(to, Done(id=request))

    def fail(self, to: Address, request: int, code: str, reason: str, **fields: Any) -> None:
        self.answer(to, Failed(id=request, code=code, reason=reason, **fields))

    # who refers to a variable id

    def refer(self, variable_id: int) -> None:
        self.used[variable_id] = self.used.get(variable_id, 0) + 1

    def forget(self, variable_id: int) -> None:
        left = self.used[variable_id] - 1
        if left:
            self.used[variable_id] = left
        else:
            del self.used[variable_id]
            self._next_path.pop(variable_id, None)

    # paths

    def number_segments(
        self, variable: Variable, routes: Sequence[Route], like: Sequence[PathSegment] = ()
    ) -> tuple[PathSegment, ...]:
        """Routes with numbers for routers; a route that was there before keeps its number."""
        known = {(segment.routers, segment.before, segment.after): segment.path for segment in like}
        found = []
        for route in routes:
            path = known.pop((route.routers, route.before, route.after), 0)
            path = path or self._number(variable.variable_id, route.routers)
            found.append(PathSegment(path, route.routers, route.redundant, route.modes, route.before, route.after))
        return tuple(found)

    def _number(self, variable_id: int, routers: tuple[str, ...]) -> int:
        """A number that no path of the variable has in these routers, not even one that is leaving them."""
        path = self._next_path.get(variable_id, 1)
        while path > HIGHEST_PATH or any(self.routers.knows(router, (variable_id, path)) for router in routers):
            path = path + 1 if path < HIGHEST_PATH else 1
        self._next_path[variable_id] = path + 1
        return path

    def set_up(
        self, variable: Variable, grants: Sequence[Grant | None], segments: Sequence[PathSegment],
        done: Callable[[], None], failed: Callable[[str, str], None], patient: bool = False,
    ) -> PathSetup:  # fmt: skip
        """Set up paths; `done` or `failed(reason, code)` follows, the first perhaps before this returns."""
        deadline = self.now_ns + (RETURN_NS if patient else ANSWER_NS)
        path_setup = PathSetup(self.routers, list(hops(variable, grants, segments)), done, failed, deadline, patient)
        (self._patient if patient else self._setups).append(path_setup)
        path_setup.start()
        return path_setup

    def tear_down(self, variable_id: int, segments: Sequence[PathSegment]) -> None:
        """Remove paths from routers: durable before the command is sent, which is repeated until it is confirmed."""
        for segment in segments:
            if len(segment.routers) == 1 and not segment.before and not segment.after:
                continue
            item = PendingTeardown(variable_id=variable_id, path=segment.path, routers=segment.routers)
            self.outbox.put("leftover", f"{variable_id}.{segment.path}", item)
            self.restore_teardown(item)
            self.teardowns[variable_id, segment.path].start()

    def restore_teardown(self, item: PendingTeardown) -> None:
        self.teardowns[item.variable_id, item.path] = PathTeardown(self, item)
        self.refer(item.variable_id)
        self.keep_number(item.variable_id, item.path)

    def resume(self) -> None:
        """After a restart: routers may still have what was being removed."""
        for teardown in list(self.teardowns.values()):
            teardown.start()

    def torn_down(self, item: PendingTeardown) -> None:
        if self.teardowns.pop((item.variable_id, item.path), None) is not None:
            self.outbox.drop("leftover", f"{item.variable_id}.{item.path}")
            self.forget(item.variable_id)

    def restore_paths(
        self, variable: Variable, grants: Sequence[Grant | None], segments: Sequence[PathSegment]
    ) -> None:
        """After a restart: routers have these, or get them from whoever goes on with the work."""
        for router, path, _ in hops(variable, grants, segments):
            self.routers.restore(router, (variable.variable_id, path.path), path)
        self.keep_numbers(variable.variable_id, segments)

    def keep_numbers(self, variable_id: int, segments: Sequence[PathSegment]) -> None:
        for segment in segments:
            self.keep_number(variable_id, segment.path)

    def keep_number(self, variable_id: int, path: int) -> None:
        self._next_path[variable_id] = max(self._next_path.get(variable_id, 1), path + 1)

    def next_tick(self) -> int:
        earliest = NEVER
        for setups in (self._setups, self._patient):
            while setups and setups[0].over:
                setups.popleft()
            if setups:
                earliest = min(earliest, setups[0].deadline_ns)
        return earliest

    def tick(self, now_ns: int) -> None:
        """Ends set-ups that take too long."""
        self.now_ns = now_ns
        for setups in (self._setups, self._patient):
            while setups and (setups[0].over or setups[0].deadline_ns <= now_ns):
                setups.popleft().expire()
