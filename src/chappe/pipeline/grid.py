"""The routers' own grid over columns: which instants values belong to (GS-060).

A publishing rate is rational: `num` values in `den` nanoseconds. The period of a value is
`floor((created * num + den // 2) / den)`, as in the engine and in `chappe.client.violations.Terms`; a stream of one
value in `every` gets those whose period is a multiple of it. For a whole period P and S = every * P that is the set
`floor((created + P // 2) / S)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from chappe.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column

SECOND_NS = 1_000_000_000
_LARGEST = (1 << 63) - 1

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Instants at which a variable is published (`num` in `den` ns), and which of them count: one in `every`."""

    num: int
    den: int
    every: int = 1

    def __post_init__(self) -> None:
        if self.num < 1 or self.den < 1 or self.every < 1:
            raise ConfigError(f"grid {self.num}/{self.den}, one in {self.every}: all three are 1 or more")
        if self.den * (self.num + 1) > _LARGEST:
            raise ConfigError(f"rate {self.num}/{self.den} a nanosecond: too fine to be counted in 64 bits")

    @classmethod
    def of(cls, rate_hz: Fraction, every: int = 1) -> Grid:
        """The grid of a publishing rate in values a second."""
        if rate_hz <= 0:
            raise ConfigError(f"rate {rate_hz}: a grid needs a rate above 0")
        per_ns = rate_hz / SECOND_NS
        return cls(per_ns.numerator, per_ns.denominator, every)

    @property
    def interval_ns(self) -> float:
        """Between two instants that count."""
        return self.every * self.den / self.num

    def periods(self, created_ns: ArrayLike) -> Whole:
        """The publishing period of each value."""
        created = np.asarray(created_ns, dtype=np.int64)
        whole, rest = np.divmod(created, self.den)  # so that the product below stays in 64 bits
        found: Whole = whole * self.num + (rest * self.num + self.den // 2) // self.den
        return found

    def counts(self, created_ns: ArrayLike) -> NDArray[np.bool_]:
        """Which values pass the filter."""
        passes: NDArray[np.bool_] = self.periods(created_ns) % self.every == 0
        return passes

    def sets(self, created_ns: ArrayLike) -> Whole:
        """The set that each value belongs to; those that do not pass the filter belong to the one before."""
        found: Whole = self.periods(created_ns) // self.every
        return found

    def instant(self, number: int) -> int:
        """When the values of a set were due."""
        return number * self.every * self.den // self.num

    def between(self, from_ns: int, to_ns: int) -> int:
        """How many instants that count lie in a span of time, its end not included."""
        if to_ns <= from_ns:
            return 0
        step = self.every * self.den
        return -(-to_ns * self.num // step) - -(-from_ns * self.num // step)

    def column(self, created: Column) -> Column:
        """`periods` as an expression of Spark."""
        from pyspark.sql import functions as F

        rest = F.pmod(created, F.lit(self.den))
        whole = _div(created - rest, self.den)
        return whole * F.lit(self.num) + _div(rest * F.lit(self.num) + F.lit(self.den // 2), self.den)

    def instant_column(self, number: Column) -> Column:
        """`instant` of a set that is not negative, as an expression of Spark."""
        from pyspark.sql import functions as F

        step = self.every * self.den
        common = gcd(step, self.num)
        step, num = step // common, self.num // common
        rest = F.pmod(number, F.lit(num))
        return _div(number - rest, num) * F.lit(step) + _div(rest * F.lit(step), num)


def _div(dividend: Column, divisor: int) -> Column:
    """Whole division of what is not negative, or has no rest."""
    from pyspark.sql import functions as F

    return F.call_function("div", dividend, F.lit(divisor))


def positive(what: str, text: str) -> Fraction:
    """A number above 0 from `30`, `0.5` or `30000/1001`; ConfigError says what is wrong with which."""
    try:
        number = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        number = Fraction(0)
    if number <= 0:
        raise ConfigError(f"{what} {text!r}: must be a number above 0, such as 30, 0.5 or 30000/1001")
    return number
