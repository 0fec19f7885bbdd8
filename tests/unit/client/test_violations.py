"""The detector of violations, under a clock of its own."""

from __future__ import annotations

import pytest

from chappe.client.violations import SLACK_NS, Detector, Terms, Violation

MS = 1_000_000
TEN = Terms(1, 100 * MS, 1, bound_ns=20 * MS, slack_ns=10 * MS)  # 10 a second, 20 ms on the way


def tolerance(terms: Terms) -> int:
    return terms.tolerance_ns // MS


@pytest.mark.spec("GS-045")
def test_a_stream_in_time_violates_nothing() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 0)
    for number in range(1, 100):
        jitter = (number % 7 - 3) * 10 * MS
        created = number * 100 * MS + jitter
        assert detector.received("s", created, created + 19 * MS) is None
        assert detector.tick(created + 19 * MS) == []


@pytest.mark.spec("GS-045")
def test_a_value_that_was_too_long_on_its_way_is_late() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 0)
    assert detector.received("s", 110 * MS, 130 * MS) is None, "the bound itself is kept"
    late = detector.received("s", 205 * MS, 226 * MS)
    assert late == Violation("s", "late", 200 * MS, 226 * MS, latency_ns=21 * MS)


@pytest.mark.spec("GS-045")
def test_a_value_that_does_not_come_is_missed_once_each_interval() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 0)
    detector.received("s", 100 * MS, 101 * MS)
    due = 200 * MS + (20 + 10 + 50) * MS  # bound, slack, half a period of jitter
    detector.tick(100 * MS)
    assert detector.tick(due - 1) == []
    assert detector.deadline_ns == due
    assert detector.tick(due) == [Violation("s", "missed", 200 * MS, due)]
    assert detector.tick(due) == []
    assert detector.tick(due + 100 * MS) == [Violation("s", "missed", 300 * MS, due + 100 * MS)]
    detector.received("s", 400 * MS, 405 * MS)
    assert detector.tick(400 * MS + 180 * MS - 1) == []


def test_a_stream_that_never_begins_is_missed_too() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 1_030 * MS)
    assert [each.nominal_ns // MS for each in detector.tick(1_100 * MS + 80 * MS)] == [1_100]


def test_however_long_nobody_looked_there_is_one_violation_with_the_count() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 0)
    (found,) = detector.tick(1_000_000 * MS + 80 * MS)
    assert (found.count, found.nominal_ns) == (10_000, 1_000_000 * MS)
    assert detector.tick(1_000_099 * MS + 80 * MS) == []


@pytest.mark.spec("GS-045")
def test_only_values_of_the_granted_interval_are_expected() -> None:
    terms = Terms(3, 100 * MS, 3, slack_ns=0)  # 30 a second, one of three: every 100 ms, exactly
    detector: Detector[str] = Detector()
    detector.follow("s", terms, 0)
    half = 16 * MS + 666_666
    for number in range(1, 11):
        detector.received("s", round(number * 100 * MS + 1), 0)
    assert detector.tick(1_100 * MS + half - 1) == []
    assert [each.nominal_ns // MS for each in detector.tick(1_100 * MS + half)] == [1_100]


@pytest.mark.spec("GS-045", "GS-032")
def test_a_publisher_may_be_as_slow_as_it_promised() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", Terms(1, 100 * MS, 1, slowest_ns=500 * MS, slack_ns=0), 0)
    detector.received("s", 100 * MS, 100 * MS)
    assert detector.tick(600 * MS + 50 * MS - 1) == []
    assert len(detector.tick(600 * MS + 50 * MS)) == 1


def test_an_alert_is_never_missed_but_may_be_late() -> None:
    detector: Detector[str] = Detector()
    detector.follow("a", Terms(0, 1, 1, bound_ns=20 * MS), 0)
    assert detector.deadline_ns is None
    assert detector.tick(10**18) == []
    late = detector.received("a", 5 * MS, 26 * MS)
    assert late is not None
    assert (late.kind, late.nominal_ns) == ("late", 5 * MS)
    detector.follow("b", Terms(0, 1, 1, slowest_ns=1000 * MS), 0)
    assert detector.deadline_ns == 1000 * MS + SLACK_NS, "an alert that promises a sign of life"


def test_a_value_kept_by_the_node_from_before_is_not_late() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 1_000 * MS)
    assert detector.received("s", 400 * MS, 1_001 * MS) is None
    assert detector.received("s", 1_001 * MS, 1_050 * MS) is not None


@pytest.mark.spec("GS-115")
def test_nothing_is_violated_between_the_announcement_of_a_mode_and_its_beginning() -> None:
    detector: Detector[str] = Detector()
    detector.follow("s", TEN, 0)
    detector.received("s", 100 * MS, 101 * MS)
    detector.announce()
    assert detector.tick(1_000 * MS) == []
    assert detector.received("s", 200 * MS, 900 * MS) is None
    assert detector.suppressed == 9
    detector.follow("s", Terms(1, 100 * MS, 5, bound_ns=20 * MS, slack_ns=10 * MS), 1_000 * MS)
    detector.settle(1_000 * MS)
    assert detector.tick(1_500 * MS + 80 * MS - 1) == [], "the new interval counts from here on"
    assert [each.nominal_ns // MS for each in detector.tick(1_500 * MS + 80 * MS)] == [1_500]


def test_many_streams_share_one_heap_and_a_forgotten_one_is_silent() -> None:
    detector: Detector[int] = Detector()
    for key in range(1000):
        detector.follow(key, Terms(1, (100 + key) * MS, 1, slack_ns=0), 0)
    for key in range(1, 1000):
        detector.forget(key)
    found = detector.tick(10_000 * MS)
    assert {each.watch for each in found} == {0}
    detector.forget(0)
    assert detector.deadline_ns is None
    assert detector.received(0, 1, 10**12) is None


def test_the_usual_slack_leaves_room_for_scheduling() -> None:
    assert tolerance(Terms(1, 100 * MS, 1, bound_ns=20 * MS)) == 20 + 50 + SLACK_NS // MS
