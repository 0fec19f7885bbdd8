"""Link statistics (SJ-02): the numbers of the node's formulas, whatever the order of the rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from chappe.errors import ConfigError
from chappe.measure import metrics
from chappe.measure.cost import cost
from chappe.measure.windows import replay
from chappe.pipeline import periods
from chappe.pipeline.job import configured
from chappe.pipeline.jobs import links
from chappe.pipeline.jobs.links import Links
from chappe.pipeline.tables import Tables
from tests.support.cleanrows import SECOND_NS, clean, clean_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONDAY_NS = periods.start_ns(2960, periods.WEEK_NS)
SPIKE_NS = MONDAY_NS + 100 * SECOND_NS


def rounds(seconds: int = 150) -> list[dict[str, Any]]:
    """Three ends of links around the midnight before a Monday, as nodes tell of them; one has no loss, and a spike."""
    noise = random.Random(11)
    rows = []
    for number, (node, peer, transport) in enumerate((("a", "b", "tcp"), ("b", "a", "tcp"), ("a", "c", "udp"))):
        mine = []
        for second in range(-seconds, seconds):
            created = MONDAY_NS + second * SECOND_NS + noise.randrange(SECOND_NS // 2)
            latency: float | None = 10.0 * (number + 1) + noise.gauss(0, 0.5)
            if number == 2 and second == 100:
                created, latency = SPIKE_NS, 95.0
            elif noise.random() < 0.02:
                latency = None
            row = {
                "node": node, "peer": peer, "link": f"link {min(number, 1)}", "transport": transport,
                "realm": "east" if number else None, "created_ns": created, "latency_ms": latency,
                "loss": None if number == 2 else noise.choice([0.0, 0.0, 0.1]),
            }  # fmt: skip
            mine.append(row)
        known = [row for row in mine if row["latency_ms"] is not None]
        told = replay([row["latency_ms"] for row in known])
        for at, row in enumerate(known):
            row["jitter_ms"], row["jitter"] = float(told["jitter_ms"][at]), float(told["jitter"][at])
            row["outliers"], row["window"] = int(told["outliers"][at]), int(told["count"][at])
        rows += mine
    return rows


def expected(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> list[float]:
    """Of rows in the order of time, and of all rows up to their end."""
    known = [row for row in rows if row["latency_ms"] is not None]
    series = np.array([row["latency_ms"] for row in known])
    loss = [row["loss"] for row in rows if row["loss"] is not None]
    mean, jitter = metrics.mean(series), metrics.mean([row["jitter"] for row in known])
    lost = metrics.mean(loss) if loss else np.nan
    return [
        len(rows), len(series), mean, metrics.deviation(series), series.min(), series.max(),
        metrics.rtp_jitter([row["latency_ms"] for row in before if row["latency_ms"] is not None]), jitter, lost,
        cost("media", mean, jitter, lost), sum(row["outliers"] for row in known), sum(row["window"] for row in known),
    ]  # fmt: skip


NUMBERS = (
    "rounds", "samples", "latency_ms", "deviation_ms", "least_ms", "most_ms", "jitter_ms", "jitter", "loss", "cost",
    "outliers", "tested",
)  # fmt: skip


@pytest.mark.spec("SJ-02")
@pytest.mark.parametrize("few", [0, 1 << 30], ids=["by tasks", "in the driver"])
def test_periods_have_the_numbers_of_the_node_s_formulas_in_whatever_order_rows_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    rows = rounds()
    mixed = list(rows)
    random.Random(5).shuffle(mixed)
    made = Links(profile="media").run({"measurements": clean(spark, "measurements", mixed).repartition(3)}, 0)
    for name, table in Links.writes.items():
        assert made[name].columns == table.schema.names

    statistics = made["link_statistics"].toPandas()
    keys = list(Links.writes["link_statistics"].keys)
    assert not statistics.duplicated(keys).any()
    assert statistics.groupby("period").size().to_dict() == {"minute": 18, "hour": 6, "day": 6, "week": 6}
    by_time = sorted(rows, key=lambda row: row["created_ns"])
    for _, row in statistics.iterrows():
        length = periods.LENGTHS[row["period"]]
        mine = [
            each for each in by_time
            if (each["node"], each["peer"], each["realm"] or "") == (row["node"], row["peer"], row["realm"])
            and each["created_ns"] < row["start_ns"] + length
        ]  # fmt: skip
        inside = [each for each in mine if each["created_ns"] >= row["start_ns"]]
        assert [row[name] for name in NUMBERS] == pytest.approx(expected(inside, mine), rel=1e-9, nan_ok=True)

    # the same from files that tasks read, cut anywhere
    paths = [str(tmp_path / f"{part}.parquet") for part in range(2)]
    for part, path in enumerate(paths):
        pq.write_table(clean_table("measurements", mixed[part::2]), path)
    monkeypatch.setattr(links, "FEW", few)
    written = Links(profile="media").run_files(spark, {"measurements": paths}, Tables(tmp_path / "work").room, 0)
    for name, table in Links.writes.items():
        read, order = pd.read_parquet(written[name]), list(table.keys)
        pd.testing.assert_frame_equal(
            read.sort_values(order, ignore_index=True), made[name].toPandas().sort_values(order, ignore_index=True)
        )

    groups = made["group_statistics"].toPandas().set_index(["period", "start_ns", "by", "name"]).sort_index()
    assert groups.index.is_unique
    tcp = [row["latency_ms"] for row in rows if row["transport"] == "tcp" and row["created_ns"] >= MONDAY_NS]
    known = [latency for latency in tcp if latency is not None]
    week = groups.loc["week", MONDAY_NS, "transport", "tcp"]
    assert (week["ends"], week["rounds"], week["samples"]) == (2, 300, len(known))
    assert week["latency_ms"] == pytest.approx(metrics.mean(known))
    assert week["deviation_ms"] == pytest.approx(metrics.deviation(known))
    assert week["cost"] == pytest.approx(cost("media", week["latency_ms"], week["jitter"], week["loss"]))
    assert set(groups.loc["week", MONDAY_NS, "client"].index) == {"a", "b", "c"}
    assert set(groups.loc["week", MONDAY_NS, "realm"].index) == {"", "east"}

    (spike,) = made["spikes"].collect()
    assert (spike["node"], spike["peer"], spike["created_ns"], spike["latency_ms"]) == ("a", "c", SPIKE_NS, 95.0)
    assert spike["usual_ms"] == pytest.approx(30, abs=1)
    assert spike["times"] > 20
    advice = made["window_advice"].toPandas()
    assert (advice.groupby(["node", "peer", "start_ns"])["advised"].sum() == 1).all()
    assert len(advice) == 3 * 2 * 4


def test_nothing_comes_of_nothing(spark: SparkSession) -> None:
    made = Links().run({"measurements": clean(spark, "measurements")}, 0)
    assert [frame.count() for frame in made.values()] == [0, 0, 0, 0]


def test_a_link_that_never_answered_has_its_loss_alone(spark: SparkSession) -> None:
    silent = [{"node": "a", "link": "x", "created_ns": MONDAY_NS + second, "loss": 1.0} for second in range(3)]
    made = Links().run({"measurements": clean(spark, "measurements", silent)}, 0)
    for row in made["link_statistics"].collect():
        assert (row["rounds"], row["samples"], row["loss"]) == (3, 0, 1.0)
        assert row["latency_ms"] is row["jitter_ms"] is row["cost"] is None
    assert made["spikes"].count() == 0
    (group, *_) = made["group_statistics"].where("by = 'node' and period = 'week'").collect()
    assert (group["samples"], group["latency_ms"], group["loss"]) == (0, None, 1.0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"profile": "fast"}, "no cost profile 'fast'"), ({"z": 0}, "z = 0"), ({"tried_rows": -1}, "tried_rows = -1")],
)
def test_bad_parameters_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        configured(Links, settings).run({}, 0)
