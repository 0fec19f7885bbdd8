"""The log of one dataset: rows in the order of their offsets, on disk before anybody hears that they are safe.

A part of the log is a file of [frames][chappe.archive.frames]. Readers go up to the last mark of the newest part, and
in an older one up to where the next begins: a part begins when all before it is synced. What a crash left behind the
last whole frame is cut off when the log is opened again. Whoever looks for an offset reads the heads of frames alone,
and goes on where it was when it looks again (`Tail`).

A sync that fails is final for its file: the system may have dropped what it could not write and say nothing when it is
asked again. What was not confirmed is written from memory to another part and confirmed when that is synced.
"""

from __future__ import annotations

import contextlib
import errno
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from chappe.archive.frames import HEAD, Content, Frame, content_of, encode, examine, heads
from chappe.archive.schema import Rows, complete, schema_of
from chappe.archive.segments import DAMAGED
from chappe.disk import ensure_folder, sync
from chappe.errors import ChappeError

SUFFIX = ".log"
NAME = "name"  # the file with the name of the archive
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Tail:
    """What is synced of a part: the heads of its frames, of which `look` reads only new ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0  # behind the last mark
        self.stop = first_of(path)  # the offset behind the last synced row
        self._firsts = array("q")  # offsets and places of the frames with rows
        self._places = array("q")

    def look(self, until: int | None = None) -> int:
        """The offset behind the last row that is known to be on disk; FileNotFoundError if it became a segment.

        `until`: the first row of the next part, if there is one: then all up to it is on disk, marked or not.
        """
        waiting: list[Frame] = []
        with self.path.open("rb", buffering=0) as file:
            for frame in heads(file.fileno(), self._at, self.stop):
                if until is not None and frame.stop > until:
                    break
                if frame.rows:
                    waiting.append(frame)
                if not frame.rows or until is not None:
                    self._take(waiting, frame)
        return self.stop

    def place(self, offset: int) -> int:
        """Where the frame with that row begins in the file."""
        index = bisect_right(self._firsts, offset) - 1
        return self._places[index] if index >= 0 else 0

    def _take(self, frames: list[Frame], last: Frame) -> None:
        self._firsts.extend(each.first for each in frames)
        self._places.extend(each.at - HEAD for each in frames)
        self._at, self.stop = last.end, last.stop
        frames.clear()


def read(path: Path, dataset: str, start: int, stop: int, place: int) -> Iterator[pa.RecordBatch]:
    """Rows of a part from offset `start` up to and without `stop`; `place` is where `Tail` found the first one.

    All of them must be there: damage is a ChappeError.
    """
    with path.open("rb") as file:
        for frame in heads(file.fileno(), place, -1):
            if frame.first >= stop:
                return
            if frame.rows and frame.stop > start:
                yield from _rows(path, file.fileno(), dataset, frame, start, stop)


def read_whole(path: Path, dataset: str, content: Content, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """The rows of a part that `examine` found whole, from `start` up to and without `stop`."""
    with path.open("rb") as file:
        for frame in content.frames:
            if frame.first < stop and frame.stop > start:
                yield from _rows(path, file.fileno(), dataset, frame, start, stop)


def _rows(
    path: Path, descriptor: int, dataset: str, frame: Frame, start: int, stop: int
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    content = content_of(descriptor, frame)
    if content is None:
        raise ChappeError(f"log {path}: rows {frame.first} to {frame.stop - 1} are damaged on disk; "
                          "`chappe archive check` says what can be read")  # fmt: skip
    rows = pa.ipc.read_record_batch(pa.py_buffer(content), schema_of(dataset))
    begin = max(start - frame.first, 0)
    yield rows.slice(begin, min(frame.rows, stop - frame.first) - begin)


def first_of(path: Path) -> int:
    """The offset of the first row of a part, from its name."""
    return int(path.stem.rpartition("-")[2])


def next_of(path: Path) -> int | None:
    """The first row of the part behind this one; None if it is the newest."""
    dataset, _, first = path.stem.rpartition("-")
    later = (each for each in parts(path.parent, dataset) if first_of(each) > int(first))
    return first_of(found) if (found := next(later, None)) is not None else None


def quarantine(path: Path) -> Path:
    """Keep a damaged file under another name, which no reader and no writer takes for whole."""
    kept = path.with_name(path.name + DAMAGED)
    path.rename(kept)
    sync(path.parent)
    return kept


def parts(folder: Path, dataset: str) -> list[Path]:
    """The parts of a dataset's log, oldest first."""
    return sorted(folder.glob(f"{dataset}-{'[0-9]' * 20}{SUFFIX}"))


def sign(folder: Path, name: str) -> None:
    """Note whose log it is, for readers that know the folder alone."""
    if owner(folder) != name:
        ensure_folder(folder)
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


