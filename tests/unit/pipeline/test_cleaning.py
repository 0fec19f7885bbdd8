"""Cleaning files of rows: what a plain loop over all rows would keep, however they are cut into files and batches."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from chappe.archive.schema import DATASETS, RECEIVED_NS
from chappe.pipeline import cleaning, repeats, rowfiles, rules
from chappe.pipeline.repeats import KEYS
from chappe.pipeline.rules import SECOND_NS, SOURCE, Limits
from tests.support.archives import START_NS

LIMITS = Limits(60 * SECOND_NS, 10 * SECOND_NS)
ALWAYS_NS = 1 << 60


def measurements(seed: int, count: int = 400) -> list[dict[str, Any]]:
    """Rows in the order of arrival: some come again, some are late or impossible, a bad one may come first."""
    noise = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for offset in range(count):
        received = START_NS + offset * SECOND_NS
        row = {
            "offset": offset, "node": noise.choice("ab"),
            "link": noise.choice(["x", "y", ""][: 2 + (offset % 50 == 0)]),
            "peer": "p", "transport": "tcp", "realm": None, "created_ns": received - noise.randrange(80) * SECOND_NS,
            "latency_ms": noise.choice([1.0, 2.0, None]), "deviation_ms": 0.1, "jitter_ms": 0.1, "jitter": 0.1,
            "loss": noise.choice([0.0] * 20 + [1.5, math.nan]), "bandwidth": None,
            "cost": noise.choice([1.0] * 20 + [-1.0, math.inf]), "outliers": 0, "window": 8, "received_ns": received,
            "received": received // 1000, SOURCE: noise.choice(["one", "two"]),
        }  # fmt: skip
        if rows and noise.random() < 0.3:
            again = noise.choice(rows[-100:])
            row = {**row, **{key: again[key] for key in KEYS["measurements"]}}
        rows.append(row)
    return rows


def reason(row: dict[str, Any]) -> str:
    """The rules of measurements, one by one."""
    if not row["link"]:
        return "no link"
    for name in ("loss", "cost"):
        if not math.isfinite(row[name]):
            return f"{name} is no number"
        if row[name] < 0:
            return f"{name} below zero"
        if name == "loss" and row[name] > 1:
            return f"{name} above one"
    return "late" if row["received_ns"] - row["created_ns"] > LIMITS.late_ns else ""


def table(rows: Sequence[dict[str, Any]], dataset: str = "measurements") -> pa.Table:
    fields = [field.with_nullable(True) for field in [*DATASETS[dataset], pa.field(SOURCE, pa.string())]]
    return pa.Table.from_pylist(list(rows), schema=pa.schema(fields))


class Room:
    """Files of batches before, and of the one that is cleaned."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[rowfiles.RowFile] = []
        self.bad: list[dict[str, Any]] = []
        for name in ("raw", "clean", "bad"):
            (folder / name).mkdir()

    def batch(self, files: Sequence[pa.Table], repeat_ns: int = ALWAYS_NS, dataset: str = "measurements") -> None:
        raw = []
        for rows in files:
            path = self.folder / "raw" / f"{len(list((self.folder / 'raw').iterdir()))}.parquet"
            pq.write_table(rows, path, row_group_size=37)
            raw.append(rowfiles.looked_at(str(path)))
        works = cleaning.planned(dataset, raw, self.written, LIMITS, repeat_ns)
        done = [cleaning.cleaned(work, self.folder / "clean", self.folder / "bad") for work in works]
        self.written += [rowfiles.known(str(self.folder / "clean" / each.clean)) for each in done if each.clean]
        for each in done:
            found = pq.read_table(self.folder / "bad" / each.bad).to_pylist() if each.bad else []
            assert len(found) == each.bad_rows
            self.bad += found

    @property
    def clean(self) -> list[dict[str, Any]]:
        files = [each.path for each in self.written]
        return ds.dataset(files, format="parquet").to_table().to_pylist() if files else []


