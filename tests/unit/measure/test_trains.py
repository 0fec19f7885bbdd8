"""Bandwidth of many links of a node at once."""

from __future__ import annotations

import math
import random

import pytest

from chappe.measure.bandwidth import TrainSettings
from chappe.measure.probes import NEVER
from chappe.measure.trains import Trains
from tests.unit.measure.pipes import SECOND, Pipe

MBIT = 125_000.0


@pytest.mark.spec("MR-136")
def test_every_link_gets_its_own_estimate() -> None:
    trains = Trains(TrainSettings(), random.Random(4))
    assert trains.next_ns() == NEVER
    pipes = {link: Pipe(rate * MBIT, 0.03) for link, rate in {1: 2, 2: 20, 3: 200}.items()}
    for link, pipe in pipes.items():
        trains.add(link, 100 * SECOND)
        trains.travelled(link, int(pipe.rtt_s * SECOND))
    answers: list[tuple[int, int, int, int, int]] = []
    now_ns = 100 * SECOND
    while now_ns < 150 * SECOND:
        now_ns = max(now_ns, min([trains.next_ns(), *(answer[0] for answer in answers)]))
        for answer in sorted(answer for answer in answers if answer[0] <= now_ns):
            answers.remove(answer)
            at_ns, link, token, half_bytes, half_ns = answer
            trains.trained(link, token, half_bytes, half_ns, at_ns)
        for link, train in trains.due(now_ns):
            half_bytes, half_ns, answered_s = pipes[link].send(train.bytes, now_ns / SECOND)
            answers.append((int(answered_s * SECOND), link, train.token, half_bytes, half_ns))
    for link, pipe in pipes.items():
        assert trains.estimate(link) == pytest.approx(pipe.rate, rel=0.2)
    assert 0 < trains.spent_bytes() < 0.02 * 50 * sum(pipe.rate for pipe in pipes.values())


def test_a_link_that_is_gone_gets_no_trains() -> None:
    trains = Trains(TrainSettings(), random.Random(4))
    trains.add(1, SECOND)
    [(link, train)] = trains.due(SECOND)
    assert (link, train.bytes) == (1, 1024)
    assert trains.under_way(1)
    assert not trains.under_way(2)
    assert trains.due(2 * SECOND) == []
    trains.remove(1)
    assert 1 not in trains
    assert trains.due(1000 * SECOND) == []
    assert math.isnan(trains.trained(1, train.token, 500, 1000, 3 * SECOND))
    assert math.isnan(trains.estimate(1))


def test_a_train_that_could_not_be_sent_is_tried_again_later() -> None:
    trains = Trains(TrainSettings(), random.Random(4))
    trains.add(1, SECOND)
    [(_, train)] = trains.due(SECOND)
    trains.lost(1, train.token)
    assert not trains.under_way(1)
    assert SECOND < trains.next_ns() < 60 * SECOND
    [(_, again)] = trains.due(trains.next_ns())
    assert again.token != train.token
