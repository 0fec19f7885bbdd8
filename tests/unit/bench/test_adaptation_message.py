"""From pairs of rounds to what measuring adds to a message."""

from __future__ import annotations

import pytest

from bench.adaptation_message import TIMES, Added


def test_a_tenth_of_what_ten_times_as_many_probes_add() -> None:
    added = Added.of([(10.5e-6, 10e-6)] * 20)
    assert added.percent == pytest.approx(5 / TIMES)
    assert (added.least, added.most) == pytest.approx((5 / TIMES, 5 / TIMES))
    assert (added.often_us, added.without_us) == pytest.approx((10.5, 10))


def test_noise_widens_the_range_and_not_the_median() -> None:
    percents = [*range(-10, 20), 900]
    added = Added.of([((1 + percent / 100) * 1e-5, 1e-5) for percent in percents])
    assert added.percent == pytest.approx(5 / TIMES)
    assert added.least == pytest.approx(0 / TIMES, abs=0.11)
    assert added.most == pytest.approx(10 / TIMES, abs=0.11)
