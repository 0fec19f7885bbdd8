"""What happens to each micro-batch of a running job: its rows are stored once, and told to the mesh if they are for it.

These objects hold names and folders alone, because a driver behind Spark Connect gets them by wire.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.pipeline.job import RAW, Publish, StepJob, Table
from chappe.pipeline.near import Near
from chappe.pipeline.outbox import Outbox
from chappe.pipeline.rowfiles import RowFile, known, looked_at
from chappe.pipeline.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from chappe.pipeline.delivery import Node

OUTBOX = "outbox"
_nodes: dict[str, Node] = {}  # of this process: a variable lives as long as its connection


@dataclass(frozen=True, slots=True)
class Telling:
    """Where rows for the mesh go; without the address of a node they are only stored."""

    work: Path
    node: str = ""

    def wanted(self, spec: Table) -> bool:
        """Whether rows of a table go anywhere."""
        return bool(self.node) and spec.publish is not Publish.NO

    def outbox(self, table: str, spec: Table) -> Outbox:
        """The outbox of a table."""
        from chappe.pipeline.delivery import Node  # it loads the client

        node = _nodes.get(self.node) or _nodes.setdefault(self.node, Node(self.node))
        return Outbox(self.work / OUTBOX / table, spec.publish, node)


@dataclass(frozen=True, slots=True)
class Appended:
    """The rows of a stream go to a table as they are."""

    tables: Tables
    telling: Telling
    table: str
    spec: Table

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.tables.append(self.table, batch, rows)
        if self.telling.wanted(self.spec):
            outbox = self.telling.outbox(self.table, self.spec)
            if batch > outbox.batch:
                outbox.deliver(batch, self.tables.read_batch(rows.sparkSession, self.table, batch).toArrow())


@dataclass(frozen=True, slots=True)
class Stepped:
    """The rows of an input go through a job, which may look at what it wrote in earlier batches."""

    tables: Tables
    job: StepJob
    name: str
    near: Near

    def __call__(self, rows: DataFrame, batch: int) -> None:
        part = self.name.removeprefix(RAW)
        desk = BatchDesk(rows.sparkSession, self.tables, batch, part, self.near)
        try:
            for table, made in self.job.step(self.name, rows, desk).items():
                self.tables.append(table, batch, made, part)
        finally:
            desk.clear()


class BatchDesk:
    """The desk of one batch."""

    def __init__(self, spark: SparkSession, tables: Tables, batch: int, part: str, near: Near | None = None) -> None:
        self._spark, self._tables, self._batch, self._part, self._near = spark, tables, batch, part, near
        self._folders: list[Path] = []

    def raw(self, rows: DataFrame) -> list[RowFile]:
        few = None if self._near is None else self._near.few(self._batch)
        if few is not None:
            return self._staged(few) if few.num_rows else []
        found = None if self._near is None else self._near.files(self._spark, self._batch)
        whole, rest = found or ([], rows)
        return whole if rest is None else whole + self._staged(rest)

    def written(self, table: str) -> list[RowFile]:
        return [known(str(file)) for file in self._tables.files_before(table, self._batch, self._part)]

    def room(self, table: str) -> Path:
        self._folders.append(self._tables.room(table))
        return self._folders[-1]

    def clear(self) -> None:
        """Remove what no table has got."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _staged(self, rows: DataFrame | pa.Table) -> list[RowFile]:
        folder = self._tables.stage(self._part, rows)
        self._folders.append(folder)
        return [looked_at(str(file)) for file in sorted(folder.glob("*.parquet"))]


def empty(spark: SparkSession, spec: Table) -> DataFrame:
    """A table without rows."""
    return spark.createDataFrame([], from_arrow_schema(spec.schema))
