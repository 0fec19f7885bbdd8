"""An independent check of what brokers granted: it reads their listings and knows nothing of how they decide."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chappe.status.topology import Topology

RECORD_BYTES = 24


@dataclass(frozen=True)
class Route:
    """One of the redundant paths of a subscription, from edge to edge."""

    key: str
    redundant: int
    variable: tuple[str, str]
    routers: tuple[str, ...]
    intervals_ms: tuple[float | None, ...]


def joined(rows: Iterable[Mapping[str, Any]]) -> list[Route]:
    """Whole routes from the `paths` rows of all leaf brokers: segments follow each other over `before` and `after`."""
    pieces: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        pieces[row["key"], row["redundant"]].append(row)
    routes = []
    for (key, redundant), segments in pieces.items():
        by_start = {segment["routers"][0]: segment for segment in segments}
        (first,) = [segment for segment in segments if not segment["before"]]
        routers, at = list(first["routers"]), first
        while at["after"]:
            at = by_start[at["after"]]
            routers += at["routers"]
        named = (str(first["publisher"]), str(first["variable"]))
        routes.append(Route(key, redundant, named, tuple(routers), tuple(first["intervals_ms"])))
    return routes


def problems(topology: Topology, routes: Sequence[Route], latency_ms: float, redundancy: int) -> list[str]:
    """What is wrong with a set of granted routes, one line each."""
    channels = {frozenset(channel.between): channel for channel in topology.channel}
    found = []
    by_key: dict[str, list[Route]] = defaultdict(list)
    for route in routes:
        by_key[route.key].append(route)
        hops = [frozenset(pair) for pair in pairwise(route.routers)]
        if any(hop not in channels for hop in hops):
            found.append(f"{route.key}: {route.routers} uses a channel that does not exist")
        elif sum(channels[hop].latency_ms for hop in hops) > latency_ms:
            found.append(f"{route.key}: {route.routers} is slower than {latency_ms:g} ms")
        if len(set(route.routers)) != len(route.routers):
            found.append(f"{route.key}: {route.routers} visits a router twice")
    for key, members in by_key.items():
        ends = {(route.routers[0], route.routers[-1]) for route in members}
        inner = [name for route in members for name in route.routers[1:-1]]
        if len(ends) != 1:
            found.append(f"{key}: its paths have different ends {ends}")
        if len(inner) != len(set(inner)):
            found.append(f"{key}: its paths share a router")
        if len(members) != redundancy and all(len(route.routers) > 1 for route in members):
            found.append(f"{key}: {len(members)} paths, {redundancy} were granted")
    return found + _overloaded(topology, routes)


def _overloaded(topology: Topology, routes: Sequence[Route]) -> list[str]:
    """Channels and routers above their capacity in some mode: every variable counted event by event."""
    capacity = {frozenset(channel.between): channel.bytes_per_s for channel in topology.channel}
    wanted: dict[tuple[int, tuple[str, str], tuple[str, str]], set[float]] = defaultdict(set)
    for route in routes:
        for mode, interval in enumerate(route.intervals_ms):
            if interval is not None:
                for hop in pairwise(route.routers):
                    wanted[mode, hop, route.variable].add(interval)
    loads: dict[tuple[int, tuple[str, str]], float] = defaultdict(float)
    received: dict[tuple[int, str], float] = defaultdict(float)
    for (mode, hop, _), intervals in wanted.items():
        rate = _events_per_s(intervals)
        loads[mode, hop] += rate * RECORD_BYTES
        received[mode, hop[1]] += rate
    found = [
        f"channel {a} -> {b}: {load:,.0f} of {capacity[frozenset((a, b))]:,.0f} bytes/s in mode {mode}"
        for (mode, (a, b)), load in loads.items()
        if load > capacity.get(frozenset((a, b)), math.inf)  # that there is none is said by others
    ]
    found += [
        f"router {name}: {load:,.0f} of {topology.routers[name].events_per_s:,.0f} events/s in mode {mode}"
        for (mode, name), load in received.items()
        if load > topology.routers[name].events_per_s
    ]
    return found


def _events_per_s(intervals_ms: set[float]) -> float:
    """Distinct instants of all intervals, counted over their common period."""
    steps = [round(interval * 1_000_000) for interval in intervals_ms]
    whole = math.lcm(*steps)
    if len(steps) == 1:
        return 1e9 / whole
    instants = {instant for step in steps for instant in range(0, whole, step)}
    return len(instants) * 1e9 / whole
