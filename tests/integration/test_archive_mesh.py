"""What an archive keeps of a real mesh: values, events and measurements, readable as they are."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas
import polars
import pyarrow.dataset as ds

from chappe.archive.reader import Reader
from chappe.archive.schema import schema_of
from chappe.archive.segments import Segments
from tests.support.meshrun import FLOATS, SLOW_MS


def table(folder: Path, dataset: str) -> ds.Dataset:
    return ds.dataset(folder / dataset, schema=schema_of(dataset), partitioning="hive")


def test_values_events_and_measurements_of_a_mesh_become_rows(mesh_archive: Path) -> None:
    status = table(mesh_archive, "status").to_table().to_pandas()
    assert set(status["name"]) == {*FLOATS, "pmu1/steps", "pmu1/closed", "turbine/speed"}
    assert status[status["name"].isin(FLOATS)]["value"].between(49, 51).all()
    steps = status[status["name"] == "pmu1/steps"].sort_values("created_ns")["whole"]
    assert steps.is_monotonic_increasing
    assert len(steps) > 100
    assert (status["created_ns"] <= status["received_ns"]).all()

    events = table(mesh_archive, "events").to_table().to_pandas()
    assert set(events["topic"]) == {"plant/alarm", "plant/reading"}
    assert set(events[events["durable"]]["topic"]) == {"plant/alarm"}
    assert (events["topic"] == "plant/alarm").sum() == events["durable"].sum() >= 10
    assert not events.duplicated(["issuer", "epoch", "sequence"]).any()
    assert len(events) > 50

    measured = table(mesh_archive, "measurements").to_table().to_pandas()
    assert set(measured["node"]) == {"a", "b", "c", "d"}
    slowed = measured[(measured["node"] == "a") & (measured["peer"] == "b")]
    assert slowed["latency_ms"].max() > SLOW_MS / 2
    assert set(measured["realm"]) == {"plant"}


def test_what_a_cloud_tells_of_itself_becomes_rows(mesh_archive: Path) -> None:
    broker = table(mesh_archive, "broker").to_table().to_pandas()
    assert set(broker["broker"]) == {"leaf"}
    assert {"publish", "path", "subscribe", "subscribe_refused"} <= set(broker["action"])
    quality = table(mesh_archive, "quality").to_table().to_pandas()
    assert set(quality["client"]) == {"desk"}
    assert "missed" in set(quality["kind"])
    counters = table(mesh_archive, "counters").to_table().to_pandas()
    assert {"a", "b", "c", "d", "z", "leaf"} <= set(counters["node"])


def test_rows_have_offsets_without_gaps_and_the_log_is_empty(mesh_archive: Path) -> None:
    segments = Segments(mesh_archive, "plant")
    log = mesh_archive.parent / "log"
    for dataset in ("status", "events", "measurements"):
        reader = Reader(segments, log)
        rows = reader.read(dataset, 0, reader.end(dataset))
        offsets = [offset for batch in rows for offset in batch.column("offset").to_pylist()]
        assert offsets == list(range(reader.end(dataset)))
        assert Reader(segments).end(dataset) == reader.end(dataset) > 0


def test_pandas_polars_and_duckdb_read_the_folder_as_it_is(mesh_archive: Path) -> None:
    """The same question to each: rows and the largest latency by node, with the date and hour of the folders."""
    place = mesh_archive / "measurements"
    question = "select node, count(*) as rows, max(latency_ms) as worst from {} group by node order by node"
    with duckdb.connect() as connection:
        files = f"read_parquet('{place}/**/*.parquet', hive_partitioning = true)"
        by_duckdb = connection.execute(question.format(files)).fetchall()
    frame = polars.scan_parquet(f"{place}/**/*.parquet", hive_partitioning=True)
    by_polars = (
        frame.group_by("node")
        .agg(polars.len().alias("rows"), polars.col("latency_ms").max().alias("worst"))
        .sort("node")
        .collect()
        .rows()
    )
    table = pandas.read_parquet(place)
    grouped = table.groupby("node")["latency_ms"].agg(["size", "max"])
    by_pandas = [(node, int(row["size"]), row["max"]) for node, row in grouped.iterrows()]
    assert by_duckdb == by_polars == by_pandas
    assert {"date", "hour"} <= set(table.columns) & set(frame.collect_schema().names())
    assert sum(rows for _, rows, _ in by_duckdb) == len(table)
