"""SJ-06: proposals from clean tables, and reasons where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from chappe.errors import ConfigError
from chappe.pipeline.jobs.calibration import Calibration
from tests.support.frames import BEGUN, frames
from tests.support.ingested import ingested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000_000
START = BEGUN - BEGUN % (60 * SECOND)
WINDOWS = 60


def _inputs() -> dict[str, list[dict[str, Any]]]:
    """A row a-b-c with latencies that change; values from a and events from b arrive at c after twice the latency."""
    random = np.random.default_rng(4)
    measured, status, events, counters = [], [], [], []
    counted = dict.fromkeys("abc", 0.0)
    for window in range(WINDOWS):
        begin = START + window * 10 * SECOND
        latency = {"ab": float(random.uniform(2, 30)), "bc": float(random.uniform(2, 30))}
        load = float(random.uniform(1, 40))
        for node, peer, link in (("a", "b", "ab"), ("b", "a", "ab"), ("b", "c", "bc"), ("c", "b", "bc")):
            measured += [{"node": node, "peer": peer, "link": link, "created_ns": begin + tick * SECOND,
                          "latency_ms": latency[link], "jitter": 0.1, "cost": latency[link] + 1.0}
                         for tick in (0, 5)]  # fmt: skip
        for number in range(5):
            created = begin + number * SECOND
            whole = 2.0 * (latency["ab"] + latency["bc"]) + 1.0
            status.append({"variable": 7, "name": "pmu1/frequency", "created_ns": created, "node": "c",
                           "received_ns": created + round(whole * 1e6), "value": 1.0})  # fmt: skip
            events.append({"topic": "plant/alarm", "created_ns": created, "node": "c",
                           "received_ns": created + round((2.0 * latency["bc"] + 1.0) * 1e6)})  # fmt: skip
        for node in "abc":
            for tick in (0, 9):
                counters.append({"node": node, "name": "chappe_port_status_total", "created_ns": begin + tick * SECOND,
                                 "labels": 'direction="in",role="node"', "value": counted[node]})  # fmt: skip
                counted[node] += load * 9000 if tick == 0 else 1.0
    nonsense = [
        {"node": "a", "peer": "b", "link": "ab", "created_ns": START, "cost": float("nan")},
        {"node": "a", "peer": "b", "link": "ab", "created_ns": START, "cost": None},
        {"node": "a", "peer": "z", "link": "az", "created_ns": START + 10**15, "received_ns": START, "cost": 0.1},
    ]
    backwards = [{"variable": 7, "name": "pmu1/frequency", "created_ns": START + 10**15, "received_ns": START}]
    detail = json.dumps({"variable_id": 7, "edge": "a", "rate_num": 1, "rate_den": SECOND})
    return {
        "measurements": measured[::-1] + measured[:9] + nonsense, "status": status[::-1] + status[:9] + backwards,
        "events": [*events, {"topic": "plant/alarm", "created_ns": None, "received_ns": START}], "counters": counters,
        "broker": [{"action": "publish", "created_ns": START, "detail": detail},
                   {"action": "publish", "created_ns": START, "detail": "{"}],
    }  # fmt: skip


@pytest.mark.spec("SJ-06")
def test_coefficients_constants_thresholds_and_intervals(spark: SparkSession) -> None:
    job = Calibration(origins="plant/* = b")
    found = job.run(frames(spark, **_inputs()), START)
    for name, written in job.writes.items():
        assert found[name].columns == written.schema.names
    rows = {(row["kind"], row["subject"]): row for row in found["calibration"].collect()}
    assert {subject for kind, subject in rows if kind == "interval"} == {"a/ab", "b/ab", "b/bc", "c/bc"}
    assert len(rows) == 7
    cost = rows["cost", "default"]
    assert cost["proposed"]
    assert json.loads(cost["value"])["latency"] == pytest.approx(2.0, rel=0.02)
    assert cost["samples"] == 2 * WINDOWS
    assert json.loads(cost["evidence"])["deliveries"] == 10 * WINDOWS
    model = rows["latency_model", "all"]
    assert model["samples"] == 2 * WINDOWS
    assert model["proposed"] or "latency model" in model["reason"] or "negative" in model["reason"]
    threshold = rows["threshold", "publication"]
    replays = json.loads(threshold["evidence"])["replays"]
    assert [each["share"] for each in replays] == [0.05, 0.1, 0.15, 0.2, 0.3, 0.5]
    assert all(each["missed"] == 0 for each in replays)  # there is one way only
    assert threshold["proposed"]
    assert json.loads(threshold["value"])["share"] == 0.5
    interval = rows["interval", "a/ab"]
    assert interval["samples"] == 2 * WINDOWS
    assert json.loads(interval["current"]) == {"interval_s": 5.0}
    proposals = {(row["kind"], row["subject"]): row for row in found["proposals"].collect()}
    assert set(proposals) == {key for key, row in rows.items() if row["proposed"]}
    told = proposals["cost", "default"]
    assert told["topic"] == "pipeline/proposals/cost"
    assert json.loads(told["body"])["value"] == json.loads(cost["value"])
    assert {"current", "evidence", "effect"} <= json.loads(told["body"]).keys()


@pytest.mark.spec("SJ-06")
def test_a_real_mesh_gives_evidence_and_reasons(spark: SparkSession, mesh_archive: Path) -> None:
    job = Calibration(origins="plant/* = c", window_s=0.5, step_s=0.25, least=8)
    found = job.run(ingested(spark, mesh_archive), 0)
    rows = {(row["source"], row["kind"], row["subject"]): row for row in found["calibration"].collect()}
    cost = rows["plant", "cost", "default"]
    assert cost["samples"] >= 8  # windows with events from c to the archive at a
    assert cost["proposed"] or cost["reason"]
    replays = json.loads(rows["plant", "threshold", "publication"]["evidence"])["replays"]
    assert [each["told"] for each in replays] == sorted((each["told"] for each in replays), reverse=True)
    assert replays[0]["told"] > 8  # each end of each link at first, and the slow one again
    intervals = {subject: row for (_, kind, subject), row in rows.items() if kind == "interval"}
    assert len(intervals) == 8
    assert all(0.1 < json.loads(row["current"])["interval_s"] < 2 for row in intervals.values())
    assert found["proposals"].count() == sum(row["proposed"] for row in rows.values())


def test_without_evidence_there_is_a_reason_and_no_proposal(spark: SparkSession) -> None:
    few = {name: rows[:40] for name, rows in _inputs().items() if name == "measurements"}
    found = Calibration().run(frames(spark, **few), START)
    rows = found["calibration"].collect()
    assert {row["kind"] for row in rows} == {"cost", "latency_model", "threshold", "interval"}
    assert all(not row["proposed"] and row["reason"] for row in rows)
    assert found["proposals"].count() == 0
    empty = Calibration().run(frames(spark), START)
    assert {name: each.count() for name, each in empty.items()} == dict.fromkeys(Calibration.writes, 0)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"profile": "none"}, "default"),
        ({"origins": "pmu1"}, "pmu"),
        ({"types": "= a"}, "core"),
        ({"window_s": 0.0}, "above 0"),
        ({"least": 1}, "3 or more"),
    ],
)
def test_parameters_that_cannot_be_say_why(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Calibration(**settings)
