"""The simulated phasors: what each variable is worth in each round, known to publisher and subscribers alike."""

from __future__ import annotations

import math
import random
from array import array
from fractions import Fraction

PUBLISHER = "pmu"
VARIABLES = 1000
RATE = Fraction(30)  # a second and variable: a period that no number of nanoseconds is
SPEEDS = {"full": 1, "third": 3, "tenth": 10}  # watchers: one of how many values each gets
NAMES = [f"bus-{number:04}" for number in range(VARIABLES)]

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
