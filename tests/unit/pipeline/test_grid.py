"""The grid over columns is the routers' own."""

from __future__ import annotations

import struct
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from chappe.client.violations import Terms
from chappe.errors import ConfigError
from chappe.pipeline.grid import Grid, positive
from tests.support.decisions import decide, engine_with

rates = st.sampled_from([(1, 10), (3, 100), (7, 30), (1, 1), (5, 17), (3, 100_000_000), (30_000, 1_001_000_000_000)])
stamps = st.one_of(
    st.integers(-(10**6), 10**6), st.integers(1_700_000_000_000_000_000, 1_900_000_000_000_000_000)
)  # fmt: skip


@pytest.mark.spec("SJ-09")
@settings(deadline=None)
@given(rates, st.integers(1, 40), st.lists(stamps, min_size=1, max_size=30))
def test_the_filter_of_a_router_passes_what_counts(rate: tuple[int, int], every: int, created: list[int]) -> None:
    num, den = rate
    grid = Grid(num, den, every)
    engine = engine_with(2, edge=False)
    router = engine.status
    router.future_tolerance_ns = 1 << 62
    router.set_variable(1, num, den, [0])
    router.setup_path(1, 1, 0, [-(-every * den // num)], [3], 0xFFFF)
    terms = Terms(num, den, 1)
    for stamp, period, counts in zip(created, grid.periods(created), grid.counts(created), strict=True):
        record = struct.pack(">qIB3xq", stamp, 1, 0, 0)
        assert bool(decide(engine, 0, record, stamp)[1]) == counts
        assert terms.nominal(stamp) == int(period) * den


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(1, 50), st.lists(stamps, min_size=1, max_size=30))
def test_for_a_whole_period_it_is_the_printed_formula(period: int, every: int, created: list[int]) -> None:
    numbers = Grid(1, period, every).sets(created)
    assert numbers.tolist() == [(stamp + period // 2) // (every * period) for stamp in created]


@settings(deadline=None)
@given(rates, st.integers(1, 40), stamps, st.integers(0, 10**10))
def test_a_set_is_found_at_its_instant_and_instants_can_be_counted(
    rate: tuple[int, int], every: int, start: int, length: int
) -> None:
    grid = Grid(*rate, every)
    number = int(grid.sets(start))
    if rate[1] >= 2 * rate[0]:  # else instants are closer than stamps can be
        assert int(grid.sets(grid.instant(number))) == number
    step = Fraction(grid.every * grid.den, grid.num)
    first, last = -(-start // step), -(-(start + length) // step)
    assert grid.between(start, start + length) == last - first
    assert grid.between(start, start) == grid.between(start, start - 5) == 0


def test_a_rate_of_30_a_second_has_30_periods_in_every_second() -> None:
    grid = Grid.of(Fraction(30))
    begin = 1_800_000_000_000_000_000
    stamps = begin + np.arange(60) * 100_000_000 // 3
    assert (grid.periods(stamps) - int(grid.periods(begin))).tolist() == list(range(60))
    assert Grid.of(Fraction(30), 15).between(begin, begin + 10_000_000_000) == 20
    assert Grid.of(Fraction(30), 15).interval_ns == 500_000_000


@pytest.mark.parametrize("text", ["0", "-1", "a", "", "1/0", "1//2"])
def test_what_is_no_positive_number_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="interval of x"):
        positive("interval of x", text)
    with pytest.raises(ConfigError, match="rate"):
        Grid.of(Fraction(0))
    with pytest.raises(ConfigError, match="1 or more"):
        Grid(1, 1, 0)
    with pytest.raises(ConfigError, match="too fine"):
        Grid(1 << 40, 1 << 40)
