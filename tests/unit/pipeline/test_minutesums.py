"""Sums by end and minute: merged however rows are cut, they say what the node's formulas say of all samples."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chappe.measure import metrics
from chappe.pipeline import minutesums, periods
from tests.support.cleanrows import START_NS, clean_table

SECOND_NS = 1_000_000_000


def rows(seed: int, count: int = 600) -> list[dict[str, Any]]:
    noise = random.Random(seed)
    found: list[dict[str, Any]] = []
    for number in range(count):
        row = {
            "node": noise.choice("abc"), "link": noise.choice("xy"), "peer": "p",
            "transport": noise.choice(["tcp", "udp"]), "realm": noise.choice([None, "", "east"]),
            "created_ns": START_NS + number * SECOND_NS,
            "latency_ms": noise.choice([None, noise.gauss(20, 1)]), "jitter_ms": noise.choice([None, noise.random()]),
            "jitter": noise.random(), "loss": noise.choice([None, 0.0, 0.1]), "bandwidth": None,
            "outliers": noise.choice([None, 1]), "window": 8,
        }  # fmt: skip
        found.append(row)
    noise.shuffle(found)
    return found


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    end = tuple(row[name] or "" for name in minutesums.NAMES)
    return (*end, periods.start_ns(periods.number(row["created_ns"], periods.MINUTE_NS), periods.MINUTE_NS))


@pytest.mark.spec("SJ-02")
@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_the_formulas(seed: int) -> None:
    given = rows(seed)
    found = {
        tuple(row[name] for name in (*minutesums.NAMES, "start_ns")): row
        for row in minutesums.summed(clean_table("measurements", given)).to_pylist()
    }
    expected = {name: list(part) for name, part in groupby(sorted(given, key=key), key)}
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        row = found[name]
        known = [each for each in part if each["latency_ms"] is not None]
        latency = np.array([each["latency_ms"] for each in known])
        assert (row["rounds"], row["samples"]) == (len(part), len(known))
        assert row["outliers"] == sum(each["outliers"] or 0 for each in part)
        assert row["tested"] == 8 * len(part)
        assert (row["bandwidth_total"], row["bandwidth_count"]) == (None, 0)
        loss = [each["loss"] for each in part if each["loss"] is not None]
        assert row["loss_count"] == len(loss)
        assert row["loss_total"] == (pytest.approx(sum(loss)) if loss else None)
        told = [each for each in part if each["jitter_ms"] is not None]
        last = max(told, key=lambda each: each["created_ns"], default=None)
        assert row["jitter_ms"] == (last and last["jitter_ms"])
        assert row["jitter_ns"] == (last and last["created_ns"])
        if not known:
            assert row["total_ms"] is row["squares"] is row["least_ms"] is row["most_ms"] is row["most_ns"] is None
            continue
        assert row["total_ms"] / row["samples"] == pytest.approx(metrics.mean(latency))
        assert np.sqrt(row["squares"] / row["samples"]) == pytest.approx(metrics.deviation(latency), abs=1e-9)
        most = max(known, key=lambda each: each["latency_ms"])
        assert (row["least_ms"], row["most_ms"], row["most_ns"]) == (
            latency.min(), most["latency_ms"], most["created_ns"],
        )  # fmt: skip


def test_files_are_summed_as_their_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = clean_table("measurements", rows(9))
    pq.write_table(whole, tmp_path / "rows.parquet", row_group_size=100)
    at_once = pa.Table.from_batches(minutesums.of_files([str(tmp_path / "rows.parquet")]))
    assert at_once == minutesums.summed(whole)
    monkeypatch.setattr(minutesums, "ROWS", 150)
    parts = pa.Table.from_batches(minutesums.of_files([str(tmp_path / "rows.parquet")]))
    assert sum(parts["rounds"].to_pylist()) == whole.num_rows
    assert parts.num_rows > at_once.num_rows
    again = pa.Table.from_batches(minutesums.of_batches(whole.to_batches(100)))
    assert sum(again["rounds"].to_pylist()) == whole.num_rows
    assert minutesums.summed(whole.slice(0, 0)).num_rows == 0


def test_many_ends_are_told_apart() -> None:
    many = [
        {
            "node": f"n{at}",
            "link": f"l{at % 700}",
            "peer": f"p{at % 300}",
            "created_ns": START_NS,
            "latency_ms": float(at),
        }
        for at in range(66_000)
    ]
    found = minutesums.summed(clean_table("measurements", many))
    assert found.num_rows == len(many)
    assert dict(zip(found["node"].to_pylist(), found["total_ms"].to_pylist(), strict=True))["n65999"] == 65999.0
