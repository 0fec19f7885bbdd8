"""The constants of the latency model from measured runs, beside those of the source."""

from __future__ import annotations

import random

import pytest

from chappe.errors import ChappeError
from chappe.status.allocation.latency import LatencyModel
from chappe.status.allocation.latency_fit import Fit, Run, fit

# Mean latency in ms over 1 to 7 routers, by events a millisecond through each (40, 80, 120, 160 load variables).
MEASURED = {
    17.7: (0.644, 0.986, 1.371, 1.706, 2.083, 2.518, 2.823),
    31.3: (0.652, 1.101, 1.489, 1.831, 2.263, 2.708, 3.149),
    41.0: (0.677, 1.154, 1.559, 1.999, 2.397, 2.867, 3.361),
    49.8: (0.696, 1.235, 1.754, 2.273, 2.730, 3.476, 3.890),
}
SOURCE = Fit(reference_ms=0.419, router_ms=0.227, load_ms=1 / 210)
SUMS = (0.768, 0.53, 0.74, 0.867)  # of the absolute errors by load, as the source prints them


def runs_at(load: float) -> list[Run]:
    return [Run(routers, load, mean) for routers, mean in enumerate(MEASURED[load], 1)]


RUNS = [run for load in MEASURED for run in runs_at(load)]


@pytest.mark.spec("GS-174")
def test_the_constants_of_the_source_miss_its_runs_by_what_it_says() -> None:
    assert len(RUNS) == 28
    assert SOURCE.error_ms(RUNS) == pytest.approx(0.104, abs=0.0006)
    for load, printed in zip(MEASURED, SUMS, strict=True):
        assert 7 * SOURCE.error_ms(runs_at(load)) == pytest.approx(printed, abs=0.005)


@pytest.mark.spec("GS-174")
def test_a_fit_of_the_same_runs_misses_them_by_less() -> None:
    found, error_ms = fit(RUNS)
    assert error_ms <= 0.104
    assert error_ms == pytest.approx(found.error_ms(RUNS))
    assert error_ms < 0.6 * SOURCE.error_ms(RUNS)
    assert 0 < found.reference_ms < found.predict(1, 0.0) < found.predict(1, 49.8) < found.predict(7, 49.8)


@pytest.mark.spec("GS-174")
def test_constants_that_made_the_runs_are_found_again_in_spite_of_noise() -> None:
    made = Fit(reference_ms=0.15, router_ms=0.06, load_ms=0.0004)
    noise = random.Random(7)
    points = [(routers, load) for routers in range(1, 8) for load in (10.0, 50.0, 250.0)]
    exact, error_ms = fit([Run(routers, load, made.predict(routers, load)) for routers, load in points])
    assert error_ms == pytest.approx(0, abs=1e-9)
    assert (exact.reference_ms, exact.router_ms, exact.load_ms) == pytest.approx((0.15, 0.06, 0.0004))
    noisy, error_ms = fit([Run(n, load, made.predict(n, load) + noise.gauss(0, 0.01)) for n, load in points])
    assert error_ms < 0.02
    assert noisy.predict(4, 100.0) == pytest.approx(made.predict(4, 100.0), abs=0.02)


def test_a_fit_becomes_the_latency_model_of_a_deployment() -> None:
    events_per_s = 100_000.0  # of a router
    model = LatencyModel(SOURCE.model(events_per_s))
    took = model.path([(50_000, 100_000)] * 3, [0, 0])
    assert took / 1e6 == pytest.approx(SOURCE.predict(3, 50.0), abs=1e-5)
    assert Fit(-0.1, 0.2, -0.3).model(1000).loaded_us == 0


@pytest.mark.parametrize(
    "runs",
    [
        [],
        RUNS[:2],
        [Run(3, load, 1.0 + load) for load in (1.0, 2.0, 3.0, 4.0)],  # always three routers
        [Run(routers, 5.0, float(routers)) for routers in range(1, 8)],  # always the same load
    ],
)
def test_runs_that_leave_a_constant_open_are_refused(runs: list[Run]) -> None:
    with pytest.raises(ChappeError, match="do not determine the three constants"):
        fit(runs)


def test_a_run_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ChappeError, match="not finite"):
        fit([*RUNS, Run(1, 5.0, float("nan"))])
    with pytest.raises(ChappeError, match="at least one run"):
        SOURCE.error_ms([])
