"""Estimates of missing values, checked against known values and SciPy."""

from __future__ import annotations

import contextlib
import math

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg, stats

from chappe.client._core import ClientCore
from chappe.client._status import StatusEvent, Watch
from chappe.client.extrapolation import Average, Averaged, Custom, Estimator, Polynomial, Rational, bulirsch_stoer
from tests.support.clientpeer import Peer, status

S = 1_000_000_000


@pytest.mark.spec("GS-050")
def test_an_average_is_the_mean() -> None:
    assert Average(4)([-3, -2, -1, 0], [1.0, 2.0, 3.0, 6.0], 1) == 3.0


@pytest.mark.spec("GS-050")
@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
def test_a_polynomial_continues_a_polynomial_of_its_order(order: int) -> None:
    coefficients = [3.0, -2.0, 0.5, 0.25, -0.1][: order + 1]

    def curve(x: float) -> float:
        return sum(factor * x**power for power, factor in enumerate(coefficients))

    x = [-7.0, -5.5, -4.0, -3.0, -1.0, 0.0]
    assert Polynomial(order, points=6)(x, [curve(each) for each in x], 1.0) == pytest.approx(curve(1.0))


@pytest.mark.spec("GS-050")
def test_a_polynomial_of_more_points_than_needed_is_the_best_fit() -> None:
    x, y = [-4.0, -3.0, -2.0, -1.0, 0.0], [1.0, 2.5, 2.0, 4.5, 4.0]
    line = stats.linregress(x, y)
    assert Polynomial(1, points=5)(x, y, 2.0) == pytest.approx(line.intercept + 2 * line.slope)


@pytest.mark.spec("GS-050")
def test_averaged_orders_are_the_mean_of_the_polynomials() -> None:
    x, y = [-3.0, -2.0, -1.0, 0.0], [1.0, 0.0, 2.0, 5.0]
    parts = [Polynomial(order)(x, y, 1.0) for order in (1, 2, 3)]
    assert Averaged((1, 2, 3))(x, y, 1.0) == pytest.approx(sum(parts) / 3)
    assert Averaged((1, 3))(x[:2], y[:2], 1.0) == pytest.approx(Polynomial(1)(x[:2], y[:2], 1.0))


@pytest.mark.spec("GS-050")
@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x: (2 * x + 3) / (x + 5), 1.0),
        (lambda x: 1 / (x + 9) ** 2, 2.0),
        (lambda x: (x * x - 1) / (x * x + 4 * x + 9), 0.5),
        (lambda x: 4 - 3 * x, 3.0),
        (lambda x: 7.5, 3.0),
    ],
)
def test_a_rational_function_is_continued_exactly(function: object, at: float) -> None:
    x = [-4.0, -3.0, -2.0, -1.0, 0.0]
    y = [function(each) for each in x]  # type: ignore[operator]
    assert bulirsch_stoer(x, y, at) == pytest.approx(function(at), rel=1e-9)  # type: ignore[operator]


@pytest.mark.spec("GS-050")
def test_the_recurrence_agrees_with_rational_interpolation_by_linear_equations() -> None:
    """The diagonal function through five points is a quadratic over a quadratic, found by solving for it."""
    x, y = numpy.array([-2.0, -1.4, -1.1, -0.3, 0.0]), numpy.array([1.0, 1.7, 0.6, 2.2, 3.1])
    rows = numpy.column_stack([numpy.ones(5), x, x * x, -y * x, -y * x * x])
    a, b, c, d, e = linalg.solve(rows, y)
    for at in (0.1, 0.45, -0.7):
        expected = (a + b * at + c * at * at) / (1 + d * at + e * at * at)
        assert bulirsch_stoer(list(x), list(y), at) == pytest.approx(expected, rel=1e-6)


