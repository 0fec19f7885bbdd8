"""Compliance: what each subscription was promised by mode and hour, how that was kept, and an SLA report (SJ-07)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.pipeline.brokerlog import History, routes
from chappe.pipeline.brokertables import from_histories
from chappe.pipeline.growth import by_window, series
from chappe.pipeline.job import Frames, Job, Table, parameter
from chappe.pipeline.keeping import Kept, Promise, Values, archived_every, kept

HOUR_NS = 3_600_000_000_000
STATUS = "raw/status"  # as archives wrote it: of copies, and of values that several have, the clean table keeps one
AHEAD_NS = 60_000_000_000  # no clock is further ahead, as ingest has it
KINDS = ("late", "missed", "extrapolated", "incomplete")

_SUBSCRIPTION = [
    pa.field("broker", pa.string(), nullable=False),
    pa.field("entity", pa.string(), nullable=False),
    pa.field("subject", pa.string(), nullable=False),  # publisher/variable
    pa.field("edge", pa.string(), nullable=False),
    pa.field("mode", pa.int64(), nullable=False),
]
COMPLIANCE = pa.schema([
    *_SUBSCRIPTION,
    pa.field("hour_ns", pa.int64(), nullable=False),  # when the hour begins
    pa.field("interval_ms", pa.float64(), nullable=False),  # promised
    pa.field("bound_ms", pa.float64()),  # promised
    pa.field("redundancy", pa.int64(), nullable=False),  # promised
    pa.field("expected", pa.int64()),  # instants that can be judged
    pa.field("received", pa.int64()),
    pa.field("gaps", pa.int64()),
    pa.field("longest_gap_ms", pa.float64()),
    pa.field("latency_p50_ms", pa.float64()),
    pa.field("latency_p95_ms", pa.float64()),
    pa.field("latency_p99_ms", pa.float64()),
    pa.field("latency_max_ms", pa.float64()),
    pa.field("late", pa.int64()),
    pa.field("duplicates", pa.int64()),
    *[pa.field(f"reported_{kind}", pa.int64(), nullable=False) for kind in KINDS],  # by the subscriber itself
    pa.field("paths", pa.int64(), nullable=False),
    pa.field("segments", pa.list_(pa.string()), nullable=False),  # from>to of all its paths
    pa.field("segment_loss", pa.float64()),  # share that was lost on every path, by the counters of its segments
])  # fmt: skip
SEGMENTS = pa.schema([
    pa.field("from_node", pa.string(), nullable=False),
    pa.field("to_node", pa.string(), nullable=False),
    pa.field("hour_ns", pa.int64(), nullable=False),
    pa.field("sent", pa.float64()),  # status records that left
    pa.field("received", pa.float64()),
    pa.field("dropped", pa.float64()),  # for this channel, before they left
    pa.field("seconds", pa.float64()),  # that counters cover
    pa.field("loss", pa.float64()),  # share; null: one end has no counters
])  # fmt: skip
SLA = pa.schema([
    *_SUBSCRIPTION,
    pa.field("promise", pa.string(), nullable=False),  # interval, latency, redundancy
    pa.field("promised", pa.float64(), nullable=False),
    pa.field("measured", pa.float64()),
    pa.field("unit", pa.string(), nullable=False),
    pa.field("share", pa.float64()),  # of values that came, or came in time
    pa.field("kept", pa.bool_()),  # null: there is no evidence
    pa.field("evidence", pa.string(), nullable=False),
])  # fmt: skip

_TERMS = pa.schema([
    pa.field("broker", pa.string()),
    pa.field("from_ns", pa.int64()),
    pa.field("to_ns", pa.int64()),
    pa.field("entity", pa.string()),
    pa.field("edge", pa.string()),
    pa.field("subject", pa.string()),
    pa.field("variable_id", pa.int64()),
    pa.field("rate_num", pa.int64()),
    pa.field("rate_den", pa.int64()),
    pa.field("mode", pa.int64()),
    pa.field("every", pa.int64()),
    pa.field("interval_ns", pa.int64()),
    pa.field("bound_ns", pa.int64()),
    pa.field("redundancy", pa.int64()),
])  # fmt: skip
_ROUTES = pa.schema([
    pa.field("broker", pa.string()),
    pa.field("variable_id", pa.int64()),
    pa.field("edge", pa.string()),
    pa.field("path", pa.int64()),
    pa.field("segments", pa.list_(pa.string())),
])  # fmt: skip
_SEEN = pa.schema([
    pa.field("subject", pa.string()),
    pa.field("edge", pa.string()),
    pa.field("every", pa.int64()),
    pa.field("first_ns", pa.int64()),
    pa.field("last_ns", pa.int64()),
])  # fmt: skip
_COVERED = pa.schema([*_TERMS, pa.field("archived", pa.int64()), pa.field("hour", pa.int64())])
_MEASURED = pa.schema([
    *_SUBSCRIPTION,
    pa.field("hour", pa.int64()),
    *[COMPLIANCE.field(name) for name in Kept(0, 0, 0, 0, np.empty(0, np.int64), 0, 0).row()],
])  # fmt: skip
_GROWN = pa.schema([
    pa.field("from_node", pa.string()),
    pa.field("to_node", pa.string()),
    pa.field("what", pa.string()),
    pa.field("hour", pa.int64()),
    pa.field("amount", pa.float64()),
    pa.field("seconds", pa.float64()),
    pa.field("step_s", pa.float64()),
])  # fmt: skip

_WHO = ("broker", "entity", "subject", "edge", "mode")


@dataclass(frozen=True)
class Compliance(Job):
    """Promises are in the brokers' log; a subscription is measured where an archive hears its variable at its edge."""

    id: ClassVar[str] = "SJ-07"
    name: ClassVar[str] = "compliance"
    line: ClassVar[str] = "what subscriptions were promised by mode and hour, how it was kept, and an SLA report"
    reads: ClassVar[tuple[str, ...]] = (STATUS, "counters", "broker", "quality")
    writes: ClassVar[dict[str, Table]] = {
        "compliance": Table(COMPLIANCE, (*_WHO, "hour_ns")),
        "segments": Table(SEGMENTS, ("from_node", "to_node", "hour_ns")),
        "sla": Table(SLA, (*_WHO, "promise")),
    }
    every_s: ClassVar[float] = 300.0

    target: float = parameter(0.999, "share of values that must come, and come in time, for a promise to count as kept")
    days: float = parameter(31.0, "how far back is looked")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """Everything the brokers' log tells of."""
        if not 0 < self.target <= 1:
            raise ConfigError(f"job compliance: target = {self.target} must be a share above 0 and at most 1")
        if self.days <= 0:
            raise ConfigError(f"job compliance: days = {self.days} must be above 0")
        since = now_ns - round(self.days * 24 * HOUR_NS)
        terms = from_histories(inputs["broker"], _TERMS, now_ns, _terms).where(F.col("to_ns") > since)
        terms = terms.withColumn("from_ns", F.greatest("from_ns", F.lit(max(since, 0)))).localCheckpoint(eager=False)
        ways = from_histories(inputs["broker"], _ROUTES, now_ns, _routes)
        hours = _hours(terms)
        measured = _measured(inputs[STATUS], terms)
        segments = _segments(inputs["counters"])
        rows = (
            hours.join(measured, [*_WHO, "hour"], "left")
            .join(_reported(inputs["quality"]), ["client", "subject", "mode", "hour"], "left")
            .join(_lost(hours, ways, segments), [*_WHO, "hour"], "left")
        )
        compliance = rows.select(
            *_WHO,
            (F.col("hour") * HOUR_NS).alias("hour_ns"),
            *COMPLIANCE.names[6:9],
            *_MEASURED.names[6:],
            *[_counted(f"reported_{kind}") for kind in KINDS],
            _counted("paths"),
            F.coalesce("segments", F.array().cast("array<string>")).alias("segments"),
            "segment_loss",
        ).localCheckpoint(eager=False)  # two tables come from it
        return {
            "compliance": compliance,
            "segments": segments.select(
                *SEGMENTS.names[:2], (F.col("hour") * HOUR_NS).alias("hour_ns"), *SEGMENTS.names[3:]
            ),
            "sla": _sla(compliance, self.target),
        }


