"""Statistics of links by minute, hour, day and week, of groups of them, and an audit of outliers (SJ-02)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.measure import metrics
from chappe.measure.cost import PROFILES, cost
from chappe.pipeline import linkstats, packing, periods
from chappe.pipeline.job import Frames, Job, Table, parameter

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()
NAMES = ("node", "link", "peer", "transport", "realm")
GROUPS = {"node": "node", "client": "peer", "transport": "transport", "realm": "realm"}


def _fields(kind: pa.DataType, *names: str, empty: bool = False) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=empty) for name in names]


_METRICS = (
    "latency_ms", "deviation_ms", "least_ms", "most_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost",
)  # fmt: skip
_PERIOD = [*_fields(_TEXT, "period"), *_fields(_WHOLE, "start_ns")]
_COUNTS = _fields(_WHOLE, "rounds", "samples", "outliers")
LINK_STATISTICS = pa.schema([
    *_PERIOD, *_fields(_TEXT, *NAMES), *_COUNTS, *_fields(_NUMBER, *_METRICS, empty=True),
])  # fmt: skip
GROUP_STATISTICS = pa.schema([
    *_PERIOD, *_fields(_TEXT, "by", "name"), *_fields(_WHOLE, "links"), *_COUNTS,
    *_fields(_NUMBER, *_METRICS, empty=True),
])  # fmt: skip
SPIKES = pa.schema([
    *_fields(_TEXT, *NAMES), *_fields(_WHOLE, "created_ns"),
    *_fields(_NUMBER, "latency_ms", "usual_ms", "deviation_ms"),
    *_fields(_NUMBER, "times", empty=True),  # deviations from what is usual
])  # fmt: skip
WINDOW_ADVICE = pa.schema([
    *_fields(_TEXT, *NAMES), *_fields(_WHOLE, "start_ns", "size", "tried"),
    *_fields(_NUMBER, "error_ms", "outliers"), *_fields(pa.bool_(), "advised"),
])  # fmt: skip


def _inner(schema: pa.Schema) -> pa.StructType:
    return pa.struct([field for field in schema if field.name not in NAMES])


# One row is of one of the three tables; what is computed once is computed for all of them.
_FOUND = pa.schema([
    *_fields(_TEXT, "key"),
    pa.field("statistics", _inner(LINK_STATISTICS)),
    pa.field("spike", _inner(SPIKES)),
    pa.field("advice", _inner(WINDOW_ADVICE)),
])  # fmt: skip


@dataclass(frozen=True)
class Links(Job):
    """Samples of a link are packed into arrays, sorted by time, and judged with the formulas of the node."""

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
    window: int = parameter(metrics.WINDOW, "successive samples that the Z-test for outliers looks at, 6 or more")
    z: float = parameter(metrics.Z, "an outlier is more standard deviations than this from the mean of its window")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All periods that have a round."""
        if self.profile not in PROFILES:
            raise ConfigError(f"job links: no cost profile {self.profile!r}; there are {', '.join(sorted(PROFILES))}")
        if self.window < metrics.OUTLIER_MINIMUM or self.z <= 0:
            raise ConfigError(f"job links: window = {self.window}, z = {self.z}: give 6 or more, and more than 0")
        found = self._found(inputs["measurements"])
        statistics = _of(found, "statistics", LINK_STATISTICS)
        return {
            "link_statistics": statistics,
            "group_statistics": self._groups(statistics),
            "spikes": _of(found, "spike", SPIKES),
            "window_advice": _of(found, "advice", WINDOW_ADVICE),
        }

    def _found(self, measurements: DataFrame) -> DataFrame:
        key = F.concat_ws(packing.BETWEEN, *(F.coalesce(F.col(name), F.lit("")) for name in NAMES))
        packed = measurements.select(
            key.alias("key"), "created_ns", "latency_ms", "loss", "bandwidth"
        ).mapInArrow(packing.pack, from_arrow_schema(packing.PACKED))  # fmt: skip
        judged = packed.repartition("bucket").sortWithinPartitions("bucket", "week").mapInArrow(
            partial(_judged, self), from_arrow_schema(_FOUND)
        )  # fmt: skip
        # Four tables are made of it; without this each of them would read everything anew.
        return judged.localCheckpoint(eager=False)

    def _groups(self, statistics: DataFrame) -> DataFrame:
        """The same over all links of a node, to a client, of a transport, of a realm: means by number of samples."""
        by = [F.struct(F.lit(by).alias("by"), F.col(column).alias("name")) for by, column in GROUPS.items()]
        rows = statistics.withColumn("group", F.explode(F.array(*by))).select("*", "group.*")
        squares = F.col("samples") * (F.pow("deviation_ms", F.lit(2)) + F.pow("latency_ms", F.lit(2)))
        samples, mean = F.sum("samples"), _mean("latency_ms", "samples")
        grouped = rows.groupBy("period", "start_ns", "by", "name").agg(
            F.countDistinct("node", "link").alias("links"),
            F.sum("rounds").alias("rounds"),
            samples.alias("samples"),
            F.sum("outliers").alias("outliers"),
            mean.alias("latency_ms"),
            F.sqrt(F.greatest(F.sum(squares) / samples - mean * mean, F.lit(0.0))).alias("deviation_ms"),
            F.min("least_ms").alias("least_ms"),
            F.max("most_ms").alias("most_ms"),
            _mean("jitter_ms", "samples").alias("jitter_ms"),
            _mean("jitter", "samples").alias("jitter"),
            _mean("loss", "rounds").alias("loss"),
            _mean("bandwidth", "rounds").alias("bandwidth"),
        )
        schema = from_arrow_schema(GROUP_STATISTICS)
        return grouped.mapInPandas(partial(_costs, self.profile), schema)