@pytest.mark.spec("GS-050")
def test_a_known_case_of_the_textbook() -> None:
    """cot 2.5 degrees from cot 1..5 without 2.5: 22.90376..., where polynomials are far off (Stoer and Bulirsch)."""
    x = [1.0, 2.0, 3.0, 4.0, 5.0]
    y = [1 / math.tan(math.radians(each)) for each in x]
    expected = 1 / math.tan(math.radians(2.5))
    assert bulirsch_stoer(x, y, 2.5) == pytest.approx(expected, rel=1e-6)
    assert abs(Polynomial(4, points=5)(x, y, 2.5) - expected) > 0.1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6), st.floats(0.01, 3))
def test_a_rational_estimate_is_a_number_or_a_clear_refusal(y: list[float], at: float) -> None:
    x = [float(number - len(y) + 1) for number in range(len(y))]
    with contextlib.suppress(ValueError):  # a pole
        assert isinstance(bulirsch_stoer(x, y, at), float)


def test_a_point_that_is_known_is_given_back() -> None:
    assert bulirsch_stoer([0.0, 1.0, 2.0], [5.0, 6.0, 9.0], 1.0) == 6.0
    assert bulirsch_stoer([0.0, 1.0, 2.0], [5.0, 6.0, 9.0], 2.0) == 9.0


@pytest.mark.spec("GS-050")
def test_a_function_of_the_user_gets_seconds_before_the_newest_point() -> None:
    seen: list[object] = []

    def function(x: object, y: object, at: float) -> float:
        seen.append((x, y, at))
        return 1.0

    estimator = Estimator(Custom(function, points=2))
    for second, value in ((1, 5.0), (2, 6.0), (3, 7.0), (2, 99.0)):
        estimator.add(second * S, value)
    assert estimator.at(4 * S) == 1.0
    assert seen == [([-1.0, 0.0], [6.0, 7.0], 1.0)]


def test_an_estimate_that_cannot_be_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no value has come"):
        Estimator(Average()).at(1)
    estimator = Estimator(Polynomial(2))
    estimator.add(1, 1.0)
    with pytest.raises(ValueError, match="needs 3 points, there are 1"):
        estimator.at(2)
    endless = Estimator(Custom(lambda x, y, at: math.inf, 1))
    endless.add(1, 1.0)
    with pytest.raises(ValueError, match="inf"):
        endless.at(2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Average(0),
        lambda: Polynomial(-1),
        lambda: Polynomial(3, 3),
        lambda: Averaged(()),
        lambda: Rational(1),
    ],
)
def test_too_few_points_are_refused_when_it_is_made(make: object) -> None:
    with pytest.raises(ValueError):
        make()  # type: ignore[operator]


@pytest.mark.spec("GS-050")
def test_a_holder_shows_an_estimate_until_a_newer_value_comes() -> None:
    core = ClientCore()
    Peer(core)
    got: list[StatusEvent] = []
    watch = Watch("p", "v", callback=got.append)
    watch.admit(7, "float", 1, S, 1)
    core.watches.add([watch])
    core.clock(1, 1_000)
    core.feed(status((7, 900, 2.0)))
    event = watch.estimate(2.5, 1_900, 2_000)
    assert (event.value, event.extrapolated, watch.value, watch.extrapolated) == (2.5, True, 2.5, True)
    assert (watch.created, watch.received, watch.latency_ns) == (1_900, 2_000, None)
    core.feed(status((7, 800, 1.0)))
    assert watch.extrapolated, "an old value changes nothing"
    core.feed(status((7, 1_890, 3.0)))
    assert (watch.value, watch.created, watch.extrapolated) == (3.0, 1_890, False)
    assert [each.extrapolated for each in got] == [False, False, False]
    assert [each.value for each in watch.take_nowait()] == [], "a callback took them"
    flag = Watch("p", "b")
    flag.admit(8, "bool", 1, S, 1)
    with pytest.raises(TypeError, match="only int and float"):
        flag.estimate(1, 1, 1)