class Log:
    """The newest part of a dataset's log, open for writing by one process; `next` is the offset of the next row."""

    def __init__(self, folder: Path, dataset: str, following: int = 0) -> None:
        """Go on after `following` rows, or after what the log holds, if that is more."""
        self.folder = folder
        self.dataset = dataset
        schema_of(dataset)
        ensure_folder(folder)
        self.ended: list[Path] = []  # parts that failed to sync, and ended with what was synced before
        self.failures = 0  # syncs
        self._waiting: list[bytes] = []  # frames that are not synced yet
        self.unwritten = 0  # bytes of them
        self._marked = True  # readers know of all that is synced
        self.next = self.synced = self.first = 0
        known = parts(folder, dataset)
        content = examine(known[-1], first_of(known[-1])) if known else None
        if content is None:
            self._begin(following)
        elif content.next < following or (content.damages and content.next > first_of(known[-1])):
            self._begin(max(content.next, following))
        else:
            self._go_on(known[-1], content)

    def append(self, rows: Rows) -> int:
        """Take rows; the offset behind them. They are safe once `sync` has returned at least that."""
        if len(rows) == 0:
            return self.next
        full = complete(self.dataset, rows, self.next)
        frame = encode(self.next, full.num_rows, full.serialize().to_pybytes())
        self._waiting.append(frame)
        self.unwritten += len(frame)
        self.next += full.num_rows
        return self.next

    def sync(self) -> int:
        """Put everything on disk; the offset behind the last row that is there.

        ChappeError if the disk does not take it: the rows wait, and nothing of them is confirmed.
        """
        if self._waiting:
            content = b"".join(self._waiting)
            if self._file.closed:
                self._replace(content, "the part before it failed")
            else:
                self._put(content)
            self._waiting.clear()
            self.unwritten = 0
            self.synced, self._marked = self.next, False
        if not self._marked and not self._file.closed:
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
        try:
            self.sync()
        finally:
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
        path = self._path(first)
        file = path.open("x+b", buffering=0)
        try:
            sync(self.folder)
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)
            raise
        self.path, self._file = path, file
        self.first = self.next = self.synced = first
        self._end = 0  # of what is synced
        self._marked = True

    def _go_on(self, path: Path, content: Content) -> None:
        """Rows that were written and not marked are as good as the others, once they are synced."""
        self.path = path
        end = content.end if not content.damages else 0  # damage without a row: nothing but marks was there
        self._file = path.open("r+b", buffering=0)
        try:
            self._file.truncate(end)
            self._file.seek(end)
            os.fdatasync(self._file.fileno())
            sync(self.folder)
        except BaseException:
            self._file.close()
            raise
        self._end = end
        self.first, self.next, self.synced = first_of(path), content.next, content.next
        if content.frames:
            self._mark()

    def _put(self, content: bytes) -> None:
        """Write and sync everything that waits in this part, or in another if this one fails."""
        try:
            self._write(content)
        except OSError as error:
            if error.errno in _FULL and self._cut():
                raise ChappeError(f"log {self.path}: {error.strerror}; its rows wait until there is room") from error
            self._replace(content, str(error))
            return
        try:
            os.fdatasync(self._file.fileno())
        except OSError as error:
            self._replace(content, str(error))
            return
        self._end += len(content)

    def _replace(self, content: bytes, reason: str) -> None:
        """Go on in another part with all that is not confirmed: the file of this one is not written again.

        It appears under its name when its rows are synced. A part of which no row was confirmed is gone then.
        """
        if not self._file.closed:
            self.failures += 1
            self._file.close()
        path = self._path(self.synced)
        hidden = path.with_name(f".{path.name}")
        try:
            self._file = hidden.open("w+b", buffering=0)
            try:
                self._write(content)
                os.fdatasync(self._file.fileno())
                hidden.rename(path)
                sync(self.folder)
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            with contextlib.suppress(OSError):
                hidden.unlink()
            raise ChappeError(
                f"log {self.path}: it failed to sync ({reason}), and another part cannot be had "
                f"({error.strerror or error}); its rows wait, nothing is confirmed meanwhile"
            ) from error
        if path != self.path:
            self.ended.append(self.path)
        self.path, self.first, self._end = path, self.synced, len(content)

    def _mark(self) -> None:
        """Mark all as synced for readers; one that cannot be written is written with the next rows."""
        mark = encode(self.next, 0, b"")
        try:
            self._write(mark)
        except OSError as error:
            if error.errno not in _FULL or not self._cut():
                self.failures += 1
                self._file.close()
            return
        self._end += len(mark)
        self._marked = True

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) :]

    def _cut(self) -> bool:
        """Take back what was written of something that did not fit; whether the file is as before."""
        try:
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except OSError:
            return False
        return True

    def _path(self, first: int) -> Path:
        return self.folder / f"{self.dataset}-{first:020d}{SUFFIX}"
