"""True load and burstiness of channels, routers and variables beside what brokers allocated, and advice (SJ-08)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.pipeline.advice import PROPOSALS as TOPIC
from chappe.pipeline.advice import Breaches, Enough, Proposal, changes, condensation, flooding, modes
from chappe.pipeline.allocated import allocations
from chappe.pipeline.brokerlog import History, history
from chappe.pipeline.brokertables import from_histories
from chappe.pipeline.gaps import choose
from chappe.pipeline.growth import arrivals, burst, series
from chappe.pipeline.job import Frames, Job, Publish, Table, parameter

SECOND_NS = 1_000_000_000
HOUR_NS = 3600 * SECOND_NS

LOADS = pa.schema([
    pa.field("resource", pa.string(), nullable=False),  # channel/A/B, router/NAME
    pa.field("hour_ns", pa.int64(), nullable=False),
    pa.field("mean_per_s", pa.float64(), nullable=False),  # status records
    pa.field("peak_per_s", pa.float64(), nullable=False),
    pa.field("peak_to_mean", pa.float64(), nullable=False),
    pa.field("dispersion", pa.float64(), nullable=False),
    pa.field("samples", pa.int64(), nullable=False),
    pa.field("step_s", pa.float64(), nullable=False),  # between readings: what is shorter is not seen
    pa.field("allocated_per_s", pa.float64()),  # mean over the hour; null: nothing in the log
    pa.field("used", pa.float64()),  # mean through allocated
])  # fmt: skip
ARRIVALS = pa.schema([
    pa.field("name", pa.string(), nullable=False),
    pa.field("node", pa.string(), nullable=False),
    pa.field("hour_ns", pa.int64(), nullable=False),
    pa.field("values", pa.int64(), nullable=False),
    pa.field("mean_s", pa.float64(), nullable=False),
    pa.field("cv", pa.float64(), nullable=False),
    pa.field("p99_s", pa.float64(), nullable=False),
    pa.field("longest_s", pa.float64(), nullable=False),
    pa.field("dispersion", pa.float64(), nullable=False),
])  # fmt: skip
MODE_CHANGES = pa.schema([
    pa.field("broker", pa.string(), nullable=False),
    pa.field("at_ns", pa.int64(), nullable=False),
    pa.field("before", pa.int64(), nullable=False),
    pa.field("mode", pa.int64(), nullable=False),
    pa.field("took_ns", pa.int64(), nullable=False),
    pa.field("by", pa.string(), nullable=False),
    pa.field("note", pa.string(), nullable=False),
    pa.field("breaches", pa.int64(), nullable=False),  # reported by clients meanwhile and until 5 s after
    pa.field("usual", pa.float64(), nullable=False),  # in as long a time before
])  # fmt: skip
EXTRAPOLATORS = pa.schema([
    pa.field("name", pa.string(), nullable=False),
    pa.field("function", pa.string(), nullable=False),
    pa.field("points", pa.int64(), nullable=False),
    pa.field("error", pa.float64(), nullable=False),  # mean of how far it was off
    pa.field("error_last", pa.float64(), nullable=False),  # of the last value
    pa.field("gain", pa.float64(), nullable=False),
    pa.field("trials", pa.int64(), nullable=False),
    pa.field("failed", pa.int64(), nullable=False),
])  # fmt: skip
PROPOSALS = pa.schema([
    pa.field("topic", pa.string(), nullable=False),
    pa.field("subject", pa.string(), nullable=False),
    pa.field("value", pa.string(), nullable=False),  # JSON; what is proposed already is not told again
    pa.field("body", pa.string(), nullable=False),
])  # fmt: skip

_BURSTS = pa.schema([
    pa.field("resource", pa.string()),
    pa.field("hour", pa.int64()),
    *[LOADS.field(name) for name in LOADS.names[2:8]],
])  # fmt: skip
_ALLOCATED = pa.schema([
    pa.field("broker", pa.string()),
    pa.field("from_ns", pa.int64()),
    pa.field("to_ns", pa.int64()),
    pa.field("resource", pa.string()),
    pa.field("per_s", pa.float64()),
])  # fmt: skip


@dataclass(frozen=True)
class Load(Job):
    """What the mesh carried, how evenly, how much of what was reserved; and what could be done better."""

    id: ClassVar[str] = "SJ-08"
    name: ClassVar[str] = "load"
    line: ClassVar[str] = "true load beside what is allocated; condensation, flooding, mode and extrapolator advice"
    reads: ClassVar[tuple[str, ...]] = ("status", "counters", "broker", "quality")
    writes: ClassVar[dict[str, Table]] = {
        "loads": Table(LOADS, ("resource", "hour_ns")),
        "arrivals": Table(ARRIVALS, ("name", "node", "hour_ns")),
        "mode_changes": Table(MODE_CHANGES, ("broker", "at_ns")),
        "extrapolators": Table(EXTRAPOLATORS, ("name",)),
        "load_proposals": Table(PROPOSALS, ("topic", "subject", "value"), Publish.EVENTS),
    }
    every_s: ClassVar[float] = 600.0

    days: float = parameter(31.0, "how far back is looked")
    lasting_s: float = parameter(600.0, "a subscription counts for advice when it is as old as this")
    subscribers: int = parameter(3, "subscribers that a condensation or a flood needs at least")
    inputs: int = parameter(3, "inputs that a condensation needs at least")
    flood_share: float = parameter(0.8, "share of all subscribers that take every value of a variable, to flood it")
    gain: float = parameter(0.2, "part of the load, or of an error, that a proposal must save")
    breaches: int = parameter(20, "broken promises that a change of mode needs at least")
    season_days: int = parameter(3, "days on which a mode was entered at the same time, to schedule it")
    trials: int = parameter(60, "gaps that an extrapolator must have been tried on")
    newest: int = parameter(2000, "values of a variable that gaps are tried on")
    raw: str = parameter("archive*", "subscribers that need every value as it is: no reason to condense; by commas")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """Loads by hour, and advice as things stand."""
        for name in ("days", "lasting_s", "subscribers", "inputs", "breaches", "season_days", "trials", "newest"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"job load: {name} = {getattr(self, name)} must be above 0")
        if not (0 < self.flood_share <= 1 and 0 <= self.gain < 1):
            raise ConfigError(f"job load: flood_share = {self.flood_share} and gain = {self.gain} must be shares")
        since = max(now_ns - round(self.days * 24 * HOUR_NS), 0)

        def recent(dataset: str) -> DataFrame:
            return inputs[dataset].where((F.col("created_ns") > since) & (F.col("created_ns") <= now_ns))

        status = recent("status").where(~F.col("extrapolated"))
        extrapolators = _extrapolators(status, self.newest).localCheckpoint(eager=False)  # proposals come from it, too
        advised = _Advised(inputs["broker"], recent("quality"), now_ns)
        return {
            "loads": _loads(recent("counters"), inputs["broker"], since, now_ns),
            "arrivals": _arrivals(status),
            "mode_changes": advised.rows(MODE_CHANGES, _changed),
            "extrapolators": extrapolators,
            "load_proposals": advised.rows(PROPOSALS, self._proposed(now_ns))
            .dropDuplicates(["topic", "subject", "value"])
            .unionByName(self._extrapolated(extrapolators)),
        }

    def _proposed(self, now_ns: int) -> Callable[[History, Breaches], Iterator[dict[str, Any]]]:
        enough = Enough(
            self.lasting_s, self.subscribers, self.inputs, self.flood_share, self.gain, self.breaches, self.season_days,
            tuple(each.strip() for each in self.raw.split(",") if each.strip()),
        )  # fmt: skip

        def proposed(told: History, broken: Breaches) -> Iterator[dict[str, Any]]:
            found: Iterable[Proposal] = (
                *condensation(told, now_ns, enough), *flooding(told, now_ns, enough),
                *modes(told, now_ns, broken, enough),
            )  # fmt: skip
            for each in found:
                yield {"topic": each.topic, "subject": each.subject, "value": each.said, "body": each.body}

        return proposed

    def _extrapolated(self, extrapolators: DataFrame) -> DataFrame:
        """Proposals for variables that another function than the last value suits clearly better."""
        worth = (F.col("gain") >= self.gain) & (F.col("trials") >= self.trials)
        error = F.struct(F.col("error_last").alias("now"), F.col("error").alias("then"))
        value = F.struct(F.lit("extrapolate").alias("action"), "function", "points")
        body = F.struct(
            F.struct(error.alias("error")).alias("effect"),
            F.struct("failed", "gain", "trials").alias("evidence"),
            F.col("name").alias("subject"),
            value.alias("value"),
        )
        topic = F.lit(f"{TOPIC}/extrapolator").alias("topic")
        return extrapolators.where(worth).select(
            topic, F.col("name").alias("subject"), F.to_json(value).alias("value"), F.to_json(body).alias("body")
        )


@dataclass(frozen=True)
class _Advised:
    """The history of each broker beside what all clients reported, by second."""

    broker: DataFrame
    quality: DataFrame
    now_ns: int

    def rows(self, schema: pa.Schema, of: Callable[[History, Breaches], Iterator[dict[str, Any]]]) -> DataFrame:
        names, now_ns = schema.names, self.now_ns

        def read(log: pd.DataFrame, broken: pd.DataFrame) -> pd.DataFrame:
            stamps = (int(at) for at in log["created_ns"])
            told = history(zip(log["action"], log["subject"], stamps, log["detail"], strict=True), now_ns)
            breaches = Breaches((broken["second"] * SECOND_NS).tolist(), broken["count"].tolist())
            role = None if log.empty else str(log["broker"].iloc[0])
            return pd.DataFrame([{"broker": role, **row} for row in of(told, breaches)], columns=names)

        second = F.call_function("div", F.col("created_ns"), F.lit(SECOND_NS)).alias("second")
        broken = self.quality.groupBy(second).agg(F.sum("count").alias("count"))
        roles = self.broker.select(F.col("broker").alias("role")).distinct()
        everywhere = roles.crossJoin(F.broadcast(broken))
        logged = self.broker.select("broker", "action", "subject", "created_ns", "detail").groupBy("broker")
        return logged.cogroup(everywhere.groupBy("role")).applyInPandas(read, from_arrow_schema(schema))


def _changed(told: History, broken: Breaches) -> Iterator[dict[str, Any]]:
    yield from (change._asdict() for change in changes(told.modes, broken))


def _hour(column: str = "created_ns") -> Column:
    return F.call_function("div", F.col(column), F.lit(HOUR_NS))


def _loads(counters: DataFrame, broker: DataFrame, since: int, now_ns: int) -> DataFrame:
    """Status records a second through channels and into routers, by hour, beside what was allocated."""

    def label(name: str) -> Column:
        return F.regexp_extract("labels", rf'(?:^|,){name}="([^"]*)"', 1)

    channel = F.when(
        (label("direction") == "out") & (label("role") == "node"),
        F.concat_ws("/", F.lit("channel"), "node", label("link")),
    )
    router = F.when(label("direction") == "in", F.concat_ws("/", F.lit("router"), "node"))
    readings = (
        counters.where(F.col("name") == "chappe_port_status_total")
        .withColumn("resource", F.coalesce(channel, router))
        .where(F.col("resource").isNotNull())
        .select("resource", "labels", "created_ns", "value", _hour().alias("hour"))
    )
    bursts = readings.groupBy("resource", "hour").applyInPandas(_bursts, from_arrow_schema(_BURSTS))
    spans = from_histories(broker, _ALLOCATED, now_ns, lambda told: (asdict(each) for each in allocations(told)))
    spans = spans.where(F.col("to_ns") > since).withColumn("from_ns", F.greatest("from_ns", F.lit(since)))
    last = F.call_function("div", F.col("to_ns") - 1, F.lit(HOUR_NS))
    begin = F.greatest("from_ns", F.col("hour") * HOUR_NS)
    end = F.least("to_ns", (F.col("hour") + 1) * HOUR_NS)
    allocated = (
        spans.withColumn("hour", F.explode(F.sequence(_hour("from_ns"), last)))
        .withColumn("seconds", (end - begin) / 1e9)
        .groupBy("resource", "hour")
        .agg((F.sum(F.col("per_s") * F.col("seconds")) / F.sum("seconds")).alias("allocated_per_s"))
    )
    return bursts.join(allocated, ["resource", "hour"], "left").select(
        "resource",
        (F.col("hour") * HOUR_NS).alias("hour_ns"),
        *LOADS.names[2:8],
        "allocated_per_s",
        (F.col("mean_per_s") / F.nullif("allocated_per_s", F.lit(0.0))).alias("used"),
    )


def _bursts(frame: pd.DataFrame) -> pd.DataFrame:
    """The counters of all links of a resource together: read at the same time, as a node tells them."""
    total: pd.Series[float] | None = None
    for _, one in frame.groupby("labels"):
        line = series(one["created_ns"].to_numpy(), one["value"].to_numpy())
        each = pd.Series(line.total, index=line.times_ns)
        total = each if total is None else total.add(each, fill_value=0.0)
    found = None if total is None else burst(series(total.index.to_numpy(), np.maximum.accumulate(total.to_numpy())))
    rows = [] if found is None else [[frame["resource"].iloc[0], frame["hour"].iloc[0], *found]]
    return pd.DataFrame(rows, columns=_BURSTS.names)


def _arrivals(status: DataFrame) -> DataFrame:
    """How evenly the values of each variable were made, where it was archived."""
    values = status.select("name", "node", "created_ns", _hour().alias("hour"))
    return values.groupBy("name", "node", "hour").applyInPandas(_even, from_arrow_schema(ARRIVALS))


def _even(frame: pd.DataFrame) -> pd.DataFrame:
    found = arrivals(frame["created_ns"].to_numpy())
    where = [frame["name"].iloc[0], frame["node"].iloc[0], int(frame["hour"].iloc[0]) * HOUR_NS]
    return pd.DataFrame([] if found is None else [[*where, *found]], columns=ARRIVALS.names)


def _extrapolators(status: DataFrame, newest: int) -> DataFrame:
    """The function that suits each variable best, on its newest values."""
    value = F.coalesce(F.col("value"), F.col("whole").cast("double"))
    latest = F.row_number().over(Window.partitionBy("name").orderBy(F.col("created_ns").desc()))
    values = status.select("name", "created_ns", value.alias("value")).where("value is not null")
    chosen = values.withColumn("place", latest).where(F.col("place") <= newest).drop("place")
    return chosen.groupBy("name").applyInPandas(_chosen, from_arrow_schema(EXTRAPOLATORS))


def _chosen(frame: pd.DataFrame) -> pd.DataFrame:
    found = choose(frame["created_ns"].to_numpy(), frame["value"].to_numpy())
    if found is None:
        return pd.DataFrame([], columns=EXTRAPOLATORS.names)
    row = [frame["name"].iloc[0], found.function, found.points, found.error, found.error_last, found.gain,
           found.trials, found.failed]  # fmt: skip
    return pd.DataFrame([row], columns=EXTRAPOLATORS.names)
