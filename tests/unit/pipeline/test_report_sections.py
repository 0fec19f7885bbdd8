from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from chappe.pipeline.report import alerted, plane, quality
from chappe.pipeline.report.stored import Lacking, Scope, Stored
from chappe.pipeline.tables import Tables
from tests.support.jobtables import put

START = 1_790_000_000 * 10**9
HOUR = 3600 * 10**9
SCOPE = Scope(START, START + 10 * HOUR)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(Tables(tmp_path))


def alert(state: str, at_s: float, link: str = "a-b", **more: Any) -> dict[str, Any]:
    row = {"rule": "slow", "state": state, "link": link, "node": link[0], "peer": link[2], "severity": "critical",
           "text": "latency_ms 70", "stamp_ns": START + round(at_s * 1e9), "since_ns": START}  # fmt: skip
    return row | more


def test_an_alert_lasts_until_it_is_cleared_or_until_the_end() -> None:
    rows = [alert("raised", 10), alert("raised", 20, "b-c"), alert("cleared", 70), alert("cleared", 5, "c-d")]
    spans = alerted.spans_of(pd.DataFrame(rows), START + 100 * 10**9)
    told = [(link, (start - START) // 10**9, (end - START) // 10**9) for _, link, _, _, start, end in spans]
    assert told == [("c-d", 0, 5), ("a-b", 10, 70), ("b-c", 20, 100)]


def test_alerts_are_drawn_and_listed(tmp_path: Path, stored: Stored) -> None:
    put(tmp_path, "alerts", [alert("raised", 10), alert("cleared", 70), alert("raised", 90, "b-c", severity="info")])
    text = alerted.alerts(stored, SCOPE)
    assert "2 alerts were raised on 2 links." in text
    assert len(re.findall("<rect", text)) == 2
    assert text.count("<tr>") == 4
    assert "slow · b → c" in text


def test_what_is_older_than_the_report_is_not_in_it(tmp_path: Path, stored: Stored) -> None:
    put(tmp_path, "alerts", [alert("raised", -10)])
    with pytest.raises(Lacking, match="no rows of this time"):
        alerted.alerts(stored, SCOPE)


def test_a_table_that_is_not_there_names_its_job(stored: Stored) -> None:
    with pytest.raises(Lacking, match="no table alerts yet: chappe pipeline run alerts"):
        alerted.alerts(stored, SCOPE)


def test_a_table_of_another_version_says_so(tmp_path: Path, stored: Stored) -> None:
    put(tmp_path, "alerts", [{"rule": "slow"}])
    with pytest.raises(Lacking, match="has no column state"):
        alerted.alerts(stored, SCOPE)


def promise(kept: bool | None, share: float | None, entity: str) -> dict[str, Any]:
    return {"entity": entity, "subject": "pmu/frequency", "mode": 0, "promise": "latency", "promised": 20.0,
            "measured": None if share is None else 18.5, "unit": "ms", "share": share, "kept": kept,
            "evidence": "values at the edge"}  # fmt: skip


def test_broken_promises_come_first(tmp_path: Path, stored: Stored) -> None:
    put(tmp_path, "sla", [promise(True, 1.0, "good"), promise(None, None, "dark"), promise(False, 0.5, "bad")])
    text = quality.sla(stored, SCOPE)
    assert "1 promises kept, 1 missed, 1 without evidence." in text
    assert re.findall(r"<td>(good|dark|bad)</td>", text) == ["bad", "dark", "good"]
    assert 'class="bad">missed' in text
    assert "no evidence" in text
    assert "50.000%" in text


def test_percentiles_of_latency_stand_beside_the_bound(tmp_path: Path, stored: Stored) -> None:
    hours = [
        {"hour_ns": START + hour * HOUR, "latency_p50_ms": 1.0, "latency_p95_ms": 2.0, "latency_p99_ms": 3.0 + hour,
         "latency_max_ms": 9.0, "bound_ms": 20.0}
        for hour in range(3)
    ]  # fmt: skip
    put(tmp_path, "compliance", hours)
    text = quality.percentiles(stored, SCOPE)
    assert text.count("<path") == 5
    assert "99 % of the values" in text
    assert "least bound promised" in text


def test_channels_that_lose_are_listed_by_their_worst_hour(tmp_path: Path, stored: Stored) -> None:
    rows = [
        {"from_node": a, "to_node": "z", "hour_ns": START + hour * HOUR, "sent": 100.0, "received": 100.0 - lost,
         "dropped": lost, "loss": lost / 100}
        for a, lost in (("a", 1.0), ("b", 30.0)) for hour in range(2)
    ]  # fmt: skip
    put(tmp_path, "segments", rows)
    text = quality.lossy(stored, SCOPE)
    assert re.findall(r"<td>(\w) → z</td>", text) == ["b", "a"]
    assert re.findall(r'<td class="n">([\d.,]+)</td>', text)[:4] == ["200", "140", "60", "30"]


def states(dimensions: list[str], position: list[float]) -> dict[str, Any]:
    return {"space": "links", "window_ns": START, "dimensions": dimensions, "position": position, "states": 40}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_outliers_stand_apart_from_where_states_gather(tmp_path: Path, stored: Stored, count: int) -> None:
    names = ["latency_ms", "jitter", "loss"][:count]
    gathered = states(names, [1.0, 0.1, 0.0][:count]) | {"radius": 3.0, "peers": 12}
    alone = states(names, [500.0, 0.9, 0.5][:count]) | {"peer": "n1>n2", "created_ns": START, "near": 1, "needed": 3}
    put(tmp_path, "centroids", [gathered])
    put(tmp_path, "outliers", [alone])
    text = plane.anomalies(stored, SCOPE)
    assert text.count("<circle") == 2
    assert "n1&gt;n2: latency_ms 500" in text
    assert ("the first two are drawn" in text) is (count == 3)


def test_without_outliers_the_report_says_so(tmp_path: Path, stored: Stored) -> None:
    put(tmp_path, "centroids", [states(["a", "b"], [1.0, 2.0]) | {"radius": 3.0, "peers": 12}])
    assert "No peer stood alone." in plane.anomalies(stored, SCOPE)


def test_forged_values_are_listed(tmp_path: Path, stored: Stored) -> None:
    row = {"kind": "far_future", "dataset": "status", "subject": "pmu/frequency", "window_ns": START, "count": 3,
           "of": 90, "reason": "stamped 5 s ahead"}  # fmt: skip
    put(tmp_path, "forgeries", [row])
    text = plane.forgeries(stored, SCOPE)
    assert "far future" in text
    assert "stamped 5 s ahead" in text
