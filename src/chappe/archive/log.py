"""The log of one dataset: rows in the order of their offsets, on disk before anybody is told that they are safe.

A part of the log is a file of frames, each with its checksum. A frame without rows is a mark: all before it was synced.
Readers go up to the last mark; what a crash left behind the last whole frame is cut off when the log is opened again.
Whoever looks for an offset reads the heads of frames alone, and goes on where it was when it looks again (`Tail`).
"""

from __future__ import annotations

import os
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from chappe.archive.schema import complete, schema_of
from chappe.disk import sync
from chappe.errors import ChappeError

_FRAME = struct.Struct("<IIqI")  # bytes that follow, their checksum, first offset, rows
SUFFIX = ".log"
NAME = "name"  # the file with the name of the archive
_AHEAD = 1 << 16  # bytes that are read at once to find the next heads


class Frame(NamedTuple):
    """Where rows are in a part."""

    at: int  # of its content in the file
    size: int
    first: int
    rows: int
    checksum: int = 0


def frames(file: BinaryIO) -> Iterator[Frame]:
    """The whole frames of a part, marks among them; ends before the first that is not whole."""
    at, expected = 0, -1
    while True:
        file.seek(at)
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            return
        size, checksum, first, rows = _FRAME.unpack(head)
        content = file.read(size)
        if len(content) < size or _checksum(first, rows, content) != checksum or expected not in (-1, first):
            return
        yield Frame(at + _FRAME.size, size, first, rows, checksum)
        at += _FRAME.size + size
        expected = first + rows


class Tail:
    """What is synced of a part: the heads of its frames up to the last mark, of which `look` reads only new ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0  # behind the last mark
        self.stop = first_of(path)  # the offset behind the last synced row
        self._firsts = array("q")  # offsets and places of the frames with rows
        self._places = array("q")

    def look(self) -> int:
        """The offset behind the last row that is known to be on disk; FileNotFoundError if it became a segment."""
        waiting: list[Frame] = []
        with self.path.open("rb", buffering=0) as file:
            for frame in _heads(file.fileno(), self._at, self.stop):
                if frame.rows:
                    waiting.append(frame)
                    continue
                self._firsts.extend(each.first for each in waiting)
                self._places.extend(each.at - _FRAME.size for each in waiting)
                self._at, self.stop = frame.at, frame.first
                waiting.clear()
        return self.stop

    def place(self, offset: int) -> int:
        """Where the frame with that row begins in the file."""
        index = bisect_right(self._firsts, offset) - 1
        return self._places[index] if index >= 0 else 0


def read(path: Path, dataset: str, start: int, stop: int, place: int = -1) -> Iterator[pa.RecordBatch]:
    """Synced rows of a part from offset `start` up to and without `stop`; ends before rows that are damaged.

    `place` is where `Tail` found the first one: then all up to `stop` must be there, and damage is a ChappeError.
    """
    known = place >= 0
    if not known:
        tail = Tail(path)
        stop = min(stop, tail.look())
        if start >= stop:
            return
        place = tail.place(start)
    schema = schema_of(dataset)
    with path.open("rb") as file:
        for frame in _heads(file.fileno(), place, -1):
            if frame.first >= stop:
                return
            if frame.rows == 0 or frame.first + frame.rows <= start:
                continue
            content = os.pread(file.fileno(), frame.size, frame.at)
            if _checksum(frame.first, frame.rows, content) != frame.checksum:
                if known:
                    raise ChappeError(f"log {path}: row {frame.first} and those behind it are damaged on disk")
                return
            rows = pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            begin = max(start - frame.first, 0)
            yield rows.slice(begin, min(frame.rows, stop - frame.first) - begin)


def synced(path: Path) -> int:
    """The offset behind the last row of a part that is known to be on disk."""
    return Tail(path).look()


def first_of(path: Path) -> int:
    """The offset of the first row of a part, from its name."""
    return int(path.stem.rpartition("-")[2])


def parts(folder: Path, dataset: str) -> list[Path]:
    """The parts of a dataset's log, oldest first."""
    return sorted(folder.glob(f"{dataset}-{'[0-9]' * 20}{SUFFIX}"))


def sign(folder: Path, name: str) -> None:
    """Note whose log it is, for readers that are told the folder alone."""
    if owner(folder) != name:
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{NAME}"
        hidden.write_text(name, encoding="utf-8")
        sync(hidden)
        hidden.rename(folder / NAME)
        sync(folder)


