"""Replay sets: archived events once each, in one order by corrected time, cut by topic and time (SJ-11)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from chappe.errors import ConfigError
from chappe.pipeline.clocks import Corrections, Delay, corrections
from chappe.pipeline.grid import SECOND_NS
from chappe.pipeline.job import Frames, Job, Table, parameter

REPLAY = pa.schema([
    pa.field("position", pa.int64(), nullable=False),  # in the one order of all events, from 0
    pa.field("kind", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("slice", pa.int64(), nullable=False),
    pa.field("corrected_ns", pa.int64(), nullable=False),
    pa.field("uncertainty_ns", pa.int64(), nullable=False),  # to either side
    pa.field("stamped", pa.bool_(), nullable=False),  # by its publisher; else the time is that of its arrival
    pa.field("gap_ns", pa.int64(), nullable=False),  # since the event before of the same topic and slice; first: 0
    pa.field("issuer", pa.binary(), nullable=False),
    pa.field("epoch", pa.int64(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("created_ns", pa.int64()),
    pa.field("received_ns", pa.int64(), nullable=False),
    pa.field("source", pa.string(), nullable=False),
    pa.field("node", pa.string(), nullable=False),
    pa.field("copies", pa.int64(), nullable=False),  # of it in all archives
    pa.field("body", pa.binary(), nullable=False),
])  # fmt: skip
SLICES = pa.schema([
    pa.field("kind", pa.string(), nullable=False),
    pa.field("topic", pa.string(), nullable=False),
    pa.field("slice", pa.int64(), nullable=False),
    pa.field("from_ns", pa.int64(), nullable=False),
    pa.field("to_ns", pa.int64(), nullable=False),
    pa.field("first_position", pa.int64(), nullable=False),
    pa.field("last_position", pa.int64(), nullable=False),
    pa.field("events", pa.int64(), nullable=False),
    pa.field("body_bytes", pa.int64(), nullable=False),
    pa.field("uncertainty_ns", pa.int64(), nullable=False),  # the largest
])  # fmt: skip
INVERSIONS = pa.schema([
    pa.field("reason", pa.string(), nullable=False),  # clock, network, unsure
    pa.field("topic", pa.string()),
    pa.field("issuer", pa.binary()),
    pa.field("epoch", pa.int64()),
    pa.field("inversions", pa.int64(), nullable=False),
    pa.field("judged", pa.int64(), nullable=False),
    pa.field("worst_ns", pa.int64(), nullable=False),
])  # fmt: skip
CLOCKS = pa.schema([
    pa.field("what", pa.string(), nullable=False),  # archive, publisher
    pa.field("name", pa.string(), nullable=False),  # of a publisher: issuer and epoch
    pa.field("offset_ns", pa.int64(), nullable=False),
    pa.field("uncertainty_ns", pa.int64(), nullable=False),
    pa.field("basis", pa.string(), nullable=False),
])  # fmt: skip

_IDENTITY = ("issuer", "epoch", "sequence")
_ORDER = ("corrected_ns", *_IDENTITY)


@dataclass(frozen=True)
class Replay(Job):
    """Clocks first, from the smallest delays; then identity, order, spacing and slices."""

    id: ClassVar[str] = "SJ-11"
    name: ClassVar[str] = "replay"
    line: ClassVar[str] = "events once each, in one order by corrected time, sliced by topic and time for replay"
    reads: ClassVar[tuple[str, ...]] = ("events",)
    writes: ClassVar[dict[str, Table]] = {
        "replay": Table(REPLAY, ("position",)),
        "replay_slices": Table(SLICES, ("kind", "topic", "slice")),
        "replay_inversions": Table(INVERSIONS, ("reason", "topic", "issuer", "epoch")),
        "replay_clocks": Table(CLOCKS, ("what", "name")),
    }
    every_s: ClassVar[float] = 600.0

    topics: str = parameter("#", "which topics: + is one level, # the rest")
    from_ns: int = parameter(0, "events from this time on, ns since 1970")
    to_ns: int = parameter((1 << 63) - 1, "events before this time, ns since 1970")
    slice_s: float = parameter(60.0, "length of a slice")
    delay_ms: float = parameter(20.0, "in the best case no publisher is further from an archive than this")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All events of the chosen topics and times."""
        if self.slice_s <= 0 or self.delay_ms < 0:
            raise ConfigError(f"job replay: slice_s = {self.slice_s} and delay_ms = {self.delay_ms} must be positive")
        events = inputs["events"].where(F.col("topic").rlike(topic_expression(self.topics)))
        events = events.withColumn("clock", _clock())
        found = corrections(_delays(events), round(self.delay_ms * 1_000_000))
        clocks = self._clocks(events, found)
        corrected = self._corrected(_once(events), clocks)
        chosen = corrected.where((F.col("corrected_ns") >= self.from_ns) & (F.col("corrected_ns") < self.to_ns))
        replay = self._sliced(chosen)
        return {
            "replay": replay.select(*REPLAY.names),
            "replay_slices": _slices(replay),
            "replay_inversions": _inversions(chosen),
            "replay_clocks": clocks.select(*CLOCKS.names),
        }

    def _clocks(self, events: DataFrame, found: Corrections) -> DataFrame:
        rows = [
            (what, name, each.offset_ns, each.uncertainty_ns, str(each.basis))
            for what, known in (("archive", found.sources), ("publisher", found.clocks))
            for name, each in sorted(known.items())
        ]
        shape = "what string, name string, offset_ns long, uncertainty_ns long, basis string"
        return events.sparkSession.createDataFrame(rows, shape)

    def _corrected(self, events: DataFrame, clocks: DataFrame) -> DataFrame:
        """With the corrected time: stamps less the offset of their clock, never against the order of the issuer."""

        def of(what: str, key: str) -> DataFrame:
            mine = F.col("what") == what
            return F.broadcast(
                clocks.where(mine).select(
                    F.col("name").alias(key),
                    F.col("offset_ns").alias(f"{what}_offset"),
                    F.col("uncertainty_ns").alias(f"{what}_unsure"),
                )
            )

        bound = F.lit(round(self.delay_ms * 1_000_000))
        none = F.lit(0).cast("long")
        arrived = F.col("received_ns") - F.coalesce("archive_offset", none)
        by_issuer = Window.partitionBy("issuer", "epoch").orderBy("sequence")
        return (
            events.join(of("archive", "source"), "source", "left")
            .join(of("publisher", "clock"), "clock", "left")
            .withColumn("stamped", F.col("created_ns").isNotNull())
            .withColumn("own_ns", F.coalesce(F.col("created_ns") - F.col("publisher_offset"), arrived))
            .withColumn(
                "uncertainty_ns",
                F.when(F.col("stamped"), F.col("publisher_unsure")).otherwise(
                    bound + F.coalesce("archive_unsure", none)
                ),
            )
            .withColumn("corrected_ns", F.max("own_ns").over(by_issuer.rowsBetween(Window.unboundedPreceding, 0)))
        )

    def _sliced(self, events: DataFrame) -> DataFrame:
        """With slice, gap and position; files hold whole slices of a topic as far as they can, in order."""
        length = round(self.slice_s * SECOND_NS)
        sliced = events.withColumn("slice", _floor(F.col("corrected_ns"), length))
        before = sliced.groupBy("slice").agg(F.count("*").alias("many"))
        earlier = Window.orderBy("slice").rowsBetween(Window.unboundedPreceding, -1)
        base = before.select("slice", F.coalesce(F.sum("many").over(earlier), F.lit(0)).alias("base"))
        in_slice = Window.partitionBy("slice").orderBy(*_ORDER)
        in_topic = Window.partitionBy("kind", "topic", "slice").orderBy(*_ORDER)
        gap = F.col("corrected_ns") - F.lag("corrected_ns").over(in_topic)
        return (
            sliced.join(F.broadcast(base), "slice")
            .withColumn("position", F.col("base") + F.row_number().over(in_slice) - 1)
            .withColumn("gap_ns", F.coalesce(gap, F.lit(0)))
            .repartition("kind", "topic", "slice")
            .sortWithinPartitions("kind", "topic", "slice", "position")
        )


