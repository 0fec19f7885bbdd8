"""Estimates of values that did not come, from those before (GS-050).

An extrapolator is called with times and values of the last points, oldest first, and the time of the missing value:
`extrapolator(x, y, at)`. Times are seconds before the newest point, so that they stay small. ValueError: it cannot be
estimated.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

Function = Callable[[Sequence[float], Sequence[float], float], float]
TINY = 1e-25  # keeps a rational function from dividing zero by zero
POLE_PARTS = 1e-12  # a denominator this small beside its terms is a pole


class Extrapolator(Protocol):
    """Estimates from the last `points` values."""

    @property
    def points(self) -> int: ...
    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float: ...


def _enough(name: str, points: int, least: int) -> int:
    if points < least:
        raise ValueError(f"{name} needs {least} points or more, not {points}")
    return points


class Average:
    """The mean of the last values."""

    def __init__(self, points: int = 4) -> None:
        self.points = _enough("an average", points, 1)

    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float:
        return math.fsum(y) / len(y)


class Polynomial:
    """The polynomial of an order that fits the last values best, by least squares."""

    def __init__(self, order: int = 2, points: int | None = None) -> None:
        if order < 0:
            raise ValueError(f"the order of a polynomial is 0 or more, not {order}")
        self.order = order
        self.points = _enough(
            f"a polynomial of order {order}", 2 * (order + 1) if points is None else points, order + 1
        )

    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float:
        if len(x) < self.order + 1:
            raise ValueError(f"a polynomial of order {self.order} needs {self.order + 1} points, there are {len(x)}")
        from numpy.polynomial import Polynomial as Fit  # only a client that extrapolates pays for loading it

        return float(Fit.fit(x, y, self.order)(at))


class Averaged:
    """The mean of the polynomials of several orders; those that have too few points are left out."""

    def __init__(self, orders: Sequence[int] = (1, 2, 3), points: int | None = None) -> None:
        if not orders:
            raise ValueError("an average of polynomials has one order or more")
        self.fits = [Polynomial(order) for order in orders]
        self.points = _enough("the highest order", points or 2 * (max(orders) + 1), max(orders) + 1)

    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float:
        able = [fit for fit in self.fits if len(x) > fit.order]
        if not able:
            raise ValueError(f"{len(x)} points are too few for each of the orders")
        return math.fsum(fit(x, y, at) for fit in able) / len(able)


class Rational:
    """The diagonal rational function through the last values, by the recurrence of Bulirsch and Stoer."""

    def __init__(self, points: int = 5) -> None:
        self.points = _enough("a rational function", points, 2)

    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float:
        if len(x) < 2:
            raise ValueError("a rational function needs two points")
        return bulirsch_stoer(x, y, at)


def bulirsch_stoer(x: Sequence[float], y: Sequence[float], at: float) -> float:
    """The value at `at` of the diagonal rational function through the points; ValueError at a pole.

    Corrections `c` and `d` of the tableau are carried from column to column, and the result is the last value plus one
    correction a column. Each is a product of values, so a value of zero would wipe out what its neighbours know: then
    all values are raised first and the result lowered again.
    """
    raised = 2 * max(abs(value) for value in y) if 0.0 in y else 0.0
    return _recurrence(x, [value + raised for value in y], at) - raised


def _recurrence(x: Sequence[float], y: Sequence[float], at: float) -> float:
    last = len(x) - 1
    if at == x[last]:
        return y[last]
    result = y[last]
    c, d = list(y), [value + TINY for value in y]
    for column in range(1, last + 1):
        for row in range(last + 1 - column):
            if at == x[row + column]:
                return y[row + column]
            ratio = (x[row] - at) * d[row] / (x[row + column] - at)
            below = ratio - c[row + 1]
            if abs(below) <= POLE_PARTS * max(abs(ratio), abs(c[row + 1]), TINY):
                if c[row + 1] == d[row]:
                    c[row] = d[row] = 0.0  # neighbours agree: nothing to correct
                    continue
                raise ValueError(f"the rational function has a pole near {at:g}")
            step = (c[row + 1] - d[row]) / below
            d[row] = c[row + 1] * step
            c[row] = ratio * step
        result += d[last - column]
    return result


class Custom:
    """`function(x, y, at)` over the last `points` values."""

    def __init__(self, function: Function, points: int) -> None:
        self.points = _enough("a function", points, 1)
        self._function = function

    def __call__(self, x: Sequence[float], y: Sequence[float], at: float) -> float:
        return self._function(x, y, at)


class Estimator:
    """The last points of one stream, and what an extrapolator makes of them."""

    def __init__(self, extrapolator: Extrapolator) -> None:
        self._extrapolator = extrapolator
        self._points: deque[tuple[int, float]] = deque(maxlen=extrapolator.points)

    def add(self, created_ns: int, value: float) -> None:
        """A value has come; an older one than the newest changes nothing."""
        if not self._points or created_ns > self._points[-1][0]:
            self._points.append((created_ns, float(value)))

    def at(self, nominal_ns: int) -> float:
        """The estimate for an instant; ValueError says why there is none."""
        if not self._points:
            raise ValueError("no value has come yet")
        newest = self._points[-1][0]
        x = [(created - newest) / 1e9 for created, _ in self._points]
        value = float(self._extrapolator(x, [value for _, value in self._points], (nominal_ns - newest) / 1e9))
        if not math.isfinite(value):
            raise ValueError(f"the estimate is {value}")
        return value
