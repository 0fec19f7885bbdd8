"""What brokers have allocated, from their log: events a second of channels and routers over time.

The rate of a set of intervals is that of admission (`chappe.status.allocation.rates`), so what a channel was seen to
carry stands beside what was reserved for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from chappe.client.quality import periods
from chappe.pipeline.brokerlog import History, Hop, Published, Span
from chappe.status.allocation.rates import SECOND_NS, share

Rates = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Allocated(Span):
    """Events a second of one resource while it was so."""

    resource: str  # channel/A/B, router/NAME
    per_s: float


def rates_of(told: History) -> Rates:
    """The publishing rate of each variable that the log names, as it was last."""
    known: Rates = {}
    for published in told.published:
        known[published.variable_id] = published.rate_num, published.rate_den
    for term in told.terms:
        known.setdefault(term.variable_id, (term.rate_num, term.rate_den))
    return known


def allocations(told: History) -> Iterator[Allocated]:
    """Every change of the load that is allocated to a resource, as spans in the order of their ends."""
    sweep = _Sweep(rates_of(told))
    changes: list[tuple[int, int, Hop | Published | None, int]] = []
    spans: list[Hop | Published] = [*told.hops, *told.published]
    for each in spans:
        changes += [(each.from_ns, 1, each, 0), (each.to_ns, -1, each, 0)]
    changes += [(mode.from_ns, 0, None, mode.mode) for mode in told.modes]
    changes.sort(key=lambda change: change[:2])
    for place, (at, step, span, mode) in enumerate(changes):
        if span is None:
            sweep.change_mode(mode)
        else:
            sweep.apply(span, step)
        if place + 1 == len(changes) or changes[place + 1][0] != at:
            yield from sweep.settle(at)


class _Sweep:
    """What is allocated at one time, kept up to date change by change."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._mode = 0
        self._streams: dict[tuple[str, int], Counter[tuple[tuple[int, ...], int]]] = defaultdict(Counter)
        self._published: Counter[tuple[str, int]] = Counter()
        self._loads: dict[str, dict[tuple[str, int], Fraction]] = defaultdict(dict)
        self._touched: set[tuple[str, int]] = set()
        self._since: dict[str, tuple[int, float]] = {}

    def apply(self, span: Hop | Published, step: int) -> None:
        if isinstance(span, Hop):
            if span.source:
                key = f"channel/{span.source}/{span.router}", span.variable_id
                self._streams[key][span.intervals_ns, span.modes] += step
                self._touched.add(key)
        else:
            key = f"router/{span.edge}", span.variable_id
            self._published[key] += step
            self._touched.add(key)

    def change_mode(self, mode: int) -> None:
        if mode != self._mode:
            self._mode = mode
            self._touched.update(self._streams)

    def settle(self, at: int) -> Iterator[Allocated]:
        """The spans that end because something is different from now on."""
        changed = set()
        for key in self._touched:
            resource, variable = key
            if resource.startswith("channel/"):
                load = self._load(key)
                self._loads[resource][key] = load
                router = f"router/{resource.rsplit('/', 1)[1]}"
                self._loads[router][key] = load
                changed.add(router)
            else:
                self._loads[resource][key] = self._full(variable) if self._published[key] > 0 else Fraction(0)
            changed.add(resource)
        self._touched.clear()
        for resource in sorted(changed):
            loads = self._loads[resource]
            total = float(sum(loads.values(), Fraction(0)))
            since, before = self._since.get(resource, (at, 0.0))
            if total != before or resource not in self._since:
                if before > 0 and at > since:
                    yield Allocated(since, at, resource, before)
                self._since[resource] = at, total

    def _load(self, key: tuple[str, int]) -> Fraction:
        num, den = self._rates.get(key[1], (0, 1))
        if num == 0:
            return Fraction(0)
        everys = []
        for (intervals, modes), count in self._streams[key].items():
            if count > 0 and modes >> self._mode & 1:
                everys.append(periods(intervals[self._mode if len(intervals) > 1 else 0], num, den))
        return share(everys) * self._full(key[1]) if everys else Fraction(0)

    def _full(self, variable: int) -> Fraction:
        num, den = self._rates.get(variable, (0, 1))
        return Fraction(num * SECOND_NS, den)
