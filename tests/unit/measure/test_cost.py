"""Costs, profiles, formulas of users, and when a cost is told."""

from __future__ import annotations

import math
from collections.abc import Iterator
from math import nan

import numpy as np
import pytest

from chappe.measure.cost import PROFILES, Metrics, Profile, changed, cost, of, register
from chappe.measure.formula import parse


@pytest.fixture
def _profiles() -> Iterator[None]:
    before = dict(PROFILES)
    yield
    PROFILES.clear()
    PROFILES.update(before)


@pytest.mark.spec("MR-107")
def test_four_coefficients() -> None:
    profile = Profile("own", overall=3, latency=2, loss=200, jitter=7)
    assert profile(20.0, 0.5, 0.01, 1e6) == 3 + 2 * 20 + 200 * 0.01 + 7 * 0.5
    assert cost("default", 20.0, 0.5, 0.01) == 20 + 100 * 0.01 + 10 * 0.5


@pytest.mark.spec("MR-107")
def test_costs_of_many_links_at_once() -> None:
    together = cost("default", [1.0, 20.0, nan], [0.0, 0.1, 0.0], [nan, 0.5, 0.0])
    assert together[:2].tolist() == [1.0, 20 + 50 + 1.0]
    assert math.isnan(together[2])


def test_what_is_not_measured_counts_nothing_and_bandwidth_like_a_common_link() -> None:
    assert of(Metrics(20.0)) == 20.0
    assert math.isnan(of(Metrics()))
    assert of(Metrics(20.0, bandwidth=12.5e6), "bulk") == of(Metrics(20.0), "bulk") == 20 + 80


@pytest.mark.spec("MR-108")
def test_audio_and_video_avoid_a_jittery_link_that_others_take() -> None:
    steady, shaky = Metrics(30.0, jitter=0.05), Metrics(25.0, jitter=0.4)
    assert of(shaky, "default") < of(steady, "default")
    assert of(steady, "media") < of(shaky, "media")


@pytest.mark.spec("MR-109")
def test_each_application_has_its_order_of_links() -> None:
    quick, lossless, broad = (
        Metrics(10.0, loss=0.04, bandwidth=1e6),
        Metrics(13.0, loss=0.0, bandwidth=1e6),
        Metrics(60.0, loss=0.0, bandwidth=1e8),
    )
    best = {
        name: min((quick, lossless, broad), key=lambda link: of(link, name))
        for name in ("default", "interactive", "bulk")
    }
    assert best == {"default": lossless, "interactive": quick, "bulk": broad}


@pytest.mark.spec("MR-109")
@pytest.mark.usefixtures("_profiles")
def test_a_user_names_a_formula() -> None:
    register("worst first", lambda latency_ms, jitter, loss, bandwidth: np.maximum(latency_ms, 1000 * loss))
    register("written", "max(latency_ms, 1000 * loss) + (5 if jitter > 0.3 else 0)")
    for name in ("worst first", "written"):
        assert cost(name, 20.0, 0.1, 0.5) == 500.0
        assert cost(name, [20.0, 30.0], [0.0, 0.0], [nan, 0.1]).tolist() == [20.0, 100.0]
    assert cost("written", 20.0, 0.4, 0.0) == 25.0


@pytest.mark.usefixtures("_profiles")
@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("latency_ms - 100", "gives -99.95 for latency_ms=0.05"),
        ("log(loss)", "costs are numbers from 0 up"),
        ("latency_ms +", "is no formula"),
        ("latency_ms.real", "'latency_ms.real' is not allowed"),
        ("__import__('os')", "is not allowed"),
        ("delay + 1", "column 1: 'delay' is not allowed; formulas are numbers, latency_ms"),
        ("min(latency_ms)", "min takes 2, not 1"),
        ("[latency_ms][0]", "is not allowed"),
        ("latency_ms if True else loss", "is not allowed"),
        ("'a'", "is not allowed"),
        ("1 +" * 300 + "1", "characters, the most allowed is 500"),
        ("+".join(["1"] * 120), "more than 100 parts"),
        (lambda latency_ms, jitter, loss, bandwidth: [1.0, 2.0], "gives (2,) costs"),
        (lambda latency_ms, jitter, loss: latency_ms, "does not work on arrays"),
    ],
)
def test_a_formula_that_no_route_can_be_computed_with_is_refused(formula: str, reason: str) -> None:
    with pytest.raises(ValueError) as caught:
        register("bad", formula)
    assert reason in str(caught.value)
    assert "bad" not in PROFILES


@pytest.mark.usefixtures("_profiles")
def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="exists already"):
        register("default", "latency_ms")
    with pytest.raises(ValueError, match="no cost profile 'fast'; there are bulk, default, interactive, media"):
        cost("fast", 1.0)
    with pytest.raises(ValueError, match="coefficients are numbers from 0 up"):
        Profile("wrong", jitter=-1)


@pytest.mark.usefixtures("_profiles")
def test_a_formula_that_fails_later_means_not_measured() -> None:
    register("odd", "1 / (latency_ms - 7) ** 2 + bandwidth / bandwidth")
    assert math.isnan(cost("odd", 7.0))
    assert cost("odd", 8.0) == 2.0


def test_text_computes_as_written() -> None:
    formula = parse("-2 ** 2 + sqrt(abs(loss - 4)) * +jitter / bandwidth")
    assert formula(0.0, 6.0, 0.0, 3.0) == -4 + 2 * 6 / 3


@pytest.mark.spec("MR-112")
@pytest.mark.parametrize(
    ("new", "told", "worth"),
    [
        (109.0, 100.0, False),
        (111.0, 100.0, True),
        (89.0, 100.0, True),
        (1.4, 1.0, False),  # 40 %, but less than half a millisecond
        (1.6, 1.0, True),
        (7.0, nan, True),  # the first
        (nan, 7.0, False),
        (nan, nan, False),
    ],
)
def test_a_cost_is_told_if_it_changed_by_a_tenth(new: float, told: float, worth: bool) -> None:
    assert bool(changed(new, told)) is worth


@pytest.mark.spec("MR-112")
def test_the_threshold_can_be_set_and_holds_for_many() -> None:
    assert changed([104.0, 106.0], [100.0, 100.0], share=0.05).tolist() == [False, True]
    assert changed(100.2, 100.0, share=0.001, floor=0.05)


@pytest.mark.spec("MR-112")
def test_a_slow_drift_is_told_since_it_is_compared_with_what_was_told() -> None:
    told, tellings = 50.0, 0
    for step in range(200):
        drifted = 50.0 * 1.01**step  # 1 % a round: never 10 % from the round before
        if changed(drifted, told):
            told, tellings = drifted, tellings + 1
    assert tellings == 19  # every tenth round
