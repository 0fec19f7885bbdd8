"""Baselines by hour of the week, forecasts of the next intervals, and how far off forecasts were (SJ-03)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.pipeline import forecasting, periods
from chappe.pipeline.baselines import baseline
from chappe.pipeline.forecasting import Rhythm
from chappe.pipeline.job import Frames, Job, Table, parameter

_SECOND_NS = 1_000_000_000
_END = [pa.field("node", pa.string(), nullable=False), pa.field("link", pa.string(), nullable=False)]
BASELINES = pa.schema([
    *_END,
    pa.field("hour", pa.int32(), nullable=False),  # of the week, from Monday on
    pa.field("basis", pa.string(), nullable=False),  # week, day or all: what the hour was compared with
    pa.field("latency_ms", pa.float64(), nullable=False),
    pa.field("spread_ms", pa.float64(), nullable=False),
    pa.field("intervals", pa.int64(), nullable=False),
])  # fmt: skip
FORECASTS = pa.schema([
    *_END,
    pa.field("start_ns", pa.int64(), nullable=False),  # of the interval that it is about
    pa.field("end_ns", pa.int64(), nullable=False),
    pa.field("step", pa.int32(), nullable=False),  # intervals ahead
    pa.field("latency_ms", pa.float64(), nullable=False),
    pa.field("low_ms", pa.float64()),
    pa.field("high_ms", pa.float64()),
    pa.field("method", pa.string(), nullable=False),
])  # fmt: skip
FORECAST_ERRORS = pa.schema([
    *_END,
    pa.field("step", pa.int32(), nullable=False),
    pa.field("judged", pa.int64(), nullable=False),
    pa.field("error_ms", pa.float64(), nullable=False),
    pa.field("naive_ms", pa.float64(), nullable=False),  # of the last value
    pa.field("seasonal_ms", pa.float64()),  # of the value a day before
])  # fmt: skip


def _inner(schema: pa.Schema) -> pa.StructType:
    return pa.struct([field for field in schema if field not in _END])


_FOUND = pa.schema([
    *_END, pa.field("baseline", _inner(BASELINES)), pa.field("forecast", _inner(FORECASTS)),
    pa.field("error", _inner(FORECAST_ERRORS)),
])  # fmt: skip


@dataclass(frozen=True)
class Forecast(Job):
    """Means of intervals, then all series of a bucket of links at once: see `chappe.pipeline.forecasting`."""

    id: ClassVar[str] = "SJ-03"
    name: ClassVar[str] = "forecast"
    line: ClassVar[str] = "expected latency by hour of the week, forecasts of the next intervals, and their errors"
    reads: ClassVar[tuple[str, ...]] = ("measurements",)
    writes: ClassVar[dict[str, Table]] = {
        "baselines": Table(BASELINES, ("node", "link", "hour")),
        "forecasts": Table(FORECASTS, ("node", "link", "step")),
        "forecast_errors": Table(FORECAST_ERRORS, ("node", "link", "step")),
    }
    every_s: ClassVar[float] = 900.0

    interval_s: int = parameter(900, "length of an interval in seconds; a day must be a multiple of it")
    horizon: int = parameter(24, "intervals ahead, less than a day")
    days: int = parameter(35, "how much of the history is looked at")
    judged_days: int = parameter(14, "forecasts of so many last days are judged")
    buckets: int = parameter(64, "links are taken together in so many parts")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """Of whole intervals before now alone: the one that is under way is the first that is forecast."""
        rhythm = self._rhythm()
        intervals = self._intervals(inputs["measurements"], now_ns)
        bucket = F.pmod(F.hash("node", "link"), F.lit(self.buckets))
        found = (
            intervals.groupBy(bucket)
            .applyInArrow(lambda table: _told(self, rhythm, now_ns, table), from_arrow_schema(_FOUND))
            .localCheckpoint(eager=False)  # three tables are made of it
        )
        return {
            "baselines": _of(found, "baseline", BASELINES),
            "forecasts": _of(found, "forecast", FORECASTS),
            "forecast_errors": _of(found, "error", FORECAST_ERRORS),
        }

    def _rhythm(self) -> Rhythm:
        if self.interval_s <= 0 or 86_400 % self.interval_s:
            raise ConfigError(f"job forecast: interval_s = {self.interval_s}: a day is no multiple of it; try 900")
        if self.days < 1 or self.judged_days < 1 or self.buckets < 1:
            raise ConfigError("job forecast: days, judged_days and buckets must be 1 or more")
        return Rhythm(86_400 // self.interval_s, self.horizon).checked()

    def _intervals(self, measurements: DataFrame, now_ns: int) -> DataFrame:
        """The mean latency of each link in each whole interval."""
        length = self.interval_s * _SECOND_NS
        first, end = (now_ns - self.days * periods.DAY_NS) // length, now_ns // length
        number = F.call_function("div", F.col("created_ns"), F.lit(length))
        inside = (F.col("created_ns") >= first * length) & (F.col("created_ns") < end * length)
        return (
            measurements.where(inside & F.col("latency_ms").isNotNull() & ~F.isnan("latency_ms"))
            .groupBy("node", "link", number.alias("number"))
            .agg(F.avg("latency_ms").alias("latency_ms"))
        )


def _of(found: DataFrame, kind: str, schema: pa.Schema) -> DataFrame:
    columns = [name if name in ("node", "link") else f"{kind}.{name}" for name in schema.names]
    return found.where(F.col(kind).isNotNull()).select(*columns)


def _told(job: Forecast, rhythm: Rhythm, now_ns: int, intervals: pa.Table) -> pa.Table:
    """All tables of the links of a bucket."""
    return pa.Table.from_pylist(list(_rows(job, rhythm, now_ns, intervals.to_pandas())), schema=_FOUND)


def _rows(job: Forecast, rhythm: Rhythm, now_ns: int, frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    length = job.interval_s * _SECOND_NS
    end = now_ns // length  # the interval that is under way
    names, series = [], []
    for (node, link), rows in frame.groupby(["node", "link"], sort=True):
        number = rows["number"].to_numpy(dtype=np.int64)
        values = np.full(end - int(number.min()), np.nan)
        values[number - number.min()] = rows["latency_ms"].to_numpy(dtype=np.float64)
        names.append({"node": node, "link": link})
        series.append(values)
    for name, values, judged in zip(names, series, forecasting.judge_all(series, rhythm), strict=True):
        for hour, usual in enumerate(baseline(values, end, length)):
            yield name | {"baseline": {"hour": hour, **usual._asdict()}}
        for ahead in forecasting.forecasts(judged, rhythm):
            start = (end + ahead.step - 1) * length
            yield name | {
                "forecast": {
                    "start_ns": start, "end_ns": start + length, "step": ahead.step, "latency_ms": ahead.value,
                    "low_ms": _known(ahead.low), "high_ms": _known(ahead.high), "method": ahead.method.rstrip("*"),
                }
            }  # fmt: skip
        for off in forecasting.errors(judged, job.judged_days * rhythm.a_day):
            if off.judged:
                yield name | {
                    "error": {
                        "step": off.step, "judged": off.judged, "error_ms": off.mean, "naive_ms": off.naive,
                        "seasonal_ms": _known(off.seasonal),
                    }
                }  # fmt: skip


def _known(value: float) -> float | None:
    return value if value == value else None