def owner(folder: Path) -> str:
    """The name of the archive whose log it is; empty if the folder does not say, or is not there."""
    try:
        return (folder / NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def _heads(descriptor: int, at: int, expected: int) -> Iterator[Frame]:
    """Frames from a place on, by their heads alone; ends before the first that cannot be whole.

    A mark is believed if its checksum is right and no row is missing before it: all before it was synced, so there is
    no need to read it.
    """
    end = os.fstat(descriptor).st_size
    held, begin = b"", 0
    while at + _FRAME.size <= end:
        if not begin <= at <= begin + len(held) - _FRAME.size:
            held, begin = os.pread(descriptor, _AHEAD, at), at
            if len(held) < _FRAME.size:
                return
        size, checksum, first, rows = _FRAME.unpack_from(held, at - begin)
        at += _FRAME.size
        if at + size > end or expected not in (-1, first):
            return
        if rows == 0 and (size or checksum != _checksum(first, 0, b"")):
            return
        yield Frame(at, size, first, rows, checksum)
        at += size
        expected = first + rows


def _checksum(first: int, rows: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<qI", first, rows)))


class Log:
    """The newest part of a dataset's log, open for writing by one process; `next` is the offset of the next row."""

    def __init__(self, folder: Path, dataset: str, following: int = 0) -> None:
        """Go on after `following` rows, or after what the log holds, if that is more."""
        self.folder = folder
        self.dataset = dataset
        schema_of(dataset)
        folder.mkdir(parents=True, exist_ok=True)
        self._waiting: list[bytes] = []  # frames that are not written yet
        self.unwritten = 0  # bytes of them
        known = parts(folder, dataset)
        if known:
            self.path = known[-1]
            self._file = self.path.open("r+b", buffering=0)
            with self.path.open("rb") as file:
                whole = list(frames(file))
            end = whole[-1].at + whole[-1].size if whole else 0
            self._file.truncate(end)
            self._file.seek(end)
            self._end = end
            self.first = first_of(self.path)
            self.next = max((frame.first + frame.rows for frame in whole), default=self.first)
            if self.next < following:
                self._file.close()
                self._begin(following)
            else:  # rows that were written and not marked are as good as the others
                os.fdatasync(self._file.fileno())
                self._mark()
        else:
            self._begin(following)

    def append(self, rows: pa.RecordBatch) -> int:
        """Take rows; the offset behind them. They are safe once `sync` has returned at least that."""
        if rows.num_rows == 0:
            return self.next
        full = complete(self.dataset, rows, self.next)
        self._put(self.next, full.num_rows, full.serialize().to_pybytes())
        self.next += full.num_rows
        return self.next

    def sync(self) -> int:
        """Put everything on disk; the offset behind the last row that is there."""
        if self._waiting:
            self._write()
            os.fdatasync(self._file.fileno())
            self._mark()
        return self.next

    def rotate(self) -> Path:
        """Sync and close this part and begin another; the part that was closed."""
        self.sync()
        closed = self.path
        self._file.close()
        self._begin(self.next)
        return closed

    def close(self) -> None:
        """Sync and close."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def abandon(self) -> None:
        """Close without another write: nobody knows what a disk holds that failed to sync."""
        self._file.close()

    @property
    def rows(self) -> int:
        """Rows of this part."""
        return self.next - self.first

    @property
    def size(self) -> int:
        """Bytes of this part, those among them that wait to be written."""
        return self._end + self.unwritten

    def _begin(self, first: int) -> None:
        self.path = self.folder / f"{self.dataset}-{first:020d}{SUFFIX}"
        self._file = self.path.open("x+b", buffering=0)
        sync(self.folder)
        self.first = self.next = first
        self._end = 0  # of what was written whole

    def _put(self, first: int, rows: int, content: bytes) -> None:
        frame = _FRAME.pack(len(content), _checksum(first, rows, content), first, rows) + content
        self._waiting.append(frame)
        self.unwritten += len(frame)

    def _mark(self) -> None:
        self._put(self.next, 0, b"")
        self._write()

    def _write(self) -> None:
        """Everything that waits, or nothing: a full disk leaves the part as it was, and the rows waiting."""
        content = memoryview(b"".join(self._waiting))
        try:
            while content:
                content = content[self._file.write(content) :]
        except OSError as error:
            self._file.truncate(self._end)
            self._file.seek(self._end)
            raise ChappeError(f"log {self.path}: {error.strerror}; its rows wait until there is room") from error
        self._end += self.unwritten
        self._waiting.clear()
        self.unwritten = 0
