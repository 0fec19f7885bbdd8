from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from chappe.measure import metrics
from chappe.pipeline import packing, periods, windowsizes
from chappe.pipeline.windowsizes import advice, ordered
from tests.support.records import DAY, NOW, SECOND


def test_steady_links_are_advised_long_windows_and_restless_ones_short() -> None:
    rng = np.random.default_rng(2)
    series = [20 + rng.normal(0, 1, 2000), 50 + np.cumsum(rng.normal(0, 1, 2000)), np.ones(30)]  # the last is too short
    link = np.repeat(np.arange(3), [len(each) for each in series])
    at = np.concatenate([np.arange(len(each)) for each in series])
    mixed = rng.permutation(len(link))
    found = advice(ordered(link[mixed], at[mixed], np.concatenate(series)[mixed]))
    assert found.link.tolist() == [0] * 4 + [1] * 4
    assert found.size.tolist() == list(windowsizes.SIZES) * 2
    advised = {int(link): int(size) for link, size, yes in zip(*found[:2], found.advised, strict=True) if yes}
    assert advised[1] == 8
    assert advised[0] >= 16
    assert found.tried.tolist() == [16] * 8
    # the first and the last window of the steady one by hand
    ends = 64 + (np.arange(16) / 15 * (2000 - 1 - 64)).astype(int)
    expected = [abs(metrics.summary(series[0][end - 16 : end])[1] - series[0][end]) for end in ends]
    assert found.error_ms[1] == pytest.approx(np.mean(expected))


def test_nothing_is_advised_of_nothing() -> None:
    none = ordered(np.zeros(3, np.intp), np.arange(3), np.full(3, np.nan))
    assert len(none.link) == 0
    assert len(advice(none).link) == 0


def test_packed_rows_come_back_whole_by_link_and_week() -> None:
    rng = np.random.default_rng(3)
    size = 5000
    rows = pa.RecordBatch.from_pydict({
        "key": [f"link{number}" for number in rng.integers(0, 40, size)],
        "created_ns": NOW + rng.integers(0, 20, size) * DAY + np.arange(size) * SECOND,
        "latency_ms": [None if value < 0.1 else float(value) for value in rng.random(size)],
    })  # fmt: skip
    pieces = [rows.slice(at, 700) for at in range(0, size, 700)]
    packed = pa.Table.from_batches([*packing.pack(pieces[:3]), *packing.pack(pieces[3:])])
    assert packed.schema == packing.PACKED
    together = packed.sort_by([("bucket", "ascending"), ("week", "ascending")])
    found = set()
    for week, keys, samples in packing.unpack(together.to_batches(max_chunksize=7), rows=500):
        assert (periods.number(samples.created_ns, periods.WEEK_NS) == week).all()
        found |= {(keys[link], at, value) for link, at, value in zip(*map(np.ndarray.tolist, samples), strict=True)}
    expected = {
        (row["key"], row["created_ns"], row["latency_ms"]) for row in rows.to_pylist() if row["latency_ms"] is not None
    }
    assert found == expected


@pytest.mark.parametrize(
    ("period", "expected"), [("minute", NOW), ("hour", NOW), ("day", NOW), ("week", NOW - 3 * DAY)]
)
def test_weeks_begin_on_monday_and_all_else_as_the_clock_shows(period: str, expected: int) -> None:
    length = periods.LENGTHS[period]
    assert periods.start_ns(periods.number(NOW + 30 * SECOND, length), length) == expected
    assert periods.hour_of_week(NOW) == 72
