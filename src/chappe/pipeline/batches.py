"""What happens to each micro-batch of a running job: its rows are stored once, and told to the mesh if they are for it.

These objects hold names and folders alone, because a driver behind Spark Connect gets them by wire.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chappe.pipeline.job import RAW, Publish, StepJob, Table
from chappe.pipeline.outbox import Outbox
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

    def __call__(self, rows: DataFrame, batch: int) -> None:
        part = self.name.removeprefix(RAW)
        desk = BatchDesk(rows.sparkSession, self.tables, self.job, batch, part)
        try:
            for table, frame in self.job.step(self.name, rows, desk).items():
                self.tables.append(table, batch, desk.staged.get(id(frame), frame), part)
        finally:
            for left in desk.staged.values():  # those that were appended have moved
                shutil.rmtree(left, ignore_errors=True)


class BatchDesk:
    """The desk of one batch: what is staged is known by the DataFrame that reads it."""

    def __init__(self, spark: SparkSession, tables: Tables, job: StepJob, batch: int, part: str) -> None:
        self._spark, self._tables, self._job, self._batch, self._part = spark, tables, job, batch, part
        self.staged: dict[int, Path] = {}
        self._kept: list[DataFrame] = []  # so that no other gets the same id

    def stage(self, table: str, rows: DataFrame) -> DataFrame:
        folder = self._tables.stage(table, rows)
        frame = self._spark.read.schema(rows.schema).parquet(str(folder))
        self.staged[id(frame)] = folder
        self._kept.append(frame)
        return frame

    def written(self, table: str) -> DataFrame:
        found = self._tables.read_before(self._spark, table, self._batch, self._part)
        return empty(self._spark, self._job.writes[table]) if found is None else found


def empty(spark: SparkSession, spec: Table) -> DataFrame:
    """A table without rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return spark.createDataFrame([], from_arrow_schema(spec.schema))
