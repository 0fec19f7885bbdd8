"""`spark.read` and `spark.readStream` with `format("chappe")`: an archive and its live log, as Arrow batches by offset.

Offsets are those of the archive, one for each archive that writes into the folder: a batch that is read again after a
crash has the same rows. Partitions are ranges of offsets inside one segment or one part of the log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from chappe.archive import log
from chappe.archive.reader import ALWAYS_NS, Piece, Reader
from chappe.archive.schema import DATASETS, RECEIVED_NS, schema_of
from chappe.archive.segments import ROW_GROUP, Segment, Segments
from chappe.errors import ConfigError
from chappe.pipeline import sink
from chappe.pipeline.following import TableReader
from chappe.pipeline.rules import SOURCE

MAX_ROWS = 2_000_000  # of one micro-batch: what a machine of two cores does in a second or two
BATCH = 1 << 16  # rows that go to Spark at once
SMALL = 1 << 15  # rows that are not worth a task of their own

Offsets = dict[str, int]


@dataclass(frozen=True, slots=True)
class Options:
    """What is read, checked before anything is."""

    path: str
    dataset: str
    columns: tuple[str, ...]
    source: str = ""
    logs: tuple[tuple[str, str], ...] = ()  # name of an archive, if it is given, and the folder of its log
    from_ns: int = 0
    to_ns: int = ALWAYS_NS
    max_rows: int = MAX_ROWS
    cores: int = 0
    start: str = "earliest"
    stop: str = "latest"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """ConfigError says which option is wrong and what it must be."""
        dataset = given.get("dataset", "")
        if not dataset:
            raise ConfigError(f"format chappe: the option dataset is missing; there are {', '.join(DATASETS)}")
        there = names(dataset)
        wanted = tuple(each for each in re.split(r"[\s,]+", given.get("columns", "")) if each) or there
        for each in wanted:
            if each not in there:
                raise ConfigError(f"format chappe: columns: {dataset} has no {each!r}; there are {', '.join(there)}")
        path = given.get("path", "")
        if not path:
            raise ConfigError("format chappe: the option path is missing: the folder or URI of the archive")
        source = given.get("source", "")
        return cls(
            path=path,
            dataset=dataset,
            columns=wanted,
            source=source,
            logs=_logs(given.get("log", ""), source),
            from_ns=_whole(given, "from_ns", 0),
            to_ns=_whole(given, "to_ns", ALWAYS_NS),
            max_rows=_whole(given, "max_rows", MAX_ROWS, least=1),
            cores=_whole(given, "cores", os.cpu_count() or 1, least=1),
            start=given.get("start", "earliest"),
            stop=given.get("stop", "latest"),
        )


def names(dataset: str) -> tuple[str, ...]:
    """The columns of a dataset as Spark sees them."""
    return (*schema_of(dataset).names, SOURCE)


def arrow_schema(dataset: str, columns: Sequence[str] = ()) -> pa.Schema:
    """The columns of a dataset, or some of them, and the name of the archive.

    Any may be empty, whatever the archive promises: whoever believes that a column has no gaps never looks for one.
    """
    fields = {field.name: field.with_nullable(True) for field in [*schema_of(dataset), pa.field(SOURCE, pa.string())]}
    return pa.schema([fields[name] for name in columns or names(dataset)])


def spark_schema(dataset: str, columns: Sequence[str] = ()) -> StructType:
    """The same in Spark's words."""
    schema: StructType = from_arrow_schema(arrow_schema(dataset, columns))
    return schema


