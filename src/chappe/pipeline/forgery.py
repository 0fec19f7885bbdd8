"""Stamps that no honest publisher gives: off its own schedule, or from a future that has not begun.

A publisher with a rate stamps its values at a phase of its own, exactly or about so. What lies off that phase is not by
itself a forgery, since a publisher that was held up is late; a value more than the schedule has room for is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

SECOND_NS = 1_000_000_000
LEAST = 20  # stamps that show a schedule
SLACK = 0.05  # of a period that a stamp may be off at least
SPREADS = 6.0  # and so many times the usual spread
CAUGHT_UP = 5  # periods, or a second: so far back a value may be meant that comes late
EXACT = 1e-3  # of a period: a publisher with less spread stamps by its grid and not by a clock
LOOSE = 0.1  # of a period: with more spread there is no schedule
PARTS = (1, 2, 3, 4, 5, 10, 60, 100, 1001)  # denominators of rates a second, the usual ones first
NEAR = 0.02  # share by which a rate may differ from what the usual distance of stamps shows


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a variable is stamped: `num` times in `den` nanoseconds, at a phase of its period."""

    num: int
    den: int
    phase: float  # of a period, 0 to 1
    spread: float  # of a period


def rate_of(created_ns: ArrayLike) -> tuple[int, int] | None:
    """The rate (num, den) that stamps keep best, of round ones and the one that fits them; None if there are too few.

    A publisher that was held up and caught up spoils a fit, but not a round rate near the usual distance.
    """
    stamps = np.unique(np.asarray(created_ns, dtype=np.int64))
    if len(stamps) < LEAST:
        return None
    apart = np.diff(stamps)
    usual = float(np.median(apart))
    number = np.concatenate(([0], np.cumsum(np.rint(apart / usual))))
    fitted = _slope(number, (stamps - stamps[0]).astype(np.float64))
    periods = [usual, fitted] if abs(fitted - usual) <= NEAR * usual else [usual]
    rates = {Fraction(SECOND_NS / period).limit_denominator(parts) / SECOND_NS for period in periods for parts in PARTS}
    near = [each for each in sorted(rates, key=lambda each: ((each * SECOND_NS).denominator, each)) if each > 0
            and abs(float(each) * usual - 1) <= NEAR]  # fmt: skip
    if not near:
        return None
    spreads = [_shortest(np.sort(phases(stamps, each.numerator, each.denominator)))[1] for each in near]
    enough = 1.5 * min(spreads) + EXACT  # of those that fit about as well, the roundest
    best = next(each for each, spread in zip(near, spreads, strict=True) if spread <= enough)
    return best.numerator, best.denominator


def phases(created_ns: ArrayLike, num: int, den: int) -> Floats:
    """Where in its period each stamp lies, from 0 to 1, without rounding before the last step."""
    rest = np.asarray(created_ns, dtype=np.int64) % den
    return np.array([int(each) * num % den for each in rest] if num * den >> 62 else rest * num % den) / den


def schedule(created_ns: ArrayLike, num: int, den: int) -> Schedule | None:
    """The schedule that most of these stamps keep, by the shortest arc that holds half of them; None if none do."""
    found = np.sort(phases(np.unique(np.asarray(created_ns, dtype=np.int64)), num, den))
    if len(found) < LEAST:
        return None
    phase, length = _shortest(found)
    spread = length / 2 * 1.4826
    return Schedule(num, den, phase, spread) if spread <= LOOSE else None


def _shortest(found: Floats) -> tuple[float, float]:
    """The middle and the length of the shortest arc that holds half of these phases, which are sorted."""
    half = len(found) // 2 + 1
    around = np.concatenate((found, found + 1))
    lengths = around[half - 1 : half - 1 + len(found)] - found
    at = int(np.argmin(lengths))
    return float(np.median(around[at : at + half])) % 1.0, float(lengths[at])


def off_schedule(created_ns: ArrayLike, kept: Schedule) -> Mask:
    """Which stamps the schedule has no room for.

    Where a publisher stamps by its grid these are all that are off it. Where it stamps by a clock it may have been held
    up, and then have caught up: those off the phase for which no place is empty, neither their own nor one shortly
    before. What came before the first is not known, and counts as empty.
    """
    stamps = np.asarray(created_ns, dtype=np.int64)
    apart = (phases(stamps, kept.num, kept.den) - kept.phase + 0.5) % 1.0 - 0.5
    off: Mask = np.abs(apart) > max(SLACK, SPREADS * kept.spread)
    if kept.spread < EXACT:
        return off
    shifted = stamps - round(kept.phase * kept.den / kept.num)
    place = _rounds(shifted, kept.num, kept.den)
    back = max(CAUGHT_UP, round(SECOND_NS * kept.num / kept.den))
    first, taken = int(place.min()), set(place[~off].tolist())
    for at in np.flatnonzero(off)[np.argsort(stamps[off], kind="stable")].tolist():
        own = int(place[at])
        empty = own if own not in taken else next((k for k in range(own - back, own) if k not in taken), None)
        if empty is not None:
            off[at] = False
            if empty >= first:
                taken.add(empty)
    return off


def far_future(created_ns: ArrayLike, received_ns: ArrayLike, ahead_ns: int) -> Mask:
    """Which stamps are later than their arrival by more than clocks may differ (GS-106)."""
    created, received = np.asarray(created_ns, dtype=np.int64), np.asarray(received_ns, dtype=np.int64)
    late: Mask = created > np.minimum(received, np.iinfo(np.int64).max - ahead_ns) + ahead_ns
    return late


def _slope(number: Floats, passed: Floats) -> float:
    across = number - number.mean()
    total = float(across @ across)
    return float(across @ (passed - passed.mean())) / total if total else 0.0


def _rounds(created_ns: Numbers, num: int, den: int) -> Numbers:
    """The period nearest to each stamp: `floor((created * num + den / 2) / den)` in 64 bits."""
    whole, rest = np.divmod(created_ns, den)
    if num * den >> 62:
        part = np.array([(int(each) * num + den // 2) // den for each in rest], dtype=np.int64)
    else:
        part = (rest * num + den // 2) // den
    return whole * num + part
