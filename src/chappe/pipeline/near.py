"""The rows of a micro-batch of the archive as files: closed segments are read where they are, without Spark's source.

A stream of the archive says which offsets a batch has, and notes them before the batch begins; a segment that lies
between them needs no copy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from chappe.pipeline.rowfiles import RowFile, looked_at
from chappe.pipeline.source import Archive, Options, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = 20_000  # rows that the driver reads itself: a task of Spark costs more than all they need

Offsets = Mapping[str, int]
_archives: dict[Options, Archive] = {}  # of this process: what was seen of a log is not looked at again


@dataclass(frozen=True, slots=True)
class Near:
    """Knows the archive and the checkpoint of a stream that reads one dataset of it."""

    options: Options
    checkpoint: Path

    def few(self, batch: int) -> pa.Table | None:
        """The rows of a batch, here, if they are few; else None."""
        archive = _archives.get(self.options) or _archives.setdefault(self.options, Archive(self.options))
        span = self._span(archive, batch)
        if span is None or sum(max(0, stop - span[0].get(source, 0)) for source, stop in span[1].items()) > FEW:
            return None
        found = [rows for piece in archive.pieces(*span) for rows in archive.read(piece)]
        return pa.Table.from_batches(found, arrow_schema(self.options.dataset, self.options.columns))

    def _span(self, archive: Archive, batch: int) -> tuple[Offsets, Offsets] | None:
        end = noted(self.checkpoint, batch)
        start = noted(self.checkpoint, batch - 1) if batch else archive.at(self.options.start)
        return None if start is None or end is None else (start, end)

    def files(self, spark: SparkSession, batch: int) -> tuple[list[RowFile], DataFrame | None] | None:
        """Closed segments and the other rows of a batch, if any; None if no segment lies in it as a whole."""
        archive = Archive(self.options)
        span = self._span(archive, batch)
        if span is None:
            return None
        start, end = span
        whole: list[RowFile] = []
        left: list[tuple[Offsets, Offsets]] = []
        for source, stop in end.items():
            at = start.get(source, 0)
            found = archive.reader(source).whole(self.options.dataset, at, stop)
            if found:
                whole += [looked_at(archive.file(each), source) for each in found]
                left += [({source: at}, {source: found[0].first}), ({source: found[-1].stop}, {source: stop})]
            else:
                left.append(({source: at}, {source: stop}))
        if not whole:
            return None
        rest = [self._read(spark, *each) for each in left if sum(each[1].values()) > sum(each[0].values())]
        return whole, reduce(DataFrame.unionByName, rest) if rest else None

    def _read(self, spark: SparkSession, start: Offsets, stop: Offsets) -> DataFrame:
        options = self.options
        given = {
            "path": options.path, "dataset": options.dataset, "log": ",".join("=".join(each) for each in options.logs),
            "source": next(iter(stop)), "start": json.dumps(start), "stop": json.dumps(stop),
        }  # fmt: skip
        return spark.read.format("chappe").options(**given).load()


def noted(checkpoint: Path, batch: int) -> dict[str, int] | None:
    """The offsets up to which a batch goes, as Spark has noted them; None if it has not where this process looks."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
        return {str(source): int(offset) for source, offset in json.loads(lines[2]).items()}
    except (OSError, ValueError, IndexError, AttributeError):
        return None