@pytest.mark.spec("SJ-01")
@pytest.mark.parametrize("seed", range(6))
def test_what_stays_does_not_depend_on_files_and_batches(tmp_path: Path, seed: int) -> None:
    rows = measurements(seed)
    noise = random.Random(seed)
    known: set[tuple[Any, ...]] = set()
    expected = []
    for row in rows:
        key = tuple(row[name] for name in KEYS["measurements"])
        if not reason(row) and key not in known:
            known.add(key)
            expected.append(row)
    room = Room(tmp_path)
    first = 0
    while first < len(rows):  # batches in the order of arrival, files in any
        batch, files = rows[first : first + noise.randrange(30, 200)], noise.randrange(1, 5)
        first += len(batch)
        dealt: list[list[dict[str, Any]]] = [[] for _ in range(files)]
        for row in batch:
            dealt[noise.randrange(files)].append(row)
        room.batch([table(each) for each in dealt])
    assert sorted(row["offset"] for row in room.clean) == [row["offset"] for row in expected]
    clean = {row["offset"]: row for row in room.clean}
    assert all({**clean[row["offset"]], "received": None} == {**row, "received": None} for row in expected)
    assert {row["offset"]: row["reason"] for row in room.bad} == {
        row["offset"]: reason(row) for row in rows if reason(row)
    }
    told = {row["offset"]: json.loads(row["row"]) for row in room.bad}
    assert all(told[row["offset"]]["created_ns"] == row["created_ns"] for row in rows if reason(row))


@pytest.mark.spec("SJ-01")
def test_files_apart_in_time_are_not_compared_and_old_repeats_not_looked_for(tmp_path: Path) -> None:
    rows = measurements(1, 300)
    room = Room(tmp_path)
    event = {
        "offset": 0, "node": "a", "topic": "t", "kind": "text", "issuer": b"i", "epoch": 1, "sequence": 1,
        "created_ns": None, "body": b"{}", "durable": None, RECEIVED_NS: START_NS, "received": 0, SOURCE: "one",
    }  # fmt: skip
    soon, late = ({**event, "offset": at, RECEIVED_NS: START_NS + at * SECOND_NS} for at in (10, 1000))
    for each in (event, soon, late):
        room.batch([table([each], "events")], repeat_ns=100 * SECOND_NS, dataset="events")
    assert [row["offset"] for row in room.clean] == [0, 1000]
    for name, part in (("early", rows[:100]), ("late", rows[200:])):
        pq.write_table(table(part), tmp_path / name)
    files = [rowfiles.looked_at(str(tmp_path / name)) for name in ("early", "late")]
    assert [work.beside for work in cleaning.planned("measurements", files, [], LIMITS, ALWAYS_NS)] == [(), ()]
    assert [work.before for work in cleaning.planned("measurements", files[1:], files, LIMITS, ALWAYS_NS)] == [
        (files[1],)
    ]


def test_hashes_are_those_of_identities_however_columns_are_coded() -> None:
    rows = table(measurements(3))
    coded = rows.set_column(1, "node", rows["node"].dictionary_encode())
    plain = repeats.hashes("measurements", rows)
    assert (plain == repeats.hashes("measurements", coded)).all()
    assert (plain[100:] == repeats.hashes("measurements", coded.slice(100))).all()
    keys = rows.select(KEYS["measurements"]).to_pylist()
    assert len(np.unique(plain)) == len({tuple(row.values()) for row in keys})
    assert len(np.unique(repeats.hashes("events", table([{"issuer": None, "epoch": 1}, {"issuer": b"", "epoch": 1}],
                                                        "events")))) == 2  # fmt: skip


@pytest.mark.parametrize(("wanted", "there"), [(0, 5), (5, 0), (3, 1000), (4000, 1), (4000, 300), (4000, 40_000)])
def test_hashes_are_found_among_few_and_many(wanted: int, there: int) -> None:
    noise = np.random.default_rng(wanted + there)
    ordered = np.sort(noise.integers(0, 1 << 63, there, np.uint64))
    asked = noise.integers(0, 1 << 63, wanted, np.uint64)
    if wanted and there:
        asked[::3] = ordered[noise.integers(0, there, len(asked[::3]))]
        asked[1::3] = asked[1::3] >> np.uint64(32) << np.uint64(32) | ordered[0] & np.uint64(
            0xFFFFFFFF
        )  # nearly the same
    assert repeats.among(asked, ordered).tolist() == np.isin(asked, ordered).tolist()


