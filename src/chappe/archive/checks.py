"""What is in an archive, and whether it is whole: every checksum, every offset, every name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from chappe.archive import log
from chappe.archive.schema import DATASETS, OFFSET, RECEIVED_NS, schema_of
from chappe.archive.segments import Segment, Segments
from chappe.errors import ConfigError


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


def problems(segments: Segments, folder: Path | None = None) -> Iterator[str]:
    """What is wrong, each with its place; nothing if all is well. `folder` of a log is looked at, too."""
    _exists(segments)
    for dataset in DATASETS:
        known = segments.find(dataset)
        for segment in known:
            yield from _in_segment(segments, segment)
        for source, group in groupby(known, key=lambda segment: segment.source):
            yield from _between(dataset, source, list(group))
        if folder is not None:
            of = [each.stop for each in known if each.source == segments.source]
            yield from _in_log(folder, dataset, max(of, default=None))


def _in_segment(segments: Segments, segment: Segment) -> Iterator[str]:
    place = f"{segment.path}: "
    try:
        with segments.filesystem.open_input_file(f"{segments.root}/{segment.path}") as source:
            file = pq.ParquetFile(source, page_checksum_verification=True)
            if not file.schema_arrow.equals(schema_of(segment.dataset)):
                yield f"{place}has other columns than {segment.dataset}"
                return
            at = segment.first
            for rows in file.iter_batches(1 << 16):
                offsets = rows.column(OFFSET)
                expected = pa.array(range(at, at + rows.num_rows), pa.int64())
                if not offsets.equals(expected):
                    yield f"{place}offsets are not those of its name from {at} on"
                    return
                times = pc.min_max(rows.column(RECEIVED_NS)).as_py()
                if times["min"] < segment.from_ns or times["max"] > segment.to_ns:
                    yield f"{place}has rows of other times than its name says"
                at += rows.num_rows
            if at != segment.stop:
                yield f"{place}has {at - segment.first} rows, its name says {segment.stop - segment.first}"
    except (OSError, pa.ArrowException) as error:
        yield f"{place}{error}"


def _between(dataset: str, source: str, segments: list[Segment]) -> Iterator[str]:
    at = segments[0].first
    for each in segments:
        if each.first > at:
            yield f"{dataset} of {source}: rows {at} to {each.first - 1} are missing"
        elif each.first < at:
            yield f"{dataset} of {source}: rows {each.first} to {min(at, each.stop) - 1} are there twice"
        at = max(at, each.stop)


def _in_log(folder: Path, dataset: str, closed: int | None) -> Iterator[str]:
    parts = log.parts(folder, dataset)
    at = closed
    for path in parts:
        first = log.first_of(path)
        if at is not None and first > at:
            yield f"{path}: rows {at} to {first - 1} of {dataset} are neither in a segment nor in the log"
        with path.open("rb") as file:
            whole = list(log.frames(file))
            end = whole[-1].at + whole[-1].size if whole else 0
            rest = path.stat().st_size - end
        if rest and path != parts[-1]:
            yield f"{path}: {rest} bytes at {end} are no whole frame, and it is not the newest part"
        at = max([first, *(frame.first + frame.rows for frame in whole)])


def _bytes(segments: Segments, of: Iterable[Segment]) -> int:
    infos = segments.filesystem.get_file_info([f"{segments.root}/{each.path}" for each in of])
    return sum(info.size or 0 for info in infos)


def _exists(segments: Segments) -> None:
    if segments.filesystem.get_file_info(segments.root).type != fs.FileType.Directory:
        raise ConfigError(f"{segments.root}: there is no such folder")
