"""Routes for one demand: enough disjoint ones, within the bound, over what is free, and the cheapest of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chappe.netmap import paths
from chappe.netmap.graph import Graph, Path
from chappe.status.promises import Promises
from chappe.status.rates import NANO
from chappe.status.resources import Blocked, Growth, Ledger, Usage, modes_of
from chappe.wire.base import Variable
import itertools


@dataclass(frozen=True, slots=True)
class Wish:
    """What one attempt asks for, in the modes of a mask."""

    variable: Variable
    source: str
    target: str
    modes: int
    every: int
    redundancy: int
    bound_ns: int  # 0: none
    security: int
    avoid: frozenset[str]


@dataclass(frozen=True, slots=True)
class Found:
    """Paths that can be had, and how long the slowest takes, by mode of the wish."""

    paths: tuple[Path, ...]
    latency_ns: dict[int, int]


def usage_of(found: Iterable[Path], every: int, modes: int) -> Usage:
    """Every hop of these paths at one interval."""
    return {hop: {every: modes} for path in found for hop in itertools.pairwise(path)}


class Planner:
    """Searches paths over a ledger that it never changes."""

    def __init__(self, ledger: Ledger, promises: Promises) -> None:
        self._ledger = ledger
        self._promises = promises

    def find(self, wish: Wish) -> Found | Blocked:
        """Paths for the wish, or why there are none."""
        if missing := self._missing(wish):
            return missing
        if wish.source == wish.target:
            return self._checked(wish, [(wish.source,)])
        graph = self._graph(wish)
        chosen = paths.disjoint(graph, wish.source, wish.target, wish.redundancy)
        if len(chosen) < wish.redundancy:
            return _too_few(wish, len(chosen))
        first = self._checked(wish, chosen)
        if isinstance(first, Found):
            return first
        return self._search(wish, graph, first)

    def _search(self, wish: Wish, graph: Graph, first: Blocked) -> Found | Blocked:
        """The present loads decide: leave out what is full, weigh routers by what they carry."""
        bound = wish.bound_ns or 1 << 62
        room = bound - self._ends(wish)
        least = paths.within(graph, wish.source, wish.target, wish.redundancy, room)
        if least is None:
            reach = paths.least_bound(graph, wish.source, wish.target, wish.redundancy)
            return Blocked("", self._too_slow(wish, (reach or 0) + self._ends(wish)))
        free = Graph({(a, b): weight for (a, b), weight in graph.arcs.items() if self._alone(wish, a, b) is None})
        chosen = paths.within(free, wish.source, wish.target, wish.redundancy, room)
        if chosen is None:
            return next((blocked for path in least for hop in itertools.pairwise(path)
                         if (blocked := self._alone(wish, *hop))), first)  # fmt: skip
        return self._checked(wish, chosen)

    def _alone(self, wish: Wish, a: str, b: str) -> Blocked | None:
        """What stands against one hop by itself."""
        growth = self._ledger.growth(wish.variable, {(a, b): {wish.every: wish.modes}})
        return self._ledger.blocked(growth) or self._promises.broken(growth)

    def _missing(self, wish: Wish) -> Blocked | None:
        for name in (wish.source, wish.target):
            router = self._ledger.routers.get(name)
            if router is None or not router.present:
                return Blocked(f"router/{name}", f"the router {name} is not known")
            if not router.up:
                return Blocked(f"router/{name}", f"the router {name} is down")
            if f"router/{name}" in wish.avoid:
                return Blocked(f"router/{name}", f"the router {name} has no room left")
        return None

    def _graph(self, wish: Wish) -> Graph:
        """What is up, secure enough and not to be avoided, with latencies at the present loads."""
        arcs = {}
        for (a, b), channel in self._ledger.channels.items():
            tail, head = self._ledger.routers.get(a), channel.b
            if not (channel.present and channel.up and channel.security >= wish.security and head.present and head.up):
                continue
            if tail is None or not tail.present or not tail.up:
                continue
            if wish.avoid and not wish.avoid.isdisjoint((f"router/{a}", f"router/{b}", channel.name)):
                continue
            delays = head.delays(self._ledger.model)
            arcs[a, b] = channel.latency_ns + max(delays[mode] for mode in modes_of(wish.modes))
        return Graph(arcs)

    def _ends(self, wish: Wish) -> int:
        """Latency that every path of the wish has: its clients and the first router."""
        delays = self._ledger.routers[wish.source].delays(self._ledger.model)
        return self._ledger.model.reference_ns + max(delays[mode] for mode in modes_of(wish.modes))

    def _checked(self, wish: Wish, chosen: Sequence[Path]) -> Found | Blocked:
        growth = self._ledger.growth(wish.variable, usage_of(chosen, wish.every, wish.modes))
        blocked = self._ledger.blocked(growth)
        if blocked is not None:
            return blocked
        latency = self._latency(wish, chosen, growth)
        slowest = max(latency.values())
        if wish.bound_ns and slowest > wish.bound_ns:
            return Blocked("", self._too_slow(wish, slowest))
        return self._promises.broken(growth) or Found(tuple(chosen), latency)

    def _latency(self, wish: Wish, chosen: Sequence[Path], growth: Growth) -> dict[int, int]:
        modes = modes_of(wish.modes)
        found = dict.fromkeys(modes, 0)
        for path in chosen:
            fixed, delays = self.latency(path, growth)
            for mode in modes:
                found[mode] = max(found[mode], fixed + delays[mode])
        return found

    def latency(self, path: Path, growth: Growth | None = None) -> tuple[int, list[int]]:
        """Nanoseconds of clients and channels, and of routers by mode, of a whole path."""
        ledger = self._ledger
        fixed = ledger.model.reference_ns
        for hop in itertools.pairwise(path):
            channel = ledger.channels.get(hop)
            fixed += channel.latency_ns if channel is not None else 0
        return fixed, ledger.delays([ledger.router(name) for name in path], growth)

    def _too_slow(self, wish: Wish, reached_ns: int) -> str:
        paths_ = "a path" if wish.redundancy == 1 else f"{wish.redundancy} disjoint paths"
        return (f"latency: {paths_} from {wish.source} to {wish.target} within {wish.bound_ns / 1e6:.6g} ms cannot be had, "
                f"the best takes {reached_ns / 1e6:.6g} ms")  # fmt: skip


def _too_few(wish: Wish, have: int) -> Blocked:
    if have == 0:
        return Blocked("", f"redundancy: no path leads from {wish.source} to {wish.target}")
    paths_ = "is only one path" if have == 1 else f"are only {have} disjoint paths"
    return Blocked("", f"redundancy: there {paths_} from {wish.source} to {wish.target}, {wish.redundancy} are wanted")


NANO_PER = NANO
