"""The extrapolator that suits a variable is the one that was off least where values were hidden."""

from __future__ import annotations

import numpy as np
import pytest

from chappe.pipeline.gaps import CANDIDATES, NEEDED, choose

START = 1_800_000_000_000_000_000
STAMPS = START + np.arange(400) * 100_000_000


@pytest.mark.spec("SJ-08")
def test_a_line_a_curve_and_a_level_get_the_function_that_fits() -> None:
    seconds = np.arange(400) / 10
    line = choose(STAMPS, 3 * seconds + 7)
    assert line is not None
    assert line.error == pytest.approx(0, abs=1e-6)
    assert line.gain == pytest.approx(1.0)
    assert line.function != "last"
    curve = choose(STAMPS, np.sin(seconds))
    assert curve is not None
    assert curve.gain > 0.8
    assert curve.error == curve.errors[curve.function] < curve.errors["average"]
    noise = choose(STAMPS, 5 + np.random.default_rng(1).normal(size=400))
    assert noise is not None
    assert noise.function == "average"
    level = choose(STAMPS, np.full(400, 5.0))
    assert level is not None
    assert (level.function, level.gain, level.failed) == ("last", 0.0, 0)


def test_order_repetition_and_what_is_no_number_change_nothing_and_few_values_say_nothing() -> None:
    values = np.sin(np.arange(400) / 10)
    mixed = np.random.default_rng(2).permutation(400)
    stamps = np.concatenate([STAMPS[mixed], STAMPS[:50], [START + 7]])
    assert choose(STAMPS, values) == choose(stamps, np.concatenate([values[mixed], values[:50], [np.nan]]))
    assert choose(STAMPS[: NEEDED + 6], values[: NEEDED + 6]) is None
    assert choose([], []) is None
    assert min(each.points for each in CANDIDATES.values()) == 1
