"""What happens to each micro-batch of a running job: its rows are stored once, and told to the mesh if they are for it.

These objects hold names and folders alone, because a driver behind Spark Connect gets them by wire.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from chappe.pipeline.job import RAW, Publish, StepJob, Table
from chappe.pipeline.near import Near
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
    near: Near

    def __call__(self, rows: DataFrame, batch: int) -> None:
        part = self.name.removeprefix(RAW)
        desk = BatchDesk(rows.sparkSession, self.tables, self.job, batch, part, self.near)
        try:
            for table, frame in self.job.step(self.name, rows, desk).items():
                self.tables.append(table, batch, desk.folder(frame) or frame, part)
        finally:
            desk.clear()


class BatchDesk:
    """The desk of one batch: what is staged is known by the DataFrame that reads it."""

    def __init__(
        self, spark: SparkSession, tables: Tables, job: StepJob, batch: int, part: str, near: Near | None = None
    ) -> None:
        self._spark, self._tables, self._job, self._batch, self._part = spark, tables, job, batch, part
        self._near = near
        self._staged: list[tuple[DataFrame, Path]] = []
        self._folders: list[Path] = []

    def near(self, rows: DataFrame) -> DataFrame:
        """Closed segments as they are; what else there is, is written down first."""
        found = None if self._near is None else self._near.rows(self._spark, self._batch)
        if found is None:
            return self.stage(self._part, rows)
        whole, rest = found
        return whole if rest is None else whole.unionByName(self.stage(self._part, rest))

    def stage(self, table: str, rows: DataFrame) -> DataFrame:
        folder = self._tables.stage(table, rows)
        self._folders.append(folder)
        return self._read(folder, rows.schema)

    def sort_out(self, table: str, rows: DataFrame, by: str) -> dict[str, DataFrame]:
        folder = self._tables.stage(table, rows, by)
        self._folders.append(folder)
        schema = StructType([field for field in rows.schema if field.name != by])
        return {each.name.partition("=")[2]: self._read(each, schema) for each in folder.glob(f"{by}=*")}

    def add(self, staged: DataFrame, rows: DataFrame) -> None:
        folder = self.folder(staged)
        assert folder is not None
        more = self._tables.stage(self._part, rows)
        self._folders.append(more)
        for file in more.glob("*.parquet"):
            file.rename(folder / file.name)

    def written(self, table: str) -> DataFrame:
        found = self._tables.read_before(self._spark, table, self._batch, self._part)
        return empty(self._spark, self._job.writes[table]) if found is None else found

    def folder(self, frame: DataFrame) -> Path | None:
        """Where a DataFrame was staged; None if it was not."""
        return next((folder for known, folder in self._staged if known is frame), None)

    def clear(self) -> None:
        """Remove what no table has got."""
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _read(self, folder: Path, schema: StructType) -> DataFrame:
        frame = self._spark.read.schema(schema).parquet(str(folder))
        self._staged.append((frame, folder))
        return frame


def empty(spark: SparkSession, spec: Table) -> DataFrame:
    """A table without rows."""
    return spark.createDataFrame([], from_arrow_schema(spec.schema))
