"""How much a variable sends: minimal sets of intervals and their exact rate (GS-061, GS-083).

Intervals are counted in published events (`every`): one of so many. That is exact for rates such as 30 a second, which
have no whole period in nanoseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import combinations
from math import lcm
from operator import or_

from chappe.wire.base import Variable
from chappe.wire.constants import ALL_MODES, MODES

SECOND_NS = 1_000_000_000
NANO = 1_000_000_000
"""Loads are whole numbers of 1e-9 events or bytes a second: sums of them are exact and leave nothing behind."""

RECORD_BYTES = 24
EXACT_ELEMENTS = 12
WINDOW_LIMIT = 1 << 20


def is_alert(variable: Variable) -> bool:
    """True if it is published when something happens, not at a rate; an alert passes every filter."""
    return variable.rate_num == 0


def publishing_rate(variable: Variable) -> Fraction:
    """Events a second that its publisher may send; of an alert by its least interval, one a second if it has none."""
    if is_alert(variable):
        return _per_second(1, variable.minimum_ns or SECOND_NS)
    return _per_second(variable.rate_num, variable.rate_den)


@lru_cache(maxsize=1 << 12)
def _per_second(num: int, den: int) -> Fraction:
    return Fraction(num * SECOND_NS, den)


def event_bytes(variable: Variable) -> int:
    """Bytes of one event of it on a channel."""
    return RECORD_BYTES * (1 + variable.options)


def every_of(variable: Variable, interval_ns: int) -> int:
    """The interval rounded down to a multiple of the publishing interval, in published events (GS-061)."""
    if is_alert(variable):
        return 1
    # as the engine does: an interval that was rounded down to a nanosecond (1/3 s) is the multiple that was meant
    return max(1, (interval_ns * variable.rate_num + variable.rate_num - 1) // variable.rate_den)


def interval_of(variable: Variable, every: int) -> int:
    """The nanoseconds of `every` published events, rounded up, so that `every_of` of it is `every` again."""
    if is_alert(variable):
        return 0
    return -(-every * variable.rate_den // variable.rate_num)


def minimal(intervals: Iterable[int]) -> tuple[int, ...]:
    """The elements that are no multiple of another one, ascending: what a filter has to test (GS-067)."""
    found: list[int] = []
    for interval in sorted(set(intervals)):
        if not any(interval % smaller == 0 for smaller in found):
            found.append(interval)
    return tuple(found)


@lru_cache(maxsize=1 << 16)
def rate_of_set(elements: tuple[int, ...]) -> Fraction:
    """The share of published events that passes a minimal set of intervals.

    Exact by inclusion and exclusion up to 12 elements; beyond that exact by counting one common period if that is
    short enough to count, else the sum of the single rates, which is never too low.
    """
    if len(elements) <= EXACT_ELEMENTS:
        return sum(
            (Fraction(-1 if size % 2 == 0 else 1, lcm(*subset))
             for size in range(1, len(elements) + 1) for subset in combinations(elements, size)),
            Fraction(0),
        )  # fmt: skip
    window = lcm(*elements)
    if window <= WINDOW_LIMIT:
        passes = bytearray(window)
        for element in elements:
            passes[::element] = b"\1" * (window // element)
        return Fraction(passes.count(1), window)
    return min(Fraction(1), sum((Fraction(1, element) for element in elements), Fraction(0)))


def share(intervals: Iterable[int]) -> Fraction:
    """The share of published events that passes any of these intervals."""
    return rate_of_set(minimal(intervals))


def marginal(intervals: Collection[int], added: int) -> Fraction:
    """What one more interval adds to the share; 0 for a multiple of one that is there."""
    return share([*intervals, added]) - share(intervals)


@lru_cache(maxsize=1 << 16)
def rates_by_mode(terms: tuple[tuple[int, int], ...], num: int, den: int) -> tuple[int, ...]:
    """Load in each of the 16 modes, in 1e-9 events a second, of (every, modes) pairs on a variable of num/den a second.

    Rounded down, so that what fills a capacity exactly still fits.
    """
    if len(terms) == 1 and terms[0][1] == ALL_MODES:
        return (NANO * num // (terms[0][0] * den),) * MODES
    loads = []
    for mode in range(MODES):
        part = share(every for every, modes in terms if modes >> mode & 1)
        loads.append(NANO * num * part.numerator // (den * part.denominator))
    return tuple(loads)


def burst(streams: Iterable[Iterable[tuple[int, int]]]) -> tuple[int, ...]:
    """How many variables can send in one nominal instant, by mode, which a queue must be able to hold (GS-083).

    `streams` are the (every, modes) pairs of each variable. Filters count from one epoch, so at that instant, and then
    at each common multiple of their intervals, all of a mode meet; alerts may come at any time.
    """
    together = Counter(reduce(or_, (modes for _, modes in terms), 0) for terms in streams)
    return tuple(sum(count for modes, count in together.items() if modes >> mode & 1) for mode in range(MODES))
