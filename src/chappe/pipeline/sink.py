"""`df.writeStream.format("chappe")` and `df.write.format("chappe")`: rows as events or values of variables of a mesh.

Tasks hand their rows to the driver with their commit; the driver delivers a batch through an outbox, so that a batch
that Spark repeats after a crash is not delivered twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from chappe.errors import ConfigError
from chappe.pipeline.job import Publish
from chappe.pipeline.outbox import SCHEMAS, Outbox, kind_of

if TYPE_CHECKING:
    from chappe.pipeline.delivery import Node

_nodes: dict[tuple[str, str, str], Node] = {}  # of this process: a variable lives as long as its connection


@dataclass(frozen=True, slots=True)
class Options:
    """Where rows go, checked before the first is computed."""

    url: str
    outbox: str
    kind: Publish
    token: str = ""
    tls: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str], columns: Sequence[str]) -> Options:
        """ConfigError says which option is missing, or which column."""
        for name, what in (("url", "the address of a node"), ("outbox", "a folder of its own, kept over restarts")):
            if not given.get(name):
                raise ConfigError(f"format chappe: the option {name} is missing: {what}")
        kind = kind_of(list(columns))
        return cls(given["url"], given["outbox"], kind, given.get("token", ""), given.get("tls", ""))

    def deliver(self, rows: pa.Table, batch: int | None) -> None:
        """A batch, or without a number the next one."""
        try:
            from chappe.pipeline.delivery import Node  # here, because tasks need no client
        except ImportError:  # what a server got of this package has nothing that is compiled
            raise ConfigError(
                "format chappe: a Spark Connect server has no client of a mesh: write from a session with a master"
            ) from None
        key = (self.url, self.token, self.tls)
        node = _nodes.get(key) or _nodes.setdefault(key, Node(*key))
        outbox = Outbox(Path(self.outbox), self.kind, node)
        outbox.deliver(outbox.batch + 1 if batch is None else batch, rows)


@dataclass
class Rows(WriterCommitMessage):
    """The rows of one task, as an Arrow stream."""

    content: bytes


class BatchWriter(DataSourceArrowWriter):
    """All rows of a DataFrame at once; every write is a batch of its own."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        return _packed(self._options.kind, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._options.deliver(_unpacked(self._options.kind, messages), None)


class StreamWriter(DataSourceStreamArrowWriter):
    """Batch by batch, each once."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Rows:
        return _packed(self._options.kind, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._options.deliver(_unpacked(self._options.kind, messages), batchId)


def _packed(kind: Publish, batches: Iterator[pa.RecordBatch]) -> Rows:
    schema = SCHEMAS[kind]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
    return Rows(sink.getvalue().to_pybytes())


def _unpacked(kind: Publish, messages: Sequence[WriterCommitMessage | None]) -> pa.Table:
    tables = [pa.ipc.open_stream(each.content).read_all() for each in messages if isinstance(each, Rows)]
    return pa.concat_tables([SCHEMAS[kind].empty_table(), *tables])
