"""Statistics of links by minute, hour, day and week, of groups of them, and an audit of outliers (SJ-02)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.measure import metrics
from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH
from chappe.pipeline import linkperiods, minutesums, packing, periods, windowsizes
from chappe.pipeline.job import FileJob, Frames, Table, parameter
from chappe.pipeline.minutesums import NAMES

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
_NEVER_NS = 1 << 62
FILES = 4  # whose sums one task may hold


def _fields(kind: pa.DataType, *names: str, empty: bool = False) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=empty) for name in names]


_PERIOD = [*_fields(_TEXT, "period"), *_fields(_WHOLE, "start_ns")]
_FIGURES = [
    *_fields(_WHOLE, "rounds", "samples"),
    *_fields(
        _NUMBER, "latency_ms", "deviation_ms", "least_ms", "most_ms", "jitter_ms", "jitter", "loss", "bandwidth",
        "cost", empty=True,
    ),
    *_fields(_WHOLE, "outliers", "tested"),
]  # fmt: skip
LINK_STATISTICS = pa.schema([*_PERIOD, *_fields(_TEXT, *NAMES), *_FIGURES])
GROUP_STATISTICS = pa.schema([*_PERIOD, *_fields(_TEXT, "by", "name"), *_fields(_WHOLE, "ends"), *_FIGURES])
SPIKES = pa.schema([
    *_fields(_TEXT, *NAMES), *_fields(_WHOLE, "created_ns"),
    *_fields(_NUMBER, "latency_ms", "usual_ms", "deviation_ms"),
    *_fields(_NUMBER, "times", empty=True),  # deviations from what is usual
])  # fmt: skip
WINDOW_ADVICE = pa.schema([
    *_fields(_TEXT, *NAMES), *_fields(_WHOLE, "start_ns", "size", "tried"),
    *_fields(_NUMBER, "error_ms", "outliers"), *_fields(pa.bool_(), "advised"),
])  # fmt: skip

_SUMS, _PERIODS = from_arrow_schema(minutesums.SUMS), from_arrow_schema(linkperiods.PERIODS)


@dataclass(frozen=True)
class Links(FileJob):
    """Rows are summed by minute once; all longer periods, groups and spikes come from the sums."""

    id: ClassVar[str] = "SJ-02"
    name: ClassVar[str] = "links"
    line: ClassVar[str] = (
        "latency, deviation, jitter, loss and cost of links by minute to week; groups, spikes, windows"
    )
    reads: ClassVar[tuple[str, ...]] = ("measurements",)
    writes: ClassVar[dict[str, Table]] = {
        "link_statistics": Table(LINK_STATISTICS, ("period", "start_ns", *NAMES)),
        "group_statistics": Table(GROUP_STATISTICS, ("period", "start_ns", "by", "name")),
        "spikes": Table(SPIKES, (*NAMES, "created_ns")),
        "window_advice": Table(WINDOW_ADVICE, (*NAMES, "start_ns", "size")),
    }

    profile: str = parameter("default", "cost profile: " + ", ".join(sorted(PROFILES)))
    z: float = parameter(metrics.SHIFT_Z, "a spike is more standard deviations than this above what is usual")
    tried_rows: int = parameter(200_000, "sizes of windows are tried on so many newest rows, or on 2 % of all if more")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All periods that have a round."""
        self._check()
        measurements = inputs["measurements"]
        rows = measurements.select(*minutesums.COLUMNS)
        return self._made(rows.mapInArrow(minutesums.of_batches, _SUMS), measurements)

    def run_files(self, spark: SparkSession, files: Mapping[str, Sequence[str]], now_ns: int) -> Frames:
        """The same; each file is read and summed by one task."""
        self._check()
        paths = list(files["measurements"])

        def tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            pa.set_cpu_count(1)  # the tasks are what runs at once
            for batch in batches:
                yield from minutesums.of_files(paths[at] for at in batch.column("id").to_pylist())

        numbers = spark.range(0, len(paths), 1, numPartitions=len(paths))
        partitions = max(spark.sparkContext.defaultParallelism, len(paths) // FILES)
        return self._made(numbers.mapInArrow(tasks, _SUMS), spark.read.parquet(*paths), partitions)

    def _check(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(f"job links: no cost profile {self.profile!r}; there are {', '.join(sorted(PROFILES))}")
        if self.z <= 0 or self.tried_rows < 0:
            raise ConfigError(f"job links: z = {self.z}, tried_rows = {self.tried_rows}: give more than 0, 0 or more")

    def _made(self, parts: DataFrame, measurements: DataFrame, partitions: int = 0) -> Frames:
        # By end alone, so that a task has all of an end; what it makes is read once for each table.
        together = parts.repartition(partitions, *NAMES) if partitions else parts.repartition(*NAMES)
        made = together.mapInArrow(partial(linkperiods.of_batches, self.z), _PERIODS).localCheckpoint()
        ends = made.where("by = ''")
        newest = F.col("created_ns") >= self._newest_ns(ends.where("period = 'minute'"))
        return {
            "link_statistics": self._figures(ends).select(*LINK_STATISTICS.names),
            "group_statistics": self._figures(_merged(made.where("by <> ''"))).select(*GROUP_STATISTICS.names),
            "spikes": ends.where("usual_ms is not null").select(
                *NAMES, F.col("most_ns").alias("created_ns"), F.col("most_ms").alias("latency_ms"), "usual_ms",
                F.col("spread_ms").alias("deviation_ms"), "times",
            ),
            "window_advice": _advice(measurements.withColumn("realm", F.coalesce("realm", F.lit(""))).where(newest)),
        }  # fmt: skip

    def _figures(self, sums: DataFrame) -> DataFrame:
        """What people read, from sums."""
        mean = F.col("total_ms") / F.col("samples")
        latency, jitter, loss, bandwidth = (F.col(name) for name in ("latency_ms", "jitter", "loss", "bandwidth"))
        # Profiles are arithmetic: over columns as well as over arrays.
        total = PROFILES[self.profile](
            latency, F.coalesce(jitter, F.lit(0.0)), F.coalesce(loss, F.lit(0.0)),
            F.when(bandwidth > 0, bandwidth).otherwise(F.lit(UNKNOWN_BANDWIDTH)),
        )  # fmt: skip
        return (
            sums.withColumn("latency_ms", mean)
            .withColumn(
                "deviation_ms", F.sqrt(F.try_divide(F.greatest(F.col("squares"), F.lit(0.0)), F.col("samples")))
            )
            .withColumn("jitter", F.col("jitter_total") / F.col("jitter_count"))
            .withColumn("loss", F.col("loss_total") / F.col("loss_count"))
            .withColumn("bandwidth", F.col("bandwidth_total") / F.col("bandwidth_count"))
            .withColumn("cost", F.when(latency.isNotNull(), F.greatest(total + F.lit(0.0), F.lit(0.0))))
        )

    def _newest_ns(self, minutes: DataFrame) -> int:
        """From which minute on there are so many rows."""
        counts = minutes.groupBy("start_ns").agg(F.sum("rounds").alias("rounds")).toArrow().sort_by("start_ns")
        start, rounds = (counts.column(name).to_numpy()[::-1] for name in ("start_ns", "rounds"))
        wanted = max(self.tried_rows, int(rounds.sum()) // 50)
        inside = start[np.cumsum(rounds) - rounds < wanted]  # the newest first
        return int(inside[-1]) if len(inside) else _NEVER_NS


def _merged(sums: DataFrame) -> DataFrame:
    """Sums of groups that several tasks have parts of."""
    total, samples = F.sum("total_ms"), F.sum("samples")
    between = F.sum(F.col("total_ms") * F.col("total_ms") / F.col("samples")) - total * total / samples
    weight = F.sum("weight")
    return sums.groupBy("period", "start_ns", "by", "name").agg(
        F.sum("ends").alias("ends"),
        *(F.sum(name).alias(name) for name in linkperiods.ADDED),
        total.alias("total_ms"),
        (F.sum("squares") + F.greatest(between, F.lit(0.0))).alias("squares"),
        F.min("least_ms").alias("least_ms"),
        F.max("most_ms").alias("most_ms"),
        F.when(weight > 0, F.sum("weighted_ms") / weight).alias("jitter_ms"),
    )


def _advice(measurements: DataFrame) -> DataFrame:
    key = F.concat_ws(packing.BETWEEN, *NAMES)
    packed = measurements.select(key.alias("key"), "created_ns", "latency_ms").mapInArrow(
        packing.pack, from_arrow_schema(packing.PACKED)
    )
    together = packed.repartition("bucket").sortWithinPartitions("week", "bucket")
    return together.mapInArrow(_advised, from_arrow_schema(WINDOW_ADVICE))


def _advised(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for week, keys, samples in packing.unpack(batches):
        found = windowsizes.advice(samples)
        names = [key.split(packing.BETWEEN) for key in keys]
        columns = {
            name: np.array([each[at] for each in names], dtype=object)[found.link] for at, name in enumerate(NAMES)
        }
        start = np.full(len(found.link), periods.start_ns(week, periods.WEEK_NS), dtype=np.int64)
        given = {**columns, **found._asdict(), "link": columns["link"], "start_ns": start}
        yield pa.RecordBatch.from_arrays(
            [pa.array(given[field.name], field.type) for field in WINDOW_ADVICE], schema=WINDOW_ADVICE
        )
