"""The thorough search: every hop at its present load, for when the usual paths are full, crowded or too slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Protocol

from chappe.netmap.cheapest import cheapest
from chappe.netmap.graph import Graph, Path
from chappe.netmap.paths import disjoint, within
from chappe.status.fabric import Fabric
from chappe.status.promises import Promises
from chappe.status.rates import event_bytes, publishing_rate, rates_by_mode
from chappe.status.resources import Blocked, Channel, Growth, Ledger, Loads, Router, modes_of
from chappe.status.wishes import UNBOUNDED, Found, Wish

ROUNDS = 8
ENTRIES = 64


class Checks(Protocol):
    """The planner, as the search needs it."""

    def checked(self, wish: Wish, chosen: Sequence[Path]) -> Found | Blocked: ...
    def alone(self, wish: Wish, hop: tuple[str, str]) -> Blocked | None: ...


class Search:
    """One search for one wish over the hops of a graph; nothing changes meanwhile."""

    def __init__(self, planner: Checks, ledger: Ledger, promises: Promises, fabric: Fabric, wish: Wish,
                 graph: Graph) -> None:  # fmt: skip
        self._planner = planner
        self._ledger, self._promises, self._fabric = ledger, promises, fabric
        self._wish = wish
        self._modes = modes_of(wish.modes)
        rate = publishing_rate(wish.variable)
        self._fresh = rates_by_mode(((wish.every, wish.modes),), rate.numerator, rate.denominator)
        self._heads: dict[Router, int | None] = {}
        self._latency: dict[tuple[str, str], int] = {}
        self._cost: dict[tuple[str, str], int] = {}
        for hop in graph.arcs:
            self._weigh(hop)

    def run(self) -> Found | Blocked | None:
        """Paths, or what stood against the last choice; None if there was none to choose."""
        wish = self._wish
        delays = self._ledger.routers[wish.source].delays(self._ledger.model)
        ends = self._ledger.model.reference_ns + max(delays[mode] for mode in self._modes)
        room = (wish.bound_ns or UNBOUNDED) - ends
        without: set[str] = set()
        last: Blocked | None = None
        for _ in range(ROUNDS):
            answer = self._choose(self._graph(without), room)
            if answer is None or isinstance(answer, Found):
                return answer or last
            last = answer
            if answer.excess_ns:
                room -= answer.excess_ns
            elif answer.obstacle == f"router/{wish.target}":
                return self._entries(room) or last
            elif answer.obstacle == f"router/{wish.source}" or answer.obstacle in without:
                return last
            else:
                without.add(answer.obstacle)
        return last

    def _choose(self, graph: Graph, room: int) -> Found | Blocked | None:
        """The cheapest choice that holds, or what stood against the last one."""
        last: Blocked | None = None
        for chosen in self._choices(graph, room):
            answer = self._planner.checked(self._wish, chosen)
            if isinstance(answer, Found):
                return answer
            last = answer
        return last

    def _choices(self, graph: Graph, room: int) -> Iterator[Sequence[Path]]:
        wish = self._wish
        if wish.redundancy == 1:
            path = cheapest(graph, self._cost, wish.source, wish.target, room)
            if path is not None:
                yield [path]
            return
        by_cost = Graph({hop: self._cost[hop] for hop in graph.arcs})
        cheap = disjoint(by_cost, wish.source, wish.target, wish.redundancy)
        if len(cheap) < wish.redundancy:
            return
        if all(graph.weight(path) <= room for path in cheap):
            yield sorted(cheap, key=graph.weight)
        bounded = within(graph, wish.source, wish.target, wish.redundancy, room)
        if bounded is not None:
            yield bounded

    def _entries(self, room: int) -> Found | None:
        """The target has no room for so many new copies: try to enter it where the stream does already."""
        wish = self._wish
        entries = [hop for hop in self._latency if hop[1] == wish.target]
        new = [hop for hop in entries if self._cost[hop] > 1]
        for size in range(min(len(new), wish.redundancy) - 1, -1, -1):
            if len(entries) - len(new) + size < wish.redundancy:
                break
            for allowed in islice(combinations(new, size), ENTRIES):
                barred = set(new).difference(allowed)
                graph = Graph({hop: weight for hop, weight in self._latency.items() if hop not in barred})
                answer = self._choose(graph, room)
                if isinstance(answer, Found):
                    return answer
        return None

    def _graph(self, without: set[str]) -> Graph:
        if not without:
            return Graph(self._latency)
        return Graph({
            (a, b): weight for (a, b), weight in self._latency.items()
            if without.isdisjoint((f"router/{a}", f"router/{b}", f"channel/{a}/{b}"))
        })  # fmt: skip

    def _weigh(self, hop: tuple[str, str]) -> None:
        """Note latency and cost of a hop, if it can be had by itself."""
        wish, channel = self._wish, self._ledger.channels[hop]
        if wish.variable.variable_id in channel.streams:
            self._weigh_carried(hop, channel)
            return
        head = channel.b
        if head not in self._heads:
            self._heads[head] = self._delay(head, self._fresh, channel)
        delay = self._heads[head]
        if delay is None and self._planner.alone(wish, hop) is None:
            delay = self._slowest(head.delays_after(self._fresh, self._ledger.model))
        if delay is None or not self._fits(hop, channel):
            return
        self._latency[hop] = channel.latency_ns + delay
        self._cost[hop] = 1 + self._fabric.cost(channel, channel.top)

    def _weigh_carried(self, hop: tuple[str, str], channel: Channel) -> None:
        wish = self._wish
        growth = self._ledger.growth(wish.variable, {hop: {wish.every: wish.modes}})
        if self._ledger.blocked(growth) or self._promises.broken(growth):
            return
        added = growth.routers.get(channel.b)
        delays = channel.b.delays(self._ledger.model)
        self._cost[hop] = 1
        if added is not None:
            delays = channel.b.delays_after(added, self._ledger.model)
            part = self._fabric.cost(channel, channel.top) * max(added) // max(1, *self._fresh)
            self._cost[hop] += 1 + part
        self._latency[hop] = channel.latency_ns + self._slowest(delays)

    def _fits(self, hop: tuple[str, str], channel: Channel) -> bool:
        if not channel.owned or channel.capacity == 0:
            return True
        if channel.top + max(self._fresh) * event_bytes(self._wish.variable) <= channel.capacity:
            return True
        return self._planner.alone(self._wish, hop) is None

    def _delay(self, head: Router, added: Loads, channel: Channel) -> int | None:
        """Nanoseconds in a router that gets a new stream; None if that needs a closer look."""
        if head.owned and head.capacity and head.published + head.peaks + max(added) > head.capacity:
            return None
        if self._promises.broken(Growth(0, ((channel, added),), {head: added})):
            return None
        return self._slowest(head.delays_after(added, self._ledger.model))

    def _slowest(self, delays: Sequence[int]) -> int:
        return max(delays[mode] for mode in self._modes)
