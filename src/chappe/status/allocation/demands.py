"""What is asked for and what is granted: demands, routes, plans, refusals, and how requirements are relaxed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from chappe.status.allocation.rates import every_of
from chappe.status.allocation.resources import Usage, modes_of
from chappe.wire.base import Grant, Qos, Variable
from chappe.wire.constants import MODES

Grants = Sequence[Grant | None]
"""16, None outside of the modes of the subscription."""

Attempt = tuple[int, int, int]
"""Interval in published events, latency bound in nanoseconds (0: none), number of disjoint paths."""


@dataclass(frozen=True)
class Demand:
    """A subscription as it is asked for: 16 qualities, None in a mode that it does not live in."""

    variable: Variable
    source: str
    target: str
    qos: tuple[Qos | None, ...]


@dataclass(frozen=True)
class Route:
    """One path in the order of the events, from the publisher's edge to the subscriber's.

    A segment inside one cloud has `before` and `after`: the router of another cloud it comes from and goes to.
    Publisher and subscriber at one edge have one route of that router alone.
    """

    routers: tuple[str, ...]
    redundant: int
    modes: int
    before: str = ""
    after: str = ""

    @property
    def hops(self) -> list[tuple[str, str]]:
        """Its directed channels, those to and from other clouds too."""
        return list(pairwise(name for name in (self.before, *self.routers, self.after) if name))


@dataclass(frozen=True)
class Plan:
    """What can be granted now."""

    routes: tuple[Route, ...]
    grants: tuple[Grant | None, ...]


@dataclass(frozen=True)
class Refusal:
    """Why not; `obstacle` is `router/NAME`, `channel/A/B` (directed) or empty, `best` is what could be granted."""

    reason: str
    code: str = "capacity"
    obstacle: str = ""
    best: tuple[Grant | None, ...] = (None,) * MODES


def usage_of(routes: Sequence[Route], grants: Grants) -> Usage:
    """What the hops of these routes carry, by interval and modes."""
    usage: Usage = {}
    for route in routes:
        terms: dict[int, int] = {}
        for mode in modes_of(route.modes):
            grant = grants[mode]
            if grant is not None:
                terms[grant.every] = terms.get(grant.every, 0) | 1 << mode
        for hop in route.hops:
            carried = usage.setdefault(hop, {})
            for every, modes in terms.items():
                carried[every] = carried.get(every, 0) | modes
    return usage


def groups(qos: Sequence[Qos | None]) -> list[tuple[Qos, int]]:
    """Modes that ask for the same; those that are hardest to serve first, so that the others can share their paths."""
    found: dict[Qos, int] = {}
    for mode, requested in enumerate(qos):
        if requested is not None:
            found[requested] = found.get(requested, 0) | 1 << mode
    return sorted(found.items(), key=lambda item: (-item[0].redundancy, item[0].latency_ns or 1 << 62, item[1]))


def attempts(variable: Variable, qos: Qos) -> Iterator[Attempt]:
    """From what is desired to the worst that is accepted: redundancy is relaxed first, then latency, then interval.

    Larger intervals are multiples of the desired one, so that phases still meet, and the worst one.
    """
    every = every_of(variable, qos.interval_ns)
    worst = max(every, every_of(variable, qos.worst_interval_ns))
    bounds = [qos.latency_ns]
    if qos.latency_ns and qos.worst_latency_ns > qos.latency_ns:
        bounds.append(qos.worst_latency_ns)
    most, least = redundancies(qos)
    while True:
        for bound in bounds:
            for redundancy in range(most, least - 1, -1):
                yield every, bound, redundancy
        if every == worst:
            return
        every = min(2 * every, worst)


def beyond(variable: Variable, qos: Qos) -> Iterator[Attempt]:
    """What comes after the worst that is accepted, in the same order: to report what could be granted."""
    every = max(every_of(variable, qos.interval_ns), every_of(variable, qos.worst_interval_ns))
    bound = max(qos.latency_ns, qos.worst_latency_ns) if qos.latency_ns else 0
    most, least = redundancies(qos)
    for redundancy in range(least - 1, 0, -1):
        yield every, bound, redundancy
    if bound:
        for redundancy in range(most, 0, -1):
            yield every, 0, redundancy
    if variable.rate_num:
        for factor in (4, 16, 256):
            yield factor * every, 0, 1


def redundancies(qos: Qos) -> tuple[int, int]:
    """Number of paths that are desired and that are accepted."""
    most = max(1, qos.redundancy)
    return most, min(most, qos.worst_redundancy or most)
