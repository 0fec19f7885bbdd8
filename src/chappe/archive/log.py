"""The log of one dataset: rows in the order of their offsets, on disk before anybody is told that they are safe.

A part of the log is a file of frames, each with its checksum. A frame without rows is a mark: all before it was synced.
Readers go up to the last mark; what a crash left behind the last whole frame is cut off when the log is opened again.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from chappe.archive.schema import complete, schema_of
from chappe.disk import sync
from chappe.errors import ChappeError

_FRAME = struct.Struct("<IIqI")  # bytes that follow, their checksum, first offset, rows
SUFFIX = ".log"


class Frame(NamedTuple):
    """Where rows are in a part."""

    at: int  # of its content in the file
    size: int
    first: int
    rows: int


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
        yield Frame(at + _FRAME.size, size, first, rows)
        at += _FRAME.size + size
        expected = first + rows


def read(path: Path, dataset: str, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Synced rows of a part from offset `start` up to and without `stop`."""
    schema = schema_of(dataset)
    with path.open("rb") as file:
        for frame in _synced(file):
            if frame.first >= stop:
                return
            if frame.first + frame.rows <= start:
                continue
            file.seek(frame.at)
            rows = pa.ipc.read_record_batch(pa.py_buffer(file.read(frame.size)), schema)
            begin = max(start - frame.first, 0)
            yield rows.slice(begin, min(frame.rows, stop - frame.first) - begin)


def synced(path: Path) -> int:
    """The offset behind the last row of a part that is known to be on disk."""
    with path.open("rb") as file:
        return max((frame.first + frame.rows for frame in _synced(file)), default=first_of(path))


def first_of(path: Path) -> int:
    """The offset of the first row of a part, from its name."""
    return int(path.stem.rpartition("-")[2])


def parts(folder: Path, dataset: str) -> list[Path]:
    """The parts of a dataset's log, oldest first."""
    return sorted(folder.glob(f"{dataset}-{'[0-9]' * 20}{SUFFIX}"))


def _synced(file: BinaryIO) -> Iterator[Frame]:
    """Frames with rows before the last mark."""
    waiting: list[Frame] = []
    for frame in frames(file):
        if frame.rows:
            waiting.append(frame)
        else:
            yield from waiting
            waiting.clear()


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