def topic_expression(pattern: str) -> str:
    """A regular expression for the topics of a pattern; ConfigError says what is wrong with it."""
    levels = pattern.split("/")
    if not pattern or "#" in levels[:-1] or any(len(each) > 1 and set(each) & {"+", "#"} for each in levels):
        raise ConfigError(f"topics {pattern!r}: + stands for one level, # for the rest and only at the end")
    if pattern == "#":
        return "(?s)^.*$"
    rest = levels[-1] == "#"
    parts = ["[^/]*" if each == "+" else re.escape(each) for each in (levels[:-1] if rest else levels)]
    return "(?s)^" + "/".join(parts) + ("(/.*)?$" if rest else "$")


def _clock() -> Column:
    """Of a publisher: a client that begins anew may be on another machine."""
    return F.concat(F.hex("issuer"), F.lit("."), F.col("epoch").cast("string"))


def _floor(column: Column, divisor: int) -> Column:
    return F.call_function("div", column - F.pmod(column, F.lit(divisor)), F.lit(divisor))


def _delays(events: DataFrame) -> list[Delay]:
    """The smallest delay of each publisher to each archive."""
    rows = (
        events.where(F.col("created_ns").isNotNull())
        .groupBy("source", "clock")
        .agg(F.min(F.col("received_ns") - F.col("created_ns")).alias("least"), F.count("*").alias("many"))
        .collect()
    )
    return [Delay(row["source"], row["clock"], row["least"], row["many"]) for row in rows]


