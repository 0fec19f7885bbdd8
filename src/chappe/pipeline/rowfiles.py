"""Parquet files with rows of the archive, raw or clean, and what their footers say of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from chappe.archive.schema import RECEIVED, RECEIVED_NS, for_people, schema_of
from chappe.pipeline.rules import CREATED_NS, SOURCE

_FIRST, _LAST = -(1 << 63), (1 << 63) - 1


class Span(NamedTuple):
    """Times from the first up to and with the last."""

    first: int = _FIRST
    last: int = _LAST

    def meets(self, other: Span) -> bool:
        return self.first <= other.last and other.first <= self.last

    def within(self, other: Span) -> Span:
        return Span(max(self.first, other.first), min(self.last, other.last))

    def wider(self, before_ns: int, after_ns: int) -> Span:
        return Span(max(self.first - before_ns, _FIRST), min(self.last + after_ns, _LAST))


class Group(NamedTuple):
    """A row group: when its rows were made and received."""

    rows: int
    created: Span
    received: Span


@dataclass(frozen=True, slots=True)
class RowFile:
    """Rows of one dataset; `source` is the archive they are all from, empty where a column says it."""

    path: str  # a file, or the URI of one
    source: str
    groups: tuple[Group, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.groups)

    @property
    def created(self) -> Span:
        return Span(min(each.created.first for each in self.groups), max(each.created.last for each in self.groups))

    @property
    def received(self) -> Span:
        return Span(min(each.received.first for each in self.groups), max(each.received.last for each in self.groups))

    @contextmanager
    def open(self) -> Iterator[pq.ParquetFile]:
        """For reading, texts as numbers of distinct ones; FileNotFoundError if it is gone."""
        with _opened(self.path) as source:
            plain = pq.ParquetFile(source)
            texts = [field.name for field in plain.schema_arrow if field.type in (pa.string(), pa.binary())]
            yield pq.ParquetFile(source, metadata=plain.metadata, read_dictionary=texts)

    def read(self, file: pq.ParquetFile, dataset: str, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Columns of some row groups; one that the dataset got after the file was written is empty.

        The timestamp for people is made again of the exact one, which costs a tenth of reading it.
        """
        there = set(file.schema_arrow.names)
        if RECEIVED_NS in columns:
            there.discard(RECEIVED)
        rows = file.read_row_groups(list(groups), [name for name in columns if name in there], use_threads=False)
        arrays = []
        for name in columns:
            if name in there:
                arrays.append(rows.column(name))
            elif name == RECEIVED and RECEIVED_NS in columns:
                arrays.append(for_people(rows.column(RECEIVED_NS)))
            elif name == SOURCE:
                numbers = pa.repeat(pa.scalar(0, pa.int32()), rows.num_rows)
                arrays.append(pa.DictionaryArray.from_arrays(numbers, pa.array([self.source])))
            else:
                arrays.append(pa.nulls(rows.num_rows, schema_of(dataset).field(name).type))
        return pa.table(arrays, names=list(columns))


def looked_at(path: str, source: str = "") -> RowFile:
    """A file and what its footer says; FileNotFoundError if it is gone."""
    with _opened(path) as opened:
        file = pq.ParquetFile(opened)
        return RowFile(path, source, tuple(_group(file.metadata.row_group(at)) for at in range(file.num_row_groups)))


known = lru_cache(maxsize=1 << 16)(looked_at)  # for files that never change


def _opened(path: str) -> pa.NativeFile:
    filesystem, place = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    return filesystem.open_input_file(place)


def _group(group: pq.RowGroupMetaData) -> Group:
    spans = {CREATED_NS: Span(), RECEIVED_NS: Span()}
    for at in range(group.num_columns):
        column = group.column(at)
        if column.path_in_schema in spans and column.statistics is not None and column.statistics.has_min_max:
            spans[column.path_in_schema] = Span(column.statistics.min, column.statistics.max)
    return Group(group.num_rows, spans[CREATED_NS], spans[RECEIVED_NS])
