"""Routes for one request: enough disjoint ones, within the bound, over what is free, and cheap (GS-084 to GS-086)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from chappe.graph.disjoint import choose, disjoint, least_bound, within
from chappe.graph.graph import Graph, Path
from chappe.status.allocation.fabric import Fabric
from chappe.status.allocation.guarantees import LatencyGuarantees
from chappe.status.allocation.path_request import UNBOUNDED, FoundPaths, PathRequest, too_few, too_slow
from chappe.status.allocation.resources import Blocked, Growth, Ledger, Router, Usage, modes_of
from chappe.status.allocation.searching import Search
from chappe.status.allocation.weights import Weights
from chappe.wire.constants import MODES

CROWDED = 2
"""Idle candidates count as cheap while present loads make them no more than so many times as dear."""


class Planner:
    """Finds paths over a ledger that it never changes."""

    def __init__(self, ledger: Ledger, guarantees: LatencyGuarantees, fabric: Fabric) -> None:
        self._ledger = ledger
        self._guarantees = guarantees
        self._fabric = fabric
        self._latest: tuple[tuple[object, ...], Weights] | None = None

    def find(self, request: PathRequest, known: Sequence[Path] = ()) -> FoundPaths | Blocked:
        """Paths for the request, those that are known already if they serve, or why there are none."""
        missing = self._missing(request)
        if missing is not None:
            return missing
        if request.source == request.target:
            return self.checked(request, [(request.source,)])
        if known:
            serving = choose(self._fabric.latency(request.security), self._serving(request, known), request.redundancy)
            answer = self.checked(request, serving) if serving is not None else None
            if isinstance(answer, FoundPaths):
                return answer
        if request.avoid:
            return self._thorough(request, self._avoiding(request), None)
        return self._usual(request)

    def _serving(self, request: PathRequest, known: Sequence[Path]) -> list[Path]:
        """Those of the known paths that this request could take."""
        arcs = self._fabric.latency(request.security).arcs
        return [
            path for path in known
            if (path[0], path[-1]) == (request.source, request.target) and all(hop in arcs for hop in pairwise(path))
            and request.avoid.isdisjoint(
                name for a, b in pairwise(path) for name in (f"router/{b}", f"channel/{a}/{b}")
            )
        ]  # fmt: skip

    def _usual(self, request: PathRequest) -> FoundPaths | Blocked:
        """The paths kept for this pair of edges, or those that share most with the stream where it flows."""
        ask = request.security, request.source, request.target, request.redundancy
        shared = self._shared(request)
        chosen: Sequence[Path] = self._fabric.widest(*ask) if not shared else self._sharing(request, shared)
        if len(chosen) < request.redundancy:
            return too_few(request, len(chosen))
        fallback, slow = None, False
        for _ in range(2):
            answer = self.checked(request, chosen)
            if isinstance(answer, FoundPaths):
                if not self._crowded(answer):
                    return answer
                fallback = fallback or answer
            else:
                slow = slow or answer.excess_ns > 0
            chosen = self._fabric.fastest(*ask)
        if slow and fallback is None and self._fabric.within(*ask, self._room(request)) is None:
            return self._too_slow(request)
        return self._thorough(request, self._fabric.latency(request.security), fallback)

    def _thorough(self, request: PathRequest, graph: Graph, fallback: FoundPaths | None) -> FoundPaths | Blocked:
        """The present loads decide: leave out what is full, weigh routers by what they carry."""
        delays = self._ledger.routers[request.source].delays(self._ledger.model)
        ends = self._ledger.model.reference_ns + max(delays[mode] for mode in modes_of(request.modes))
        room = (request.bound_ns or UNBOUNDED) - ends
        answer = Search(self._weights(request, graph), request, self.checked).run(room)
        if isinstance(answer, FoundPaths):
            if fallback is not None and self.cost(fallback.growth) <= self.cost(answer.growth):
                return fallback
            return answer
        return fallback or self._why(request, graph, answer)

    def _weights(self, request: PathRequest, graph: Graph) -> Weights:
        """The weights for a request; attempts that differ in redundancy and bound alone share them."""
        one = request.variable
        stream = one.variable_id, one.rate_num, one.rate_den, one.minimum_ns, one.options
        key = self._ledger.version, stream, request.every, request.modes, request.security, request.avoid
        if self._latest is None or self._latest[0] != key:
            weights = Weights(self._ledger, self._guarantees, self._fabric, request, graph, self.alone)
            self._latest = key, weights
        return self._latest[1]

    def _why(self, request: PathRequest, graph: Graph, last: Blocked | None) -> FoundPaths | Blocked:
        """What blocks it: the graph, the bound, or a load."""
        have = disjoint(graph, request.source, request.target, request.redundancy)
        if len(have) < request.redundancy:
            return too_few(request, len(have))
        ask = request.source, request.target, request.redundancy
        if request.avoid:
            idle = within(graph, *ask, self._room(request))
        else:
            idle = self._fabric.within(request.security, *ask, self._room(request))
        if idle is None:
            return self._too_slow(request, graph)
        for path in idle:
            for hop in pairwise(path):
                blocked = self.alone(request, hop)
                if blocked is not None:
                    return blocked
        answer = self.checked(request, idle)
        return answer if isinstance(answer, FoundPaths) or last is None or answer.obstacle else last

    def _room(self, request: PathRequest) -> int:
        """What the bound leaves for the hops of a path where nothing is loaded."""
        return (request.bound_ns or UNBOUNDED) - self._ledger.model.reference_ns - self._ledger.model.router_ns

    def _too_slow(self, request: PathRequest, graph: Graph | None = None) -> Blocked:
        ask = request.source, request.target, request.redundancy
        least = (
            least_bound(graph, *ask)
            if graph is not None and request.avoid
            else self._fabric.least(request.security, *ask)
        )
        return too_slow(request, self._ledger.model.reference_ns + self._ledger.model.router_ns + (least or 0))

    def alone(self, request: PathRequest, hop: tuple[str, str]) -> Blocked | None:
        """What stands against one hop by itself."""
        growth = self._ledger.growth(request.variable, {hop: {request.every: request.modes}})
        return self._ledger.blocked(growth) or self._guarantees.broken(growth)

    def checked(self, request: PathRequest, chosen: Sequence[Path]) -> FoundPaths | Blocked:
        """These paths, if capacities, their bound and all earlier guarantees allow."""
        usage: Usage = {hop: {request.every: request.modes} for path in chosen for hop in pairwise(path)}
        growth = self._ledger.growth(request.variable, usage)
        blocked = self._ledger.blocked(growth)
        if blocked is not None:
            return blocked
        latency, slowest = self._latency(request, chosen, growth)
        took = max(latency.values())
        if request.bound_ns and took > request.bound_ns:
            return too_slow(request, took, self._busiest(slowest))
        return self._guarantees.broken(growth) or FoundPaths(tuple(chosen), latency, growth)

    def cost(self, growth: Growth, idle: bool = False) -> int:
        """Marginal cost: load that is added, weighed by the room that is left (or would be, if idle)."""
        return sum(self._fabric.cost(channel, 0 if idle else channel.top) * max(added)
                   for channel, added in growth.channels)  # fmt: skip

    def classes(self, modes: int) -> list[int]:
        """The modes of a mask, together where every load is the same in them."""
        lists = [router.events for router in self._ledger.routers.values() if router.present]
        lists += [channel.bytes for channel in self._ledger.channels.values() if channel.present]
        if all(loads.count(loads[0]) == MODES for loads in lists):
            return [modes]
        found: dict[tuple[int, ...], int] = {}
        columns = list(zip(*lists, strict=True))
        for mode in modes_of(modes):
            found[columns[mode]] = found.get(columns[mode], 0) | 1 << mode
        return list(found.values())

    def fixed(self, path: Path) -> tuple[tuple[Router, ...], int]:
        """The routers of a path, and the nanoseconds of its clients and channels."""
        ledger = self._ledger
        took = ledger.model.reference_ns
        for hop in pairwise(path):
            channel = ledger.channels.get(hop)
            if channel is not None:
                took += channel.latency_ns
        return tuple(ledger.routers.get(name) or Router(name) for name in path), took

    def _latency(self, request: PathRequest, chosen: Sequence[Path], growth: Growth) -> tuple[dict[int, int], Path]:
        """Of the slowest path, by mode, and which one it is."""
        modes = modes_of(request.modes)
        latency = dict.fromkeys(modes, 0)
        slowest, most = chosen[0], 0
        for path in chosen:
            routers, fixed = self.fixed(path)
            delays = self._ledger.delays(routers, growth)
            for mode in modes:
                took = fixed + delays[mode]
                if took > latency[mode]:
                    latency[mode] = took
                if took > most:
                    slowest, most = path, took
        return latency, slowest

    def _missing(self, request: PathRequest) -> Blocked | None:
        for name in (request.source, request.target):
            router = self._ledger.routers.get(name)
            if router is None or not router.present:
                return Blocked(f"router/{name}", f"the router {name} is not known")
            if not router.up:
                return Blocked(f"router/{name}", f"the router {name} is down")
            if f"router/{name}" in request.avoid:
                return Blocked(f"router/{name}", f"load of the router {name}: it has no room left")
        return None

    def _avoiding(self, request: PathRequest) -> Graph:
        arcs = self._fabric.latency(request.security).arcs
        return Graph({
            (a, b): weight for (a, b), weight in arcs.items()
            if request.avoid.isdisjoint((f"router/{a}", f"router/{b}", f"channel/{a}/{b}"))
        })  # fmt: skip

    def _shared(self, request: PathRequest) -> dict[tuple[str, str], int]:
        """Hops that carry the stream already, as often and in the same modes, and so cost next to nothing."""
        found = {}
        number = request.variable.variable_id
        for hop in self._ledger.carried.get(number, ()):
            for every, modes in self._ledger.channels[hop].streams[number].terms:
                if request.every % every == 0 and request.modes & ~modes == 0:
                    found[hop] = 1
                    break
        return found

    def _sharing(self, request: PathRequest, shared: Mapping[tuple[str, str], int]) -> list[Path]:
        width = self._fabric.width(request.security)
        return disjoint(width, request.source, request.target, request.redundancy, shared)

    def _crowded(self, found: FoundPaths) -> bool:
        return self.cost(found.growth) > CROWDED * self.cost(found.growth, idle=True)

    def _busiest(self, path: Path) -> str:
        """The router of a path that delays most, if any carries a load."""
        routers: list[Router] = [self._ledger.routers[name] for name in path]
        router = max(routers, key=lambda router: max(router.delays(self._ledger.model)))
        return f"router/{router.name}" if max(router.delays(self._ledger.model)) > self._ledger.model.router_ns else ""
