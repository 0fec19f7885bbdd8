from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chappe.cli._pipeline_report import parse_mark
from chappe.errors import ConfigError
from chappe.pipeline.report import links, network
from chappe.pipeline.report.build import PARTS, report
from chappe.pipeline.report.stored import Scope, Stored
from chappe.pipeline.tables import Tables
from tests.support.html import Tags
from tests.support.jobtables import put

MINUTE, HOUR = 60 * 10**9, 3600 * 10**9
MONDAY = 1_789_948_800 * 10**9  # 2026-09-21 00:00 UTC
ENDS = (("a", "b"), ("b", "a"), ("b", "c"))


def statistics(hours: int) -> list[dict[str, Any]]:
    """Every link by minute and by hour; b-c is slow, and twice as slow from eight to nine."""
    rows = []
    for period, length in (("minute", MINUTE), ("hour", HOUR)):
        for at in range(MONDAY, MONDAY + hours * HOUR, length):
            for node, peer in ENDS:
                busy = 2.0 if (at - MONDAY) // HOUR % 24 == 8 else 1.0
                latency = (20.0 if node + peer == "bc" else 5.0) * busy
                rows.append({"period": period, "start_ns": at, "link": "".join(sorted(node + peer)), "node": node,
                             "peer": peer, "latency_ms": latency, "deviation_ms": 0.5, "cost": latency})  # fmt: skip
    return rows


def measurements() -> list[dict[str, Any]]:
    return [
        {"node": node, "peer": peer, "link": "".join(sorted(node + peer)), "transport": "tcp",
         "created_ns": MONDAY + 10 * HOUR - second * 10**9, "cost": 20.0 if node + peer == "bc" else 5.0,
         "latency_ms": 3.0, "deviation_ms": 0.5, "loss": 0.25}
        for second in range(5) for node, peer in ENDS
    ]  # fmt: skip


def alert() -> dict[str, Any]:
    return {"rule": "slow", "state": "raised", "link": "ab", "node": "b", "peer": "a", "severity": "warning",
            "text": "why", "stamp_ns": MONDAY + HOUR, "since_ns": MONDAY + HOUR}  # fmt: skip


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """The folder of the tables."""
    folder = tmp_path / "work"
    put(folder, "link_statistics", statistics(10))
    put(folder, "measurements", measurements())
    put(folder, "alerts", [alert()])
    return folder


@pytest.fixture
def scope() -> Scope:
    return Scope(MONDAY, MONDAY + 10 * HOUR, 2)


def test_links_with_alerts_are_drawn_first_and_then_the_dearest(tables: Path, scope: Scope) -> None:
    text = links.history(Stored(Tables(tables)), scope)
    assert re.findall(r"<h3>(\w → \w)<", text) == ["b → a", "b → c"]
    assert "2 of 3 ends of links" in text
    assert text.count("alert raised") == 1  # in the legend of one of them


def test_baseline_and_forecast_stand_beside_the_history(tables: Path, scope: Scope) -> None:
    end = {"link": "bc", "node": "b"}
    hours = [end | {"hour": hour, "latency_ms": 20.0, "spread_ms": 2.0} for hour in range(168)]
    put(tables, "baselines", hours)
    put(tables, "forecasts", [end | {"start_ns": scope.to_ns + ahead * MINUTE, "latency_ms": 20.0, "low_ms": 15.0,
                                     "high_ms": 30.0} for ahead in range(1, 20)])  # fmt: skip
    off = {"judged": 90, "error_ms": 1.5, "naive_ms": 3.0, "seasonal_ms": None}
    put(tables, "forecast_errors", [end | off | {"step": step} for step in (1, 2, 3)])
    text = links.history(Stored(Tables(tables)), scope)
    assert re.findall(r'<td class="n">(\d)</td><td class="n">1.5</td><td class="n">3</td>', text) == ["1", "2"]
    assert '<td class="n">50</td>' in text  # better than the last value, in percent
    for words in ("baseline", "usual at this hour of the week", "forecast band"):
        assert text.count(words) == 1


