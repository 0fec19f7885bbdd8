"""Ingest: from the archive as it came to tables that other jobs can trust (SJ-01).

Every row is checked by the rules of its dataset; one that breaks a rule goes to `quarantine` with the reason, and so
does one that arrived too late. Of rows with the same identity the first to arrive stays; all copies, with their paths,
are in the archive. What a job reads afterwards has no impossible value and no repeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F

from chappe.archive.schema import DATASETS, OFFSET, RECEIVED, RECEIVED_NS
from chappe.pipeline.job import RAW, Desk, Frames, StepJob, Table, parameter
from chappe.pipeline.source import SOURCE

SECOND_NS = 1_000_000_000
BEGIN_NS = 946_684_800 * SECOND_NS  # 2000: no clock of a mesh was set before
CLEAN, SUSPECT, BAD = "clean", "suspect", "bad"
FEW = 50_000  # suspects that every task may hold
QUARANTINE = pa.schema([
    pa.field("dataset", pa.string(), nullable=False),
    pa.field("reason", pa.string(), nullable=False),
    pa.field(SOURCE, pa.string()),
    pa.field(OFFSET, pa.int64()),
    pa.field(RECEIVED_NS, pa.int64()),
    pa.field("row", pa.string(), nullable=False),  # JSON
])  # fmt: skip

KEYS: Mapping[str, tuple[str, ...]] = {
    "status": ("variable", "name", "created_ns"),
    "events": ("issuer", "epoch", "sequence"),
    "measurements": ("node", "link", "created_ns"),
    "counters": ("node", "name", "labels", "created_ns"),
    "broker": ("broker", "action", "subject", "created_ns"),
    "quality": ("client", "subject", "kind", "created_ns"),
}

# What may not be below zero, beside NaN and infinity, and what is a share.
_NOT_NEGATIVE: Mapping[str, tuple[str, ...]] = {
    "status": ("variable",),
    "events": ("epoch", "sequence"),
    "measurements": (
        "latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost", "outliers", "window",
    ),
    "counters": ("value",),
    "broker": (),
    "quality": ("latency_ns", "count"),
}  # fmt: skip
_SHARES: Mapping[str, tuple[str, ...]] = {"measurements": ("loss",)}
_NAMES: Mapping[str, tuple[str, ...]] = {
    "status": ("node",), "events": ("topic",), "measurements": ("node", "link"), "counters": ("node", "name"),
    "broker": ("broker", "action"), "quality": ("subject", "kind"),
}  # fmt: skip


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
    }

    late_s: float = parameter(3600.0, "a row that arrives later than this after it was made is late")
    ahead_s: float = parameter(60.0, "a row stamped further ahead of its arrival has an impossible time")
    repeat_s: float = parameter(3600.0, "a repeat is looked for among rows that arrived so long before or after")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All tables from the whole archive."""
        clean: dict[str, DataFrame] = {}
        bad: list[DataFrame] = []
        for dataset in DATASETS:
            checked = self._checked(dataset, inputs[f"{RAW}{dataset}"])
            clean[dataset] = once(dataset, _good(checked))
            bad.append(quarantined(dataset, checked))
        return {**clean, "quarantine": reduce(DataFrame.unionByName, bad)}

    def step(self, name: str, rows: DataFrame, desk: Desk) -> Frames:
        """New rows of one dataset. First only their identities are looked at: who is alone needs no comparing."""
        dataset = name.removeprefix(RAW)
        raw = desk.near(rows)
        seen = Observation()
        counted = raw.observe(seen, *_span())
        hashes = _twice(dataset, counted).limit(FEW + 1).collect()
        found = _observed(seen, raw)
        if not found["rows"]:
            return {}
        reach = int(self.repeat_s * SECOND_NS)
        near = F.col(RECEIVED_NS).between((found["from_ns"] or 0) - reach, (found["to_ns"] or 0) + reach)
        earlier = desk.written(dataset).where(near).select(*KEYS[dataset])
        hashes += _known(dataset, raw, earlier).limit(FEW + 1).collect()
        suspects = raw.sparkSession.createDataFrame(hashes, "hash long") if len(hashes) <= FEW else None
        fates = desk.sort_out(dataset, self._fated(dataset, raw, suspects), "fate")
        made = {dataset: fates[CLEAN]} if CLEAN in fates else {}
        if SUSPECT in fates:
            firsts = first(dataset, fates[SUSPECT], earlier)
            if CLEAN in fates:
                desk.add(fates[CLEAN], firsts)
            else:
                made[dataset] = firsts
        if BAD in fates:
            made["quarantine"] = quarantined(dataset, self._checked(dataset, fates[BAD]))
        return made

    def _fated(self, dataset: str, rows: DataFrame, suspects: DataFrame | None) -> DataFrame:
        """Rows with what becomes of them; without a list of suspects all are."""
        checked = self._checked(dataset, rows)
        if suspects is None:
            doubted = checked.withColumn("suspect", F.lit(True))
        else:
            marked = F.broadcast(suspects.distinct().withColumn("suspect", F.lit(True)))
            hashed = checked.withColumn("hash", F.xxhash64(*KEYS[dataset]))
            doubted = hashed.join(marked, "hash", "left").drop("hash")
        fate = F.when(F.col("reason").isNotNull(), BAD).when(F.col("suspect"), SUSPECT).otherwise(CLEAN)
        return doubted.withColumn("fate", fate).drop("reason", "suspect")

    def _checked(self, dataset: str, rows: DataFrame) -> DataFrame:
        """Rows with the first rule that each breaks, or none."""
        return rows.withColumn("reason", F.coalesce(*self._rules(dataset)))

    def _rules(self, dataset: str) -> list[Column]:
        schema = DATASETS[dataset]
        rules = [
            F.when(F.col(field.name).isNull(), F.lit(f"no {field.name}"))
            for field in schema if not field.nullable and field.name not in (OFFSET, RECEIVED)
        ]  # fmt: skip
        rules += [F.when(F.col(name) == "", F.lit(f"no {name}")) for name in _NAMES[dataset]]
        for field in schema:
            column = F.col(field.name)
            if field.type == pa.float64():
                wrong = F.isnan(column) | (F.abs(column) == F.lit(float("inf")))
                rules.append(F.when(wrong, F.lit(f"{field.name} is no number")))
            if field.name in _NOT_NEGATIVE[dataset]:
                rules.append(F.when(column < 0, F.lit(f"{field.name} below zero")))
            if field.name in _SHARES.get(dataset, ()):
                rules.append(F.when(column > 1, F.lit(f"{field.name} above one")))
        if dataset == "status":
            empty = F.col("value").isNull() & F.col("whole").isNull() & F.col("content").isNull()
            rules.append(F.when(empty, F.lit("no value")))
        created, received = F.col("created_ns"), F.col(RECEIVED_NS)
        ahead, late = F.lit(int(self.ahead_s * SECOND_NS)), F.lit(int(self.late_s * SECOND_NS))
        rules += [
            F.when(received < BEGIN_NS, F.lit("impossible time of receipt")),
            F.when((created < BEGIN_NS) | (created > received + ahead), F.lit("impossible time")),
            F.when(received - created > late, F.lit("late")),
        ]
        return rules


