"""Reading an archive by offset: closed segments and then the log, as one row of rows without a seam."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from chappe.archive import log
from chappe.archive.log import Tail
from chappe.archive.schema import RECEIVED_NS, schema_of
from chappe.archive.segments import ROW_GROUP, Segment, Segments
from chappe.errors import ChappeError

RETRIES = 5
ALWAYS_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `start` up to and without `stop` of a dataset, and where they were when somebody looked."""

    dataset: str
    start: int
    stop: int
    segment: Segment | None = None
    part: str = ""  # of the log
    place: int = -1  # of the first row in it


class Reader:
    """Rows of one archive; `folder` of its log is left out where only closed segments can be reached."""

    def __init__(self, segments: Segments, folder: Path | None = None) -> None:
        self._segments = segments
        self._folder = folder
        self._tails: dict[Path, Tail] = {}

    def end(self, dataset: str) -> int:
        """The offset behind the last row that can be read."""
        if tails := self._look(dataset):
            return tails[-1].stop  # a part begins where all before it is safe, so nothing is beyond the newest one
        return max((each.stop for each in self._segments.find(dataset, self._segments.source)), default=0)

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
        to_ns: int = ALWAYS_NS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows from offset `start` up to and without `stop` that were received in a range of time, in order.

        A segment that was joined with others, or a part of the log that became one, while this runs is found again.
        ChappeError if rows in the range are gone.
        """
        at = start
        for attempt in range(RETRIES):
            try:
                for piece in self.plan(dataset, at, stop, from_ns=from_ns, to_ns=to_ns):
                    at = max(at, piece.start)
                    for rows in self._rows(piece, columns, from_ns, to_ns):
                        at += rows.num_rows
                        yield from _within(rows, columns, from_ns, to_ns)
                return
            except FileNotFoundError:
                if attempt == RETRIES - 1:
                    raise

    def plan(
        self,
        dataset: str,
        start: int,
        stop: int,
        rows: int = 1 << 62,
        from_ns: int = 0,
        to_ns: int = ALWAYS_NS,
        skip_missing: bool = False,
    ) -> list[Piece]:
        """The range in pieces of about so many rows, each in one segment or one part of the log, in order.

        Segments without rows in the range of time are left out. ChappeError if rows in the range are gone, unless they
        are to be skipped.
        """
        tails = self._look(dataset)
        at, found, beyond = start, list[Piece](), [log.first_of(tail.path) for tail in tails]
        if not tails or at < log.first_of(tails[0].path):
            for segment in self._segments.find(dataset, self._segments.source):
                if at < segment.stop and segment.first < stop:
                    at = self._begin(dataset, at, segment.first, skip_missing)
                    end = min(stop, segment.stop)
                    if segment.to_ns >= from_ns and segment.from_ns < to_ns:
                        found += _split(Piece(dataset, at, end, segment), segment.first, rows)
                    at = end
                beyond.append(segment.first)
        for tail in tails:
            if at < min(tail.stop, stop) and log.first_of(tail.path) < stop:
                at = self._begin(dataset, at, log.first_of(tail.path), skip_missing)
                end = min(stop, tail.stop)
                whole = Piece(dataset, at, end, part=str(tail.path))
                found += [replace(each, place=tail.place(each.start)) for each in _split(whole, at, rows)]
                at = end
        following = min((first for first in beyond if first >= stop), default=None)
        if at < stop and following is not None:
            self._begin(dataset, at, following, skip_missing)
        return found

    def whole(self, dataset: str, start: int, stop: int) -> list[Segment]:
        """The closed segments that lie between two offsets, without a gap between them."""
        found: list[Segment] = []
        for each in self._segments.find(dataset, self._segments.source):
            if each.first >= start and each.stop <= stop and (not found or found[-1].stop == each.first):
                found.append(each)
        return found

    def border(self, dataset: str, start: int, stop: int) -> int:
        """The end of the last segment between two offsets; `stop` if there is none."""
        found = self.whole(dataset, start, stop)
        return found[-1].stop if found else stop

    def read_piece(
        self, piece: Piece, columns: Sequence[str] | None = None, from_ns: int = 0, to_ns: int = ALWAYS_NS
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a piece where `plan` found them, or wherever they have gone since."""
        at = piece.start
        try:
            for rows in self._rows(piece, columns, from_ns, to_ns):
                at += rows.num_rows
                yield from _within(rows, columns, from_ns, to_ns)
        except FileNotFoundError:
            yield from self.read(piece.dataset, at, piece.stop, columns, from_ns, to_ns)

    def _rows(self, piece: Piece, columns: Sequence[str] | None, from_ns: int, to_ns: int) -> Iterator[pa.RecordBatch]:
        """All rows of a piece, with the columns that are wanted and the time if it is asked for."""
        names = columns
        if columns is not None and _has_limits(from_ns, to_ns):
            names = [*dict.fromkeys((*columns, RECEIVED_NS))]
        if piece.segment is not None:
            yield from self._segments.read(piece.segment, piece.start, piece.stop, names)
            return
        for rows in log.read(Path(piece.part), piece.dataset, piece.start, piece.stop, piece.place):
            yield rows if names is None else rows.select(list(names))

    def _look(self, dataset: str) -> list[Tail]:
        """The parts of the log, oldest first, each looked at once more."""
        while True:
            paths = self._parts(dataset)
            for gone in [path for path in self._tails if path not in paths and path.name.startswith(f"{dataset}-")]:
                del self._tails[gone]
            tails = [self._tails.setdefault(path, Tail(path)) for path in paths]
            try:
                for tail, following in zip_longest(tails, tails[1:]):
                    tail.look(log.first_of(following.path) if following is not None else None)
            except FileNotFoundError:  # it became a segment just now
                continue
            return tails

    def _parts(self, dataset: str) -> list[Path]:
        schema_of(dataset)
        return log.parts(self._folder, dataset) if self._folder is not None else []

    def _begin(self, dataset: str, expected: int, found: int, skip_missing: bool) -> int:
        """Where rows go on that begin at `found`."""
        if found > expected and not skip_missing:
            raise ChappeError(
                f"rows {expected} to {found - 1} of {dataset} are gone from the archive (too old for its retention, or "
                f"damaged: `chappe archive check`); begin at {found} or later"
            )
        return max(expected, found)


def _split(piece: Piece, first: int, rows: int) -> list[Piece]:
    """A piece as several of about so many rows; of a segment, whose row groups are read whole, none has half of one."""
    step = max(rows, 1)
    if piece.segment is not None:
        step = -(-step // ROW_GROUP) * ROW_GROUP
    borders = [piece.start, *range(first + ((piece.start - first) // step + 1) * step, piece.stop, step), piece.stop]
    return [replace(piece, start=begin, stop=end) for begin, end in pairwise(borders)]


def _has_limits(from_ns: int, to_ns: int) -> bool:
    return from_ns > 0 or to_ns < ALWAYS_NS


def _within(rows: pa.RecordBatch, columns: Sequence[str] | None, from_ns: int, to_ns: int) -> Iterator[pa.RecordBatch]:
    """The rows received in a range of time with the columns that are wanted, if there are any."""
    if _has_limits(from_ns, to_ns):
        received = rows.column(RECEIVED_NS)
        rows = rows.filter(pc.and_(pc.greater_equal(received, from_ns), pc.less(received, to_ns)))
        rows = rows if columns is None else rows.select(list(columns))
    if rows.num_rows:
        yield rows
