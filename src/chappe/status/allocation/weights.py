"""What each hop costs and takes at the present loads, for one stream: the graph that the thorough search runs on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from chappe.graph.graph import Graph
from chappe.status.allocation.fabric import Fabric
from chappe.status.allocation.guarantees import LatencyGuarantees
from chappe.status.allocation.path_request import PathRequest
from chappe.status.allocation.rates import event_bytes, publishing_rate, rates_by_mode
from chappe.status.allocation.resources import Blocked, Channel, Growth, Ledger, Router, modes_of

Hop = tuple[str, str]


class Weights:
    """Hops that can be had by themselves, with their latency (and that of the router at their end) and their cost.

    A hop that carries the stream already costs 1, another one more the less room is left on it.
    """

    def __init__(self, ledger: Ledger, guarantees: LatencyGuarantees, fabric: Fabric, request: PathRequest,
                 graph: Graph, alone: Callable[[PathRequest, Hop], Blocked | None]) -> None:  # fmt: skip
        self._ledger, self._guarantees, self._fabric = ledger, guarantees, fabric
        self._request, self._alone = request, alone
        self._modes = modes_of(request.modes)
        rate = publishing_rate(request.variable)
        self._added = rates_by_mode(((request.every, request.modes),), rate.numerator, rate.denominator)
        self._most = max(self._added)
        self._heads: dict[Router, int] = {}
        self.latency: dict[Hop, int] = {}
        self.cost: dict[Hop, int] = {}
        self._weigh(graph)

    @cached_property
    def by_latency(self) -> Graph:
        """The hops by latency."""
        return Graph(self.latency)

    @cached_property
    def by_cost(self) -> Graph:
        """The hops by cost."""
        return Graph(self.cost)

    def _weigh(self, graph: Graph) -> None:
        request, channels, cost = self._request, self._ledger.channels, self._fabric.cost
        number, needs = request.variable.variable_id, self._most * event_bytes(request.variable)
        for hop in graph.arcs:
            channel = channels[hop]
            if number in channel.streams:
                self._weigh_carried(hop, channel)
                continue
            delay = self._heads.get(channel.b)
            if delay is None:
                delay = self._heads[channel.b] = self._delay(channel)
            full = channel.owned and channel.capacity and channel.top + needs > channel.capacity
            if (full or delay < 0) and self._alone(request, hop) is not None:
                continue
            self.latency[hop] = channel.latency_ns + abs(delay)
            self.cost[hop] = 1 + cost(channel, channel.top)

    def _delay(self, channel: Channel) -> int:
        """Nanoseconds in the router that a new stream enters by this channel; negative if it needs a closer look."""
        router, model = channel.b, self._ledger.model
        most = (
            max(router.events) if len(self._modes) == len(router.events) else max(router.events[m] for m in self._modes)
        )
        delay = model.router(most + self._most, router.capacity)
        crowded = router.owned and router.capacity and router.published + router.peaks + self._most > router.capacity
        if crowded or self._guarantees.broken(Growth(0, ((channel, self._added),), {router: self._added})):
            return -delay
        return delay

    def _weigh_carried(self, hop: Hop, channel: Channel) -> None:
        request, model = self._request, self._ledger.model
        growth = self._ledger.growth(request.variable, {hop: {request.every: request.modes}})
        if self._ledger.blocked(growth) or self._guarantees.broken(growth):
            return
        added = growth.routers.get(channel.b)
        delays = channel.b.delays(model) if added is None else channel.b.delays_after(added, model)
        self.latency[hop] = channel.latency_ns + max(delays[mode] for mode in self._modes)
        self.cost[hop] = 1
        if added is not None:
            self.cost[hop] += 1 + self._fabric.cost(channel, channel.top) * max(added) // max(1, self._most)