def once(dataset: str, rows: DataFrame) -> DataFrame:
    """Rows without repeats. Only those whose hash another one has are sorted; the others pass as they are."""
    hashed = rows.withColumn("hash", F.xxhash64(*KEYS[dataset]))
    twice = _twice(dataset, rows)
    alone = hashed.join(twice, "hash", "left_anti").drop("hash")
    return alone.unionByName(first(dataset, hashed.join(twice, "hash", "left_semi").drop("hash")))


def first(dataset: str, rows: DataFrame, earlier: DataFrame | None = None) -> DataFrame:
    """The first to arrive of each identity, if it is not among `earlier`."""
    keys = KEYS[dataset]
    order = Window.partitionBy(*keys).orderBy(RECEIVED_NS, SOURCE, OFFSET)
    firsts = rows.withColumn("place", F.row_number().over(order)).where("place = 1").drop("place")
    if earlier is None:
        return firsts
    return firsts.join(earlier, [firsts[key].eqNullSafe(earlier[key]) for key in keys], "left_anti")


def quarantined(dataset: str, checked: DataFrame) -> DataFrame:
    """Rows that break a rule, as they were."""
    columns = [F.col(name) for name in checked.columns if name != "reason"]
    return checked.where(F.col("reason").isNotNull()).select(
        F.lit(dataset).alias("dataset"),
        "reason",
        SOURCE,
        OFFSET,
        RECEIVED_NS,
        F.to_json(F.struct(*columns)).alias("row"),
    )


def _good(checked: DataFrame) -> DataFrame:
    return checked.where(F.col("reason").isNull()).drop("reason")


def _span() -> list[Column]:
    """How many rows there are, and when the first and the last were received."""
    received = F.col(RECEIVED_NS)
    return [F.count(F.lit(1)).alias("rows"), F.min(received).alias("from_ns"), F.max(received).alias("to_ns")]


def _observed(seen: Observation, rows: DataFrame) -> Mapping[str, int | None]:
    """What was observed on the way; asked for where Spark found the plan empty and left that out with all else."""
    try:
        return seen.get
    except Py4JJavaError:
        found = rows.agg(*_span()).first()
        return {} if found is None else found.asDict()


def _twice(dataset: str, rows: DataFrame) -> DataFrame:
    """Hashes of identities that more than one row may have: equal identities have equal hashes."""
    hashes = rows.select(F.xxhash64(*KEYS[dataset]).alias("hash"))
    return hashes.groupBy("hash").count().where("count > 1").select("hash")


def _known(dataset: str, rows: DataFrame, earlier: DataFrame) -> DataFrame:
    """Hashes of identities that rows and earlier ones may have in common."""
    hash_of = F.xxhash64(*KEYS[dataset]).alias("hash")
    return rows.select(hash_of).join(earlier.select(hash_of), "hash", "left_semi").distinct()
