"""Trains against a model of a pipe: the estimate is right, in time, and cheap."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from chappe.measure.bandwidth import Estimator, Train, TrainSettings
from tests.unit.measure.pipes import SECOND, Pipe, run

MBIT = 125_000.0
RATES = [1, 3, 10, 32, 100, 320, 1000]
ROUND_TRIPS = [0.005, 0.02, 0.05, 0.1]


def estimator(seed: int = 2) -> Estimator:
    return Estimator(TrainSettings(), random.Random(seed))


def settled(found: list[tuple[float, float]], rate: float) -> float:
    """From when on the estimate stayed within a fifth of the rate."""
    since = math.inf
    for at, estimate in reversed(found):
        if not abs(estimate / rate - 1) < 0.2:
            break
        since = at
    return since


@pytest.mark.spec("MR-136")
@pytest.mark.parametrize("rtt_s", ROUND_TRIPS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("slow_start", [True, False], ids=["tcp", "warm"])
def test_within_a_fifth_in_a_minute_at_two_percent(rate: int, rtt_s: float, slow_start: bool) -> None:
    for noise_s in (0.0, 0.0003):
        pipe = Pipe(rate * MBIT, rtt_s, random.Random(5), slow_start=slow_start, noise_s=noise_s)
        link = estimator()
        found = run(link, pipe, 60)
        assert settled(found, rate * MBIT) < 40
        assert link.spent_bytes <= 0.02 * rate * MBIT * 60


@pytest.mark.parametrize("rate", [3, 30, 300])
def test_without_a_round_trip_from_probes(rate: int) -> None:
    link = estimator()
    assert settled(run(link, Pipe(rate * MBIT, 0.05), 60, probed=False), rate * MBIT) < 40


@pytest.mark.parametrize("rate", [3, 30, 300])
@pytest.mark.parametrize("rtt_s", ROUND_TRIPS)
def test_a_token_bucket_that_passes_the_first_bytes_does_not_deceive(rate: int, rtt_s: float) -> None:
    pipe = Pipe(rate * MBIT, rtt_s, bucket_bytes=int(rate * MBIT / 250) + 10_000)
    link = estimator()
    assert settled(run(link, pipe, 60), rate * MBIT) < 50
    assert link.spent_bytes <= 0.02 * rate * MBIT * 60


@pytest.mark.parametrize("rate", [10, 100, 1000])
@pytest.mark.parametrize("rtt_s", ROUND_TRIPS)
def test_a_queue_of_twenty_milliseconds_is_enough(rate: int, rtt_s: float) -> None:
    link = estimator()
    queue_s = max(0.02, 32_000 / (rate * MBIT))
    assert settled(run(link, Pipe(rate * MBIT, rtt_s, queue_s=queue_s), 60), rate * MBIT) < 40


@pytest.mark.parametrize("rate", [10, 100, 1000])
def test_a_host_with_too_much_to_do_makes_the_estimate_low_not_wild(rate: int) -> None:
    for seed in range(4):
        link = estimator(seed)
        run(link, Pipe(rate * MBIT, 0.05, random.Random(seed), noise_s=0.001), 60)
        assert 0.6 < link.estimate / (rate * MBIT) < 1.3


@pytest.mark.parametrize("rate", [30, 1000])
def test_what_others_use_is_not_available(rate: int) -> None:
    link = estimator()
    run(link, Pipe(rate * MBIT, 0.02, cross=0.3), 60)
    assert 0.5 < link.estimate / (rate * MBIT) < 0.9


@pytest.mark.parametrize(("before", "after"), [(8, 64), (64, 8), (1000, 10), (10, 1000)])
def test_a_sudden_change_is_followed(before: int, after: int) -> None:
    pipe = Pipe(before * MBIT, 0.05, noise_s=0.0001)
    link = estimator()
    assert settled(run(link, pipe, 60), before * MBIT) < 40
    pipe.rate = after * MBIT
    assert settled(run(link, pipe, 90, start_s=160), after * MBIT) < 60


def test_one_wrong_answer_changes_nothing() -> None:
    pipe = Pipe(10 * MBIT, 0.02)
    link = estimator()
    run(link, pipe, 60)
    before, now_ns = link.estimate, 1000 * SECOND
    train = link.next_train(now_ns)
    assert train is not None
    link.trained(train.token, train.bytes // 2, 900_000_000, now_ns + SECOND)
    assert link.estimate == pytest.approx(before, rel=1e-3)


def test_one_long_train_that_comes_late_changes_nothing() -> None:
    """Now and then a train is longer than needed; if that one is slow, another as long must be, too."""
    for late in range(6, 40):
        pipe, link, now_ns = Pipe(10 * MBIT, 0.02), estimator(), 100 * SECOND
        link.travelled(20_000_000)
        for number in range(1, late + 4):
            train = link.next_train(now_ns)
            while train is None:
                now_ns = max(link.next_ns(), now_ns + 1)
                train = link.next_train(now_ns)
            half_bytes, half_ns, answered_s = pipe.send(train.bytes, now_ns / SECOND)
            now_ns = int(answered_s * SECOND)
            link.trained(train.token, half_bytes, int(half_ns * (1.6 if number == late else 1)), now_ns)
            if number >= late:
                assert link.estimate == pytest.approx(10 * MBIT, rel=0.1), f"train {late} of {train.bytes} bytes"


def test_trains_start_at_a_kilobyte_and_grow() -> None:
    sizes: list[int] = []
    link, now_ns = estimator(), 7 * SECOND
    link.travelled(20_000_000)
    while len(sizes) < 6:
        train = link.next_train(now_ns)
        if train is None:
            now_ns = link.next_ns()
            continue
        sizes.append(train.bytes)
        now_ns += 20_000_000
        link.trained(train.token, train.bytes // 2, 1000, now_ns)  # as good as no time
    assert sizes[:3] == [1024, 4096, 11_000]
    assert all(later <= 4 * earlier for earlier, later in itertools.pairwise(sizes))
    assert sizes[-1] > 200_000


def test_the_bucket_holds_back_what_is_not_yet_earned() -> None:
    """A link of which nothing is heard gets the trains of a megabit link at most."""
    link, now_ns, times = estimator(), 7 * SECOND, []
    while now_ns < 127 * SECOND:
        train = link.next_train(now_ns)
        if train is not None:
            times.append(now_ns)
            link.lost(train.token)
        now_ns = max(link.next_ns(), now_ns + 1)
    assert link.spent_bytes <= 1024 + 0.015 * MBIT * 120
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 10 * SECOND


def test_a_train_without_an_answer_is_given_up_and_the_next_is_shorter() -> None:
    link = estimator()
    run(link, Pipe(100 * MBIT, 0.02), 30)
    now_ns = 500 * SECOND
    first = link.next_train(now_ns)
    assert first is not None
    assert link.next_train(now_ns + SECOND) is None
    assert link.next_ns() > now_ns + 5 * SECOND
    now_ns = link.next_ns()
    second = link.next_train(now_ns)
    while second is None:
        now_ns = link.next_ns()
        second = link.next_train(now_ns)
    assert second.bytes == first.bytes // 2
    link.trained(first.token, first.bytes // 2, 10_000_000, now_ns)  # too late
    assert link.refused == 1


@pytest.mark.parametrize(("half_bytes", "half_ns"), [(-1, 5), (10**9, 5), (500, -5)])
def test_answers_that_cannot_be_are_refused(half_bytes: int, half_ns: int) -> None:
    link = estimator()
    assert link.next_train(SECOND) == Train(1, 1024)
    link.trained(1, half_bytes, half_ns, 2 * SECOND)
    assert link.refused == 1
    assert math.isnan(link.estimate)
    link.trained(1, 512, 1_000_000, 2 * SECOND)
    assert link.refused == 1