def _counted(name: str) -> Column:
    return F.coalesce(name, F.lit(0).cast("long")).alias(name)


# what the brokers say


def _terms(told: History) -> Iterator[dict[str, Any]]:
    yield from (asdict(term) for term in told.terms)


def _routes(told: History) -> Iterator[dict[str, Any]]:
    edges: dict[int, set[str]] = {}
    for term in told.terms:
        edges.setdefault(term.variable_id, set()).add(term.edge)
    ways = {(variable, edge, routers) for variable, edge, _, routers in routes(told.hops, edges)}
    for path, (variable, edge, routers) in enumerate(sorted(ways)):  # several paths over one way are one stream
        segments = [f"{one}>{other}" for one, other in pairwise(routers)]
        yield {"variable_id": variable, "edge": edge, "path": path, "segments": segments}


def _hours(terms: DataFrame) -> DataFrame:
    """Each subscription, mode and hour with what was promised last in it; topics name the subscriber `client`."""
    return (
        terms.withColumn("client", F.translate("entity", "+#/", "___"))
        .withColumn("hour", F.explode(_hours_of("from_ns", "to_ns")))
        .groupBy(*_WHO, "client", "variable_id", "hour")
        .agg(
            (F.max_by("interval_ns", "to_ns") / 1e6).alias("interval_ms"),
            F.max_by(F.when(F.col("bound_ns") > 0, F.col("bound_ns") / 1e6), "to_ns").alias("bound_ms"),
            F.max_by("redundancy", "to_ns").alias("redundancy"),
        )
    )


