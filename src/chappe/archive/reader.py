"""Reading an archive by offset: closed segments and then the log, as one row of rows without a seam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from chappe.archive import log
from chappe.archive.schema import RECEIVED_NS, schema_of
from chappe.archive.segments import Segments
from chappe.errors import ChappeError

RETRIES = 5


class Reader:
    """Rows of one archive; `folder` of its log is left out where only closed segments can be reached."""

    def __init__(self, segments: Segments, folder: Path | None = None) -> None:
        self._segments = segments
        self._folder = folder

    def end(self, dataset: str) -> int:
        """The offset behind the last row that can be read."""
        source = self._segments.source
        closed = max((each.stop for each in self._segments.find(dataset, source)), default=0)
        return max([closed, *(log.synced(path) for path in self._parts(dataset))])

    def begin(self, dataset: str) -> int:
        """The offset of the oldest row that is still kept."""
        closed = [each.first for each in self._segments.find(dataset, self._segments.source)]
        return min([*closed, *(log.first_of(path) for path in self._parts(dataset))], default=0)

    def read(
        self,
        dataset: str,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        from_ns: int = 0,
        to_ns: int = 1 << 62,
    ) -> Iterator[pa.RecordBatch]:
        """Rows from offset `start` up to and without `stop` that were received in a range of time, in order.

        A segment that was joined with others, or a part of the log that became one, while this runs is found again.
        ChappeError if rows in the range are gone.
        """
        names = None if columns is None else [*dict.fromkeys((*columns, RECEIVED_NS))]
        at = start
        for attempt in range(RETRIES):
            try:
                for rows in self._from(dataset, at, stop, names):
                    at += rows.num_rows
                    kept = _within(rows, from_ns, to_ns)
                    if kept.num_rows:
                        yield kept if columns is None else kept.select(list(columns))
                return
            except FileNotFoundError:
                if attempt == RETRIES - 1:
                    raise

    def _from(self, dataset: str, start: int, stop: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        at = start
        for segment in self._segments.find(dataset, self._segments.source):
            if at < segment.stop and segment.first < stop:
                self._no_gap(dataset, at, segment.first)
                for rows in self._segments.read(segment, at, stop, columns):
                    at += rows.num_rows
                    yield rows
        for path in self._parts(dataset):
            for rows in log.read(path, dataset, at, stop):
                first = rows.column(0)[0].as_py()
                self._no_gap(dataset, at, first)
                at += rows.num_rows
                yield rows if columns is None else rows.select(list(columns))

    def _parts(self, dataset: str) -> list[Path]:
        schema_of(dataset)
        return log.parts(self._folder, dataset) if self._folder is not None else []

    def _no_gap(self, dataset: str, expected: int, found: int) -> None:
        if found > expected:
            raise ChappeError(
                f"rows {expected} to {found - 1} of {dataset} are gone from the archive (retention?); "
                f"begin at {found} or later"
            )


def _within(rows: pa.RecordBatch, from_ns: int, to_ns: int) -> pa.RecordBatch:
    if from_ns <= 0 and to_ns >= 1 << 62:
        return rows
    received = rows.column(RECEIVED_NS)
    return rows.filter(pc.and_(pc.greater_equal(received, from_ns), pc.less(received, to_ns)))
