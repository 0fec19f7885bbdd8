"""SJ-05: load, weak points and what-if over snapshots of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chappe.errors import ConfigError
from chappe.pipeline.jobs.bottlenecks import BYTES, Bottlenecks
from tests.support.frames import BEGUN, frames
from tests.support.ingested import ingested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000_000
START = BEGUN - BEGUN % (60 * SECOND)
# a square whose fourth side is never worth it, and a tail
LINKS = {("a", "b"): 1.0, ("b", "c"): 1.0, ("c", "d"): 1.0, ("d", "a"): 20.0, ("d", "e"): 2.0}


def _measured(begin: int, costs: dict[tuple[str, str], float], node: str = "") -> list[dict[str, Any]]:
    rows = []
    for (a, b), cost in costs.items():
        for one, other in ((a, b), (b, a)):
            for tick in range(3):
                created = begin + tick * 10 * SECOND
                rows.append({"node": one, "peer": other, "link": a + b, "created_ns": created, "cost": cost + tick - 1,
                             "bandwidth": 1000.0 if (a, b) == ("b", "c") else None})  # fmt: skip
    return rows


def _counted(node: str, role: str, link: str, direction: str, values: list[float]) -> list[dict[str, Any]]:
    labels = f'direction="{direction}",link="{link}",node="{node}",role="{role}"'
    return [
        {"node": node, "name": BYTES, "labels": labels, "created_ns": START + at * 10 * SECOND, "value": value}
        for at, value in enumerate(values)
    ]


@pytest.mark.spec("SJ-05")
def test_loads_weak_points_and_what_if(spark: SparkSession) -> None:
    later = START + 60 * SECOND
    shifted = LINKS | {("b", "c"): 9.0}
    malformed = [
        {"node": "a", "peer": "x", "link": "ax", "created_ns": START, "cost": None},
        {"node": "a", "peer": "x", "link": "ax", "created_ns": START, "cost": float("nan")},
        {"node": "a", "peer": "", "link": "none", "created_ns": START, "cost": 1.0},
        {"node": "a", "peer": "x", "link": "ax", "created_ns": START + 10**15, "received_ns": START, "cost": 1.0},
    ]
    measured = _measured(START, LINKS) + _measured(later, shifted)
    counted = (
        _counted("a", "client", "pmu", "in", [0.0, 1000.0]) + _counted("e", "client", "desk", "out", [0.0, 1000.0])
        + _counted("c", "client", "view", "out", [5.0, 5.0]) + _counted("b", "node", "c", "out", [0.0, 8000.0, 16000.0])
    )  # fmt: skip
    job = Bottlenecks(load=0.9)
    found = job.run(frames(spark, measurements=measured[::-1] + measured[:7] + malformed, counters=counted), later)
    for name, written in job.writes.items():
        assert found[name].columns == written.schema.names
    edges = {(row["window_ns"], row["node"], row["peer"]): row for row in found["edge_load"].collect()}
    assert len(edges) == 10
    assert {pair[1:] for pair in edges} == {("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("d", "e")}
    first = edges[START, "b", "c"]
    assert first["cost"] == pytest.approx(1.0)
    assert first["load"] == pytest.approx(1.0)  # all that is wanted goes from a to e
    assert first["carried_bytes_s"] == pytest.approx(800.0)
    assert first["utilisation"] == pytest.approx(0.8)
    assert edges[START, "a", "d"]["load"] == 0.0
    assert edges[later, "b", "c"]["load"] < 0.9  # no counters there: all pairs alike
    assert edges[later, "b", "c"]["slow"]
    assert edges[later, "d", "e"]["bridge"]
    slow = {(row["kind"], row["node"], row["peer"]): row for row in found["bottlenecks"].collect()}
    assert slow["link", "b", "c"]["share"] == 1.0
    assert set(slow["link", "b", "c"]["reasons"]) == {"bottleneck", "slow"}
    assert slow["link", "b", "c"]["most_utilisation"] == pytest.approx(0.8)
    assert slow["node", "d", ""]["reasons"] == ["articulation"]
    assert slow["node", "d", ""]["share"] == 1.0
    assert ("link", "a", "d") not in slow
    what_if = {(row["action"], row["node"], row["peer"]): row for row in found["what_if"].collect()}
    assert what_if["remove", "a", "d"]["advice"] == "keep: the only way around another link"
    assert what_if["remove", "d", "e"]["advice"] == "keep: others cannot be reached without it"
    assert what_if["remove", "b", "c"]["advice"] == "keep: ways become dearer without it"
    assert what_if["remove", "b", "c"]["gain_ms"] < 0
    added = what_if["add", "a", "e"]
    assert added["advice"] == "add"
    assert (added["snapshots"], added["of"]) == (2, 2)
    assert added["gain_ms"] > 0
    ways = {(row["window_ns"], row["node"], row["peer"]): row for row in found["alternates"].collect()}
    assert ways[START, "b", "c"]["alternate"] == ["b", "a", "d", "c"]
    assert ways[START, "b", "c"]["price"] == pytest.approx(21.0)
    assert ways[START, "d", "e"]["alternate"] == []
    assert ways[START, "d", "e"]["price"] is None


@pytest.mark.spec("SJ-05")
def test_the_slow_link_of_a_real_mesh_has_a_way_around_it(spark: SparkSession, mesh_archive: Path) -> None:
    found = Bottlenecks(window_s=1.0).run(ingested(spark, mesh_archive), 0)
    edges = [row for row in found["edge_load"].collect() if row["source"] == "plant"]
    assert {(row["node"], row["peer"]) for row in edges} == {("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")}
    slowest = max((row for row in edges if row["node"] + row["peer"] == "ab"), key=lambda row: row["cost"])
    assert slowest["cost"] > 15.0
    ways = {(row["window_ns"], row["node"] + row["peer"]): row for row in found["alternates"].collect()}
    around = ways[slowest["window_ns"], "ab"]
    assert {tuple(around["way"]), tuple(around["alternate"])} == {("a", "b"), ("a", "d", "c", "b")}
    assert around["price"] >= 0
    what_if = {(row["action"], row["node"] + row["peer"]): row for row in found["what_if"].collect()}
    assert {pair for action, pair in what_if if action == "add"} == {"ac", "bd"}
    assert all(what_if["remove", pair]["gain_ms"] <= 0 for pair in ("ab", "bc", "cd", "ad"))
    assert any(row["carried_bytes_s"] for row in edges)


def test_nothing_comes_of_nothing(spark: SparkSession) -> None:
    found = Bottlenecks().run(frames(spark), START)
    assert {name: each.count() for name, each in found.items()} == dict.fromkeys(Bottlenecks.writes, 0)


@pytest.mark.parametrize("settings", [{"window_s": 0.0}, {"direct": 2.0}, {"chunks": 0}])
def test_parameters_that_cannot_be_say_why(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Bottlenecks(**settings)
