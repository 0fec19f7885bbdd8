"""An archive being written: every dataset has its log, and a log that is old or large enough becomes a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import structlog

from chappe.archive import log as parts
from chappe.archive.frames import Content, examine
from chappe.archive.log import Log
from chappe.archive.schema import DATASETS, Rows
from chappe.archive.segments import DAMAGED, HOUR_NS, Segment, Segments
from chappe.errors import ChappeError

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """When a log is closed, and how much waits at most."""

    age_ns: int = 60_000_000_000
    bytes: int = 64 << 20
    waiting_bytes: int = 32 << 20  # rows that are not on disk yet; what comes then is dropped and counted


class Writer:
    """Takes rows of all datasets; one process writes an archive."""

    def __init__(self, segments: Segments, folder: Path, limits: Limits | None = None) -> None:
        """Finish what a crash interrupted: parts of the log that are segments by now go, the others become some."""
        self._segments = segments
        self._folder = folder
        self._limits = limits or Limits()
        self._logs: dict[str, Log] = {}
        self._known: dict[str, list[Segment]] = {}  # that may have rows of parts that are still in the log
        self._since_ns: dict[str, int] = {}  # when the log of a dataset got its first row
        self.dropped = dict.fromkeys(DATASETS, 0)
        self.bytes = dict.fromkeys(DATASETS, 0)  # of rows as the log has them
        self.problem = ""  # why some rows could not be synced
        self.damaged = 0  # files that are kept because something in them cannot be read
        parts.sign(folder, segments.source)
        for left in folder.glob(f".*{parts.SUFFIX}"):  # a part that was being made in place of one that failed
            left.unlink()
        self.damaged += len([*folder.glob(f"*{DAMAGED}")])
        for dataset in DATASETS:
            self.damaged += len(segments.quarantined(dataset))
            if parts.parts(folder, dataset):
                self._open(dataset)

    @property
    def failures(self) -> int:
        """Syncs that failed; each ended a part of a log."""
        return sum(writing.failures for writing in self._logs.values())

    def append(self, dataset: str, rows: Rows, now_ns: int) -> int | None:
        """Take rows; the offset behind them, or None if too much waits for the disk: dropped, and counted."""
        writing = self._logs.get(dataset) or self._open(dataset)
        if writing.unwritten > self._limits.waiting_bytes:
            self.dropped[dataset] += len(rows)
            return None
        self._since_ns.setdefault(dataset, now_ns)
        before = writing.unwritten
        end = writing.append(rows)
        self.bytes[dataset] += writing.unwritten - before
        return end

    def sync(self) -> dict[str, int]:
        """Put everything on disk; for each dataset of which that is done the offset behind the last row.

        `problem` says what the disk did not take: those rows wait, and go there with the next call or a later one.
        """
        ends: dict[str, int] = {}
        self.problem = ""
        for dataset, writing in self._logs.items():
            try:
                ends[dataset] = writing.sync()
            except ChappeError as error:
                self.problem = str(error)
        return ends

    def tick(self, now_ns: int) -> int:
        """Close what is old or large enough, or of an hour that is over; how many segments were made."""
        return sum(self.segment(dataset, path) for dataset, path in self.rotate(now_ns))

    def rotate(self, now_ns: int) -> Iterator[tuple[str, Path]]:
        """Begin another part where one is due; the parts that ended so, each with its dataset, for `segment`."""
        for dataset, writing in self._logs.items():
            while writing.ended:
                yield dataset, writing.ended.pop(0)
            if not writing.rows:
                continue
            since_ns = self._since_ns.setdefault(dataset, now_ns)  # rows of a run before this one have no time
            due = (
                writing.size >= self._limits.bytes
                or now_ns - since_ns >= self._limits.age_ns
                or now_ns // HOUR_NS != since_ns // HOUR_NS
            )
            if due:
                self._since_ns.pop(dataset, None)
                yield dataset, writing.rotate()

    def close(self) -> int:
        """Close all logs into segments; how many were made. An empty part stays: its name is the next offset."""
        made = 0
        try:
            for dataset, writing in self._logs.items():
                if writing.rows:
                    self._since_ns.pop(dataset, None)
                    ended = writing.rotate()
                    made += sum(self.segment(dataset, path) for path in (*writing.ended, ended))
        finally:
            for writing in self._logs.values():
                writing.close()
            self._logs.clear()
        return made

    def segment(self, dataset: str, path: Path) -> int:
        """Make segments of the rows of an ended part that are in none yet; how many.

        It is removed when every row that it should hold is in a segment that was read again; else it is kept under
        another name. It may run beside `append` and `sync` in another thread, one part after the other.
        """
        first, stop = parts.first_of(path), parts.next_of(path)
        assert stop is not None  # a part ends when another begins
        content = examine(path, first, stop)
        made = 0
        for begin, end in self._lacking(dataset, first, stop):
            made += self._write(dataset, path, content, begin, end)
        lost = self._lacking(dataset, first, stop) if content.damages else []
        if lost:
            kept = parts.quarantine(path)
            self.damaged += 1
            log.error("rows of the log are lost: its disk gives back other bytes than were synced", dataset=dataset,
                      rows=[f"{begin} to {end - 1}" for begin, end in lost], kept=str(kept),
                      damage=[str(each) for each in content.damages])  # fmt: skip
        else:
            path.unlink()
        self._known[dataset] = [each for each in self._known[dataset] if each.stop > first]
        return made

    def _open(self, dataset: str) -> Log:
        known = parts.parts(self._folder, dataset)
        self._known[dataset] = self._segments.find(dataset, self._segments.source)
        closed = max((each.stop for each in self._known[dataset]), default=0)
        writing = self._logs[dataset] = Log(self._folder, dataset, closed)
        for path in known:
            if path != writing.path:
                self.segment(dataset, path)
        return writing

    def _lacking(self, dataset: str, first: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of rows that are in no segment; one that is damaged does not count and is kept under another name."""
        lacking: list[tuple[int, int]] = []
        for each in sorted(self._known[dataset], key=lambda segment: segment.first):
            if each.stop <= first or each.first >= stop or not self._sound(dataset, each):
                continue
            if each.first > first:
                lacking.append((first, each.first))
            first = each.stop
        return [*lacking, (first, stop)] if first < stop else lacking

    def _sound(self, dataset: str, segment: Segment) -> bool:
        try:
            self._segments.secure(segment)
        except FileNotFoundError:  # joined with others, or too old
            return True
        except ChappeError as error:
            kept = self._segments.quarantine(segment)
            self._known[dataset].remove(segment)
            self.damaged += 1
            log.error("a segment is damaged, it is made again from the log", reason=str(error), kept=kept)
            return False
        return True

    def _write(self, dataset: str, path: Path, content: Content, begin: int, end: int) -> int:
        """Segments of the whole rows between two offsets, of each stretch without damage its own."""
        made = 0
        for first, stop in _stretches(content, begin, end):
            rows = pa.Table.from_batches(parts.read_whole(path, dataset, content, first, stop))
            written = self._segments.write(dataset, rows)
            self._known[dataset] += written
            made += len(written)
        return made


def _stretches(content: Content, begin: int, end: int) -> list[tuple[int, int]]:
    """Rows that are whole and follow each other."""
    found: list[tuple[int, int]] = []
    for frame in content.frames:
        first, stop = max(frame.first, begin), min(frame.stop, end)
        if first >= stop:
            continue
        if found and found[-1][1] == first:
            found[-1] = found[-1][0], stop
        else:
            found.append((first, stop))
    return found
