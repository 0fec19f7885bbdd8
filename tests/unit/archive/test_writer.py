"""The writer of an archive: parts of a log become segments, each row once, whatever was left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chappe.archive import log, segments
from chappe.archive.checks import problems
from chappe.archive.frames import HEAD
from chappe.archive.log import Log
from chappe.archive.reader import Reader
from chappe.archive.segments import HOUR_NS, Segments
from chappe.archive.writer import Limits, Writer
from chappe.errors import ChappeError
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


def test_rows_whose_mark_a_power_cut_took_are_in_the_segment(tmp_path: Path) -> None:
    """The mark behind the last sync of an ended part was never synced itself."""
    writing = writer(tmp_path)
    for number in range(5):
        writing.append("counters", readings(range(number, number + 1)), START_NS)
        assert writing.sync() == {"counters": number + 1}
    ((_, path),) = writing.rotate(LATER_NS)
    writing.append("counters", readings(range(5, 6)), START_NS)
    writing.sync()
    crash(writing)
    os.truncate(path, path.stat().st_size - HEAD)
    assert values(tmp_path) == list(range(6))
    writer(tmp_path).close()
    assert not path.exists()
    assert values(tmp_path) == list(range(6))


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("newest", [False, True])
def test_a_flipped_bit_costs_one_frame_and_its_file_is_kept(tmp_path: Path, newest: bool) -> None:
    writing = writer(tmp_path)
    for number in range(5):
        writing.append("counters", readings(range(number, number + 1)), START_NS)
        writing.sync()
    path = log.parts(tmp_path / "l", "counters")[0]
    if not newest:
        ((_, path),) = writing.rotate(LATER_NS)
    crash(writing)
    flip(path, path.stat().st_size // 5 + 100)
    again = writer(tmp_path)
    assert again.damaged == 1
    assert again.append("counters", readings(range(5, 6)), START_NS) == 6
    again.close()
    reader = Reader(Segments(tmp_path / "s", "a"), tmp_path / "l")
    with pytest.raises(ChappeError, match="rows 1 to 1 of counters are gone"):
        list(reader.read("counters", 0, 6))
    with pytest.raises(ChappeError, match="rows 1 to 1 of counters are gone"):
        list(reader.read("counters", 0, 2))
    pieces = reader.plan("counters", 0, 6, skip_missing=True)
    seen = [row for piece in pieces for rows in reader.read_piece(piece) for row in rows["value"].to_pylist()]
    assert seen == [0, 2, 3, 4, 5]
    kept = path.with_name(path.name + ".damaged")
    assert kept.exists()
    said = [str(each) for each in problems(Segments(tmp_path / "s", "a"), tmp_path / "l")]
    assert said[0] == "counters of a: rows 1 to 1 are missing"
    assert said[1].startswith(str(kept))


def test_a_part_goes_only_when_its_segment_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives back other bytes than were written: the part stays, and is tried again."""
    writing = writer(tmp_path)
    path = ended(writing, range(3))

    def spoilt(file: Path) -> None:
        for at in range(20, file.stat().st_size, 50):
            flip(file, at)

    monkeypatch.setattr(segments, "sync_out", spoilt)
    with pytest.raises(ChappeError, match="segment"):
        writing.segment("counters", path)
    assert path.exists()
    assert values(tmp_path) == [0, 1, 2]
    monkeypatch.undo()
    assert writing.segment("counters", path) == 1
    writing.close()
    assert values(tmp_path) == [0, 1, 2]


def test_a_damaged_segment_is_made_again_while_the_log_has_its_rows(tmp_path: Path) -> None:
    writing = writer(tmp_path)
    path = ended(writing, range(3))
    content = path.read_bytes()
    writing.segment("counters", path)
    path.write_bytes(content)  # as a crash before it went leaves it
    crash(writing)
    (segment,) = (tmp_path / "s").rglob("*.parquet")
    flip(segment, segment.stat().st_size // 2)
    again = writer(tmp_path)
    again.close()
    assert values(tmp_path) == [0, 1, 2]
    assert again.damaged == 1
    assert segment.with_name(segment.name + ".damaged").exists()


def test_a_segment_of_a_killed_process_is_synced_before_its_part_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed between the segment's name and the sync of the folder: the page cache has it, the disk may not."""
    writing = writer(tmp_path)
    path = ended(writing, range(3))
    content = path.read_bytes()
    writing.segment("counters", path)
    path.write_bytes(content)
    crash(writing)
    (segment,) = (tmp_path / "s").rglob("*.parquet")
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        if path.exists():
            synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    writer(tmp_path).close()
    assert not path.exists()
    assert {segment, segment.parent, segment.parents[1]} <= set(synced)


def test_every_folder_that_was_made_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the rows in it are confirmed or leave the log."""
    synced: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    folder = tmp_path / "a" / "b"
    writing = writer(folder)
    writing.append("counters", readings(range(3)), START_NS)
    writing.close()
    made = [path for path in (tmp_path / "a").rglob("*") if path.is_dir()]
    assert len(made) == 6  # b, s, l, the dataset, its date and hour; and `a`
    for path in (tmp_path / "a", *made):
        assert path.parent in synced


def crash(writing: Writer) -> None:
    """Close the files and do nothing else."""
    for each in writing._logs.values():
        each._file.close()
