"""Closed segments: Parquet files by dataset, date and hour, whose names say which rows are in them.

A segment appears under its name when it is whole, so that a listing is the index: offsets and times of every segment,
with nothing beside it that could disagree. Folders are named as Spark, DuckDB, polars and pandas expect partitions.
"""

from __future__ import annotations

import contextlib
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog
from pyarrow import fs

from chappe.archive.schema import DATASETS, OFFSET, RECEIVED_NS, schema_of
from chappe.disk import ensure_folder, sync, sync_out
from chappe.errors import ChappeError, ConfigError

log = structlog.get_logger(__name__)

HOUR_NS = 3_600_000_000_000
ROW_GROUP = 1 << 18  # rows; what a reader skips or reads as one
DAMAGED = ".damaged"  # behind the name of a file that is kept because something in it cannot be read
REMEMBERED = 65_536  # segments that were verified

_NAME = re.compile(
    r"(?P<source>[\w.-]+)-(?P<first>\d{16})-(?P<stop>\d{16})-(?P<from>\d{19})-(?P<to>\d{19})"
    r"(-(?P<checksum>[0-9a-f]{8}))?\.parquet"
)
_SOURCE = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """Rows `first` up to and without `stop` of one archive's dataset, received from `from_ns` to `to_ns`."""

    dataset: str
    source: str
    first: int
    stop: int
    from_ns: int
    to_ns: int
    checksum: int = -1  # of the file; names of earlier versions do not say it

    @property
    def path(self) -> str:
        """Below the root of the archive."""
        return f"{_hour(self.dataset, self.from_ns)}/{self.name}"

    @property
    def name(self) -> str:
        numbers = f"{self.first:016d}-{self.stop:016d}-{self.from_ns:019d}-{self.to_ns:019d}"
        checksum = f"-{self.checksum:08x}" if self.checksum >= 0 else ""
        return f"{self.source}-{numbers}{checksum}.parquet"

    def holds(self, other: Segment) -> bool:
        """Whether all rows of the other are in this one, and it has more."""
        same = (self.dataset, self.source) == (other.dataset, other.source)
        return same and self != other and self.first <= other.first and other.stop <= self.stop


