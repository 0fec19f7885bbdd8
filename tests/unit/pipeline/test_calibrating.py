"""Findings of calibration: what is there is found again, and nothing is proposed without evidence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.measure.cost import Profile, changed
from chappe.measure.readings import Settings
from chappe.pipeline import calibrating
from chappe.pipeline.calibrating import Delivery, Link, Trip

SECOND = 1_000_000_000
NOW = Profile("default")


def _trips(count: int, seed: int = 1, loss: bool = True, noise: float = 0.2, wild: int = 0) -> list[Trip]:
    """Trips that cost 2 ms, 1.5 a millisecond of latency, 40 a loss and 3 a jitter."""
    random = np.random.default_rng(seed)
    made = []
    for at in range(count):
        latency, jitter = random.uniform(2, 30), random.uniform(0, 2)
        lost = random.uniform(0, 0.1) if loss else 0.0
        took = 2 + 1.5 * latency + 40 * lost + 3 * jitter + random.normal(0, noise)
        if at < wild:
            took += 5000
        made.append(Trip(at * SECOND, took, 10, ("a", "b", "c"), latency, jitter, lost))
    return made


@pytest.mark.spec("SJ-06")
def test_coefficients_are_found_again_in_spite_of_wild_ones() -> None:
    found = calibrating.coefficients(_trips(200, wild=6), NOW, 30)
    assert found.proposed
    assert found.value["latency"] == pytest.approx(1.5, rel=0.03)
    assert found.value["loss"] == pytest.approx(40, rel=0.1)
    assert found.value["jitter"] == pytest.approx(3, rel=0.1)
    assert found.value["overall"] == NOW.overall  # all ways have two hops: it cannot be told from the ends
    assert found.evidence["left_out"] == ["overall"]
    low, high = found.evidence["ranges"]["latency"]
    assert low <= 1.5 <= high
    assert found.effect["error_ms_then"] < 0.5 * found.effect["error_ms_now"]
    assert json.loads(found.row()["value"])["latency"] == pytest.approx(1.5, rel=0.03)


def test_no_coefficients_without_evidence() -> None:
    assert "10 windows" in calibrating.coefficients(_trips(10), NOW, 30).reason
    steady = [Trip(at, 5.0, 1, ("a", "b"), 4.0, 0.1, 0.0) for at in range(50)]
    assert "did not change" in calibrating.coefficients(steady, NOW, 30).reason
    without_loss = calibrating.coefficients(_trips(200, loss=False), NOW, 30)
    assert without_loss.value["loss"] == NOW.loss
    right = Profile("default", latency=1.5, loss=40.0, jitter=3.0)
    assert "within what the data say" in calibrating.coefficients(_trips(200), right, 30).reason


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_the_robust_fit_is_the_plain_one_where_nothing_is_wild(seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = np.column_stack((np.ones(80), random.uniform(0, 10, (80, 2))))
    truth = np.array([1.0, 2.0, 0.5])
    assert calibrating.robust(columns, columns @ truth) == pytest.approx(truth, abs=1e-6)
    spoiled = columns @ truth + random.normal(0, 0.1, 80)
    spoiled[:8] += 300
    assert calibrating.robust(columns, spoiled) == pytest.approx(truth, abs=0.35)


def test_deliveries_take_the_cheapest_way_of_their_window() -> None:
    links = [Link(0, a, b, cost, cost, 0.1, 0.01) for a, b, cost in
             [("a", "b", 1.0), ("b", "c", 2.0), ("a", "c", 9.0), ("c", "a", 2.5)]]  # fmt: skip
    links.append(Link(SECOND, "a", "c", 1.0, float("nan"), 0.1, 0.0))
    asked = [Delivery(0, "a", "c", 4.0, 5), Delivery(0, "c", "a", 3.0, 5)]
    asked += [Delivery(0, "a", "a", 1.0, 1), Delivery(0, "a", "x", 1.0, 1), Delivery(SECOND, "a", "c", 1.0, 1)]
    asked.append(Delivery(9, "a", "c", 1.0, 1))
    found = calibrating.trips(asked, links)
    assert [trip.way for trip in found] == [("a", "b", "c"), ("c", "a")]
    assert found[0].latency_ms == 3.0
    assert found[0].loss == pytest.approx(0.02)
    assert calibrating.trips([], links) == calibrating.trips(asked, []) == []


@pytest.mark.spec("SJ-06", "GS-174")
def test_constants_of_the_latency_model_are_found_again() -> None:
    random = np.random.default_rng(3)
    taken, loads = [], {}
    for at in range(120):
        way = ("a", "b", "c", "d")[: int(random.integers(2, 5))]
        load = float(random.uniform(1, 40))
        for name in way:
            loads[at, name] = load
        took = 5.0 + 0.4 + len(way) * (0.1 + 0.02 * load) + float(random.normal(0, 0.01))
        taken.append(Trip(at, took + (40.0 if at % 40 == 0 else 0.0), 9, way, 5.0, 0.0, 0.0))
    found = calibrating.latency_model(taken, loads, "all", 50_000, 30)
    assert found.proposed
    assert found.value == pytest.approx({"reference_us": 400, "router_us": 100, "loaded_us": 1000}, rel=0.15)
    assert found.evidence["left_out"] == 3
    assert (
        "do not determine"
        in calibrating.latency_model(
            [trip for trip in taken if len(trip.way) == 3], dict.fromkeys(loads, 5.0), "all", 50_000, 5
        ).reason
    )
    assert "0 windows" in calibrating.latency_model(taken, {}, "all", 50_000, 30).reason


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=40), st.sampled_from(calibrating.THRESHOLDS))
def test_a_replay_tells_what_a_node_would(costs: list[float], share: float) -> None:
    seen, count = calibrating.replayed(np.array(costs)[:, None], share)
    told, expected, number = float("nan"), [], 0
    for cost in costs:
        if changed(cost, told, share):
            told, number = cost, number + 1
        expected.append(told)
    assert seen[:, 0].tolist() == expected
    assert count == number


def _two_ways(steps: int, swing: float) -> tuple[list[tuple[str, str]], np.ndarray]:
    """One way of a square costs 10, the other swings around it."""
    ends = [("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")]
    costs = np.full((steps, 4), 5.0)
    costs[:, 2] = 5.0 + swing * np.sin(np.arange(steps) / 3)
    return ends, costs


@pytest.mark.spec("SJ-06")
def test_a_threshold_that_leaves_ways_behind_is_not_proposed() -> None:
    ends, costs = _two_ways(200, 1.3)
    replays = [calibrating.tried(ends, costs, share) for share in calibrating.THRESHOLDS]
    assert [each.told for each in replays] == sorted((each.told for each in replays), reverse=True)
    assert replays[0].missed < replays[-1].missed
    assert replays[-1].dearer > 0
    careful = calibrating.threshold(replays, 200, 30, most_missed=replays[0].missed)
    assert careful.value["share"] < 0.5
    assert careful.effect["missed_then"] <= replays[0].missed
    careless = calibrating.threshold(replays, 200, 30, most_missed=1.0)
    assert careless.proposed
    assert careless.value["share"] == 0.5
    assert careless.effect["told_then"] < careless.effect["told_now"]
    assert "20 steps" in calibrating.threshold(replays, 20, 30, 0.01).reason


def test_no_other_threshold_for_what_never_changes() -> None:
    ends, costs = _two_ways(100, 0.0)
    replays = [calibrating.tried(ends, costs, share) for share in calibrating.THRESHOLDS]
    found = calibrating.threshold(replays, 100, 30, 0.01)
    assert not found.proposed
    assert "fewer" in found.reason


@pytest.mark.spec("SJ-06")
def test_steady_links_are_measured_more_seldom_and_others_are_not() -> None:
    stamps = np.arange(400) * SECOND
    random = np.random.default_rng(2)
    steady = calibrating.interval("l", stamps, 10 + random.normal(0, 0.05, 400), False, Settings(), 30, 5.0)
    assert steady.proposed
    assert steady.value == {"interval_s": 8.0}
    assert steady.effect == {"probes_saved": 0.875, "changes_missed": 0.0, "noticed_later_s": 0.0}
    restless = 10 + 10.0 * (np.arange(400) % 2)
    nervous = calibrating.interval("l", stamps, restless, False, Settings(), 30, 5.0)
    assert not nervous.proposed
    assert "too often" in nervous.reason
    extreme = calibrating.interval("l", stamps, restless, True, Settings(), 30, 5.0)
    assert extreme.value == {"interval_s": 8.0}
    assert "5 rounds" in calibrating.interval("l", stamps[:5], restless[:5], False, Settings(), 30, 5.0).reason
    slow = calibrating.interval("l", stamps * 60, np.full(400, 1.0), False, Settings(), 30, 5.0)
    assert "already" in slow.reason
