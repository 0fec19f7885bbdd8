"""Laws of measurement that hold for any samples, losses and answers."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.measure import metrics
from chappe.measure._windows import absorb
from chappe.measure.bandwidth import Estimator, TrainSettings
from chappe.measure.cost import Metrics, changed, cost, error
from chappe.measure.initiator import Initiator, Settings
from chappe.measure.links import Links
from chappe.measure.probes import Probes
from chappe.measure.windows import Windows, replay

MS = 1_000_000
SECOND = 1_000_000_000
latencies = st.floats(min_value=0.01, max_value=5_000, allow_nan=False)
series = st.lists(latencies, min_size=1, max_size=60)


@settings(deadline=None)
@given(series)
def test_an_outlier_is_never_the_rule(samples: list[float]) -> None:
    out = metrics.outliers(samples)
    assert out.sum() <= len(samples) / 4  # by Chebyshev, for Z = 2
    if len(samples) < 6:
        assert not out.any()


@settings(deadline=None)
@given(series)
def test_jitter_stays_within_the_largest_difference(samples: list[float]) -> None:
    largest = max((abs(b - a) for a, b in itertools.pairwise(samples)), default=0.0)
    assert 0 <= metrics.rtp_jitter(samples) <= largest + 1e-9
    assert 0 <= metrics.relative_jitter(samples) <= 2


@settings(deadline=None)
@given(st.lists(st.lists(latencies, min_size=1, max_size=16), min_size=1, max_size=20))
def test_formulas_over_many_links_are_those_over_each(windows: list[list[float]]) -> None:
    counts = [len(window) for window in windows]
    table = np.array([window + [math.nan] * (16 - len(window)) for window in windows])
    together = np.array(metrics.summary(table, metrics.filled(counts, 16)), dtype=np.float64).T
    alone = np.array([metrics.summary(window) for window in windows], dtype=np.float64)
    assert together == pytest.approx(alone, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(series, st.floats(min_value=0.5, max_value=2))
def test_costs_scale_with_latency(samples: list[float], factor: float) -> None:
    """Relative jitter has no unit, so a link twice as long costs twice as much and what loss costs."""
    mean, jitter = metrics.mean(samples), metrics.relative_jitter(samples)
    scaled = [factor * sample for sample in samples]
    assert metrics.relative_jitter(scaled) == pytest.approx(float(jitter), abs=1e-9)
    assert cost("default", metrics.mean(scaled), 0.0, 0.01) == pytest.approx(factor * mean + 1)


@settings(deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=1000), min_size=1, max_size=100))
def test_what_is_told_is_never_a_tenth_and_half_a_millisecond_off(costs: list[float]) -> None:
    told = math.nan
    for now in costs:
        if changed(now, told):
            told = now
        assert abs(now - told) <= max(0.1 * told, 0.5)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["answered", "lost", "late"]), min_size=1, max_size=320))
def test_loss_is_that_of_the_last_hundred_probes(fates: list[str]) -> None:
    probes = Probes(first_token=5, late_ns=1000 * SECOND)
    probes.grow(1)
    late: list[int] = []
    for second, fate in enumerate(fates):
        now_ns = second * 10 * SECOND
        token = probes.send(0, now_ns, SECOND)
        if fate == "answered":
            probes.answered(token)
        elif fate == "late":
            late.append(token)
        probes.expire(now_ns + 2 * SECOND)
        if late and second % 3 == 0:
            probes.answered(late.pop(0))
    still_late = {token - 5 for token in late}
    last = range(max(0, len(fates) - 100), len(fates))
    expected = sum(1 for at in last if fates[at] == "lost" or at in still_late)
    assert probes.lost[0] == expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(min_value=0.1, max_value=900), min_size=2, max_size=40))
def test_a_node_has_what_a_replay_of_its_samples_gives(samples: list[float]) -> None:
    rtts = [int(sample * 2 * MS) for sample in samples]
    initiator = Initiator(Settings(adaptive=False), random.Random(1))
    initiator.add(3, False, 0)
    initiator.wake(0)
    now_ns, waiting, batch = 0, list(rtts), 0
    while waiting:
        now_ns = max(initiator.next_ns(), now_ns + 1)
        for link, token in initiator.due(now_ns):
            rtt_ns = waiting.pop(0) if waiting else rtts[-1]
            now_ns += rtt_ns
            initiator.echoed(link, token, rtt_ns, now_ns)
            batch += 1
        initiator.tick(now_ns)
    initiator.tick(now_ns + SECOND)
    reading = initiator.reading(3)
    assert reading is not None
    assert batch == len(rtts)
    expected = replay(metrics.latency_ms(np.array(rtts)))
    for name in ("latency_ms", "deviation_ms", "jitter_ms", "jitter"):
        assert getattr(reading.metrics, name) == pytest.approx(expected[name][-1], rel=1e-9, abs=1e-9)
    assert (reading.window, reading.outliers) == (expected["count"][-1], expected["outliers"][-1])


@settings(max_examples=50, deadline=None)
@given(st.data(), st.integers(min_value=0, max_value=1000))
def test_trains_never_cost_more_than_was_collected(data: st.DataObject, seed: int) -> None:
    """Whatever the other end answers, a link is used for at most a share of the most that it claimed to carry."""
    settings_ = TrainSettings()
    link = Estimator(settings_, random.Random(seed))
    link.travelled(data.draw(st.integers(min_value=0, max_value=200 * MS)))
    now_ns, claimed = 0, settings_.assumed
    for _ in range(30):
        now_ns = max(link.next_ns(), now_ns)
        train = link.next_train(now_ns)
        if train is None:
            continue
        assert 40 <= train.bytes <= settings_.most_bytes
        took_ns = data.draw(st.integers(min_value=1000, max_value=3 * SECOND))
        now_ns += took_ns
        fate = data.draw(st.sampled_from(["answer", "lost", "silence"]))
        if fate == "answer":
            half = data.draw(st.integers(min_value=0, max_value=train.bytes))
            half_ns = data.draw(st.integers(min_value=0, max_value=took_ns))
            claimed = max(claimed, half * SECOND / max(half_ns, 1), train.bytes * SECOND / settings_.noise_ns)
            link.trained(train.token, half, half_ns, now_ns)
        elif fate == "lost":
            link.lost(train.token)
    assert link.refused == 0
    assert math.isnan(link.estimate) or 0 <= link.estimate <= claimed
    assert (
        link.spent_bytes
        <= settings_.first_bytes + settings_.share * claimed * now_ns / SECOND + 1.5 * settings_.most_bytes
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 5))
def test_the_compiled_window_is_the_one_of_the_formulas(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    formulas, compiled = Windows(rows=rows), Windows(rows=rows)
    level = rng.uniform(0.05, 200, rows)
    for _ in range(80):
        level = np.where(rng.random(rows) < 0.05, rng.uniform(0.05, 200, rows), level)
        some = np.flatnonzero(rng.random(rows) < 0.7)
        samples = level[some] * rng.lognormal(0, 0.05, len(some)) * np.where(rng.random(len(some)) < 0.05, 4, 1)
        expected, found = formulas.absorb(some, samples), absorb(compiled, some, samples)
        assert np.array_equal(expected.deviates, found[0])
        assert np.array_equal(expected.shifted, found[1])
        for name, values in vars(formulas).items():
            if isinstance(values, np.ndarray):
                np.testing.assert_allclose(getattr(compiled, name), values, rtol=1e-9, err_msg=name)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(["default", "interactive", "media", "bulk"]))
def test_the_compiled_evaluation_is_that_of_the_formulas(seed: int, profile: str) -> None:
    """Windows, costs, intervals and what counts as news, for rows with samples, losses and nothing."""
    rng = np.random.default_rng(seed)
    links = Links(Settings(profile=profile, advertised=(profile,), history=12), 1)
    rows = np.array([links.add(link, lossy=link % 2 == 0) for link in range(5)])
    windows, told = Windows(rows=len(links.link)), np.full(len(links.link), np.nan)
    level = rng.uniform(0.05, 200, len(rows))
    for second in range(1, 60):
        level = np.where(rng.random(len(rows)) < 0.05, rng.uniform(0.05, 200, len(rows)), level)
        some = rng.random(len(rows)) < 0.7
        rtt_ns = (2e6 * level * rng.lognormal(0, 0.05, len(rows))).astype(np.int64)
        if some.any():
            windows.absorb(rows[some], metrics.latency_ms(rtt_ns[some].astype(np.float64)))
        samples = list(zip(rows[some].tolist(), rtt_ns[some].tolist(), strict=True))
        lost = set(rows[rng.random(len(rows)) < 0.05].tolist())
        readings, _, shifted = links.evaluation.evaluate(samples, lost, set(), second * SECOND)
        np.testing.assert_allclose(links.windows.latency_ms, windows.latency_ms, rtol=1e-9)
        fresh = [row for row in rows.tolist() if (row in lost or some[rows.tolist().index(row)]) and windows.count[row]]
        costs = cost(profile, windows.latency_ms, np.nan_to_num(windows.jitter))
        figures = {
            row: Metrics(
                windows.latency_ms[row], windows.deviation_ms[row], 0.0, float(np.nan_to_num(windows.jitter[row]))
            )
            for row in fresh
        }
        errors = {row: error(figures[row], windows.count[row] - windows.outliers[row], profile) for row in fresh}
        first = np.isnan(told)
        believed = {row for row in fresh if first[row] or abs(costs[row] - told[row]) > metrics.CERTAINTY * errors[row]}
        news = {row for row in fresh if (changed(costs[row], told[row]) and row in believed) or row in shifted}
        assert {links.rows[reading.link] for reading in readings} == news
        for row in news:
            told[row] = costs[row]
            links.evaluation.quiet(row, [(told[row], max(0.1 * told[row], 0.5))], figures[row])
            assert links.history(row)[-1]["cost"] == pytest.approx(costs[row], rel=1e-5)
        before = links.pace.interval_ns.copy()
        links.pace.refresh(np.array(fresh, dtype=np.intp))
        np.testing.assert_allclose(links.pace.interval_ns, before)