def test_the_latency_of_all_links_has_percentiles(tables: Path, scope: Scope) -> None:
    text = links.percentiles(Stored(Tables(tables)), scope)
    assert text.count("<path") == 4
    assert "99 %" in text


def test_a_busy_hour_of_the_day_is_seen_in_the_week(tables: Path, scope: Scope) -> None:
    text = links.week(Stored(Tables(tables)), scope)
    cells = dict(re.findall(r"<title>(Mon \d\d):00 UTC: ([\d.]+)", text))
    assert len(cells) == 10
    assert float(cells["Mon 08"]) == pytest.approx(2 * float(cells["Mon 07"]), rel=0.01)


def test_the_map_colours_links_by_cost_and_marks_those_with_alerts(tables: Path, scope: Scope) -> None:
    text = network.map_by_cost(Stored(Tables(tables)), scope)
    assert "3 links between 2 nodes" in text
    assert text.count('stroke-dasharray="7 3"') == 2  # both directions of a-b
    dearest = re.search(r"<td>(.*?)</td><td>tcp</td>.*?<td class=\"n\">([\d.]+)</td>", text)
    assert dearest is not None
    assert dearest.groups() == ("b → c", "20")


@pytest.mark.parametrize(("cost", "low", "high", "share"), [(10, 1, 100, 0.5), (5, 0, 10, 0.5), (3, 3, 3, 0.0)])
def test_costs_are_compared_by_order_of_magnitude(cost: float, low: float, high: float, share: float) -> None:
    assert network._share(cost, low, high) == pytest.approx(share)
    assert math.isnan(network._share(np.nan, low, high))


def test_the_report_is_one_whole_page_that_fetches_nothing(tables: Path, tmp_path: Path) -> None:
    begun: list[tuple[str, int, int]] = []
    out = tmp_path / "sub" / "report.html"
    lacking = report(tables, out, "North & South", begun=lambda *told: begun.append(told))
    text = out.read_text()
    tags = Tags(text)
    assert tags.seen["section"] == len(PARTS)
    assert tags.seen["svg"] >= 6
    assert "North &amp; South" in text
    assert not re.search(r"://|src=|@import|<script|url\(", text)
    assert [each[1:] for each in begun] == [(number, len(PARTS)) for number in range(len(PARTS) + 1)]
    assert any("chappe pipeline run compliance" in reason for reason in lacking)
    assert all(reason in text for reason in lacking)
    assert list(out.parent.iterdir()) == [out]


def test_only_the_newest_hours_are_drawn_if_asked(tables: Path, tmp_path: Path) -> None:
    report(tables, tmp_path / "all.html")
    report(tables, tmp_path / "less.html", hours=2)
    assert "2026-09-21 00:00:00 UTC to 2026-09-21 10:00:00 UTC" in (tmp_path / "all.html").read_text()
    text = (tmp_path / "less.html").read_text()
    assert "2026-09-21 08:00:00 UTC to" in text
    assert "Table alerts has no rows of this time." in text


def test_short_histories_are_drawn_measurement_by_measurement_with_marks(tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "parse_mark.html"
    report(tables, out, hours=1.0, marks=[(MONDAY + 10 * HOUR - 2 * 10**9, "works begin"), (MONDAY, "long ago")])
    text = out.read_text()
    assert "works begin" in text
    assert "long ago" not in text
    assert re.search(r"Latency of the link bc seen by b.*?<path", text, re.DOTALL)


@pytest.mark.parametrize("text", ["", "noon=x", "2026-11-16T14:30", "2026-11-16T14:30="])
def test_a_mark_needs_a_time_and_a_name(text: str) -> None:
    with pytest.raises(ConfigError, match="must be TIME=TEXT"):
        parse_mark(text)
    assert parse_mark("2026-09-21T02:00+02:00=a=b") == (MONDAY, "a=b")


def test_without_tables_there_is_no_report_but_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run jobs first: chappe pipeline run ingest links"):
        report(tmp_path, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