def _once(events: DataFrame) -> DataFrame:
    """Each identity once, as the archive that had it first has it."""
    same = Window.partitionBy(*_IDENTITY)
    first = same.orderBy("received_ns", "source", "offset")
    return (
        events.withColumn("copies", F.count("*").over(same))
        .withColumn("which", F.row_number().over(first))
        .where("which = 1")
        .drop("which")
    )


def _slices(replay: DataFrame) -> DataFrame:
    return replay.groupBy("kind", "topic", "slice").agg(
        F.min("corrected_ns").alias("from_ns"),
        F.max("corrected_ns").alias("to_ns"),
        F.min("position").alias("first_position"),
        F.max("position").alias("last_position"),
        F.count("*").alias("events"),
        F.sum(F.length("body")).alias("body_bytes"),
        F.max("uncertainty_ns").alias("uncertainty_ns"),
    )


def _inversions(events: DataFrame) -> DataFrame:
    """Where the order is not that of the stamps, not that of the arrivals, or not certain."""
    none_text, none_bytes, none_long = (F.lit(None).cast(each) for each in ("string", "binary", "long"))

    by_issuer = Window.partitionBy("issuer", "epoch").orderBy("sequence")
    back = F.max("created_ns").over(by_issuer.rowsBetween(Window.unboundedPreceding, -1)) - F.col("created_ns")
    clock = _counted(events.withColumn("worse", back), "issuer", "epoch").select(
        F.lit("clock").alias("reason"), none_text.alias("topic"), "issuer", "epoch", "inversions", "judged", "worst_ns"
    )
    arrival = Window.partitionBy("source", "kind", "topic").orderBy(*_ORDER)
    overtaken = F.max("received_ns").over(arrival.rowsBetween(Window.unboundedPreceding, -1)) - F.col("received_ns")
    network = _counted(events.withColumn("worse", overtaken), "topic").select(
        F.lit("network").alias("reason"), "topic", none_bytes.alias("issuer"), none_long.alias("epoch"),
        "inversions", "judged", "worst_ns",
    )  # fmt: skip
    order = Window.partitionBy("kind", "topic").orderBy(*_ORDER)
    other = F.lag("issuer").over(order) != F.col("issuer")
    room = F.col("uncertainty_ns") + F.lag("uncertainty_ns").over(order)
    apart = F.col("corrected_ns") - F.lag("corrected_ns").over(order)
    unsure = _counted(events.withColumn("worse", F.when(other, room - apart)), "topic").select(
        F.lit("unsure").alias("reason"), "topic", none_bytes.alias("issuer"), none_long.alias("epoch"),
        "inversions", "judged", "worst_ns",
    )  # fmt: skip
    return clock.unionByName(network).unionByName(unsure).where("inversions > 0")


def _counted(events: DataFrame, *keys: str) -> DataFrame:
    return events.groupBy(*keys).agg(
        F.count_if(F.col("worse") > 0).alias("inversions"),
        F.count("worse").alias("judged"),
        F.coalesce(F.max("worse"), F.lit(0)).alias("worst_ns"),
    )
