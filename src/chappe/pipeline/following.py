"""A table as a stream: `readStream.format("chappe")` with the option `table` yields its batches, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from chappe.pipeline.tables import batches, number

MAX_BATCHES = 4  # of the table in one micro-batch, so that a backlog is not taken at once
BATCH = 1 << 16  # rows that go to Spark at once

Offsets = dict[str, int]


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Batches of a table that is only added to; offsets are {part: number of the newest batch that was read}."""

    def __init__(self, table: str, schema: StructType) -> None:
        self._table = table
        self._schema = schema
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:
        return {"": -1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(MAX_BATCHES)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.reportLatestOffset()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        end = self.reportLatestOffset() if self._target is None else self._target
        new = [each for each in self._new(start) if number(each) <= end.get(_part(each), -1)]
        reached = dict(start)
        for each in new[: limit.max_files if isinstance(limit, ReadMaxFiles) else len(new)]:
            reached[_part(each)] = max(number(each), reached.get(_part(each), -1))
        return reached

    def reportLatestOffset(self) -> Offsets:
        newest = self.initialOffset()
        for each in batches(Path(self._table)):
            newest[_part(each)] = max(number(each), newest.get(_part(each), -1))
        return newest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        wanted = [each for each in self._new(start) if number(each) <= end.get(_part(each), -1)]
        return [InputPartition(str(file)) for each in wanted for file in sorted(each.glob("*.parquet"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        with pq.ParquetFile(partition.value) as file:
            for rows in file.iter_batches(BATCH, columns=schema.names):
                yield pa.Table.from_batches([rows]).select(schema.names).cast(schema).combine_chunks().to_batches()[0]

    def _new(self, start: Offsets) -> list[Path]:
        return [each for each in batches(Path(self._table).resolve()) if number(each) > start.get(_part(each), -1)]


def _part(batch: Path) -> str:
    return batch.parent.name.partition("part=")[2]
