"""Link statistics by tasks: whatever files, row groups and tasks there are, the tables are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chappe.measure.cost import PROFILES
from chappe.pipeline import buckets, linkadvice, linkfiles, minutesums
from chappe.pipeline.linkfiles import Folders
from tests.support.cleanrows import SECOND_NS, START_NS, clean_table

TABLES = ("link_statistics", "group_statistics", "spikes", "window_advice")


def measured(ends: int = 40, seconds: int = 400) -> pa.Table:
    noise = np.random.default_rng(3)
    rows = [
        {
            "node": f"n{end // 7}", "link": f"l{end}", "peer": f"p{end % 5}", "transport": ("tcp", "udp")[end % 2],
            "realm": None if end % 3 else "east", "created_ns": START_NS + second * SECOND_NS + end,
            "latency_ms": None if noise.random() < 0.02 else 100.0 if noise.random() < 0.001 else 5.0 + noise.random(),
            "jitter_ms": float(noise.random()), "loss": float(noise.random() < 0.1), "outliers": 1, "window": 16,
        }
        for second in range(seconds)
        for end in range(ends)
    ]  # fmt: skip
    return clean_table("measurements", rows)


def computed(work: Path, paths: list[str]) -> dict[str, pd.DataFrame]:
    """All tables, as the job makes them of files."""
    folders = Folders(*(work / name for name in ("sums", "groups", *TABLES)))
    for name in ("sums", "groups", *TABLES):
        (work / name).mkdir(parents=True)
    formula = PROFILES["default"]
    summed = [linkfiles.summed(folders.sums, path) for path in paths]
    names = [name for each in summed for name in each.names]
    works = [*linkfiles.trials(summed, 4000), *buckets.ranges(sum(each.sums for each in summed))]
    made = [linkfiles.made(formula, 3.0, folders, names, each) for each in works]
    parts, many = [each.groups for each in made if each.groups], sum(each.grouped for each in made)
    for each in buckets.ranges(many):
        linkfiles.grouped(formula, folders, parts, each)
    found = {name: pd.concat(map(pd.read_parquet, (work / name).glob("*.parquet"))) for name in TABLES}
    return {name: rows.sort_values(sorted(rows.columns), ignore_index=True) for name, rows in found.items()}


def test_the_tables_are_the_same_however_the_work_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = measured()
    pq.write_table(rows, tmp_path / "whole.parquet")
    whole = computed(tmp_path / "at once", [str(tmp_path / "whole.parquet")])
    assert {name: len(table) > 0 for name, table in whole.items()} == dict.fromkeys(TABLES, True)
    paths = [str(tmp_path / f"{part}.parquet") for part in range(3)]
    mixed = rows.take(pa.array(np.random.default_rng(4).permutation(rows.num_rows)))
    for part, path in enumerate(paths):
        pq.write_table(mixed.slice(part * 6000, 6000), path, row_group_size=700)
    for module, name, rows_of_it in ((minutesums, "ROWS", 1500), (buckets, "ROWS", 60), (linkfiles, "TRIED_ROWS", 900)):
        monkeypatch.setattr(module, name, rows_of_it)
    assert len(buckets.ranges(180)) == 3
    cut = computed(tmp_path / "cut", paths)
    for name in TABLES:
        pd.testing.assert_frame_equal(cut[name], whole[name], rtol=1e-9)


def test_files_without_rows_come_to_nothing(tmp_path: Path) -> None:
    pq.write_table(clean_table("measurements", []), tmp_path / "none.parquet")
    found = linkfiles.summed(tmp_path, str(tmp_path / "none.parquet"))
    assert (found.names, found.sums, found.turns) == ([], 0, [])
    assert linkfiles.trials([found], 100) == []
    folders = Folders(*[tmp_path] * 6)
    assert linkfiles.made(PROFILES["default"], 3.0, folders, [], buckets.ALL) == linkfiles.Made()
    assert linkfiles.grouped(PROFILES["default"], folders, [], buckets.ALL) == ""


def test_the_newest_minutes_have_as_many_rows_as_are_wanted() -> None:
    start, rounds = np.array([1, 3, 2, 3]), np.array([5, 2, 4, 2])
    assert linkadvice.newest_ns(start, rounds, 1) == 3
    assert linkadvice.newest_ns(start, rounds, 4) == 3
    assert linkadvice.newest_ns(start, rounds, 5) == 2
    assert linkadvice.newest_ns(start, rounds, 100) == 1
    none = np.zeros(0, np.int64)
    assert linkadvice.newest_ns(none, none, 100) > START_NS
