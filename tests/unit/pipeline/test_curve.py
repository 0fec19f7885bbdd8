"""The Hilbert curve: the golden vector of the specification, its laws, and who owns what."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.pipeline import curve
from chappe.pipeline.curve import Arcs


@pytest.mark.spec("CN-018")
def test_the_golden_boxes_of_the_source() -> None:
    assert curve.runs((4, 0), (7, 3), 3).tolist() == [[48, 63]]
    assert curve.runs((0, 4), (7, 4), 3).tolist() == [[16, 17], [30, 33], [46, 47]]
    owners = Arcs.at([15, 33, 47, 51, 0], 64)
    assert [int(owners.ends[each]) for each in owners.owners(curve.runs((0, 4), (7, 4), 3))] == [33, 47]
    assert [int(owners.ends[each]) for each in owners.owners(curve.runs((4, 0), (7, 3), 3))] == [0, 51]


@pytest.mark.spec("CN-018", "CN-019")
@pytest.mark.parametrize(("dimensions", "bits"), [(1, 5), (2, 4), (3, 3), (4, 2)])
def test_every_place_is_one_point_and_the_next_is_one_step_away(dimensions: int, bits: int) -> None:
    places = np.arange(1 << dimensions * bits)
    points = curve.points(places, dimensions, bits)
    assert (curve.indices(points, bits) == places).all()
    assert (np.abs(np.diff(points, axis=0)).sum(axis=1) == 1).all()


@given(data=st.data(), dimensions=st.integers(1, 3), bits=st.integers(1, 4))
def test_runs_hold_the_box_and_nothing_else(data: st.DataObject, dimensions: int, bits: int) -> None:
    ends = [sorted(data.draw(st.tuples(*[st.integers(0, (1 << bits) - 1)] * 2))) for _ in range(dimensions)]
    low, high = zip(*ends, strict=True)
    runs = curve.runs(low, high, bits)
    every = curve.points(np.arange(1 << dimensions * bits), dimensions, bits)
    inside = np.flatnonzero(((every >= low) & (every <= high)).all(axis=1))
    held = np.concatenate([np.arange(first, last + 1) for first, last in runs])
    assert held.tolist() == inside.tolist()
    assert (runs[1:, 0] > runs[:-1, 1] + 1).all()  # as few runs as there can be


def test_arcs_share_the_whole_curve() -> None:
    arcs = Arcs.at([10, 40, 41], 64)
    assert arcs.owner([0, 10, 11, 40, 41, 42, 63]).tolist() == [0, 0, 1, 1, 2, 0, 0]
    assert arcs.shares.tolist() == [33 / 64, 30 / 64, 1 / 64]
    assert np.bincount(arcs.owner(np.arange(64))).tolist() == [33, 30, 1]
    assert Arcs.equal(4, 64).shares.tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("points", "bits", "said"),
    [([[0, 16]], 4, "from 0 to 15"), ([[-1, 0]], 4, "from 0 to 15"), ([1, 2], 4, "rows"), ([[0] * 8], 8, "bits")],
)
def test_points_outside_say_so(points: list[list[int]], bits: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        curve.indices(points, bits)
    with pytest.raises(ValueError, match="places"):
        Arcs.at([64], 64)
