"""Load (SJ-08): what was carried, how evenly, beside what was allocated; and proposals with their evidence."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.jobs.load import HOUR_NS, Load
from tests.support.brokerlogs import grant, path, row, subscribe
from tests.support.cleanrows import clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S = 1_000_000_000
BEGIN = 500_000 * HOUR_NS
NOW = BEGIN + HOUR_NS
pytestmark = pytest.mark.timeout(600)  # many small stages, each of which starts workers on a busy machine
TABLES = ("status", "counters", "broker", "quality")
PLANTS = [f"plant/{number}" for number in range(4)]


def log() -> list[dict[str, Any]]:
    """Three desks take four variables of 10 a second whole over a, b and their own edge; the mode changed once."""
    rows = []
    at = BEGIN
    for number, variable in enumerate(PLANTS):
        rows.append(
            row("publish", variable, at + number, entity="plant", edge="a", variable_id=number, rate_num=10, rate_den=S)
        )
        for desk in range(3):
            at += 100
            rows.append(subscribe(at, f"desk{desk}", variable, edge=f"e{desk}", variable_id=number, rate=(10, S),
                                  granted=[grant(1, S // 10)]))  # fmt: skip
            rows += path(at + 1, number, desk + 1, "a", "b", f"e{desk}")
    rows.append(row("mode", "leaf", BEGIN + 1800 * S, mode=2, took_ns=S, by="operator", note="b was left behind"))
    told = [*rows, *rows[:5], ("subscribe", "x", at, "{")]
    return [
        {"broker": "leaf", "action": action, "subject": subject, "created_ns": at, "detail": detail}
        for action, subject, at, detail in told
    ]


def counters() -> list[dict[str, Any]]:
    """a sends what is allocated evenly to b, by two links that are read together, and begins anew; c sends bursts."""
    rows = []
    for step in range(0, 3600, 10):
        for node, link, value in (("a", "b", 40.0 * (step % 1800)), ("c", "d", 3000.0 * (step // 100))):
            labels = f'node="{node}",role="node",link="{link}",direction="out"'
            rows.append({"node": node, "name": "chappe_port_status_total", "created_ns": BEGIN + step * S,
                         "value": value, "labels": labels})  # fmt: skip
        rows += [
            {"node": "b", "name": "chappe_port_status_total", "created_ns": BEGIN + step * S, "value": rate * step,
             "labels": f'node="b",role="{role}",link="{link}",direction="in"'}
            for role, link, rate in (("node", "a", 40.0), ("client", "x", 2.0))
        ]  # fmt: skip
    return rows


def status() -> list[dict[str, Any]]:
    """A sine, noise, text, and far too few values."""
    noise = random.Random(3)
    rows = []
    for number in range(600):
        at = BEGIN + number * S // 10
        rows.append({"name": "plant/0", "node": "b", "created_ns": at, "value": math.sin(number / 10)})
        rows.append(
            {"name": "plant/1", "node": "b", "created_ns": at + noise.randrange(S // 20), "value": noise.gauss(0, 1)}
        )
        rows.append({"name": "plant/text", "node": "b", "created_ns": at, "content": b"x", "value": None})
    rows.append({"name": "plant/rare", "node": "b", "created_ns": BEGIN, "value": 1.0})
    return [*rows, *rows[::9]]


@pytest.mark.spec("SJ-08")
def test_loads_stand_beside_allocations_and_proposals_have_their_evidence(spark: SparkSession) -> None:
    broken = {"client": "desk1", "subject": "plant/0", "kind": "missed", "count": 7, "created_ns": BEGIN + 1801 * S}
    rows = {"status": status(), "counters": counters(), "broker": log(), "quality": [broken]}
    for each in rows.values():
        random.Random(5).shuffle(each)
    job = Load()
    made = job.run({name: clean(spark, name, each) for name, each in rows.items()}, NOW)
    for name, frame in made.items():
        assert frame.columns == job.writes[name].schema.names

    loads = {row["resource"]: row for row in made["loads"].collect()}
    even = loads["channel/a/b"]
    assert even["mean_per_s"] == pytest.approx(40.0, rel=0.01)
    assert even["peak_to_mean"] == pytest.approx(1.0, rel=0.01)
    assert even["allocated_per_s"] == pytest.approx(40.0)
    assert even["used"] == pytest.approx(1.0, rel=0.01)
    bursty = loads["channel/c/d"]
    assert bursty["peak_to_mean"] == pytest.approx(10.0, rel=0.05)
    assert bursty["dispersion"] > 100
    assert (bursty["allocated_per_s"], bursty["used"]) == (None, None)
    assert loads["router/b"]["mean_per_s"] == pytest.approx(42.0, rel=0.01)
    assert loads["router/b"]["allocated_per_s"] == pytest.approx(40.0)

    arrivals = {row["name"]: row for row in made["arrivals"].collect()}
    assert arrivals["plant/0"]["cv"] == pytest.approx(0.0, abs=1e-6)
    assert arrivals["plant/0"]["values"] == 600
    assert arrivals["plant/1"]["cv"] > 0.1
    assert "plant/rare" not in arrivals

    (change,) = made["mode_changes"].collect()
    assert (change["before"], change["mode"], change["took_ns"], change["breaches"]) == (0, 2, S, 7)
    assert change["note"] == "b was left behind"

    functions = {row["name"]: row for row in made["extrapolators"].collect()}
    assert set(functions) == {"plant/0", "plant/1"}
    assert functions["plant/0"]["gain"] > 0.8

    proposals = [(row["topic"].rsplit("/", 1)[1], json.loads(row["body"])) for row in made["load_proposals"].collect()]
    by_kind = {kind: [body for other, body in proposals if other == kind] for kind, _ in proposals}
    assert set(by_kind) == {"condensation", "flooding", "extrapolator"}
    (condense,) = by_kind["condensation"]
    assert condense["value"]["inputs"] == PLANTS
    assert condense["effect"]["values_per_s_to_subscribers"] == {"now": 120.0, "then": 30.0}
    assert {each["subject"] for each in by_kind["flooding"]} == set(PLANTS)
    better = {each["subject"]: each for each in by_kind["extrapolator"]}
    assert better["plant/0"]["effect"]["error"]["then"] < better["plant/0"]["effect"]["error"]["now"] / 2
    assert all({"value", "evidence", "effect"} <= set(body) for _, body in proposals)


@pytest.mark.spec("SJ-08")
def test_nothing_and_nonsense_give_no_advice(spark: SparkSession) -> None:
    nothing = {name: clean(spark, name) for name in TABLES}
    assert [frame.count() for frame in Load().run(nothing, NOW).values()] == [0] * 5
    odd = {
        "status": clean(spark, "status", [{"name": "x", "created_ns": -1}, {"name": "x", "created_ns": NOW + 9}]),
        "counters": clean(spark, "counters", [
            {"name": "chappe_port_status_total", "labels": labels, "created_ns": BEGIN + number, "value": float("nan")}
            for number, labels in enumerate(["", 'direction="in"', 'direction="out",role="node"'])
        ]),
        "broker": clean(spark, "broker", [{"broker": "leaf", "action": "subscribe", "detail": "[", "created_ns": 5}]),
        "quality": clean(spark, "quality", [{"client": "x", "created_ns": -5, "count": 1}]),
    }  # fmt: skip
    assert [frame.count() for frame in Load().run(odd, NOW).values()] == [0] * 5
    for wrong in (Load(days=0.0), Load(flood_share=2.0), Load(trials=0)):
        with pytest.raises(ConfigError, match="job load"):
            wrong.run(nothing, NOW)
