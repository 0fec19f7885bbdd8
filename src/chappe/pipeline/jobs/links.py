"""Statistics of links by minute, hour, day and week, of groups of them, and an audit of outliers (SJ-02)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.measure import metrics
from chappe.measure.cost import PROFILES
from chappe.pipeline import buckets, linkadvice, linkfigures, linkfiles, linkperiods, minutesums, packing
from chappe.pipeline.job import FileJob, Frames, Room, Table, parameter
from chappe.pipeline.linkadvice import WINDOW_ADVICE
from chappe.pipeline.linkfigures import GROUP_STATISTICS, LINK_STATISTICS, SPIKES
from chappe.pipeline.minutesums import NAMES
from chappe.pipeline.taskfiles import spread, taken, tries

FEW = 50_000  # rows, or sums, that are not worth a task of Spark
_SUMS, _PERIODS = from_arrow_schema(minutesums.SUMS), from_arrow_schema(linkperiods.PERIODS)

W = TypeVar("W")
R = TypeVar("R")


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
        parts = measurements.select(*minutesums.COLUMNS).mapInArrow(minutesums.of_batches, _SUMS)
        # By end alone, so that a task has all of an end; what it makes is read once for each table.
        periods = parts.repartition(*NAMES).mapInArrow(partial(linkperiods.of_batches, self.z), _PERIODS)
        made = periods.localCheckpoint()
        ends, groups = made.where("by = ''"), made.where("by <> ''").repartition(*linkfigures.GROUP_KEYS)
        of_end, of_group = (
            partial(each, PROFILES[self.profile]) for each in (linkfigures.each_end, linkfigures.each_group)
        )
        counts = ends.where("period = 'minute'").groupBy("start_ns").agg(F.sum("rounds").alias("rounds")).toArrow()
        start, rounds = (counts.column(name).to_numpy() for name in ("start_ns", "rounds"))
        since = linkadvice.newest_ns(start, rounds, self.tried_rows)
        newest = measurements.where(F.col("created_ns") >= since)
        return {
            "link_statistics": ends.mapInArrow(of_end, from_arrow_schema(LINK_STATISTICS)),
            "group_statistics": groups.mapInArrow(of_group, from_arrow_schema(GROUP_STATISTICS)),
            "spikes": ends.where("usual_ms is not null").mapInArrow(linkfigures.each_spike, from_arrow_schema(SPIKES)),
            "window_advice": _advice(newest.withColumn("realm", F.coalesce("realm", F.lit("")))),
        }

    def run_files(
        self, spark: SparkSession, files: Mapping[str, Sequence[str]], room: Room, now_ns: int
    ) -> Mapping[str, DataFrame | Path]:
        """The same; tasks read and write files themselves."""
        self._check()
        paths = files["measurements"]
        rooms = {name: room(name) for name in self.writes}
        sums, groups = room("link_statistics"), room("group_statistics")  # for the tasks that follow
        folders = linkfiles.Folders(sums, groups, **{name: tries(each) for name, each in rooms.items()})
        formula, rows = PROFILES[self.profile], sum(pq.read_metadata(path).num_rows for path in paths)
        try:
            summed = _done(spark, rows, paths, partial(linkfiles.summed, sums))
            names, many = [name for each in summed for name in each.names], sum(each.sums for each in summed)
            works = [*linkfiles.trials(summed, self.tried_rows), *buckets.ranges(many)]
            made = _done(spark, rows, works, partial(linkfiles.made, formula, self.z, folders, names))
            parts, grouped = [each.groups for each in made if each.groups], sum(each.grouped for each in made)
            merge = partial(linkfiles.grouped, formula, folders, parts)
            merged = _done(spark, grouped, buckets.ranges(grouped), merge)
        finally:
            for folder in (sums, groups):
                shutil.rmtree(folder, ignore_errors=True)
        written = {
            "link_statistics": [each.statistics for each in made],
            "group_statistics": merged,
            "spikes": [each.spikes for each in made],
            "window_advice": [each.advice for each in made],
        }
        for name, each in rooms.items():
            if not taken(each, written[name]):
                pq.write_table(self.writes[name].schema.empty_table(), each / "none.parquet")
        return rooms

    def _check(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(f"job links: no cost profile {self.profile!r}; there are {', '.join(sorted(PROFILES))}")
        if self.z <= 0 or self.tried_rows < 0:
            raise ConfigError(f"job links: z = {self.z}, tried_rows = {self.tried_rows}: give more than 0, 0 or more")


def _done(spark: SparkSession, rows: int, works: Sequence[W], do: Callable[[W], R]) -> list[R]:
    """By tasks, or here if it is little."""
    return [do(work) for work in works] if rows <= FEW else spread(spark, works, do)


def _advice(measurements: DataFrame) -> DataFrame:
    key = F.concat_ws(packing.BETWEEN, *NAMES)
    packed = measurements.select(key.alias("key"), "created_ns", "latency_ms").mapInArrow(
        packing.pack, from_arrow_schema(packing.PACKED)
    )
    together = packed.repartition("bucket").sortWithinPartitions("week", "bucket")
    return together.mapInArrow(linkadvice.of_batches, from_arrow_schema(WINDOW_ADVICE))
