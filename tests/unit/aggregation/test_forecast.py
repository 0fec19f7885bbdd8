from __future__ import annotations

import random

import numpy as np
import pytest

from chappe.aggregation.forecast import forecast


def test_a_short_series_says_nothing() -> None:
    assert forecast([1.0] * 7) is None
    assert forecast([float("nan")] * 100) is None


@pytest.mark.spec("MR-128")
def test_the_forecaster_that_was_right_most_often_speaks() -> None:
    rng = random.Random(3)
    noise = forecast([20 + rng.gauss(0, 1) for _ in range(200)])
    steps = forecast([10.0] * 40 + [50.0] * 40)
    spikes = forecast([90.0 if place % 10 == 5 else 10.0 for place in range(200)])
    assert noise is not None
    assert noise.method in ("mean", "window", "median", "smooth")
    assert noise.value == pytest.approx(20, abs=0.8)
    assert steps is not None
    assert (steps.method, steps.value) == ("last", 50.0)
    assert spikes is not None
    assert (spikes.method, spikes.value) == ("median", 10.0)


@pytest.mark.spec("MR-128")
def test_its_error_is_that_of_its_past_forecasts_and_no_worse_than_the_last_value() -> None:
    rng = random.Random(5)
    for _ in range(20):
        series = np.cumsum([rng.gauss(0, 1) for _ in range(100)]) + rng.uniform(10, 100)
        said = forecast(series)
        assert said is not None
        assert said.error <= float(np.mean(np.abs(np.diff(series)))) + 1e-12
        assert said.judged == 99