class Archive:
    """Rows of one dataset of all archives that are asked for; it is made where it is used and never sent."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._segments = Segments(options.path)
        self._logs: dict[str, str] = {}
        self._readers: dict[str, Reader] = {}
        self._schema = arrow_schema(options.dataset, options.columns)

    def sources(self) -> list[str]:
        """The archives there are, sorted; ConfigError if there is nothing that could have any."""
        options = self._options
        if not options.logs and not self._segments.exist():
            raise ConfigError(
                f"format chappe: path: there is no folder {options.path}; give that of an archive, or its log, too, "
                "if it has just begun and no segment is closed yet"
            )
        logs = self._live()
        if options.source:
            return [options.source]
        return sorted({*logs, *(each.source for each in self._segments.find(options.dataset))})

    def _live(self) -> dict[str, str]:
        """The logs by their archives. One whose folder is not there yet has no rows, and is looked for again."""
        if len(self._logs) < len(self._options.logs):
            for given, folder in self._options.logs:
                name = _owner(given or self._options.source, folder)
                if name and name not in self._logs:
                    self._logs[name] = folder
                    self._readers.pop(name, None)
        return self._logs

    def begin(self) -> Offsets:
        return {each: self.reader(each).begin(self._options.dataset) for each in self.sources()}

    def end(self) -> Offsets:
        return {each: self.reader(each).end(self._options.dataset) for each in self.sources()}

    def at(self, text: str) -> Offsets:
        """`earliest`, `latest` or offsets as JSON."""
        if text == "earliest":
            return self.begin()
        if text == "latest":
            return self.end()
        try:
            told = json.loads(text)
            return {str(name): int(offset) for name, offset in told.items()}
        except (ValueError, AttributeError, TypeError):
            raise ConfigError(
                f'format chappe: start and stop are earliest, latest or offsets like {{"archive": 0}}, not {text!r}'
            ) from None

    def pieces(self, start: Mapping[str, int], stop: Mapping[str, int]) -> list[Partition]:
        """The rows between two offsets, in about as many partitions as keep all cores busy."""
        options = self._options
        wanted = {each: (start.get(each, 0), end) for each, end in stop.items() if end > start.get(each, 0)}
        total = sum(end - begin for begin, end in wanted.values())
        rows = min(ROW_GROUP, max(SMALL, -(-total // options.cores)))
        found = []
        for source, (begin, end) in wanted.items():
            first = max(begin, self.reader(source).begin(options.dataset)) if source not in start else begin
            found += [
                Partition(source, piece)
                for piece in self.reader(source).plan(
                    options.dataset, first, end, rows, from_ns=options.from_ns, to_ns=options.to_ns
                )
            ]
        return found

    def read(self, partition: Partition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, with the name of their archive if that is a column."""
        options = self._options
        columns = [name for name in options.columns if name != SOURCE] or [RECEIVED_NS]
        reader = self.reader(partition.source)
        for rows in reader.read_piece(partition.piece, columns, options.from_ns, options.to_ns):
            for first in range(0, rows.num_rows, BATCH):
                yield self._named(rows.slice(first, BATCH), partition.source)

    def _named(self, rows: pa.RecordBatch, source: str) -> pa.RecordBatch:
        arrays = [
            pa.repeat(source, rows.num_rows) if name == SOURCE else rows.column(name) for name in self._options.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def aligned(self, start: Mapping[str, int], end: Mapping[str, int]) -> Offsets:
        """The end of a batch, moved back to the end of a segment where it lies beyond one: those are read fastest."""
        moved = {source: stop for source, stop in end.items() if stop > start.get(source, 0)}
        for source, stop in moved.items():
            moved[source] = self.reader(source).border(self._options.dataset, start.get(source, 0), stop)
        return {**end, **moved}

    def file(self, segment: Segment) -> str:
        """Where pyarrow finds a segment: a file, or the URI of one."""
        place, mark, settings = self._options.path.partition("?")  # a URI may say how to reach a store
        if "://" in place:
            return f"{place.rstrip('/')}/{segment.path}{mark}{settings}"
        return str(Path(self._options.path).absolute() / segment.path)

    def reader(self, source: str) -> Reader:
        if source not in self._readers:
            folder = self._live().get(source)
            self._readers[source] = Reader(
                Segments(self._options.path, source), None if folder is None else Path(folder)
            )
        return self._readers[source]


class Partition(InputPartition):
    """A range of offsets of one archive."""

    def __init__(self, source: str, piece: Piece) -> None:
        super().__init__((source, piece))
        self.source = source
        self.piece = piece


class Source(DataSource):
    """What `format("chappe")` stands for."""

    @classmethod
    def name(cls) -> str:
        return "chappe"

    def schema(self) -> StructType:
        options = Options.parse(self.options)
        return spark_schema(options.dataset, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(Options.parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if "table" in self.options:
            return TableReader(self.options["table"], schema)
        return StreamReader(Options.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return sink.BatchWriter(sink.Options.parse(self.options, schema.names))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return sink.StreamWriter(sink.Options.parse(self.options, schema.names))


class BatchReader(DataSourceReader):
    """All that is there when the query is planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Times of receipt and the name of the archive are looked for here, all else by Spark."""
        for each in filters:
            narrowed = _narrowed(self._options, each)
            if narrowed is None:
                yield each
            else:
                self._options = narrowed

    def partitions(self) -> Sequence[InputPartition]:
        archive = Archive(self._options)
        start, stop = archive.at(self._options.start), archive.at(self._options.stop)
        known = archive.sources()
        return list(archive.pieces(start, {name: end for name, end in stop.items() if name in known}))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, in batches of at most `max_rows`; offsets are {name of the archive: offset}."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._archive: Archive | None = None
        self._target: Offsets | None = None

    def __getstate__(self) -> Options:
        return self._options  # what was seen of the log stays on the driver

    def __setstate__(self, options: Options) -> None:
        self.__init__(options)  # type: ignore[misc]

    @property
    def archive(self) -> Archive:
        if self._archive is None:
            self._archive = Archive(self._options)
        return self._archive

    def initialOffset(self) -> Offsets:
        return self.archive.at(self._options.start)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.archive.end()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        end = self.archive.end() if self._target is None else self._target
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        reached = bounded(start, end, rows)
        return reached if all(reached[name] == end[name] for name in end) else self.archive.aligned(start, reached)

    def reportLatestOffset(self) -> Offsets:
        return self.archive.end()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return self.archive.pieces(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition)


def bounded(start: Mapping[str, int], end: Mapping[str, int], rows: int | None) -> Offsets:
    """As far as so many rows reach, shared by all archives; none goes back, and none that is gone is forgotten."""
    new = {name: max(0, offset - start.get(name, 0)) for name, offset in end.items()}
    left = sum(new.values()) if rows is None else rows
    reached = dict(start)
    for place, name in enumerate(sorted(new, key=lambda name: new[name])):
        taken = min(new[name], left // (len(new) - place))
        left -= taken
        reached[name] = start.get(name, 0) + taken
    return reached


def _rows(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, Partition):  # Spark makes one of None where there is nothing to read
        yield from Archive(options).read(partition)


def _narrowed(options: Options, wanted: Filter) -> Options | None:
    """The options with a filter in them that is a range of time or one archive; None for any other filter."""
    match wanted:
        case EqualTo((column,), str(value)) if column == SOURCE and options.source in ("", value):
            return replace(options, source=value)
        case EqualTo((column,), int(value)) if column == RECEIVED_NS:
            return _between(options, value, value + 1)
        case GreaterThanOrEqual((column,), int(value)) if column == RECEIVED_NS:
            return _between(options, value, ALWAYS_NS)
        case GreaterThan((column,), int(value)) if column == RECEIVED_NS:
            return _between(options, value + 1, ALWAYS_NS)
        case LessThan((column,), int(value)) if column == RECEIVED_NS:
            return _between(options, 0, value)
        case LessThanOrEqual((column,), int(value)) if column == RECEIVED_NS:
            return _between(options, 0, value + 1)
    return None


def _between(options: Options, from_ns: int, to_ns: int) -> Options:
    return replace(options, from_ns=max(options.from_ns, from_ns), to_ns=min(options.to_ns, to_ns))


def _logs(text: str, source: str) -> tuple[tuple[str, str], ...]:
    """`folder` of the one archive that is read, or `name=folder,name=folder`."""
    logs = []
    for each in (part.strip() for part in text.split(",")):
        name, equals, folder = each.partition("=")
        if each:
            logs.append((name, folder) if equals else ("", each))
    return tuple(pair for pair in logs if not source or pair[0] in ("", source))


def _owner(given: str, folder: str) -> str:
    """The archive whose log it is; empty if nobody can know yet. ConfigError if it is another's than was said."""
    told = log.owner(Path(folder))
    if given and told and told != given:
        raise ConfigError(f"format chappe: log {folder} is that of the archive {told!r}, not of {given!r}")
    if not given and not told and Path(folder).is_dir() and any(log.parts(Path(folder), each) for each in DATASETS):
        raise ConfigError(f"format chappe: log {folder} does not say whose it is: give NAME={folder}")
    return given or told


def _whole(given: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = given.get(name, str(default))
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise ConfigError(f"format chappe: {name} must be a whole number of at least {least}, not {text!r}")
    return value