def test_one_bad_value_among_many_good_ones_is_found_and_alone() -> None:
    good = {
        "offset": 0, "node": "a", "link": "x", "peer": "p", "transport": "tcp", "created_ns": START_NS,
        "latency_ms": -0.0, "loss": 1.0, "cost": 1e308, "outliers": 0, "received_ns": START_NS, "received": 0,
        SOURCE: "one",
    }  # fmt: skip
    spoilt = {
        "latency_ms is no number": {"latency_ms": math.nan}, "cost is no number": {"cost": math.inf},
        "latency_ms below zero": {"latency_ms": -1e-300}, "loss above one": {"loss": 1.0000001},
        "outliers below zero": {"outliers": -1}, "no created_ns": {"created_ns": None},
        "late": {"created_ns": START_NS - LIMITS.late_ns - 1}, "impossible time": {"created_ns": 5},
        "impossible time of receipt": {"received_ns": -(1 << 63)},
    }  # fmt: skip
    edge = [{**good, "created_ns": START_NS - LIMITS.late_ns}, {**good, "created_ns": START_NS + LIMITS.ahead_ns}]
    assert not rules.judged("measurements", table([good, *edge]), LIMITS).broken.any()
    assert not rules.judged("measurements", table([]), LIMITS).broken.any()
    for told, wrong in spoilt.items():
        for others in ([good, *edge], [good, {**good, "latency_ms": None, "cost": None, "outliers": None}]):
            verdict = rules.judged("measurements", table([*others, {**good, **wrong}]), LIMITS)
            assert [verdict.reasons[number] for number in verdict.broken] == [*[""] * len(others), told]


@pytest.mark.parametrize("dataset", DATASETS)
def test_clean_files_of_every_dataset_read_the_same_elsewhere(tmp_path: Path, dataset: str) -> None:
    noise = random.Random(dataset)
    make = {
        pa.string(): lambda: noise.choice("abc"), pa.binary(): lambda: noise.randbytes(2),
        pa.float64(): noise.random, pa.bool_(): lambda: True, pa.int8(): lambda: noise.randrange(3),
        pa.int64(): lambda: noise.choice([0, 1, (1 << 63) - 1]),
    }  # fmt: skip
    rows = []
    for offset in range(100):
        time_ns = START_NS + offset * 1_234_567_891
        times = {"offset": offset, "created_ns": time_ns, "received_ns": time_ns + 1, "received": time_ns // 1000}
        values = {
            field.name: None if field.nullable and noise.random() < 0.3 else make[field.type]()
            for field in DATASETS[dataset] if field.name not in times
        }  # fmt: skip
        rows.append({**times, **values, SOURCE: "one", **({"value": 0.5} if dataset == "status" else {})})
    raw = table(rows, dataset)
    room = Room(tmp_path)
    room.batch([raw], dataset=dataset)
    (file,) = room.written
    assert pq.read_table(file.path).sort_by("offset").equals(raw.select(pq.read_schema(file.path).names))
    assert (file.created, file.received) == tuple(
        rowfiles.Span(START_NS + more, START_NS + 99 * 1_234_567_891 + more) for more in (0, 1)
    )
    names = [name for name in raw.schema.names if name != "received"]  # which comes back in the zone of the machine
    asked = ", ".join(f'"{name}"' for name in names)
    told = duckdb.sql(f"select {asked} from '{file.path}' order by all")
    assert told.fetchall() == [tuple(row[name] for name in names) for row in raw.to_pylist()]


def test_a_row_is_told_as_json_whatever_it_has() -> None:
    rows = table(
        [{"offset": 1, "node": "ä", "variable": -1, "name": "v", "created_ns": START_NS, "value": math.nan,
          "content": b"\xff", "received_ns": START_NS, "received": START_NS // 1000, SOURCE: "one"}], "status"
    )  # fmt: skip
    verdict = rules.judged("status", rows, LIMITS)
    (row,) = rules.quarantined("status", rows, verdict).to_pylist()
    assert row["reason"] == "no extrapolated"
    told = json.loads(row["row"])
    assert (told["node"], told["value"], told["content"], told[SOURCE]) == ("ä", "NaN", "/w==", "one")
    assert told["received"].endswith("Z")
    assert "mode" not in told
