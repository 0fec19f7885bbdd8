"""Segments, the writer that makes them and the reader that joins them with the log."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from chappe.archive.log import Log, parts
from chappe.archive.reader import Reader
from chappe.archive.schema import DATASETS, complete, schema_of
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.writer import Limits, Writer
from chappe.errors import ChappeError, ConfigError
from tests.support.archives import START_NS, readings


class Place:
    """An archive in a folder of a test."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder = folder
        self.logs = folder / "log"
        self.segments = Segments(folder / "archive")
        self.reader = Reader(self.segments, self.logs)
        self.limits = limits

    def writer(self) -> Writer:
        return Writer(self.segments, self.logs, self.limits)

    def values(self, start: int = 0, stop: int = 1 << 62, **range_ns: int) -> list[int]:
        found = self.reader.read("counters", start, stop, ["value"], **range_ns)
        return [int(value) for rows in found for value in rows.column("value").to_pylist()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_any_reader_of_partitioned_parquet_finds_whole_typed_rows(place: Place) -> None:
    writer = place.writer()
    writer.append("counters", readings(range(1000), step_ns=HOUR_NS // 400), START_NS)
    assert writer.close() == len(place.segments.find("counters")) >= 3
    table = ds.dataset(place.folder / "archive" / "counters", partitioning="hive").to_table().sort_by("offset")
    assert table.column("value").to_pylist() == [float(number) for number in range(1000)]
    assert table.column("offset").to_pylist() == list(range(1000))
    hours = pc.strftime(table.column("received"), "%Y-%m-%d %H")
    named = pc.binary_join_element_wise(
        table.column("date").cast(pa.string()), pc.utf8_lpad(table.column("hour").cast(pa.string()), 2, "0"), " "
    )
    assert hours.to_pylist() == named.to_pylist()
    (first, *_) = place.segments.find("counters")
    assert pq.read_schema(place.folder / "archive" / first.path).equals(schema_of("counters"))


def test_the_log_and_the_segments_are_read_as_one(place: Place) -> None:
    writer = place.writer()
    for begin in range(0, 100, 10):
        writer.append("counters", readings(range(begin, begin + 10)), START_NS)
        if begin in (20, 60):
            writer.tick(START_NS + HOUR_NS)
    writer.sync()
    assert len(place.segments.find("counters")) == 2
    assert place.values() == list(range(100))
    assert place.values(25, 75) == list(range(25, 75))
    assert place.values(0, 1 << 62, from_ns=START_NS + 10_000_000, to_ns=START_NS + 90_000_000) == list(range(10, 90))
    assert (place.reader.begin("counters"), place.reader.end("counters")) == (0, 100)
    writer.close()
    assert place.values() == list(range(100))


def test_a_log_is_closed_by_age_by_size_and_at_the_hour(tmp_path: Path) -> None:
    place = Place(tmp_path, Limits(age_ns=1000, bytes=5000))
    writer = place.writer()
    hour_ns = START_NS // HOUR_NS * HOUR_NS
    writer.append("counters", readings(range(1)), hour_ns)
    assert writer.tick(hour_ns + 999) == 0
    assert writer.tick(hour_ns + 1000) == 1
    writer.append("counters", readings(range(1, 200)), hour_ns + 2000)
    assert writer.tick(hour_ns + 2001) == 1
    writer.append("counters", readings(range(200, 201)), hour_ns - 1 + HOUR_NS)
    assert writer.tick(hour_ns + HOUR_NS) == 1
    assert writer.tick(hour_ns + HOUR_NS) == 0
    writer.close()


@contextlib.contextmanager
def copied(place: Place, to: Path, at_step: int) -> Iterator[None]:
    """Copy the folders before or after a file appears or goes, counted: what a crash at that moment leaves."""
    steps = itertools.count(1)

    def around(act: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object) -> object:
            found = None
            for do in (lambda: None, lambda: act(*given)):
                found = do()
                if next(steps) == at_step:
                    shutil.copytree(place.folder, to)
            return found

        return step

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", around(Path.unlink))
        patch.setattr(place.segments, "_put", around(place.segments._put))
        yield
    if not to.exists():
        shutil.copytree(place.folder, to)


@pytest.mark.parametrize("seed", range(20))
def test_a_crash_at_any_step_of_closing_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    place = Place(tmp_path / "0")
    total = 0
    for number in range(1, 5):
        writer = place.writer()
        writer.append("counters", readings(range(total, total + 50), step_ns=HOUR_NS // 20), START_NS)
        writer.sync()
        total += 50
        with copied(place, tmp_path / str(number), rng.randint(1, 10)):
            writer.close()
        place = Place(tmp_path / str(number))
        assert place.values() == list(range(total))
    place.writer().close()
    assert place.values() == list(range(total))
    found = place.segments.find("counters")
    assert [0, *(each.stop for each in found)] == [*(each.first for each in found), total]


def test_compaction_keeps_offsets_and_a_reader_that_is_under_way(place: Place) -> None:
    writer = place.writer()
    for begin in range(0, 60, 10):
        writer.append("counters", readings(range(begin, begin + 10)), START_NS)
        writer.tick(START_NS + HOUR_NS)
    writer.close()
    under_way = place.reader.read("counters", 0, 60, ["value"])
    seen = [int(value) for value in next(under_way).column("value").to_pylist()]
    assert place.segments.compact("counters", before=50) == 4
    assert [(each.first, each.stop) for each in place.segments.find("counters")] == [(0, 50), (50, 60)]
    seen += [int(value) for rows in under_way for value in rows.column("value").to_pylist()]
    assert seen == list(range(60))
    assert place.values() == list(range(60))
    assert place.segments.compact("counters", before=50) == 0


def test_retention_removes_what_is_old_and_says_so_to_who_asks_for_it(place: Place) -> None:
    writer = place.writer()
    for begin in (0, 10):
        writer.append("counters", readings(range(begin, begin + 10), step_ns=HOUR_NS // 10), START_NS)
    writer.close()
    (_, *kept) = place.segments.find("counters")
    assert place.segments.expire("counters", kept[0].from_ns) == 1
    assert place.reader.begin("counters") == kept[0].first
    with pytest.raises(ChappeError, match=f"rows 0 to {kept[0].first - 1} of counters are gone"):
        place.values()
    assert place.values(kept[0].first) == list(range(kept[0].first, 20))
    place.segments.expire("counters", 1 << 62)
    again = place.writer()
    assert again.append("counters", readings(range(1)), START_NS) == 21  # offsets are never given twice
    again.close()


def test_too_much_that_waits_for_the_disk_is_dropped_and_counted(tmp_path: Path) -> None:
    place = Place(tmp_path, Limits(waiting_bytes=1000))
    writer = place.writer()
    assert writer.append("counters", readings(range(10)), START_NS) == 10
    assert writer.append("counters", readings(range(10, 15)), START_NS) is None
    assert writer.dropped["counters"] == 5
    assert writer.sync() == {"counters": 10}
    assert writer.append("counters", readings(range(10, 11)), START_NS) == 11
    writer.close()


def test_bad_places_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name of the archive: 'a/b'"):
        Segments(tmp_path, "a/b")
    with pytest.raises(ConfigError, match=r"archive gopher://x: .*give a folder or a URI"):
        Segments("gopher://x")
    with pytest.raises(ConfigError, match="no dataset"):
        Segments(tmp_path).find("weather")


def test_every_dataset_begins_with_its_offset_and_ends_with_its_arrival() -> None:
    for schema in DATASETS.values():
        assert schema.names[0] == "offset"
        assert schema.names[-2:] == ["received_ns", "received"]


def test_an_empty_part_is_no_segment(place: Place) -> None:
    Log(place.logs, "counters", 7).close()
    writer = place.writer()
    assert writer.close() == 0
    assert [path.name for path in parts(place.logs, "counters")] == ["counters-00000000000000000007.log"]
    assert place.segments.find("counters") == []


def test_a_column_that_a_dataset_got_later_is_empty_in_older_segments(tmp_path: Path) -> None:
    archive = Segments(tmp_path)
    rows = complete("counters", readings(range(3)), 0)
    archive.write("counters", pa.Table.from_batches([rows]).drop_columns(["labels"]))
    (segment,) = archive.find("counters")
    (seen,) = archive.read(segment, 0, 3, ["labels", "value"])
    assert seen.to_pydict() == {"labels": [None] * 3, "value": [0.0, 1.0, 2.0]}
