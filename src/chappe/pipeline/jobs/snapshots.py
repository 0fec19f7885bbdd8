"""Snapshots: all related variables at one instant of the routers' own grid, their totals and the next one (SJ-09)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from chappe.pipeline.grid import SECOND_NS
from chappe.pipeline.job import Frames, Publish, StreamJob, Table, parameter
from chappe.pipeline.sets import Following, Related, Sample, followed, last_ns, related

_VALUE = pa.struct([
    pa.field("name", pa.string()),
    pa.field("variable", pa.int64()),
    pa.field("created_ns", pa.int64()),
    pa.field("value", pa.float64()),
])  # fmt: skip
SNAPSHOTS = pa.schema([
    pa.field("set", pa.string(), nullable=False),
    pa.field("number", pa.int64(), nullable=False),  # of the set on the grid, from 1970 on
    pa.field("instant_ns", pa.int64(), nullable=False),
    pa.field("members", pa.int64(), nullable=False),  # of a whole set
    pa.field("present", pa.int64(), nullable=False),
    pa.field("complete", pa.bool_(), nullable=False),
    pa.field("missing", pa.list_(pa.string()), nullable=False),  # as far as their names are known
    pa.field("values", pa.list_(_VALUE), nullable=False),
    pa.field("spread_ns", pa.int64(), nullable=False),
    pa.field("sum", pa.float64(), nullable=False),
    pa.field("mean", pa.float64(), nullable=False),
    pa.field("min", pa.float64(), nullable=False),
    pa.field("max", pa.float64(), nullable=False),
    pa.field("largest", pa.string(), nullable=False),
    pa.field("largest_variable", pa.int64(), nullable=False),
    pa.field("forecast", pa.float64()),  # of the sum one interval later
    pa.field("forecast_error", pa.float64()),  # mean of what it was off so far
    pa.field("forecast_method", pa.string()),
])  # fmt: skip
TOTALS = pa.schema([
    pa.field("name", pa.string(), nullable=False),
    pa.field("value", pa.float64(), nullable=False),
    pa.field("created_ns", pa.int64(), nullable=False),
])  # fmt: skip

PUBLISHER = "pipeline/"  # before the names of variables that this job publishes
_PUBLISHED = ("sum", "mean", "min", "max", "largest_variable", "forecast")
_STATE = pa.schema([pa.field("following", pa.binary())])


@dataclass(frozen=True)
class Snapshots(StreamJob):
    """A set is closed when nothing of it can come any more: the latency bound and half a period after its instant."""

    id: ClassVar[str] = "SJ-09"
    name: ClassVar[str] = "snapshots"
    line: ClassVar[str] = "related variables at one instant, their totals and a forecast, published as variables"
    reads: ClassVar[tuple[str, ...]] = ("status",)
    writes: ClassVar[dict[str, Table]] = {
        "snapshots": Table(SNAPSHOTS, ("set", "number")),
        "totals": Table(TOTALS, ("name", "created_ns"), Publish.VARIABLES),
    }

    sets: str = parameter(
        "all = * every 1", "what belongs together: NAME = PATTERN, PATTERN every SECONDS [at RATE] [of MEMBERS]; …"
    )
    latency_s: float = parameter(2.0, "the latency bound of the values: how long a set is waited for")
    ahead_s: float = parameter(1.0, "values stamped further ahead of their arrival are left out")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """Every set there was."""
        together = self._samples(inputs["status"]).groupBy("set", "number", "instant_ns").agg(
            F.collect_list(F.struct(*Sample._fields)).alias("samples")
        )  # fmt: skip
        ordered = together.repartition("set").sortWithinPartitions("set", "number")
        snapshots = ordered.mapInPandas(partial(_follow, self._sets()), from_arrow_schema(SNAPSHOTS))
        return {"snapshots": snapshots, "totals": totals(snapshots)}

    def stream(self, inputs: Frames) -> Frames:
        """Sets as they close."""
        created = F.timestamp_micros(F.call_function("div", F.col("created_ns"), F.lit(1000)))
        snapshots = (
            self._samples(inputs["status"])
            .withColumn("created", created)
            .withWatermark("created", f"{round(self.latency_s * 1000)} milliseconds")
            .groupBy("set")
            .applyInPandasWithState(
                partial(_go_on, self._sets()), from_arrow_schema(SNAPSHOTS), from_arrow_schema(_STATE), "append",
                GroupStateTimeout.EventTimeTimeout,
            )
        )  # fmt: skip
        return {"snapshots": snapshots, "totals": totals(snapshots)}

    def _sets(self) -> dict[str, Related]:
        return {each.name: each for each in related(self.sets)}

    def _samples(self, status: DataFrame) -> DataFrame:
        """Values with the sets that they belong to."""
        ahead = F.lit(int(self.ahead_s * SECOND_NS))
        value = F.coalesce(F.col("value"), F.col("whole").cast("double"))
        belongs = F.explode(F.array_compact(F.array(*[_place(each) for each in related(self.sets)])))
        return (
            status.withColumn("value", value)
            .where(F.col("value").isNotNull() & ~F.isnan("value") & ~F.col("extrapolated"))
            .where((F.col("created_ns") >= 0) & (F.col("created_ns") <= F.col("received_ns") + ahead))
            .where(~F.startswith("name", F.lit(PUBLISHER)))  # else there would be totals of totals
            .select(*Sample._fields, belongs.alias("place"))
            .select(*Sample._fields, "place.*")
        )


def _place(one: Related) -> Column:
    """The set and its instant if a row belongs to it, else null."""
    grid = one.grid
    period = grid.column(F.col("created_ns"))
    number = F.call_function("div", period - F.pmod(period, F.lit(grid.every)), F.lit(grid.every))
    place = F.struct(
        F.lit(one.name).alias("set"), number.alias("number"), grid.instant_column(number).alias("instant_ns")
    )
    return F.when(F.col("name").rlike(one.expression) & (F.pmod(period, F.lit(grid.every)) == 0), place)


def totals(snapshots: DataFrame) -> DataFrame:
    """What goes back into the mesh: the totals of complete sets, one variable each."""
    each = F.explode(
        F.array(
            *[F.struct(F.lit(name).alias("what"), F.col(name).cast("double").alias("value")) for name in _PUBLISHED]
        )
    )
    return (
        snapshots.where("complete")
        .select("set", F.col("instant_ns").alias("created_ns"), each.alias("each"))
        .where(F.col("each.value").isNotNull())
        .select(F.concat(F.lit(PUBLISHER), "set", F.lit("."), "each.what").alias("name"), "each.value", "created_ns")
    )


def _frame(name: str, rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([{"set": name, **row} for row in rows], columns=SNAPSHOTS.names)


def _follow(sets: dict[str, Related], frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Sets in order, whatever the batches are: no set has to fit into memory."""
    known: dict[str, Following] = {}
    for frame in frames:
        for name, rows in frame.groupby("set", sort=False):
            following = known.setdefault(str(name), Following(sets[str(name)].members))
            ordered = [
                (int(number), int(instant), [Sample(**sample) for sample in samples])
                for number, instant, samples in zip(rows["number"], rows["instant_ns"], rows["samples"], strict=True)
            ]
            yield _frame(str(name), followed(following, ordered))


def _go_on(
    sets: dict[str, Related], key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The values of one trigger, or none when time has come to close a set."""
    one = sets[key[0]]
    following = Following.unpacked(one.members, bytes(state.get[0])) if state.exists else Following(one.members)
    for frame in frames:
        columns = zip(*(frame[name].tolist() for name in ("number", *Sample._fields)), strict=True)
        for number, *sample in columns:
            following.collect(number, Sample(*sample))
    reached_ms = state.getCurrentWatermarkMs()
    yield _frame(one.name, following.close(one.grid, reached_ms * 1_000_000))
    state.update((following.packed(),))
    if following.open:
        due = last_ns(one.grid, min(following.open)) // 1_000_000 + 1
        state.setTimeoutTimestamp(max(due, reached_ms + 1))
