"""What `chappe bench bandwidth` makes of runs, and its simulated grid."""

from __future__ import annotations

import math

import pytest

from bench.bandwidth_runs import MBIT, Line, Run, simulated


def points(*estimates: float) -> list[tuple[float, float]]:
    return [(float(at), estimate * MBIT) for at, estimate in enumerate(estimates)]


def test_right_is_from_when_on_it_stayed_right() -> None:
    line = Line(10, 5)
    assert Run(line, points(math.nan, 10, 5, 9, 11), 0, 0).converged_s == 3
    assert Run(line, points(math.nan, 10, 5, 9, 13), 0, 0).converged_s == math.inf
    assert Run(line, points(10, 11), 0, 0).error == pytest.approx(0.1)
    assert math.isnan(Run(line, [], 0, 0).error)


def test_the_queue_is_a_bandwidth_delay_product() -> None:
    assert Line(100, 20).queue_bytes == 500_000
    assert Line(1, 5).queue_bytes == 32_000


@pytest.mark.spec("MR-136")
@pytest.mark.parametrize("delay_ms", [5.0, 100.0])
@pytest.mark.parametrize("mbit", [1.0, 10.0, 100.0, 1000.0])
def test_simulated_lines_are_found_out(mbit: float, delay_ms: float) -> None:
    run = simulated(Line(mbit, delay_ms), 60.0)
    assert run.error < 0.2
    assert run.converged_s < 60
    assert run.trains <= run.share < 0.02
