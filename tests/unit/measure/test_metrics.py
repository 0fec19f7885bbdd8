"""The formulas, by the worked examples of the specification and by hand."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from chappe.measure import metrics

EXAMPLE = [1, 1, 2, 1, 1, 0, 1, 10, 1, 2]


@pytest.mark.spec("MR-063")
def test_latency_is_half_the_round_trip_averaged_over_packets() -> None:
    assert metrics.latency_ms(186_000_000) == 93.0
    assert metrics.mean(metrics.latency_ms(np.array([40_000_000, 42_000_000, 44_000_000]))) == 21.0


@pytest.mark.spec("MR-064")
def test_the_deviation_is_that_of_the_population() -> None:
    assert metrics.deviation(EXAMPLE) == pytest.approx(2.72, abs=0.005)
    assert metrics.deviation([7.0]) == 0.0


@pytest.mark.spec("MR-067")
def test_the_worked_example_loses_its_outlier() -> None:
    assert metrics.mean(EXAMPLE) == 2.0
    assert (10 - 2.0) / metrics.deviation(EXAMPLE) == pytest.approx(2.94, abs=0.005)
    out = metrics.outliers(EXAMPLE)
    assert np.flatnonzero(out).tolist() == [7]
    assert metrics.mean(EXAMPLE, ~out) == pytest.approx(1.11, abs=0.005)
    count, mean, deviation, _ = metrics.summary(EXAMPLE)
    assert count == 1
    assert mean == pytest.approx(10 / 9)
    assert deviation == pytest.approx(np.std([1, 1, 2, 1, 1, 0, 1, 1, 2]))


@pytest.mark.spec("MR-067")
def test_the_test_runs_once_only() -> None:
    # Without 100 the 30 would be an outlier too; a second pass would find it.
    samples = [10, 10, 10, 10, 10, 10, 10, 10, 30, 100]
    assert np.flatnonzero(metrics.outliers(samples)).tolist() == [9]
    assert np.flatnonzero(metrics.outliers(samples[:9])).tolist() == [8]


@pytest.mark.spec("MR-067")
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_fewer_than_six_samples_never_lose_an_outlier(count: int) -> None:
    assert not metrics.outliers([1.0] * (count - 1) + [1e6]).any()
    assert metrics.outliers([1.0] * 5 + [1e6]).tolist() == [False] * 5 + [True]


def test_equal_samples_have_no_outlier() -> None:
    assert not metrics.outliers([3.0] * 16).any()


@pytest.mark.spec("MR-065")
def test_rtp_jitter_step_by_step() -> None:
    assert metrics.rtp_jitter_step(0.0, 20.0, 36.0) == 1.0
    assert metrics.rtp_jitter_step(1.0, 36.0, 20.0) == 1.0 + 15.0 / 16
    assert metrics.rtp_jitter([20.0, 36.0, 20.0]) == 1.0 + 15.0 / 16
    assert metrics.rtp_jitter([20.0]) == 0.0


@pytest.mark.spec("MR-065")
def test_rtp_jitter_settles_where_the_printed_formula_diverges() -> None:
    samples = np.random.default_rng(7).uniform(19, 21, 2_000)
    printed = 0.0
    for old, new in itertools.pairwise(samples):
        printed += abs((new - old) - printed) / 16
    assert printed > 1e40
    # The mean difference of two uniform samples is a third of the range.
    assert metrics.rtp_jitter(samples) == pytest.approx(2 / 3, rel=0.5)


def test_relative_jitter_has_no_unit() -> None:
    assert metrics.relative_jitter([10.0, 20.0, 30.0]) == pytest.approx((10 + 0 + 10) / (20 * 3))
    assert metrics.relative_jitter([1.0, 2.0, 3.0]) == pytest.approx(metrics.relative_jitter([10.0, 20.0, 30.0]))
    assert metrics.relative_jitter([0.0, 0.0]) == 0.0


@pytest.mark.spec("MR-066")
def test_loss_is_not_known_before_ten_probes() -> None:
    assert math.isnan(metrics.loss(9, 9))
    assert metrics.loss(10, 1) == 0.1
    assert metrics.loss(100, 5) == 0.05
    both = metrics.loss([5, 50], [0, 5])
    assert math.isnan(both[0])
    assert both[1] == 0.1


def test_many_links_at_once_give_what_each_gives_alone() -> None:
    rng = np.random.default_rng(3)
    windows = rng.exponential(10, (50, 16))
    counts = rng.integers(1, 17, 50)
    valid = metrics.filled(counts, 16)
    together = metrics.summary(windows, valid)
    for row, count in enumerate(counts):
        alone = metrics.summary(windows[row, :count])
        assert [float(values[row]) for values in together] == pytest.approx([float(value) for value in alone])
    assert metrics.rtp_jitter(windows) == pytest.approx([float(metrics.rtp_jitter(window)) for window in windows])


def test_an_empty_window_has_no_mean() -> None:
    for formula in (metrics.mean, metrics.deviation, metrics.relative_jitter):
        assert math.isnan(formula([1.0, 2.0], [False, False]))


def test_two_deviations_of_one_sign_are_a_level_shift() -> None:
    usual = metrics.usual_range_ms(20.0, 0.1, 16)
    assert usual == 2.0  # a tenth of the mean is more than the noise
    high, low, near = (metrics.deviates(sample, 20.0, usual, 16) for sample in (70.0, 10.0, 21.0))
    assert (high, low, near) == (1, -1, 0)
    assert metrics.level_shift(high, high)
    assert metrics.level_shift(low, low)
    assert not metrics.level_shift(high, low)
    assert not metrics.level_shift(high, near)


def test_the_usual_range_is_wide_where_little_is_known() -> None:
    assert metrics.usual_range_ms(20.0, 5.0, 16) == 3 * 1.25 * 5.0
    assert metrics.usual_range_ms(20.0, 5.0, 2) == 3 * 3 * 5.0
    assert metrics.usual_range_ms(0.2, 0.01, 16) == 0.5
    assert metrics.deviates(99.0, 1.0, 0.5, 1) == 0  # one sample is no level


def test_importing_the_formulas_loads_nothing_compiled_of_ours() -> None:
    code = (
        "import sys, chappe.measure.metrics, chappe.measure.cost, chappe.measure.windows\n"
        "ours = [m for n, m in sys.modules.items() if n.split('.')[0] == 'chappe']\n"
        "print([m.__name__ for m in ours if str(getattr(m, '__file__', '')).endswith('.so')])\n"
        "print(sorted({m.__name__.split('.')[1] for m in ours if '.' in m.__name__}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)
    assert done.stdout.splitlines() == ["[]", "['measure']"]


@pytest.mark.parametrize("shape", ["normal", "exponential"])
def test_standard_errors_say_how_far_estimates_are_from_the_truth(shape: str) -> None:
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 1, (4000, 64)) if shape == "normal" else rng.exponential(1, (4000, 64))
    windows = 10 + noise
    mean, deviation, jitter = metrics.mean(windows), metrics.deviation(windows), metrics.relative_jitter(windows)
    latency_error, jitter_error = metrics.standard_errors(mean, deviation, jitter, 64)
    for estimates, errors in ((mean, latency_error), (jitter, jitter_error)):
        spread = float(np.std(estimates))
        assert 0.8 * spread < np.median(errors) < 1.5 * spread
    for few, many in metrics.standard_errors(10.0, 1.0, 0.08, [2, 16]):
        assert few > 5 * many
    assert metrics.standard_errors(0.0, 0.0, 0.0, 4) == (0.0, 0.0)