def _hour(dataset: str, at_ns: int) -> str:
    at = datetime.fromtimestamp(at_ns // HOUR_NS * 3600, UTC)
    return f"{dataset}/date={at:%Y-%m-%d}/hour={at:%H}"


class Segments:
    """The segments of an archive on any filesystem that pyarrow knows."""

    def __init__(self, where: str | Path, source: str = "archive") -> None:
        """`where`: a folder or a URI like `s3://bucket/history`; `source`: the name of the archive that writes."""
        if not _SOURCE.fullmatch(source):
            raise ConfigError(f"name of the archive: {source!r} must have letters, digits, '_' and '.' alone")
        self.source = source
        text = str(where)
        try:
            if "://" in text:
                self.filesystem, self.root = fs.FileSystem.from_uri(text)
            else:
                self.filesystem, self.root = fs.LocalFileSystem(), str(Path(text).absolute())
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigError(f"archive {text}: {error}; give a folder or a URI like s3://bucket/folder") from None
        self._local = isinstance(self.filesystem, fs.LocalFileSystem)
        self._verified: set[Segment] = set()

    def exist(self) -> bool:
        """Whether the folder is there at all."""
        found: fs.FileInfo = self.filesystem.get_file_info(self.root)
        return found.type is fs.FileType.Directory

    def find(self, dataset: str, source: str = "", from_ns: int = 0, to_ns: int = 1 << 62) -> list[Segment]:
        """Segments that may hold rows received in a range of time, by source and offset."""
        found = [each for each in self._names(dataset) if not source or each.source == source]
        # A crash between the appearance of a compacted segment and the end of those it replaces leaves both.
        whole: list[Segment] = []
        for each in sorted(found, key=lambda each: (each.source, each.first, -each.stop)):
            if not whole or not whole[-1].holds(each):
                whole.append(each)
        return [each for each in whole if each.to_ns >= from_ns and each.from_ns < to_ns]

    def write(self, dataset: str, rows: pa.Table) -> list[Segment]:
        """Make segments of rows that follow each other, one for each hour; each is there whole or not at all.

        When this returns they are synced with all their folders, and were read again and found to hold the rows.
        """
        schema_of(dataset)
        written: list[Segment] = []
        for piece in _by_hour(rows):
            received = pc.min_max(piece.column(RECEIVED_NS))
            first = piece.column(OFFSET)[0].as_py()
            segment = Segment(
                dataset,
                self.source,
                first,
                first + piece.num_rows,
                received["min"].as_py(),
                received["max"].as_py(),
            )
            written.append(self._put(segment, piece))
        return written

    def read(
        self, segment: Segment, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a segment from offset `start` up to and without `stop`; FileNotFoundError if it is gone.

        ChappeError if it is not what was written.
        """
        self._verify_once(segment)
        with self.filesystem.open_input_file(f"{self.root}/{segment.path}") as source, _explained(segment):
            yield from self._read(source, segment, start, stop, columns)

    def verify(self, segment: Segment) -> None:
        """Read the whole file; ChappeError if it is not what was written, FileNotFoundError if it is gone."""
        with self.filesystem.open_input_file(f"{self.root}/{segment.path}") as source:
            found = _summed(source)
        if segment.checksum not in (-1, found):
            self._verified.discard(segment)
            raise ChappeError(f"segment {segment.path}: it is damaged, rows {segment.first} to {segment.stop - 1} "
                              "are lost unless there is a copy; `chappe archive check` names all that is")  # fmt: skip
        if len(self._verified) >= REMEMBERED:
            self._verified.clear()
        self._verified.add(segment)

    def secure(self, segment: Segment) -> None:
        """As `verify`, of one that a process may have made that was killed before it had synced it and its folder."""
        if self._local:
            path = Path(self.root) / segment.path
            sync_out(path)
            ensure_folder(path.parent)
            sync(path.parent)
        self.verify(segment)

    def quarantine(self, segment: Segment) -> str:
        """Keep a damaged segment under a name that no reader takes for one; the name."""
        kept = f"{self.root}/{segment.path}{DAMAGED}"
        self.filesystem.move(f"{self.root}/{segment.path}", kept)
        if self._local:
            sync(Path(kept).parent)
        return kept

    def quarantined(self, dataset: str) -> list[str]:
        """Segments of this archive that are kept under such a name."""
        found = (info.path for info in self._files(dataset) if info.base_name.startswith(f"{self.source}-"))
        return [path for path in found if path.endswith(DAMAGED)]

    def _verify_once(self, segment: Segment) -> None:
        """A local file is summed when it is first read; an object store does so itself whenever one is read."""
        if self._local and segment not in self._verified:
            self.verify(segment)

    def _read(
        self, source: pa.NativeFile, segment: Segment, start: int, stop: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        wanted = None if columns is None else [*dict.fromkeys((*columns, OFFSET))]
        file = pq.ParquetFile(source, page_checksum_verification=True)
        first = segment.first
        if file.metadata.num_rows != segment.stop - first:
            raise ChappeError(f"segment {segment.path}: has {file.metadata.num_rows} rows, its name says otherwise")
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if first < stop and first + rows > start:
                table = file.read_row_group(group, wanted)
                begin = max(start - first, 0)
                kept = table.slice(begin, min(rows, stop - first) - begin)
                yield from _with_columns(kept, segment.dataset, columns).to_batches()
            first += rows

    def compact(self, dataset: str, before: int, rows: int = 1 << 22) -> int:
        """Join neighbouring small segments of one hour up to offset `before` into larger ones; how many are fewer.

        Offsets stay: whoever reads by offset gets the same rows afterwards.
        """
        removed = 0
        for run in _neighbours(self.find(dataset, self.source), before, rows):
            try:
                for each in run:
                    self.verify(each)
            except ChappeError as error:  # it stays as it is, and so do its neighbours
                log.error("segments are not joined", reason=str(error))
                continue
            table = pa.concat_tables([pa.Table.from_batches(self.read(each, 0, 1 << 62)) for each in run])
            (joined,) = self.write(dataset, table)
            for each in run:
                if each != joined:
                    self.filesystem.delete_file(f"{self.root}/{each.path}")
            removed += len(run) - 1
        return removed

    def expire(self, dataset: str, before_ns: int) -> int:
        """Delete segments whose rows were all received before a time; how many."""
        old = [each for each in self._names(dataset) if each.source == self.source and each.to_ns < before_ns]
        for each in old:
            self.filesystem.delete_file(f"{self.root}/{each.path}")
        return len(old)

    def sweep(self) -> int:
        """Delete what a crash left of segments of this archive that were being written; how many files."""
        found = [info for dataset in DATASETS for info in self._files(dataset)]
        left = [info.path for info in found if info.base_name.startswith(f".{self.source}-")]
        for path in left:
            self.filesystem.delete_file(path)
        return len(left)

    def _files(self, dataset: str) -> list[fs.FileInfo]:
        schema_of(dataset)
        selector = fs.FileSelector(f"{self.root}/{dataset}", recursive=True, allow_not_found=True)
        files: list[fs.FileInfo] = self.filesystem.get_file_info(selector)
        return files

    def _names(self, dataset: str) -> list[Segment]:
        matches = (_NAME.fullmatch(info.base_name) for info in self._files(dataset))
        return [
            Segment(
                dataset, found["source"], int(found["first"]), int(found["stop"]), int(found["from"]),
                int(found["to"]), int(found["checksum"] or "-1", 16),
            )
            for found in matches
            if found
        ]  # fmt: skip

    def _put(self, segment: Segment, rows: pa.Table) -> Segment:
        path = f"{self.root}/{segment.path}"
        folder, _, name = path.rpartition("/")
        if self._local:
            ensure_folder(Path(folder))
        else:
            self.filesystem.create_dir(folder, recursive=True)
        hidden = f"{folder}/.{name}.{uuid.uuid4().hex}"  # readers of folders leave out names that begin with a dot
        try:
            with self.filesystem.open_output_stream(hidden) as sink:
                pq.write_table(
                    rows,
                    sink,
                    compression="zstd",
                    row_group_size=ROW_GROUP,
                    write_page_checksum=True,
                    use_dictionary=[field.name for field in rows.schema if field.type == pa.string()],
                )
            if self._local:
                sync_out(Path(hidden))
            segment = replace(segment, checksum=self._proven(hidden, segment, rows))
            self.filesystem.move(hidden, f"{self.root}/{segment.path}")
        except BaseException:
            with contextlib.suppress(OSError):
                self.filesystem.delete_file(hidden)
            raise
        if self._local:
            try:
                sync(Path(folder))
            except OSError:  # nobody may take it for one that a power cut leaves
                self.filesystem.delete_file(f"{self.root}/{segment.path}")
                raise
        return segment

    def _proven(self, path: str, segment: Segment, rows: pa.Table) -> int:
        """Read a file that was just written; its checksum, or a ChappeError if it does not hold the rows."""
        with self.filesystem.open_input_file(path) as source:
            checksum = _summed(source)
            source.seek(0)
            with _explained(segment):
                found = pq.ParquetFile(source, page_checksum_verification=True).read()
        if not _same(found, rows):
            raise ChappeError(f"segment {segment.path}: what the disk gives back is not what was written; "
                              "the rows stay in the log")  # fmt: skip
        return checksum


def _summed(source: pa.NativeFile) -> int:
    checksum = 0
    while block := source.read(1 << 20):
        checksum = zlib.crc32(block, checksum)
    return checksum


def _same(found: pa.Table, rows: pa.Table) -> bool:
    """Whether two tables are the same to the bit, values that are no number among them."""
    if found.schema.names != rows.schema.names or found.num_rows != rows.num_rows:
        return False
    return all(_bits(one).equals(_bits(other)) for one, other in zip(found.columns, rows.columns, strict=True))


def _bits(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    whole = pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
    return whole.view(pa.int64()) if pa.types.is_float64(whole.type) else whole


@contextlib.contextmanager
def _explained(segment: Segment) -> Iterator[None]:
    """What pyarrow says of a damaged file, with the place."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise ChappeError(f"segment {segment.path}: it cannot be read: {error}") from error


def _with_columns(rows: pa.Table, dataset: str, columns: Sequence[str] | None) -> pa.Table:
    """The columns that are wanted; one that the dataset got after the segment was written is empty."""
    schema = schema_of(dataset)
    for name in columns or schema.names:
        if name not in rows.column_names:
            rows = rows.append_column(schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type))
    return rows.select(list(columns or schema.names))


def _by_hour(rows: pa.Table) -> Iterator[pa.Table]:
    """Rows in pieces that begin whenever the hour of receipt is another than that of the row before."""
    if rows.num_rows == 0:
        return
    hours = pc.divide(rows.column(RECEIVED_NS), HOUR_NS).combine_chunks()
    changes = pc.indices_nonzero(pc.not_equal(hours.slice(1), hours.slice(0, len(hours) - 1))).to_pylist()
    borders = [0, *(at + 1 for at in changes), rows.num_rows]
    for begin, end in pairwise(borders):
        yield rows.slice(begin, end - begin)


def _neighbours(segments: Iterable[Segment], before: int, rows: int) -> Iterator[list[Segment]]:
    """Runs of two or more segments that can be one: same hour, no gap, not more than so many rows together."""
    run: list[Segment] = []
    for each in segments:
        if each.stop > before:
            break
        fits = (
            bool(run)
            and run[-1].stop == each.first
            and run[0].from_ns // HOUR_NS == each.from_ns // HOUR_NS == each.to_ns // HOUR_NS
            and each.stop - run[0].first <= rows
        )
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        run.append(each)
    if len(run) > 1:
        yield run
