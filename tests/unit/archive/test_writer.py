"""The writer of an archive: parts of a log become segments, each row once, whatever was left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from chappe.archive import log
from chappe.archive.checks import problems
from chappe.archive.log import Log
from chappe.archive.reader import Reader
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.writer import Limits, Writer
from tests.support.archives import START_NS, readings

LATER_NS = START_NS + 2 * HOUR_NS


def values(folder: Path) -> list[float]:
    reader = Reader(Segments(folder / "s", "a"), folder / "l")
    batches = reader.read("counters", 0, reader.end("counters"))
    return [value for rows in batches for value in rows.column("value").to_pylist()]


def writer(folder: Path) -> Writer:
    return Writer(Segments(folder / "s", "a"), folder / "l", Limits(age_ns=1))


def ended(writing: Writer, numbers: range) -> Path:
    """A part of the log with these numbers, which is no segment yet."""
    writing.append("counters", readings(numbers), START_NS)
    writing.sync()
    ((_, path),) = writing.rotate(LATER_NS)
    return path


def test_rows_are_read_from_a_part_that_waits_to_become_a_segment(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    parts = [ended(writing, range(start, start + 3)) for start in (0, 3)]
    writing.append("counters", readings(range(6, 7)), START_NS)
    writing.sync()
    assert values(tmp_path) == list(range(7))
    for path in parts:
        assert writing.segment("counters", path) == 1
        assert values(tmp_path) == list(range(7))
    writing.close()
    assert values(tmp_path) == list(range(7))


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_part_that_was_left_behind_becomes_a_segment_at_the_next_start(tmp_path: Path, left: int) -> None:
    """Also if later ones are segments already."""
    writing = writer(tmp_path)
    parts = [ended(writing, range(start, start + 3)) for start in (0, 3, 6)]
    for number, path in enumerate(parts):
        if number != left:
            writing.segment("counters", path)
    writing.close()
    again = writer(tmp_path)
    assert again.append("counters", readings(range(9, 10)), START_NS) == 10
    again.close()
    assert values(tmp_path) == list(range(10))
    assert not list(problems(Segments(tmp_path / "s", "a"), tmp_path / "l"))


def test_a_part_whose_first_rows_are_a_segment_gives_the_others(tmp_path: Path) -> None:
    """As a crash between the segments of two hours leaves it."""
    writing = writer(tmp_path)
    before_ns = START_NS // HOUR_NS * HOUR_NS + HOUR_NS - 2_000_000
    writing.append("counters", readings(range(4), start_ns=before_ns), START_NS)
    writing.sync()
    ((_, path),) = writing.rotate(LATER_NS)
    content = path.read_bytes()
    assert writing.segment("counters", path) == 2
    second = Segments(tmp_path / "s", "a").find("counters")[1]
    (tmp_path / "s" / second.path).unlink()
    path.write_bytes(content)
    writing.close()
    writer(tmp_path).close()
    assert values(tmp_path) == [0, 1, 2, 3]
    assert [each.first for each in Segments(tmp_path / "s", "a").find("counters")] == [0, 2]


def test_rows_of_a_run_before_this_one_are_closed_by_age(tmp_path: Path) -> None:
    rest = Log(tmp_path / "l", "counters")
    rest.append(readings(range(2)))
    rest.close()
    writing = writer(tmp_path)
    assert writing.tick(START_NS) == 0
    assert writing.tick(START_NS + 1) == 1
    writing.close()
    assert log.first_of(log.parts(tmp_path / "l", "counters")[-1]) == 2