def _hours_of(from_ns: str, to_ns: str) -> Column:
    first, last = F.col(from_ns), F.col(to_ns) - 1
    return F.sequence(F.call_function("div", first, F.lit(HOUR_NS)), F.call_function("div", last, F.lit(HOUR_NS)))


# what the archive saw


def _measured(status: DataFrame, terms: DataFrame) -> DataFrame:
    """How each subscription was kept in each hour, where its variable was archived at its edge."""
    places = terms.select("subject", "edge", F.col("rate_num").alias("num"), F.col("rate_den").alias("den"))
    half = F.when(F.col("num") > 0, F.expr("den div (2 * num) + 1")).otherwise(0)
    near = [F.call_function("div", F.col("created_ns") + way * half, F.lit(HOUR_NS)) for way in (-1, 1)]
    at_edges = (
        status.where(~F.col("extrapolated") & (F.col("created_ns") > 0))
        .where(F.col("created_ns") <= F.col("received_ns") + AHEAD_NS)
        .select(F.col("name").alias("subject"), F.col("node").alias("edge"), "created_ns", "received_ns", "source")
        .join(F.broadcast(places.dropDuplicates(["subject", "edge"])), ["subject", "edge"])
        .withColumn("hour", F.explode(F.array_distinct(F.array(*near))))  # jitter takes a value out of its hour
    )
    hourly = at_edges.groupBy("subject", "edge", "hour").applyInPandas(_seen_in_hour, from_arrow_schema(_SEEN))
    seen = hourly.groupBy("subject", "edge").applyInPandas(_seen, from_arrow_schema(_SEEN))
    covered = (
        terms.join(seen.withColumnRenamed("every", "archived"), ["subject", "edge"])
        .withColumn("from_ns", F.greatest("from_ns", "first_ns"))
        .withColumn("to_ns", F.least("to_ns", F.col("last_ns") + 1))
        .where("from_ns < to_ns")
        .withColumn("hour", F.explode(_hours_of("from_ns", "to_ns")))
        .select(*_COVERED.names)
    )
    keys = ("subject", "edge", "hour")
    together = covered.groupBy(*keys).cogroup(at_edges.groupBy(*keys))
    return together.applyInPandas(_kept, from_arrow_schema(_MEASURED))


def _seen_in_hour(frame: pd.DataFrame) -> pd.DataFrame:
    created = frame["created_ns"].to_numpy()
    every = archived_every(created, int(frame["num"].iloc[0]), int(frame["den"].iloc[0]))
    return _seen_row(frame, every, int(created.min()), int(created.max()))


def _seen(frame: pd.DataFrame) -> pd.DataFrame:
    every = int(np.gcd.reduce(frame["every"].to_numpy()))
    return _seen_row(frame, every, int(frame["first_ns"].min()), int(frame["last_ns"].max()))


def _seen_row(frame: pd.DataFrame, every: int, first: int, last: int) -> pd.DataFrame:
    row = [str(frame["subject"].iloc[0]), str(frame["edge"].iloc[0]), every, first, last]
    return pd.DataFrame([row], columns=_SEEN.names)