def _mean(column: str, weight: str) -> Column:
    known = F.when(F.col(column).isNotNull(), F.col(weight))
    total = F.sum(F.col(column) * F.col(weight))
    return F.when(F.sum(known) > 0, total / F.sum(known))


def _of(found: DataFrame, kind: str, schema: pa.Schema) -> DataFrame:
    names = F.split("key", packing.BETWEEN)
    columns = [names[NAMES.index(name)] if name in NAMES else F.col(f"{kind}.{name}") for name in schema.names]
    return found.where(F.col(kind).isNotNull()).select(
        *(column.alias(name) for column, name in zip(columns, schema.names, strict=True))
    )


def _costs(profile: str, frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        known = [frame[name].to_numpy(dtype=np.float64) for name in ("latency_ms", "jitter", "loss", "bandwidth")]
        yield frame.assign(cost=cost(profile, *known))[GROUP_STATISTICS.names]


def _judged(job: Links, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All tables of some links at a time."""
    for keys, samples in packing.unpack(batches):
        flags, spikes = linkstats.outliers(samples, job.window, job.z)
        for period, length_ns in periods.LENGTHS.items():
            of = linkstats.statistics(samples, length_ns, flags)
            columns = of._asdict()
            columns["period"] = np.full(len(of.link), period)
            columns["cost"] = cost(job.profile, of.latency_ms, of.jitter, of.loss, of.bandwidth)
            yield _batch(keys, "statistics", columns)
        spread = np.where(spikes.deviation_ms > 0, spikes.deviation_ms, np.nan)
        yield _batch(keys, "spike", {**spikes._asdict(), "times": (spikes.latency_ms - spikes.usual_ms) / spread})
        yield from (_batch(keys, "advice", columns) for columns in _advice(samples, job.z))


def _advice(samples: linkstats.Samples, z: float) -> Iterator[dict[str, Any]]:
    """Of each week on its own."""
    weeks = periods.number(samples.created_ns, periods.WEEK_NS)
    for week in np.unique(weeks).tolist():
        inside = weeks == week
        of = linkstats.advice(linkstats.Samples(*(column[inside] for column in samples)), z=z)
        start = np.full(len(of.link), periods.start_ns(week, periods.WEEK_NS), dtype=np.int64)
        yield {**of._asdict(), "start_ns": start}


def _batch(keys: list[str], kind: str, columns: dict[str, Any]) -> pa.RecordBatch:
    """Rows of one of the tables; what is no number is left empty."""
    inner = _FOUND.field(kind).type
    values = [pa.array(columns[field.name], field.type, from_pandas=True) for field in inner]
    names = pa.array(np.array(keys, dtype=object)[columns["link"]], _TEXT)
    size = len(names)
    given = {"key": names, kind: pa.StructArray.from_arrays(values, fields=list(inner))}
    return pa.RecordBatch.from_arrays(
        [given[field.name] if field.name in given else pa.nulls(size, field.type) for field in _FOUND], schema=_FOUND
    )
