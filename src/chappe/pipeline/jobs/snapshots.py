"""Snapshots: all related variables at one instant of the routers' own grid, their totals and the next one (SJ-09)."""

from __future__ import annotations

from collections.abc import Iterator
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
from chappe.pipeline.sets import Following, Related, Sample, followed, related

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

_PUBLISHED = ("sum", "mean", "min", "max", "largest_variable", "forecast")
_STATE = "state binary"


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
        ordered = self._members(inputs["status"]).repartition("set").sortWithinPartitions("set", "number")
        snapshots = ordered.mapInPandas(partial(_follow, self._declared()), from_arrow_schema(SNAPSHOTS))
        return {"snapshots": snapshots, "totals": totals(snapshots)}

    def stream(self, inputs: Frames) -> Frames:
        """Sets as they close."""
        snapshots = self._members(inputs["status"]).groupBy("set").applyInPandasWithState(
            partial(_go_on, self._declared()), from_arrow_schema(SNAPSHOTS), _STATE, "append",
            GroupStateTimeout.NoTimeout,
        )  # fmt: skip
        return {"snapshots": snapshots, "totals": totals(snapshots)}

    def _declared(self) -> dict[str, int]:
        return {each.name: each.members for each in related(self.sets)}

    def _members(self, status: DataFrame) -> DataFrame:
        """The values of each set in one row."""
        sets = related(self.sets)
        whole = F.coalesce(F.col("value"), F.col("whole").cast("double"))
        ahead = F.lit(int(self.ahead_s * SECOND_NS))
        usable = (
            status.withColumn("value", whole)
            .where(F.col("value").isNotNull() & ~F.isnan("value") & ~F.col("extrapolated"))
            .where((F.col("created_ns") >= 0) & (F.col("created_ns") <= F.col("received_ns") + ahead))
        )
        belongs = F.explode(F.array_compact(F.array(*[_place(each) for each in sets])))
        half = max(float(each.grid.den) / each.grid.num for each in sets) / 2 / SECOND_NS
        sample = F.struct("name", "variable", "created_ns", "value")
        return (
            usable.select("name", "variable", "created_ns", "value", belongs.alias("place"))
            .select("place.*", sample.alias("sample"))
            .withColumn("instant", F.timestamp_micros(F.expr("instant_ns div 1000")))
            .withWatermark("instant", f"{round((self.latency_s + half) * 1000)} milliseconds")
            .groupBy("set", "number", "instant_ns", "instant")
            .agg(F.collect_list("sample").alias("samples"))
            .drop("instant")
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
        .select(F.concat(F.lit("pipeline/"), "set", F.lit("."), "each.what").alias("name"), "each.value", "created_ns")
    )


def _rows(name: str, following: Following, frame: pd.DataFrame) -> pd.DataFrame:
    ordered = [
        (int(number), int(instant), [_sample(each) for each in samples])
        for number, instant, samples in zip(frame["number"], frame["instant_ns"], frame["samples"], strict=True)
    ]
    return pd.DataFrame([{"set": name, **row} for row in followed(following, ordered)], columns=SNAPSHOTS.names)


def _sample(row: Any) -> Sample:
    values = row if isinstance(row, dict) else row.asDict()
    return Sample(values["name"], values["variable"], values["created_ns"], values["value"])


def _follow(declared: dict[str, int], frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Sets in order, whatever the batches are: no set has to fit into memory."""
    known: dict[str, Following] = {}
    for frame in frames:
        for name, rows in frame.groupby("set", sort=False):
            following = known.setdefault(str(name), Following(declared[str(name)]))
            yield _rows(str(name), following, rows)


def _go_on(
    declared: dict[str, int], key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    (name,) = key
    following = Following.unpacked(declared[name], bytes(state.get[0])) if state.exists else Following(declared[name])
    frame = pd.concat(list(frames))
    rows = _rows(name, following, frame)
    state.update((following.packed(),))
    yield rows
