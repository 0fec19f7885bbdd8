"""The simulated phasors: what each variable is worth in each round, known to publisher and subscribers alike."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import dataclass
from fractions import Fraction

PUBLISHER = "pmu"
VARIABLES = 200
RATE = Fraction(30)  # a second and variable: a period that no number of nanoseconds is
NAMES = [f"bus-{number:03}" for number in range(VARIABLES)]
NORMAL, EMERGENCY = 0, 1  # modes
ALERT = ("grid", "alert")  # an alert: its value is the round it was made in
ALERT_EVERY = 10  # rounds
TOTAL = ("grid", "total")  # condensed: the sum of the first SUMMED variables
SUMMED = 10


@dataclass(frozen=True, slots=True)
class Speed:
    """One of how many values a watcher asks for by mode (0: it is not in that mode), over how many paths."""

    normal: int
    emergency: int
    redundancy: int = 1

    def every(self, mode: int) -> int:
        return self.emergency if mode == EMERGENCY else self.normal


SPEEDS = {"full": Speed(1, 1, redundancy=2), "third": Speed(3, 1), "tenth": Speed(10, 0)}

_NOISE = random.Random(1792)
_SINES = [math.sin(2 * math.pi * step / 4096) for step in range(4096)]
_ERRORS = [_NOISE.gauss(0, 0.01) for _ in range(4093)]


def stamp(number: int) -> int:
    """The time of a round, in ns since 1970: 30 of them are exactly a second."""
    return number * 100_000_000 // 3


def round_of(created: int) -> int:
    """The round of a time stamp, by the rule of the filter: floor(created · rate + 1/2)."""
    return (created * 3 + 50_000_000) // 100_000_000


def value(place: int, number: int) -> float:
    """A sine with noise; the same wherever it is computed, so that a subscriber knows what must arrive."""
    return _SINES[(number * 7 + place * 13) % 4096] + _ERRORS[(number * 31 + place * 17) % 4093]


def values(number: int) -> array[float]:
    """All variables in one round."""
    return array("d", [value(place, number) for place in range(VARIABLES)])


def total(_: int, number: int) -> float:
    """The condensed value of a round."""
    return math.fsum(value(place, number) for place in range(SUMMED))


def alert(_: int, number: int) -> float:
    """The value of the alert of a round."""
    return number
