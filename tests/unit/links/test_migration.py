"""Constraints with thresholds on the way out and on the way back."""

from __future__ import annotations

import math
import random

import pytest

from chappe.links.migration import Constraint, LossRounds, Migration


@pytest.mark.spec("MR-040", "MR-041")
def test_loss_above_five_per_cent_for_three_rounds_moves_and_below_one_for_thirty_returns() -> None:
    migration = Migration(Constraint())
    assert [migration.judge(loss) for loss in (0.06, 0.2, 0.04, 0.06, 0.06)] == [None] * 5
    assert migration.judge(0.051) == "leave"
    assert migration.reason() == "loss 5.1%, above 5% for 3 rounds"
    assert [migration.judge(0.9) for _ in range(10)] == [None] * 10
    assert [migration.judge(0.0) for _ in range(29)] == [None] * 29
    assert migration.judge(0.02) is None  # one bad round, and counting starts anew
    assert [migration.judge(0.009) for _ in range(29)] == [None] * 29
    assert migration.judge(0.0) == "return"
    assert migration.reason() == "loss 0.0%, below 1% for 30 rounds"
    assert not migration.away


def test_between_the_thresholds_nothing_changes_and_rounds_without_a_value_do_not_count() -> None:
    migration = Migration(Constraint(enter_rounds=2))
    assert [migration.judge(value) for value in (0.5, math.nan, 0.5)] == [None, None, "leave"]
    assert all(migration.judge(0.03) is None for _ in range(1000))
    assert migration.away


def test_a_constraint_that_would_flap_is_refused() -> None:
    with pytest.raises(ValueError, match="leave"):
        Constraint(enter=0.01, leave=0.05)


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.1, 0.5])
def test_rounds_add_up_to_the_true_loss(loss: float) -> None:
    rng = random.Random(7)
    rounds, found = LossRounds(), []
    newest = accepted = 0
    for sent in range(1, 20_001):
        if rng.random() >= loss:
            newest, accepted = sent, accepted + 1
        if sent % 7 == 0:
            value = rounds.report(newest, accepted, sent)
            if value is not None:
                found.append(value)
    assert abs(sum(found) / len(found) - loss) < 0.02


def test_when_nothing_arrives_all_is_lost_and_few_datagrams_say_nothing() -> None:
    rounds = LossRounds(least=20)
    assert rounds.report(0, 0, 10) is None
    assert rounds.report(0, 0, 40) == 1.0
    assert rounds.report(0, 0, 41) is None
    assert rounds.report(60, 20, 60) == pytest.approx(2 / 3)


def test_what_cannot_be_true_is_not_believed() -> None:
    rounds = LossRounds(least=5)
    assert rounds.report(10, 10, 9) is None  # more than was sent
    assert rounds.report(10, 11, 20) is None  # more accepted than seen
    assert rounds.report(10, 9, 20) == pytest.approx(0.1)
    assert rounds.report(5, 9, 20) is None  # backwards
    assert rounds.report(20, 8, 20) is None
