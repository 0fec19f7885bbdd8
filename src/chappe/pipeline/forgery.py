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
EXACT = 1e-3  # of a period: a publisher with less spread stamps by its grid and not by a clock
LOOSE = 0.1  # of a period: with more spread there is no schedule
PARTS = (1, 2, 3, 4, 5, 10, 60, 100, 1001)  # denominators of rates a second, the usual ones first
DRIFT = 0.05  # of a period, by which a rate may be off over all stamps that show it


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a variable is stamped: `num` times in `den` nanoseconds, at a phase of its period."""

    num: int
    den: int
    phase: float  # of a period, 0 to 1
    spread: float  # of a period


def rate_of(created_ns: ArrayLike) -> tuple[int, int] | None:
    """The rate (num, den) that stamps show, the roundest that fits them all; None if there are too few."""
    stamps = np.unique(np.asarray(created_ns, dtype=np.int64))
    if len(stamps) < LEAST:
        return None
    apart = np.diff(stamps)
    number = np.concatenate(([0], np.cumsum(np.rint(apart / np.median(apart)))))
    passed = (stamps - stamps[0]).astype(np.float64)
    period = _slope(number, passed)
    off = np.abs(passed - period * number - np.median(passed - period * number))
    period = _slope(number[off <= np.median(off) * 4], passed[off <= np.median(off) * 4])
    if not period > 0:
        return None
    drift = DRIFT / max(number[-1], 1)
    for parts in PARTS:
        rate = Fraction(SECOND_NS / period).limit_denominator(parts)
        if rate > 0 and abs(float(rate) * period / SECOND_NS - 1) <= drift:
            per_ns = rate / SECOND_NS
            return per_ns.numerator, per_ns.denominator
    return 1, round(period)


def phases(created_ns: ArrayLike, num: int, den: int) -> Floats:
    """Where in its period each stamp lies, from 0 to 1, without rounding before the last step."""
    rest = np.asarray(created_ns, dtype=np.int64) % den
    return np.array([int(each) * num % den for each in rest] if num * den >> 62 else rest * num % den) / den


def schedule(created_ns: ArrayLike, num: int, den: int) -> Schedule | None:
    """The schedule that most of these stamps keep, by the shortest arc that holds half of them; None if none do."""
    found = np.sort(phases(np.unique(np.asarray(created_ns, dtype=np.int64)), num, den))
    if len(found) < LEAST:
        return None
    half = len(found) // 2 + 1
    around = np.concatenate((found, found + 1))
    lengths = around[half - 1 : half - 1 + len(found)] - found
    at = int(np.argmin(lengths))
    spread = float(lengths[at]) / 2 * 1.4826
    phase = float(np.median(around[at : at + half])) % 1.0
    return Schedule(num, den, phase, spread) if spread <= LOOSE else None


def off_schedule(created_ns: ArrayLike, kept: Schedule) -> Mask:
    """Which stamps the schedule has no room for.

    Where a publisher stamps by its grid these are all that are off it. Where it stamps by a clock they are those off
    the phase whose place is taken by one that is not.
    """
    stamps = np.asarray(created_ns, dtype=np.int64)
    apart = (phases(stamps, kept.num, kept.den) - kept.phase + 0.5) % 1.0 - 0.5
    off: Mask = np.abs(apart) > max(SLACK, SPREADS * kept.spread)
    if kept.spread < EXACT:
        return off
    shifted = stamps - round(kept.phase * kept.den / kept.num)
    place = _rounds(shifted, kept.num, kept.den)
    taken: Mask = np.isin(place, place[~off])
    return off & taken


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
