"""Ingest: from the archive as it came to tables that other jobs can trust (SJ-01).

Every row is checked by the rules of its dataset; one that breaks a rule goes to `quarantine` with the reason, and so
does one that arrived too late. Of rows with the same identity the first to arrive stays; all copies, with their paths,
are in the archive, and `repeats` says how many were left out. What a job reads afterwards has no impossible value and
no repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.archive.schema import DATASETS, OFFSET, RECEIVED_NS
from chappe.pipeline import cleaning, rules
from chappe.pipeline.cleaning import Cleaned, Work
from chappe.pipeline.job import RAW, Desk, Frames, StepJob, Table, parameter
from chappe.pipeline.repeats import KEYS
from chappe.pipeline.rules import QUARANTINE, SECOND_NS, SOURCE, Limits
from chappe.pipeline.source import arrow_schema
from chappe.pipeline.taskfiles import spread, taken, tries

FEW = 50_000  # rows that are not worth a task of Spark
REPEATS = pa.schema([
    pa.field("dataset", pa.string(), nullable=False),
    pa.field("repeats", pa.int64(), nullable=False),
    pa.field("of", pa.int64(), nullable=False),  # rows of the batch that broke no rule
    pa.field("first_ns", pa.int64(), nullable=False),  # receipt of the rows of the batch
    pa.field("last_ns", pa.int64(), nullable=False),
])  # fmt: skip


@dataclass(frozen=True)
class Ingest(StepJob):
    """Takes new rows of every dataset of the archive, each once."""

    id: ClassVar[str] = "SJ-01"
    name: ClassVar[str] = "ingest"
    line: ClassVar[str] = "checks rows of the archive, drops repeats, puts bad and late ones into quarantine"
    reads: ClassVar[tuple[str, ...]] = tuple(f"{RAW}{dataset}" for dataset in DATASETS)
    writes: ClassVar[Mapping[str, Table]] = {
        **{
            dataset: Table(schema.append(pa.field(SOURCE, pa.string(), nullable=False)), KEYS[dataset])
            for dataset, schema in DATASETS.items()
        },
        "quarantine": Table(QUARANTINE),
        "repeats": Table(REPEATS),
    }

    late_s: float = parameter(3600.0, "a row that arrives later than this after it was made is late")
    ahead_s: float = parameter(60.0, "a row stamped further ahead of its arrival has an impossible time")
    repeat_s: float = parameter(3600.0, "a repeat is looked for among rows that arrived so long before or after")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All tables from the whole archive."""
        clean: dict[str, DataFrame] = {}
        bad: list[DataFrame] = []
        again: list[DataFrame] = []
        for dataset in DATASETS:
            rows = inputs[f"{RAW}{dataset}"].select(*arrow_schema(dataset).names)
            good = rows.mapInArrow(partial(_good, dataset, self._limits), rows.schema)
            clean[dataset] = once(dataset, good)
            again.append(_repeats(dataset, good))
            bad.append(rows.mapInArrow(partial(_bad, dataset, self._limits), from_arrow_schema(QUARANTINE)))
        return {
            **clean,
            "quarantine": reduce(DataFrame.unionByName, bad),
            "repeats": reduce(DataFrame.unionByName, again),
        }

    def step(self, name: str, rows: DataFrame, desk: Desk) -> Mapping[str, DataFrame | Path]:
        """New rows of one dataset, file by file: each file is cleaned by one task, which reads and writes it itself."""
        dataset = name.removeprefix(RAW)
        works = cleaning.planned(
            dataset, desk.raw(rows), desk.written(dataset), self._limits, int(self.repeat_s * SECOND_NS)
        )
        rooms = {table: desk.room(table) for table in (dataset, "quarantine")}
        clean = partial(cleaning.cleaned, clean=tries(rooms[dataset]), bad=tries(rooms["quarantine"]))
        few = sum(work.file.rows for work in works) <= FEW
        done = [clean(work) for work in works] if few else spread(rows.sparkSession, works, clean)
        made = {dataset: [each.clean for each in done], "quarantine": [each.bad for each in done]}
        found: dict[str, DataFrame | Path] = {table: room for table, room in rooms.items() if taken(room, made[table])}
        if repeats := _counted(dataset, works, done):
            found["repeats"] = room = desk.room("repeats")
            pq.write_table(pa.Table.from_pylist([repeats], schema=REPEATS), room / "repeats.parquet")
        return found

    @property
    def _limits(self) -> Limits:
        return Limits(int(self.late_s * SECOND_NS), int(self.ahead_s * SECOND_NS))


def once(dataset: str, rows: DataFrame) -> DataFrame:
    """Rows without repeats. Only those whose hash another one has are sorted; the others pass as they are."""
    keys = KEYS[dataset]
    hashed = rows.withColumn("hash", F.xxhash64(*keys))
    twice = hashed.groupBy("hash").count().where("count > 1").select("hash")
    alone = hashed.join(twice, "hash", "left_anti").drop("hash")
    order = Window.partitionBy(*keys).orderBy(RECEIVED_NS, SOURCE, OFFSET)
    several = hashed.join(twice, "hash", "left_semi").drop("hash").withColumn("place", F.row_number().over(order))
    return alone.unionByName(several.where("place = 1").drop("place"))


def _repeats(dataset: str, rows: DataFrame) -> DataFrame:
    """How many of these rows are repeats, if any are."""
    identities = rows.groupBy(*KEYS[dataset]).agg(
        F.count("*").alias("copies"), F.min(RECEIVED_NS).alias("first"), F.max(RECEIVED_NS).alias("last")
    )
    found = identities.agg(
        F.lit(dataset).alias("dataset"), F.sum(F.col("copies") - 1).alias("repeats"), F.sum("copies").alias("of"),
        F.min("first").alias("first_ns"), F.max("last").alias("last_ns"),
    )  # fmt: skip
    return found.where("repeats > 0")


def _counted(dataset: str, works: Sequence[Work], done: Sequence[Cleaned]) -> dict[str, int | str] | None:
    """The same of a batch: what is neither clean nor in quarantine."""
    clean, bad = sum(each.rows for each in done), sum(each.bad_rows for each in done)
    good = sum(work.file.rows for work in works) - bad
    if good == clean:
        return None
    received = [work.file.received for work in works]
    return {
        "dataset": dataset, "repeats": good - clean, "of": good,
        "first_ns": min(each.first for each in received), "last_ns": max(each.last for each in received),
    }  # fmt: skip


def _good(dataset: str, limits: Limits, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that break no rule."""
    for batch in batches:
        verdict = rules.judged(dataset, pa.Table.from_batches([batch]), limits)
        yield batch.filter(pa.array(verdict.broken == 0))


def _bad(dataset: str, limits: Limits, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows that break a rule, as quarantine has them."""
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        verdict = rules.judged(dataset, rows, limits)
        yield from rules.quarantined(dataset, rows, verdict).to_batches()