def _kept(terms: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """One row for each subscription to one variable in one hour at one edge."""
    archive = pd.factorize(values["source"])[0].astype(np.int64)
    seen = Values(values["created_ns"].to_numpy(np.int64), values["received_ns"].to_numpy(np.int64), archive)
    rows = []
    for who, spans in terms.groupby([*_WHO]):
        begin = int(spans["hour"].iloc[0]) * HOUR_NS
        promises = [
            Promise(max(each.from_ns, begin), min(each.to_ns, begin + HOUR_NS), *map(int, (
                each.rate_num, each.rate_den, each.every, each.bound_ns)))
            for each in spans.itertuples()
        ]  # fmt: skip
        found = kept(seen, promises, int(spans["archived"].iloc[0]))
        rows.append({**dict(zip(_WHO, who, strict=True)), "hour": begin // HOUR_NS, **found.row()})
    return pd.DataFrame(rows, columns=_MEASURED.names)


# what subscribers say


def _reported(quality: DataFrame) -> DataFrame:
    """Breaches by client, variable, mode and hour."""
    mode = F.coalesce(F.get_json_object("detail", "$.mode").cast("long"), F.lit(0).cast("long"))
    told = quality.where(F.col("created_ns") > 0).select(
        "client",
        "subject",
        mode.alias("mode"),
        F.call_function("div", F.col("created_ns"), F.lit(HOUR_NS)).alias("hour"),
        "kind",
        "count",
    )
    counts = [F.sum(F.when(F.col("kind") == kind, F.col("count"))).alias(f"reported_{kind}") for kind in KINDS]
    return told.groupBy("client", "subject", "mode", "hour").agg(*counts)


# what the counters say


def _segments(counters: DataFrame) -> DataFrame:
    """What went into and came out of each channel, by hour."""

    def label(name: str) -> Column:
        return F.regexp_extract("labels", rf'(?:^|,){name}="([^"]*)"', 1)

    out = (F.col("name") == "chappe_port_status_total") & (label("direction") == "out")
    into = (F.col("name") == "chappe_port_status_total") & (label("direction") == "in")
    dropped = F.col("name") == "chappe_port_drops_total"
    what = F.when(out, "sent").when(into, "received").when(dropped, "dropped")
    ends = [F.col("node"), label("link")]
    grown = (
        counters.withColumn("what", what)
        .where(F.col("what").isNotNull() & (label("role") == "node"))
        .select(
            F.when(into, ends[1]).otherwise(ends[0]).alias("from_node"),
            F.when(into, ends[0]).otherwise(ends[1]).alias("to_node"),
            "what", "labels", "created_ns", "value",
        )
        .groupBy("from_node", "to_node", "what", "labels")
        .applyInPandas(_grown, from_arrow_schema(_GROWN))
    )  # fmt: skip

    def of(kind: str, column: str) -> Column:
        return F.sum(F.when(F.col("what") == kind, F.col(column)))

    rate = {kind: of(kind, "amount") / of(kind, "seconds") for kind in ("sent", "received")}
    unsure = 2 * F.max("step_s") / F.min("seconds")  # both ends are read at times of their own
    sent, lost = of("sent", "amount"), 1 - rate["received"] / rate["sent"]
    dropped_share = F.coalesce(of("dropped", "amount"), F.lit(0.0)) / (
        sent + F.coalesce(of("dropped", "amount"), F.lit(0.0))
    )
    between = F.when(lost > unsure, lost).when(lost.isNotNull(), F.lit(0.0))
    return grown.groupBy("from_node", "to_node", "hour").agg(
        sent.alias("sent"),
        of("received", "amount").alias("received"),
        of("dropped", "amount").alias("dropped"),
        F.max("seconds").alias("seconds"),
        F.when(sent > 0, 1 - (1 - F.coalesce(dropped_share, F.lit(0.0))) * (1 - between)).alias("loss"),
    )


def _grown(frame: pd.DataFrame) -> pd.DataFrame:
    ends = [str(frame[name].iloc[0]) for name in ("from_node", "to_node", "what")]
    windows = by_window(series(frame["created_ns"].to_numpy(), frame["value"].to_numpy()), HOUR_NS)
    return pd.DataFrame([[*ends, *each] for each in windows], columns=_GROWN.names)


def _lost(hours: DataFrame, ways: DataFrame, segments: DataFrame) -> DataFrame:
    """What the counters of its segments say of each subscription: lost is what was lost on every path."""
    by_name = segments.select(F.concat_ws(">", "from_node", "to_node").alias("segment"), "hour", "loss")
    path = (
        hours.select(*_WHO, "variable_id", "hour")
        .join(ways, ["broker", "variable_id", "edge"])
        .withColumn("segment", F.explode_outer("segments"))
        .join(by_name, ["segment", "hour"], "left")
        .groupBy(*_WHO, "hour", "path")
        .agg(
            F.collect_set("segment").alias("segments"),
            (1 - F.product(1 - F.col("loss"))).alias("loss"),
        )
    )
    return path.groupBy(*_WHO, "hour").agg(
        F.count("*").alias("paths"),
        F.array_sort(F.array_distinct(F.flatten(F.collect_list("segments")))).alias("segments"),
        F.product("loss").alias("segment_loss"),
    )


# the report


def _sla(compliance: DataFrame, target: float) -> DataFrame:
    """Three promises of each subscription and mode: measured, kept or not, and what says so."""
    total = compliance.groupBy(*_WHO).agg(
        F.max_by("interval_ms", "hour_ns").alias("interval_ms"),
        F.max_by("bound_ms", "hour_ns").alias("bound_ms"),
        F.max_by("redundancy", "hour_ns").alias("redundancy"),
        F.max_by("paths", "hour_ns").alias("paths"),
        F.sum("expected").alias("expected"),
        F.sum(F.when(F.col("expected").isNotNull(), F.col("received"))).alias("served"),
        F.sum(F.when(F.col("late").isNotNull(), F.col("received"))).alias("timed"),
        F.sum("late").alias("late"),
        F.max("longest_gap_ms").alias("longest_gap_ms"),
        F.max("latency_p99_ms").alias("latency_p99_ms"),
        F.count("received").alias("hours"),
        *[F.sum(f"reported_{kind}").alias(f"reported_{kind}") for kind in KINDS],
    )
    came = F.when(F.col("expected") > 0, F.col("served") / F.col("expected"))
    in_time = F.when(F.col("timed") > 0, 1 - F.col("late") / F.col("timed"))
    nobody = "no archive at the edge, nothing reported by the subscriber"

    def judged(share: Column, breaches: Column) -> Column:
        """By what was seen; a report of the subscriber alone can only say that it was not kept."""
        return F.when(share.isNotNull(), share >= target).when(breaches > 0, F.lit(False))

    interval = F.struct(
        F.lit("interval").alias("promise"),
        F.col("interval_ms").alias("promised"),
        F.col("longest_gap_ms").alias("measured"),
        F.lit("ms").alias("unit"),
        came.alias("share"),
        judged(came, F.col("reported_missed")).alias("kept"),
        F.when(
            came.isNotNull(),
            F.format_string(
                "%d of %d instants in %d hours, longest gap %.1f ms; %d reported missed",
                "served", "expected", "hours", F.coalesce("longest_gap_ms", F.lit(0.0)), "reported_missed",
            ),
        ).when(F.col("reported_missed") > 0, F.format_string("%d reported missed", "reported_missed"))
        .otherwise(nobody).alias("evidence"),
    )  # fmt: skip
    latency = F.when(
        F.col("bound_ms").isNotNull(),
        F.struct(
            F.lit("latency").alias("promise"),
            F.col("bound_ms").alias("promised"),
            F.col("latency_p99_ms").alias("measured"),
            F.lit("ms").alias("unit"),
            in_time.alias("share"),
            judged(in_time, F.col("reported_late")).alias("kept"),
            F.when(
                in_time.isNotNull(),
                F.format_string(
                    "%d of %d values late, 99 of 100 within %.2f ms in the worst hour; %d reported late",
                    "late", "timed", F.coalesce("latency_p99_ms", F.lit(0.0)), "reported_late",
                ),
            ).when(F.col("reported_late") > 0, F.format_string("%d reported late", "reported_late"))
            .otherwise(nobody).alias("evidence"),
        ),
    )  # fmt: skip
    ways = F.when(F.col("paths") > 0, F.col("paths").cast("double"))
    redundancy = F.struct(
        F.lit("redundancy").alias("promise"),
        F.col("redundancy").cast("double").alias("promised"),
        ways.alias("measured"),
        F.lit("paths").alias("unit"),
        F.lit(None).cast("double").alias("share"),
        (ways >= F.col("redundancy")).alias("kept"),
        F.when(ways.isNotNull(), F.format_string("%d paths set up", "paths"))
        .otherwise("no path in the log").alias("evidence"),
    )  # fmt: skip
    rows = total.select(*_WHO, F.explode(F.array_compact(F.array(interval, latency, redundancy))).alias("row"))
    return rows.select(*_WHO, "row.*")
