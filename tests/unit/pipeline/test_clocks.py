"""Clocks are corrected where delays prove them wrong, and the truth lies within the uncertainty."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chappe.pipeline.clocks import Basis, Correction, Delay, corrections

BOUND = 1_000
offsets = st.integers(-5_000, 5_000)


@pytest.mark.spec("SJ-11")
@settings(deadline=None)
@given(
    st.lists(offsets, min_size=1, max_size=5),
    st.lists(offsets, min_size=0, max_size=2),
    st.lists(st.integers(0, BOUND), min_size=15, max_size=15),
)
def test_the_true_offset_is_within_the_uncertainty(publishers: list[int], others: list[int], ways: list[int]) -> None:
    """True time is that of the reference archive; every smallest true delay is within the bound."""
    archives = [0, *others]
    delays = [
        Delay(f"archive{a}", f"clock{c}", ways[3 * c + a] + archive - clock, 100 - a)
        for a, archive in enumerate(archives)
        for c, clock in enumerate(publishers)
    ]
    found = corrections(delays, BOUND)
    assert found.reference == "archive0"
    for kind, true in ((found.sources, archives), (found.clocks, publishers)):
        for each, offset in zip(kind.values(), true, strict=True):
            if each.basis is not Basis.TORN:
                assert abs(each.offset_ns - offset) <= each.uncertainty_ns
    assert {each.basis for each in (*found.sources.values(), *found.clocks.values())} <= {Basis.BELIEVED, Basis.SHOWN}


def test_a_clock_is_believed_unless_its_delays_are_impossible() -> None:
    found = corrections(
        [Delay("a", "right", 300, 5), Delay("a", "ahead", -4_000, 5), Delay("a", "behind", 9_000, 5)], BOUND
    )
    assert found.clocks["right"] == Correction(0, 700, Basis.BELIEVED)
    assert found.clocks["ahead"] == Correction(4_500, 500, Basis.SHOWN)
    assert found.clocks["behind"] == Correction(-8_500, 500, Basis.SHOWN)


def test_contradictions_and_strangers_are_said() -> None:
    torn = corrections(
        [Delay("a", "x", 0, 9), Delay("b", "x", 0, 1), Delay("a", "y", 0, 9), Delay("b", "y", 9_000, 1)], 10
    )
    assert torn.sources["b"].basis is Basis.TORN
    assert torn.sources["b"].uncertainty_ns >= 4_500
    apart = corrections([Delay("a", "x", 0, 9), Delay("b", "y", 0, 1)], 10)
    assert apart.sources["b"].basis is Basis.UNKNOWN
    assert corrections([], 10).clocks == {}
