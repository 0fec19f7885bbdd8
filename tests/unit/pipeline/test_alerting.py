from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chappe.aggregation.alerts import Alerts
from chappe.errors import ConfigError
from chappe.measure.messages import AlertEvent
from chappe.measure.record import Record
from chappe.pipeline import alerting
from chappe.pipeline.alerting import End, judge, next_ns, records, rules
from tests.support.records import LINK, NOW, SECOND, record

RULES = """
[[alert]]
name = "slow"
when = "latency_ms > 80"
for_s = 2
clear_s = 1

[[alert]]
name = "bad"
when = "latency_ms > 50 and loss > 0.1 or jitter_ms > 20"

[[alert]]
name = "silent"
when = "age_s > 5"
for_s = 1
"""


def history(values: list[tuple[float, float | None, float | None]]) -> list[Record]:
    found, at = [], NOW
    for after_s, latency_ms, loss in values:
        at += int(after_s * SECOND)
        found.append(record(stamp_ns=at, latency_ms=latency_ms, loss=loss))
    return found


STEPS = st.tuples(
    st.sampled_from([0.5, 1, 3, 6, 9]),
    st.one_of(st.none(), st.sampled_from([10.0, 60.0, 75.0, 90.0])),
    st.sampled_from([None, 0.0, 0.5]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=25), st.data())
def test_a_history_in_pieces_gives_the_alerts_of_the_whole(values: list[Any], data: st.DataObject) -> None:
    of, all_of_it = rules(RULES), history(values)
    until = NOW + 200 * SECOND
    whole, end = judge(of, End(), all_of_it, until)
    found: list[AlertEvent] = []
    state = End()
    while all_of_it:
        size = data.draw(st.integers(1, len(all_of_it)))
        piece, all_of_it = all_of_it[:size], all_of_it[size:]
        told, state = judge(of, state, piece, piece[-1].stamp_ns)
        state = msgspec.json.decode(msgspec.json.encode(state), type=End)  # as between two batches
        found += told
    while (at := next_ns(of, state)) is not None and at <= until:  # as timers do
        told, state = judge(of, state, [], at)
        found += told
    assert found == whole
    assert judge(of, state, [], until)[1] == end


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_without_silence_it_says_what_an_aggregator_says(values: list[Any]) -> None:
    of = [rule for rule in rules(RULES) if rule.name != "silent"]
    alerts = Alerts(of)
    all_of_it = history(values)
    expected = [event for each in all_of_it for event in alerts.record(each)]
    assert judge(of, End(), all_of_it, NOW)[0] == expected


def test_silence_is_told_at_the_moment_it_has_lasted_long_enough() -> None:
    (silent,) = (rule for rule in rules(RULES) if rule.name == "silent")
    events, end = judge([silent], End(), history([(0, 1.0, None), (20, 1.0, None)]), NOW + 23 * SECOND)
    assert [(event.state, round((event.stamp_ns - NOW) / SECOND, 3)) for event in events] == [
        ("raised", 6.0), ("cleared", 20.0),
    ]  # fmt: skip
    assert next_ns([silent], end) is not None
    assert next_ns([], end) is None


def test_what_comes_late_or_twice_changes_nothing() -> None:
    of = rules(RULES)
    given = history([(0, 90.0, None), (1, 90.0, None), (2, 90.0, None)])
    events, end = judge(of, End(), given, given[-1].stamp_ns)
    assert [event.rule for event in events] == ["slow"]
    assert judge(of, end, [record(stamp_ns=NOW, latency_ms=1.0), given[-1]], given[-1].stamp_ns) == ([], end)


def test_rows_become_records_in_the_order_of_time() -> None:
    columns = {
        "node": ["a", "a", "a"], "link": [LINK] * 3, "peer": ["b"] * 3, "transport": ["tcp"] * 3,
        "realm": [None, float("nan"), "east"], "created_ns": [3, 1, 3], "latency_ms": [5.0, float("nan"), 7.0],
        "loss": [None, 0.1, 0.2], "outliers": [1, 2, 3],
    }  # fmt: skip
    first, last = records(columns)
    assert first == Record(link=LINK, node="a", peer="b", transport="tcp", stamp_ns=1, loss=0.1)
    assert last == Record(link=LINK, node="a", peer="b", transport="tcp", stamp_ns=3, latency_ms=5.0)


def test_an_event_goes_out_under_its_rule_and_link() -> None:
    (event,) = Alerts(rules('[[alert]]\nname = "a b/c"\nwhen = "loss > 0.1"')).record(record(loss=0.5))
    row = alerting.row(event)
    assert row["topic"] == f"pipeline/alerts/a-b-c/{LINK}"
    assert msgspec.json.decode(row["body"], type=AlertEvent) == event


def test_rules_are_read_from_text_and_from_an_aggregator_s_file(tmp_path: Path) -> None:
    file = tmp_path / "east.toml"
    file.write_text('[aggregates]\nname = "east"\nrealm = "r"\nstore = "x.db"\n' + RULES)
    assert rules(str(file)) == rules(RULES)
    assert [rule.name for rule in rules(RULES)] == ["slow", "bad", "silent"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", r"no \[\[alert\]\] table"),
        ("no.toml", "no.toml: cannot be read: No such file"),
        ("[[alerts]]\nname = 'a'", "alerts: is not known"),
        ("[[alert]]\nname = 'a'", "missing required field `when`"),
        ("[[alert]]\nname = 'a'\nwhen = 'speed > 1'", "'speed' is no metric"),
        ("[[alert]]\nname = 'a'\nwhen = 'loss > 1'\n" * 2, "two rules of that name"),
        ("when = ", "not TOML"),
    ],
)
def test_bad_rules_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        rules(text)
