"""What is in an archive, and whether it is whole: every checksum, every offset, every name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from chappe.archive import log
from chappe.archive.frames import examine
from chappe.archive.schema import DATASETS, OFFSET, RECEIVED_NS, schema_of
from chappe.archive.segments import DAMAGED, Segment, Segments
from chappe.errors import ChappeError, ConfigError


class Contents(NamedTuple):
    """The segments of one dataset of one archive."""

    dataset: str
    source: str
    segments: int
    rows: int
    first: int
    next: int
    from_ns: int
    to_ns: int
    bytes: int


def contents(segments: Segments) -> list[Contents]:
    """What is in a folder, by dataset and archive; ConfigError if there is no such folder."""
    _exists(segments)
    found = []
    for dataset in DATASETS:
        for source, group in groupby(segments.find(dataset), key=lambda segment: segment.source):
            of = list(group)
            found.append(
                Contents(
                    dataset, source, len(of), sum(each.stop - each.first for each in of), of[0].first,
                    max(each.stop for each in of), min(each.from_ns for each in of), max(each.to_ns for each in of),
                    _bytes(segments, of),
                )
            )  # fmt: skip
    return found


class Problem(NamedTuple):
    """Something in an archive that is not as it was written."""

    kind: str  # "damaged", "missing", "doubled", "kept" (under another name), or "torn", which loses nothing
    place: str  # a file, or the dataset and archive
    dataset: str
    first: int  # rows that are lost or doubled; as many as from `first` to `stop`
    stop: int
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def problems(segments: Segments, folder: Path | None = None) -> Iterator[Problem]:
    """What is wrong, each with its place; nothing if all is well. `folder` of a log is looked at, too.

    An archive may be at work: what moves meanwhile is found where it went.
    """
    _exists(segments)
    for dataset in DATASETS:
        parts = [] if folder is None else log.parts(folder, dataset)
        known = segments.find(dataset)
        for segment in known:
            yield from _in_segment(segments, segment)
        for source, group in groupby(known, key=lambda segment: segment.source):
            yield from _between(dataset, source, list(group), [] if source != segments.source else parts)
        own = [each for each in known if each.source == segments.source]
        for path in parts:
            yield from _in_part(path, dataset)
        yield from _before_log(dataset, own, parts)
        kept = [*segments.quarantined(dataset)]
        if folder is not None:
            kept += [str(path) for path in sorted(folder.glob(f"{dataset}-*{DAMAGED}"))]
        for name in kept:
            yield Problem("kept", name, dataset, 0, 0, "damaged before, and kept for whoever can read more of it")


def _in_segment(segments: Segments, segment: Segment) -> Iterator[Problem]:
    try:
        segments.verify(segment)
        reason = _wrong(segments, segment)
    except FileNotFoundError:
        return  # it was joined with others, or expired
    except (OSError, ChappeError, pa.ArrowException) as error:
        reason = str(error)
    if reason:
        yield Problem("damaged", segment.path, segment.dataset, segment.first, segment.stop, reason)


def _wrong(segments: Segments, segment: Segment) -> str:
    with segments.filesystem.open_input_file(f"{segments.root}/{segment.path}") as source:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        if not file.schema_arrow.equals(schema_of(segment.dataset)):
            return f"has other columns than {segment.dataset}"
        at = segment.first
        for rows in file.iter_batches(1 << 16):
            offsets = rows.column(OFFSET)
            expected = pa.array(range(at, at + rows.num_rows), pa.int64())
            if not offsets.equals(expected):
                return f"offsets are not those of its name from {at} on"
            times = pc.min_max(rows.column(RECEIVED_NS)).as_py()
            if times["min"] < segment.from_ns or times["max"] > segment.to_ns:
                return "has rows of other times than its name says"
            at += rows.num_rows
        if at != segment.stop:
            return f"has {at - segment.first} rows, its name says {segment.stop - segment.first}"
    return ""


def _between(dataset: str, source: str, segments: list[Segment], parts: list[Path]) -> Iterator[Problem]:
    """Gaps and overlaps; rows of a gap may be in a part of the log that is no segment yet."""
    at = segments[0].first
    place = f"{dataset} of {source}"
    for each in segments:
        if each.first > at and not _in_parts(parts, at, each.first):
            yield Problem("missing", place, dataset, at, each.first, f"rows {at} to {each.first - 1} are missing")
        elif each.first < at:
            stop = min(at, each.stop)
            yield Problem(
                "doubled", place, dataset, each.first, stop, f"rows {each.first} to {stop - 1} are there twice"
            )
        at = max(at, each.stop)


def _in_parts(parts: list[Path], first: int, stop: int) -> bool:
    starts = [log.first_of(path) for path in parts]
    return any(start <= first and stop <= following for start, following in pairwise(starts))


def _in_part(path: Path, dataset: str) -> Iterator[Problem]:
    try:
        content = examine(path, log.first_of(path), log.next_of(path))
    except FileNotFoundError:
        return  # it became a segment
    for each in content.damages:
        yield Problem("damaged", str(path), dataset, each.first, each.stop, str(each))
    if content.torn and log.next_of(path) is None:
        reason = f"{content.torn} bytes at {content.end} are no whole frame: being written, or left by a crash"
        yield Problem("torn", str(path), dataset, content.next, content.next, reason)


def _before_log(dataset: str, segments: list[Segment], parts: list[Path]) -> Iterator[Problem]:
    """Rows between the last segment and the log."""
    if not parts or not segments:
        return
    first, at = log.first_of(parts[0]), max(each.stop for each in segments)
    if first > at:
        reason = f"rows {at} to {first - 1} of {dataset} are neither in a segment nor in the log"
        yield Problem("missing", str(parts[0]), dataset, at, first, reason)


def _bytes(segments: Segments, of: Iterable[Segment]) -> int:
    infos = segments.filesystem.get_file_info([f"{segments.root}/{each.path}" for each in of])
    return sum(info.size or 0 for info in infos)


def _exists(segments: Segments) -> None:
    if segments.filesystem.get_file_info(segments.root).type != fs.FileType.Directory:
        raise ConfigError(f"{segments.root}: there is no such folder")
