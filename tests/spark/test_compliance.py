"""Compliance (SJ-07): promises of the brokers' log beside what was seen, reported and counted."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.jobs.compliance import COMPLIANCE, HOUR_NS, SEGMENTS, SLA, Compliance
from tests.support.brokerlogs import grant, path, row, subscribe
from tests.support.cleanrows import clean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

S = 1_000_000_000
MS = 1_000_000
BEGIN = 500_000 * HOUR_NS
RATE = (1, 10 * S)  # one in ten seconds
TABLES = ("status", "counters", "broker", "quality")

pytestmark = pytest.mark.timeout(600)  # many small stages, each of which starts workers on a busy machine


def log() -> list[dict[str, Any]]:
    """`desk` and `far` take plant/load over two paths and one; the mode changes after an hour and a half."""
    twenty = grant(2, 20 * S, bound_ns=50 * MS, redundancy=2)
    rows = [
        subscribe(BEGIN, "site/desk", "plant/load", edge="c", rate=RATE, granted=[twenty]),
        subscribe(BEGIN + 1, "far", "plant/load", edge="z", rate=RATE, granted=[grant(1, 10 * S, bound_ns=5 * MS)]),
        *path(BEGIN + 10, 1, 1, "a", "b", "c"),
        *path(BEGIN + 20, 1, 2, "a", "d", "c"),
        *path(BEGIN + 30, 1, 3, "a", "z"),
        row("mode", "leaf", BEGIN + HOUR_NS * 3 // 2, mode=3, took_ns=MS),
        ("subscribe", "plant/load", BEGIN + 5, "not JSON"),
    ]
    return [
        {"broker": "leaf", "action": action, "subject": subject, "created_ns": at, "detail": detail, "source": source}
        for source in ("east", "west")
        for action, subject, at, detail in rows
    ]


def status() -> list[dict[str, Any]]:
    """Two hours at c; nothing for ten minutes of the second hour, and every 90th value takes 80 ms."""
    rows = []
    for number in range(720):
        created = BEGIN + number * 10 * S + (number % 7 - 3) * S
        if not 450 <= number < 510:
            way = 80 * MS if number % 90 == 0 else 4 * MS
            rows.append({"name": "plant/load", "node": "c", "created_ns": created, "received_ns": created + way})
    far = {"name": "plant/load", "node": "c", "created_ns": BEGIN + 9 * HOUR_NS, "received_ns": BEGIN}
    return [*rows, *[{**row, "path": "2"} for row in rows[:5]], {**rows[0], "source": "west"}, far]


def counters() -> list[dict[str, Any]]:
    """b loses a tenth on the way to c; a drops a fifth for d; a counter begins anew."""
    rows = []
    for step in range(0, 7201, 60):
        for node, link, what, value in (
            ("a", "b", 'status_total{direction="out"', 10.0 * step),
            ("b", "a", 'status_total{direction="in"', 10.0 * step),
            ("b", "c", 'status_total{direction="out"', 10.0 * (step % 3600)),
            ("c", "b", 'status_total{direction="in"', 9.0 * step),
            ("a", "d", 'status_total{direction="out"', 8.0 * step),
            ("d", "a", 'status_total{direction="in"', 8.0 * step),
            ("a", "d", 'drops_total{reason="full"', 2.0 * step),
            ("d", "c", 'status_total{direction="out"', 8.0 * step),
            ("c", "d", 'status_total{direction="in"', 8.0 * step),
        ):  # fmt: skip
            name, _, label = what.partition("{")
            labels = f'node="{node}",role="node",link="{link}",{label}'
            rows.append({"node": node, "name": f"chappe_port_{name}", "labels": labels,
                         "created_ns": BEGIN + step * S, "value": value})  # fmt: skip
    rows.append({"node": "a", "name": "chappe_mode", "labels": 'node="a"', "created_ns": BEGIN, "value": 0.0})
    return rows


def quality() -> list[dict[str, Any]]:
    told = {"subject": "plant/load", "created_ns": BEGIN + 100 * S, "count": 4, "latency_ns": 9 * MS}
    return [
        {**told, "client": "far", "kind": "late", "detail": json.dumps({"mode": 0})},
        {**told, "client": "far", "kind": "missed", "detail": "broken", "latency_ns": None},
        {**told, "client": "site_desk", "kind": "extrapolated", "detail": None},
        {**told, "client": "stranger", "kind": "late", "detail": None},
    ]


def tables(spark: SparkSession, rows: dict[str, list[dict[str, Any]]]) -> dict[str, DataFrame]:
    """As the job reads them: values from the raw layer."""
    return {"raw/status" if name == "status" else name: clean(spark, name, each) for name, each in rows.items()}


@pytest.mark.spec("SJ-07")
def test_promises_are_judged_by_what_was_seen_reported_and_counted(spark: SparkSession) -> None:
    mixed = {"status": status(), "counters": counters(), "broker": log(), "quality": quality()}
    for rows in mixed.values():
        random.Random(5).shuffle(rows)
    made = Compliance(target=0.95).run(tables(spark, mixed), BEGIN + 2 * HOUR_NS)
    assert made["compliance"].columns == COMPLIANCE.names
    assert made["segments"].columns == SEGMENTS.names
    assert made["sla"].columns == SLA.names

    rows = {
        (row["entity"], row["mode"], (row["hour_ns"] - BEGIN) // HOUR_NS): row for row in made["compliance"].collect()
    }
    assert set(rows) == {(who, *when) for who in ("site/desk", "far") for when in ((0, 0), (0, 1), (3, 1))}
    first = rows["site/desk", 0, 0]
    assert (first["interval_ms"], first["bound_ms"], first["redundancy"]) == (20_000.0, 50.0, 2)
    assert (first["expected"], first["received"], first["gaps"], first["longest_gap_ms"]) == (180, 180, 0, 0.0)
    assert (first["late"], first["latency_p50_ms"], first["latency_max_ms"]) == (4, 4.0, 80.0)
    assert first["duplicates"] == 3  # on the grid of this subscription
    assert (first["reported_extrapolated"], first["reported_late"]) == (4, 0)
    second, third = rows["site/desk", 0, 1], rows["site/desk", 3, 1]
    assert (second["expected"], second["received"], second["gaps"]) == (90, 60, 1)
    assert second["longest_gap_ms"] == 31 * 20_000.0
    assert (third["gaps"], third["expected"] - third["received"]) == (0, 0)

    assert first["paths"] == 2
    assert first["segments"] == ["a>b", "a>d", "b>c", "d>c"]
    assert first["segment_loss"] == pytest.approx(0.1 * 0.2, rel=0.2)  # what a counter had before it began anew is lost
    far = rows["far", 0, 0]
    assert (far["expected"], far["received"], far["latency_p99_ms"]) == (None, None, None)
    assert (far["reported_late"], far["reported_missed"], far["segments"]) == (4, 4, ["a>z"])

    lost = {(row["from_node"], row["to_node"], row["hour_ns"]): row for row in made["segments"].collect()}
    assert lost["b", "c", BEGIN]["loss"] == pytest.approx(0.1, rel=0.2)
    assert lost["a", "d", BEGIN]["loss"] == pytest.approx(0.2)
    assert lost["a", "b", BEGIN]["loss"] == 0.0
    assert lost["b", "c", BEGIN + HOUR_NS]["sent"] == pytest.approx(36_000, rel=0.02)

    sla = {(row["entity"], row["mode"], row["promise"]): row for row in made["sla"].collect()}
    kept = {key: row["kept"] for key, row in sla.items()}
    assert kept["site/desk", 0, "latency"] is True
    assert kept["site/desk", 0, "interval"] is False
    assert kept["site/desk", 3, "interval"] is True
    assert kept["site/desk", 0, "redundancy"] is True
    assert kept["far", 0, "latency"] is False
    assert kept["far", 3, "latency"] is None
    assert "instants" in sla["site/desk", 0, "interval"]["evidence"]
    assert sla["far", 0, "interval"]["evidence"] == "4 reported missed"
    assert sla["far", 3, "interval"]["evidence"].startswith("no archive at the edge")


@pytest.mark.spec("SJ-07")
def test_nothing_bad_rows_and_wrong_parameters(spark: SparkSession) -> None:
    nothing = tables(spark, {name: [] for name in TABLES})
    made = Compliance().run(nothing, BEGIN)
    assert [frame.count() for frame in made.values()] == [0, 0, 0]
    odd = {
        "raw/status": clean(spark, "status", [{"name": "plant/load", "node": "c", "created_ns": -5}, {"name": "x"}]),
        "counters": clean(spark, "counters", [
            {"name": "chappe_port_status_total", "labels": "nonsense", "created_ns": -1, "value": float("nan")}
        ]),
        "broker": clean(spark, "broker", [
            {"broker": "leaf", "action": "subscribe", "subject": "plant/load", "created_ns": 0, "detail": subscribe(
                0, "desk", "plant/load", edge="c", rate=RATE)[3]},
            {"broker": "leaf", "action": "mode", "subject": "leaf", "created_ns": 7, "detail": None},
        ]),
        "quality": clean(spark, "quality", [{"client": "desk", "subject": "plant/load", "created_ns": -9, "count": 1}]),
    }  # fmt: skip
    made = Compliance(days=0.1).run(odd, BEGIN)
    assert made["compliance"].count() in (3, 4)  # what was promised in 1970 is looked at for the last days alone
    assert made["segments"].count() == 0
    with pytest.raises(ConfigError, match="target"):
        Compliance(target=2.0).run(nothing, 0)
    with pytest.raises(ConfigError, match="days"):
        Compliance(days=0.0).run(nothing, 0)
