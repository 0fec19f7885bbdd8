"""Reading by pieces: every row once, wherever it has gone since the pieces were made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chappe.archive import log
from chappe.archive.log import Log, Tail
from chappe.archive.reader import Piece, Reader
from chappe.archive.segments import Segments
from chappe.archive.writer import Limits, Writer
from chappe.errors import ChappeError
from tests.support.archives import START_NS, readings


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    """Rows 0 to 99 in a segment, 100 to 159 in the log, by frames of ten."""
    writing = Writer(Segments(tmp_path / "segments"), tmp_path / "log", Limits(age_ns=1 << 62))
    writing.append("counters", readings(range(100)), START_NS)
    writing.close()
    writing = Writer(Segments(tmp_path / "segments"), tmp_path / "log", Limits(age_ns=1 << 62))
    for first in range(100, 160, 10):
        writing.append("counters", readings(range(first, first + 10)), START_NS)
        writing.sync()
    yield writing
    writing.close()


def values(reader: Reader, pieces: list[Piece], **limits: int) -> list[int]:
    return [
        int(value)
        for piece in pieces
        for rows in reader.read_piece(piece, ["value"], **limits)
        for value in rows.column("value").to_pylist()
    ]


@pytest.mark.parametrize("rows", [1, 7, 30, 1000])
def test_pieces_hold_every_row_once(tmp_path: Path, writer: Writer, rows: int) -> None:
    reader = Reader(Segments(tmp_path / "segments"), tmp_path / "log")
    assert (reader.begin("counters"), reader.end("counters")) == (0, 160)
    pieces = reader.plan("counters", 5, 155, rows)
    assert all(piece.stop - piece.start <= max(rows, 1) for piece in pieces if piece.segment is None)
    assert values(reader, pieces) == list(range(5, 155))
    part = {"from_ns": START_NS + 90_000_000, "to_ns": START_NS + 120_000_000}
    assert values(reader, reader.plan("counters", 5, 155, rows, **part), **part) == list(range(90, 120))


def test_a_piece_is_found_where_its_rows_have_gone(tmp_path: Path, writer: Writer) -> None:
    segments = Segments(tmp_path / "segments")
    reader = Reader(segments, tmp_path / "log")
    pieces = reader.plan("counters", 0, 160, 25)
    writer.close()
    assert segments.compact("counters", 1 << 62) == 1
    assert values(reader, pieces) == list(range(160))
    assert [(each.first, each.stop) for each in reader.whole("counters", 0, 160)] == [(0, 160)]


def test_whole_segments_between_offsets(tmp_path: Path, writer: Writer) -> None:
    reader = Reader(Segments(tmp_path / "segments"), tmp_path / "log")
    assert [each.stop for each in reader.whole("counters", 0, 130)] == [100]
    assert reader.whole("counters", 1, 130) == reader.whole("counters", 0, 99) == []
    assert (reader.border("counters", 0, 130), reader.border("counters", 50, 130)) == (100, 130)


def test_a_log_is_looked_at_again_from_where_it_was(tmp_path: Path) -> None:
    writing = Log(tmp_path, "counters")
    tail = Tail(writing.path)
    assert tail.look() == 0
    for stop in range(10, 50, 10):
        writing.append(readings(range(stop - 10, stop)))
        assert tail.look() == stop - 10  # written by nobody yet
        writing.sync()
        assert (tail.look(), tail.look()) == (stop, stop)
    assert tail.place(0) == 0 < tail.place(10) == tail.place(19) < tail.place(20)
    seen = [
        row for rows in log.read(writing.path, "counters", 25, 40, tail.place(25)) for row in rows["value"].to_pylist()
    ]
    assert seen == [float(number) for number in range(25, 40)]
    writing.close()


def test_damage_among_rows_that_must_be_there_is_told(tmp_path: Path) -> None:
    writing = Log(tmp_path, "counters")
    writing.append(readings(range(10)))
    writing.close()
    reader = Reader(Segments(tmp_path / "segments"), tmp_path)
    (piece,) = reader.plan("counters", 0, 10)
    content = bytearray(writing.path.read_bytes())
    content[200] ^= 1
    writing.path.write_bytes(content)
    with pytest.raises(ChappeError, match="rows 0 to 9 are damaged on disk"):
        values(reader, [piece])
