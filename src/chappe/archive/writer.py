"""An archive being written: every dataset has its log, and a log that is old or large enough becomes a segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from chappe.archive import log
from chappe.archive.log import Log
from chappe.archive.schema import DATASETS
from chappe.archive.segments import HOUR_NS, Segment, Segments


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
        log.sign(folder, segments.source)
        for dataset in DATASETS:
            if log.parts(folder, dataset):
                self._open(dataset)

    def append(self, dataset: str, rows: pa.RecordBatch, now_ns: int) -> int | None:
        """Take rows; the offset behind them, or None if too much waits for the disk: dropped, and counted."""
        writing = self._logs.get(dataset) or self._open(dataset)
        if writing.unwritten > self._limits.waiting_bytes:
            self.dropped[dataset] += rows.num_rows
            return None
        self._since_ns.setdefault(dataset, now_ns)
        return writing.append(rows)

    def sync(self) -> dict[str, int]:
        """Put everything on disk; for each dataset the offset behind the last row that is there."""
        return {dataset: writing.sync() for dataset, writing in self._logs.items()}

    def tick(self, now_ns: int) -> int:
        """Close what is old or large enough, or of an hour that is over; how many segments were made."""
        return sum(self.segment(dataset, path) for dataset, path in self.rotate(now_ns))

    def rotate(self, now_ns: int) -> Iterator[tuple[str, Path]]:
        """Begin another part where one is due; the parts that ended so, each with its dataset, for `segment`."""
        for dataset, writing in self._logs.items():
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
        for dataset, writing in self._logs.items():
            if writing.rows:
                self._since_ns.pop(dataset, None)
                made += self.segment(dataset, writing.rotate())
            writing.close()
        self._logs.clear()
        return made

    def abandon(self) -> None:
        """Leave everything as it is on disk; the next start cuts what is not whole."""
        for writing in self._logs.values():
            writing.abandon()
        self._logs.clear()

    def _open(self, dataset: str) -> Log:
        known = log.parts(self._folder, dataset)
        self._known[dataset] = self._segments.find(dataset, self._segments.source)
        closed = max((each.stop for each in self._known[dataset]), default=0)
        for path in known[:-1]:
            self.segment(dataset, path)
        writing = self._logs[dataset] = Log(self._folder, dataset, closed)
        if known and known[-1] != writing.path:
            self.segment(dataset, known[-1])
        return writing

    def segment(self, dataset: str, path: Path) -> int:
        """Make segments of the rows of an ended part that are in none yet, and only then remove it.

        It may run beside `append` and `sync` in another thread, one part after the other.
        """
        begin = log.first_of(path)
        for each in self._known[dataset]:  # by offset; a crash or a failure may have left some of its rows in segments
            if each.first <= begin < each.stop:
                begin = each.stop
        batches = list(log.read(path, dataset, begin, 1 << 62))
        made = self._segments.write(dataset, pa.Table.from_batches(batches)) if batches else []
        path.unlink()
        self._known[dataset] = [each for each in self._known[dataset] if each.stop > begin]
        return len(made)
