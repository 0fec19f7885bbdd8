"""Which of several nodes a client goes to, and when it moves."""

from __future__ import annotations

import pytest

from chappe.client.attachment import ROUNDS, Ranking


@pytest.mark.parametrize(
    ("times", "present", "order"),
    [
        ([0.010, 0.011], None, [0, 1]),
        ([0.011, 0.010], None, [0, 1]),  # within a fifth: the one named first
        ([0.0010, 0.0001], None, [0, 1]),  # within 2 ms: that is noise
        ([0.050, 0.010], None, [1, 0]),
        ([0.050, 0.010], 0, [1, 0]),
        ([0.011, 0.010], 1, [1, 0]),  # equal: the present one
        ([None, 0.010], None, [1, 0]),
        ([None, None], None, [0, 1]),
        ([0.010, None, 0.100], 1, [0, 2, 1]),
        ([0.050, 0.020, 0.010], None, [2, 1, 0]),
    ],
)
def test_the_nearest_comes_first_and_noise_changes_nothing(
    times: list[float | None], present: int | None, order: list[int]
) -> None:
    ranking = Ranking(len(times))
    ranking.measured(times)
    assert ranking.order(present) == order


@pytest.mark.spec("MR-008")
def test_a_client_moves_only_after_several_rounds_in_a_row() -> None:
    ranking = Ranking(2)
    for _ in range(ROUNDS - 1):
        ranking.measured([0.060, 0.010], present=0)
        assert ranking.move() is None
    ranking.measured([0.012, 0.010], present=0)  # one good round and the count starts anew
    assert ranking.move() is None
    for _ in range(ROUNDS):
        assert ranking.move() is None
        ranking.measured([0.060, 0.010], present=0)
    assert ranking.move() == 1
    ranking.moved()
    assert ranking.move() is None


def test_of_several_that_are_better_the_nearest_is_taken() -> None:
    ranking = Ranking(3)
    for _ in range(ROUNDS):
        ranking.measured([0.100, 0.050, 0.010], present=0)
    assert ranking.move() == 2


def test_nobody_moves_away_from_a_node_that_was_not_measured() -> None:
    ranking = Ranking(2)
    for _ in range(2 * ROUNDS):
        ranking.measured([None, 0.010], present=0)
    assert ranking.move() is None
