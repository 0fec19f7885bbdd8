"""How promises were kept: instants on the grid of the routers that were served, late, or not at all."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from chappe.client.violations import Detector, Terms
from chappe.pipeline.keeping import Kept, Promise, Values, archived_every
from chappe.pipeline.keeping import kept as judged

PERIOD = 100
EMPTY = np.empty(0, np.int64)


def stamps(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64) * PERIOD


def kept(created: np.ndarray, received: np.ndarray, promises: list[Promise], archived: int) -> Kept:
    return judged(Values(created, received, np.zeros(len(created), np.int64)), promises, archived)


def test_gaps_are_counted_on_the_grid_of_the_subscription() -> None:
    created = stamps([*range(20), *range(26, 40)])
    found = kept(created + 7, created + 57, [Promise(0, 4000, 1, PERIOD, 2, 45)], 1)
    assert (found.expected, found.received, found.gaps) == (20, 17, 1)
    assert found.longest_gap_ns == 4 * 2 * PERIOD  # three in a row are missing: 20, 22 and 24
    assert (found.late, found.duplicates) == (17, 0)
    row = found.row()
    assert row["latency_p99_ms"] == row["latency_max_ms"] == pytest.approx(50e-6)


def test_an_archive_that_takes_less_judges_only_what_both_take() -> None:
    created = stamps(list(range(0, 60, 3)))
    assert archived_every(created, 1, PERIOD) == 3
    found = kept(created, created, [Promise(0, 6000, 1, PERIOD, 2, 0)], 3)
    assert (found.expected, found.received, found.gaps, found.late) == (10, 10, 0, None)


def test_an_outage_at_the_end_copies_alerts_and_nothing() -> None:
    created = stamps([0, 1, 2, 2, 2])
    found = kept(created, created + np.array([1, 1, 9, 5, 7]), [Promise(0, 1000, 1, PERIOD, 1, 0)], 1)
    assert (found.expected, found.received, found.gaps, found.longest_gap_ns) == (10, 3, 1, 8 * PERIOD)
    assert (found.duplicates, int(found.latencies_ns.max())) == (2, 5)  # the first copy counts
    two = Values(created, created, np.array([0, 0, 0, 1, 1]))
    assert judged(two, [Promise(0, 1000, 1, PERIOD, 1, 0)], 1).duplicates == 1  # two archives are no copies
    alert = kept(created, created + 1, [Promise(0, 150, 0, 1, 1, 0)], 1)
    assert (alert.expected, alert.received, alert.gaps) == (None, 2, None)
    none = kept(EMPTY, EMPTY, [Promise(0, 500, 1, PERIOD, 1, 9)], 1)
    assert (none.expected, none.received, none.gaps, none.late) == (5, 0, 1, 0)
    assert none.row()["latency_p50_ms"] is None
    assert kept(EMPTY, EMPTY, [], 1).expected is None
    assert archived_every(EMPTY, 1, PERIOD) == 0
    lonely = np.array([1_800_000_000_000_000_000])
    only = kept(lonely, lonely + 3, [Promise(0, 1 << 62, 1, 1, 16, 0)], archived_every(lonely, 1, 1))
    assert (only.expected, only.received, int(only.latencies_ns[0])) == (0, 0, 3)


def test_promises_that_follow_each_other_are_one_subscription() -> None:
    created = stamps(list(range(20)))
    promises = [Promise(0, 1000, 1, PERIOD, 1, 0), Promise(1000, 2000, 1, PERIOD, 5, 3)]
    found = kept(created, created + 4, promises, 1)
    assert (found.expected, found.received, found.late) == (12, 12, 2)


@pytest.mark.spec("SJ-07")
@settings(deadline=None)
@given(st.sets(st.integers(1, 60), min_size=1), st.integers(1, 4), st.sampled_from([(1, PERIOD), (3, 1000)]))
def test_the_violations_of_a_client_are_the_gaps_of_the_report(
    lost: set[int], every: int, rate: tuple[int, int]
) -> None:
    """A client that is told of every value and looks at the clock all the time misses what the report misses."""
    num, den = rate
    detector: Detector[str] = Detector()
    detector.follow("x", Terms(num, den, every, slack_ns=0), 0)
    created = [number * den // num for number in range(64) if number not in lost]
    missed = 0
    for now in range(0, 64 * den // num, 5):
        for each in [stamp for stamp in created if now <= stamp < now + 5]:
            detector.received("x", each, each)
        missed += sum(violation.count for violation in detector.tick(now + 5))
    came = np.array(created, dtype=np.int64)
    end = int(came[-1]) + 1 - den // num  # the client waits half a period longer
    promise = Promise(1, end, num, den, every, 0)
    found = kept(came, came, [promise], 1)
    assert found.expected is not None
    later = [number for number in lost if number % every == 0 and not 1 <= number * den // num < end]
    assert missed - found.expected + found.received <= len(later)
    assert missed >= found.expected - found.received
