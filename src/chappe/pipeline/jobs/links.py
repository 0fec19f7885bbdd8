"""Statistics of links by minute, hour, day and week, of groups of them, and an audit of outliers (SJ-02)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.measure import metrics
from chappe.measure.cost import PROFILES, UNKNOWN_BANDWIDTH
from chappe.pipeline import minutesums, packing, periods, windowsizes
from chappe.pipeline.job import FileJob, Frames, Table, parameter
from chappe.pipeline.minutesums import MEANS, NAMES

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
_NEVER_NS = 1 << 62
GROUPS = {"node": "node", "client": "peer", "transport": "transport", "realm": "realm"}


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

_SUMS = from_arrow_schema(minutesums.SUMS)


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
        return self._made(numbers.mapInArrow(tasks, _SUMS), spark.read.parquet(*paths))

    def _check(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(f"job links: no cost profile {self.profile!r}; there are {', '.join(sorted(PROFILES))}")
        if self.z <= 0 or self.tried_rows < 0:
            raise ConfigError(f"job links: z = {self.z}, tried_rows = {self.tried_rows}: give more than 0, 0 or more")

    def _made(self, parts: DataFrame, measurements: DataFrame) -> Frames:
        # By end alone, so that nothing made of it has to be moved again; everything is, and would sum all rows anew.
        together = parts.repartition(*NAMES)
        minutes = _merged(together, [*NAMES, "start_ns"], jitter=_newest()).localCheckpoint()
        newest = F.col("created_ns") >= self._newest_ns(minutes)
        sums = reduce(DataFrame.unionByName, _periods(minutes))
        groups = F.explode(
            F.array(*(F.struct(F.lit(by).alias("by"), F.col(name).alias("name")) for by, name in GROUPS.items()))
        )
        grouped = _merged(
            sums.select("*", groups.alias("group")).select("*", "group.*"), ["period", "start_ns", "by", "name"],
            F.count(F.lit(1)).alias("ends"), jitter=_weighted("jitter_ms", "samples"),
        )  # fmt: skip
        return {
            "link_statistics": self._figures(sums).select(*LINK_STATISTICS.names),
            "group_statistics": self._figures(grouped).select(*GROUP_STATISTICS.names),
            "spikes": self._spikes(minutes),
            "window_advice": _advice(measurements.withColumn("realm", F.coalesce("realm", F.lit(""))).where(newest)),
        }

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

    def _spikes(self, minutes: DataFrame) -> DataFrame:
        """The largest latency of a minute, if unusual beside its hour, in which minutes count without their largest."""
        hour = Window.partitionBy(*NAMES, _start("hour"))
        rest, of = F.col("samples") - 1, F.col("total_ms") - F.col("most_ms")
        squared = F.col("squares") + F.col("total_ms") * F.col("total_ms") / F.col("samples")
        count = F.sum(rest).over(hour)
        mean = F.try_divide(F.sum(of).over(hour), count)
        spread = F.try_divide(F.sum(squared - F.col("most_ms") * F.col("most_ms")).over(hour), count) - mean * mean
        found = minutes.where("samples > 0").select(
            *NAMES, F.col("most_ns").alias("created_ns"), F.col("most_ms").alias("latency_ms"), mean.alias("usual_ms"),
            F.sqrt(F.greatest(spread, F.lit(0.0))).alias("deviation_ms"), count.alias("others"),
        )  # fmt: skip
        likely = (F.col("others") >= metrics.OUTLIER_MINIMUM) & (F.col("latency_ms") > F.col("usual_ms"))
        return found.where(likely).mapInPandas(partial(_unusual, self.z), from_arrow_schema(SPIKES))

    def _newest_ns(self, minutes: DataFrame) -> int:
        """From which minute on there are so many rows."""
        counts = minutes.groupBy("start_ns").agg(F.sum("rounds").alias("rounds")).toArrow().sort_by("start_ns")
        start, rounds = (counts.column(name).to_numpy()[::-1] for name in ("start_ns", "rounds"))
        wanted = max(self.tried_rows, int(rounds.sum()) // 50)
        inside = start[np.cumsum(rounds) - rounds < wanted]  # the newest first
        return int(inside[-1]) if len(inside) else _NEVER_NS


def _start(period: str, at: str = "start_ns") -> Column:
    """When the period of a time begins."""
    length, first = periods.LENGTHS[period], F.lit(periods.MONDAY_NS)
    since = F.col(at) - first
    return since - F.pmod(since, F.lit(length)) + first


def _periods(minutes: DataFrame) -> Iterator[DataFrame]:
    """The same of each period, every one from the next shorter."""
    last = minutes
    for period in periods.LENGTHS:
        if period != "minute":
            keys: list[str | Column] = [*NAMES, _start(period).alias("start_ns")]
            last = _merged(last, keys, jitter=_newest())
        yield last.select(F.lit(period).alias("period"), "*")


def _merged(sums: DataFrame, keys: list[str | Column], *more: Column, jitter: Column) -> DataFrame:
    """Sums of sums."""
    total, samples = F.sum("total_ms"), F.sum("samples")
    between = F.sum(F.col("total_ms") * F.col("total_ms") / F.col("samples")) - total * total / samples
    added = ["rounds", *(f"{name}_{what}" for name in MEANS for what in ("total", "count")), "outliers", "tested"]
    return sums.groupBy(*keys).agg(
        *more,
        *(F.sum(name).alias(name) for name in added),
        samples.alias("samples"),
        total.alias("total_ms"),
        (F.sum("squares") + F.greatest(between, F.lit(0.0))).alias("squares"),
        F.min("least_ms").alias("least_ms"),
        F.max("most_ms").alias("most_ms"),
        F.max_by("most_ns", "most_ms").alias("most_ns"),
        jitter.alias("jitter_ms"),
        F.max("jitter_ns").alias("jitter_ns"),
    )


def _newest() -> Column:
    """A node goes on with its jitter from probe to probe: that of a period is what it was at the end."""
    return F.max_by("jitter_ms", "jitter_ns")


def _weighted(column: str, weight: str) -> Column:
    known = F.when(F.col(column).isNotNull(), F.col(weight))
    return F.when(F.sum(known) > 0, F.sum(F.col(column) * F.col(weight)) / F.sum(known))


def _unusual(z: float, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Those that a node would find to deviate."""
    for frame in frames:
        value, usual, spread = (frame[name].to_numpy() for name in ("latency_ms", "usual_ms", "deviation_ms"))
        count = frame["others"].to_numpy()
        out = metrics.deviates(value, usual, metrics.usual_range_ms(usual, spread, count, z=z), count) > 0
        times = (value - usual) / np.where(spread > 0, spread, np.nan)
        yield frame.assign(times=times)[out][SPIKES.names]


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
