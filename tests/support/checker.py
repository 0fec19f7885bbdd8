"""An independent check of granted routes: disjoint, within their bounds, within every capacity in every mode.

It knows nothing of how they were found: graphs are networkx's, rates are counted another way and in fractions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import combinations, pairwise
from math import lcm
from typing import Protocol

import networkx

from chappe.wire.base import Grant, Variable

MODES = range(16)
ROUNDING = Fraction(1, 10**6)
"""Events or bytes a second by which whole numbers of 1e-9 may be off when a million of them are added."""


ByMode = Sequence[Fraction]


class RouteLike(Protocol):
    """A path in the order of the events, and the modes it is for."""

    @property
    def routers(self) -> Sequence[str]: ...
    @property
    def modes(self) -> int: ...


@dataclass(frozen=True)
class Granted:
    """One subscription as it was granted."""

    variable: Variable
    source: str
    target: str
    routes: Sequence[RouteLike]
    grants: Sequence[Grant | None]
    security: Sequence[int] = (0,) * 16  # by mode


@dataclass
class Network:
    """The deployment that the grants are for."""

    reference_us: float = 150.0
    router_us: float = 60.0
    loaded_us: float = 200.0
    graph: networkx.DiGraph = field(default_factory=networkx.DiGraph)

    def router(self, name: str, events_per_s: float) -> None:
        self.graph.add_node(name, events=Fraction(events_per_s))

    def channel(self, a: str, b: str, bytes_per_s: float, latency_ns: int, security: int = 0) -> None:
        for tail, head in ((a, b), (b, a)):
            self.graph.add_edge(tail, head, bytes=Fraction(bytes_per_s), latency=latency_ns, security=security)

    def delay_ns(self, name: str, load: Fraction) -> float:
        """What a router adds to a latency at this load."""
        return (self.router_us + self.loaded_us * float(load / self.graph.nodes[name]["events"])) * 1000

    def disjoint_paths(self, source: str, target: str, security: int = 0, most: int = 16) -> int:
        """How many paths the graph has that share only their ends; counting stops at `most`."""
        usable = self.graph
        if security:
            usable = networkx.DiGraph((a, b) for a, b, level in self.graph.edges(data="security") if level >= security)
        if source not in usable or target not in usable:
            return 0
        return int(networkx.connectivity.local_node_connectivity(usable, source, target, cutoff=most))


def union_rate(intervals: Iterable[int]) -> Fraction:
    """Share of the whole numbers that are a multiple of one of these: one interval after the other."""
    return _union_rate(frozenset(intervals))


@lru_cache(maxsize=1 << 16)
def _union_rate(intervals: frozenset[int]) -> Fraction:
    kept: list[int] = []
    for interval in sorted(intervals):
        if not any(interval % other == 0 for other in kept):
            kept.append(interval)
    if not kept:
        return Fraction(0)
    *rest, last = kept
    return union_rate(rest) + Fraction(1, last) - union_rate(lcm(other, last) for other in rest)


def rate_of(variable: Variable) -> Fraction:
    """Events a second of its publisher."""
    if variable.rate_num == 0:
        return Fraction(10**9, variable.minimum_ns or 10**9)
    return Fraction(variable.rate_num * 10**9, variable.rate_den)


def problems(network: Network, granted: Mapping[str, Granted], published: Iterable[tuple[str, Variable]]) -> list[str]:
    """Everything that is wrong with these grants, one line each."""
    found = [line for key, one in granted.items() for line in _shape(network, key, one)]
    if found:
        return found
    channels = _channel_events(granted.values())
    routers: dict[str, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 16)
    local: dict[str, Fraction] = defaultdict(Fraction)
    for name, variable in published:
        local[name] += rate_of(variable)
        routers[name] = [load + rate_of(variable) for load in routers[name]]
    for (_, head), events in channels["events"].items():
        routers[head] = [load + more for load, more in zip(routers[head], events, strict=True)]
    found += _channel_problems(network, channels["bytes"])
    found += _router_problems(network, channels["events"], routers, local)
    delays = {name: [network.delay_ns(name, load) for load in routers.get(name, [Fraction(0)] * 16)]
              for name in network.graph}  # fmt: skip
    for key, one in granted.items():
        found += _latency_problems(network, key, one, delays)
    return found


def _shape(network: Network, key: str, one: Granted) -> Iterable[str]:
    """Paths that exist, are secure, and share nothing but their ends in any mode."""
    for route in one.routes:
        path = tuple(route.routers)
        if path[0] != one.source or path[-1] != one.target or len(set(path)) != len(path):
            yield f"{key}: {path} is no simple path from {one.source} to {one.target}"
        if not networkx.is_path(network.graph, path):
            yield f"{key}: {path} leaves the network"
            continue
        needed = max((one.security[mode] for mode in MODES if route.modes >> mode & 1), default=0)
        if any(network.graph.edges[hop]["security"] < needed for hop in pairwise(path)):
            yield f"{key}: {path} is not of security {needed}"
    for mode in MODES:
        grant = one.grants[mode]
        paths = [tuple(route.routers) for route in one.routes if route.modes >> mode & 1]
        if grant is None:
            if paths:
                yield f"{key}: paths in mode {mode}, in which nothing is granted"
            continue
        if one.source != one.target and len(paths) != grant.redundancy:
            yield f"{key}: {len(paths)} paths in mode {mode}, {grant.redundancy} granted"
        for path, other in combinations(paths, 2):
            if set(path[1:-1]) & set(other[1:-1]) or path == other:
                yield f"{key}: {path} and {other} are not disjoint in mode {mode}"


def _channel_events(granted: Iterable[Granted]) -> dict[str, dict[tuple[str, str], list[Fraction]]]:
    """Events and bytes a second of each directed channel, by mode."""
    terms: dict[tuple[str, str], dict[int, list[set[int]]]] = defaultdict(dict)
    variables: dict[int, Variable] = {}
    for one in granted:
        number = one.variable.variable_id
        variables[number] = one.variable
        for route in one.routes:
            for hop in pairwise(route.routers):
                sets = terms[hop].setdefault(number, [set() for _ in MODES])
                for mode in MODES:
                    grant = one.grants[mode]
                    if route.modes >> mode & 1 and grant is not None:
                        sets[mode].add(grant.every)
    events = {hop: [Fraction(0)] * 16 for hop in terms}
    size = {hop: [Fraction(0)] * 16 for hop in terms}
    for hop, streams in terms.items():
        for number, sets in streams.items():
            variable = variables[number]
            bytes_per_event = 24 * (1 + variable.options)
            loads = {frozenset(one): union_rate(one) * rate_of(variable) for one in sets}
            for mode in MODES:
                load = loads[frozenset(sets[mode])]
                events[hop][mode] += load
                size[hop][mode] += load * bytes_per_event
    return {"events": events, "bytes": size}


def _channel_problems(network: Network, loads: Mapping[tuple[str, str], ByMode]) -> Iterable[str]:
    for hop, by_mode in loads.items():
        capacity = network.graph.edges[hop]["bytes"]
        for mode in MODES:
            if by_mode[mode] > capacity + ROUNDING:
                yield f"channel {hop} carries {float(by_mode[mode])} of {float(capacity)} bytes/s in mode {mode}"


def _router_problems(network: Network, channels: Mapping[tuple[str, str], ByMode], routers: Mapping[str, ByMode],
                     local: Mapping[str, Fraction]) -> Iterable[str]:  # fmt: skip
    for name, by_mode in routers.items():
        capacity = network.graph.nodes[name]["events"]
        incoming = [loads for hop, loads in channels.items() if hop[1] == name]
        if max(by_mode) > capacity + ROUNDING:
            yield f"router {name} receives {float(max(by_mode))} of {float(capacity)} events/s"
        for old, new in combinations(MODES, 2):
            total = local.get(name, 0) + sum(max(loads[old], loads[new]) for loads in incoming)
            if total > capacity + ROUNDING:
                yield f"router {name} receives {float(total)} of {float(capacity)} events/s from mode {old} to {new}"


def _latency_problems(network: Network, key: str, one: Granted, delays: Mapping[str, Sequence[float]]) -> Iterable[str]:
    for route in one.routes:
        channels = sum(network.graph.edges[hop]["latency"] for hop in pairwise(route.routers))
        for mode in MODES:
            grant = one.grants[mode]
            if not route.modes >> mode & 1 or grant is None or grant.bound_ns == 0:
                continue
            took = network.reference_us * 1000 + channels + sum(delays[name][mode] for name in route.routers)
            if took > grant.bound_ns + len(route.routers):  # each router's share is rounded to nanoseconds
                yield f"{key}: {tuple(route.routers)} takes {took / 1e6} of {grant.bound_ns / 1e6} ms in mode {mode}"
