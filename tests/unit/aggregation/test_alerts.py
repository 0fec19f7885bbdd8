from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chappe.aggregation import conditions
from chappe.aggregation.alerts import Alerts, Rule
from chappe.errors import ConfigError
from chappe.measure.messages import AlertEvent
from tests.support.records import NOW, SECOND, record


def told(alerts: Alerts, values: list[Any], metric: str = "latency_ms") -> list[tuple[int, str]]:
    """One record a second; the second and the state of each event."""
    events: list[tuple[int, str]] = []
    for second, value in enumerate(values):
        found = alerts.record(record(stamp_ns=NOW + second * SECOND, **{metric: value}))
        events += [(second, event.state) for event in found]
    return events


@pytest.mark.spec("MR-099")
def test_a_threshold_raises_once_and_clears_with_a_margin() -> None:
    alerts = Alerts([Rule(name="slow", when="latency_ms > 80", margin=0.25)])
    assert told(alerts, [70, 81, 90, 79, 61, 60, 59, 81]) == [(1, "raised"), (5, "cleared"), (7, "raised")]


def test_a_condition_must_hold_for_its_time() -> None:
    alerts = Alerts([Rule(name="slow", when="latency_ms > 80", for_s=3, clear_s=2, margin=0)])
    assert told(alerts, [90, 90, 70, 90, 90, 90, 90, 70, 90, 70, 70, 70]) == [(6, "raised"), (11, "cleared")]


def test_an_event_says_what_was_seen_and_since_when() -> None:
    alerts = Alerts([Rule(name="slow", when="latency_ms > 80", for_s=1, severity="critical")])
    alerts.record(record(stamp_ns=NOW, latency_ms=90.0))
    (event,) = alerts.record(record(stamp_ns=NOW + SECOND, latency_ms=95.5, peer="b"))
    assert event == AlertEvent(
        rule="slow", state="raised", severity="critical", link=event.link, node="a", peer="b", realm="east",
        uri="tcp://host:9000", since_ns=NOW, stamp_ns=NOW + SECOND, text="latency_ms > 80: latency_ms = 95.5",
    )  # fmt: skip


def test_what_was_not_measured_changes_nothing() -> None:
    alerts = Alerts([Rule(name="slow", when="latency_ms > 80", for_s=2)])
    assert told(alerts, [90, None, 90]) == [(2, "raised")]
    assert told(alerts, [None, None]) == []
    assert alerts.raised


@pytest.mark.spec("MR-100")
@pytest.mark.parametrize(
    ("when", "raised"),
    [
        ("latency_ms > 80 and loss > 0.01", False),
        ("latency_ms > 80 or loss > 0.01", True),
        ("(latency_ms > 200 or jitter_ms >= 5) and loss <= 0.01", True),
        ("latency_ms > 200 or jitter_ms >= 5 and loss > 0.01", False),
        ("bandwidth < 1e6 or loss > 0.5", False),  # the bandwidth is not known
        ("bandwidth < 1e6 or loss < 0.5", True),
    ],
)
def test_combinations(when: str, raised: bool) -> None:
    alerts = Alerts([Rule(name="r", when=when)])
    assert bool(alerts.record(record(latency_ms=100.0, loss=0.0, jitter_ms=5.0))) is raised


def test_each_link_and_each_rule_has_a_state_of_its_own() -> None:
    alerts = Alerts([
        Rule(name="slow", when="latency_ms > 80"),
        Rule(name="lossy", when="loss > 0.1", links=("udp://*",)),
    ])  # fmt: skip
    first = alerts.record(record(uri="udp://x", latency_ms=90.0, loss=0.5))
    second = alerts.record(record(uri="tcp://x", latency_ms=90.0, loss=0.5))
    assert [event.rule for event in first] == ["slow", "lossy"]
    assert [event.rule for event in second] == ["slow"]
    assert len(alerts.raised) == 3


def test_silence_is_a_condition_too() -> None:
    alerts = Alerts([Rule(name="silent", when="age_s > 60")])
    heard = record()
    assert alerts.record(heard) == []
    assert alerts.tick([heard], NOW + 60 * SECOND) == []
    (event,) = alerts.tick([heard], NOW + 61 * SECOND)
    assert event.state == "raised"
    assert alerts.tick([heard], NOW + 90 * SECOND) == []
    (event,) = alerts.record(record(stamp_ns=NOW + 100 * SECOND))
    assert event.state == "cleared"


def test_a_restart_goes_on_where_it_was() -> None:
    rules = [Rule(name="slow", when="latency_ms > 80")]
    (raised,) = Alerts(rules).record(record(latency_ms=90.0))
    alerts = Alerts(rules)
    alerts.restore([raised, AlertEvent(rule="old", state="raised", link="x", node="a", stamp_ns=1, since_ns=1)])
    assert alerts.raised == [("slow", raised.link, "a")]
    assert told(alerts, [95, 10]) == [(1, "cleared")]


def test_a_forgotten_link_has_no_alerts() -> None:
    alerts = Alerts([Rule(name="slow", when="latency_ms > 80")])
    slow = record(latency_ms=90.0)
    alerts.record(slow)
    (event,) = alerts.forget(slow, NOW)
    assert event.state == "cleared"
    assert alerts.forget(slow, NOW) == []


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ("", "it ends where a metric is expected"),
        ("latency_ms", "it ends where one of < <= > >= is expected"),
        ("latency_ms > ", "it ends where a number is expected"),
        ("latency_ms > loss", "'loss' is no number"),
        ("latency_ms + 1 > 2", r"'\+ 1 > 2' cannot be read; there is no arithmetic here"),
        ("speed > 3", "'speed' is no metric; known are latency_ms"),
        ("latency_ms > 3 loss > 1", "'loss' does not belong there; join comparisons with and, or"),
        ("(latency_ms > 3", "it ends where a closing parenthesis is expected"),
        ("(" * 9 + "loss > 1" + ")" * 9, "parentheses are nested deeper than 8"),
        ("loss > 1 or " * 40 + "loss > 1", "has more than 64 words"),
        ("loss > 1; drop table x", "'; drop table x' cannot be read"),
    ],
)
def test_a_condition_that_cannot_be_read_is_explained(when: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Alerts([Rule(name="r", when=when)])


def test_two_rules_of_a_name_are_refused() -> None:
    rule = Rule(name="r", when="loss > 1")
    with pytest.raises(ConfigError, match="alert 'r': there are two rules"):
        Alerts([rule, rule])


VALUES = st.dictionaries(st.sampled_from(["loss", "jitter"]), st.none() | st.floats(0, 2))
LEAVES = st.builds(
    conditions.Comparison, st.sampled_from(["loss", "jitter"]), st.sampled_from(["<", "<=", ">", ">="]), st.floats(0, 2)
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        conditions.Joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@given(CONDITIONS, VALUES)
def test_a_condition_means_the_same_after_being_written_and_read(
    condition: conditions.Condition, values: dict[str, float | None]
) -> None:
    again = conditions.parse(conditions.sql(condition))
    assert conditions.holds(again, values) == conditions.holds(condition, values)


@given(CONDITIONS, VALUES, st.floats(0, 0.9))
def test_with_a_margin_a_condition_holds_at_least_as_often(
    condition: conditions.Condition, values: dict[str, float | None], margin: float
) -> None:
    if conditions.holds(condition, values):
        assert conditions.holds(condition, values, margin)
