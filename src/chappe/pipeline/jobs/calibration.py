"""Calibration: what history proposes for costs, the latency model, thresholds and intervals (SJ-06)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.measure.cost import PROFILES, Profile
from chappe.measure.pace import EXTREMES_MINIMUM
from chappe.measure.readings import Settings
from chappe.pipeline.calibrating import (
    THRESHOLDS,
    Delivery,
    Finding,
    Link,
    Replay,
    Trip,
    coefficients,
    interval,
    latency_model,
    text,
    threshold,
    tried,
    trips,
)
from chappe.pipeline.job import Frames, Job, Publish, Table, parameter

EVENTS = ("chappe_port_status_total", "chappe_port_events_total")
ALL = "all"
_DETAIL = "variable_id bigint, edge string"
_TEXT, _WHOLE, _NUMBER, _TRUTH = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


CALIBRATION = _schema(
    ("source", _TEXT), ("kind", _TEXT), ("subject", _TEXT), ("samples", _WHOLE), ("proposed", _TRUTH),
    ("reason", _TEXT), ("current", _TEXT), ("value", _TEXT), ("evidence", _TEXT), ("effect", _TEXT),
)  # fmt: skip
PROPOSALS = _schema(("source", _TEXT), ("kind", _TEXT), ("subject", _TEXT), ("topic", _TEXT), ("body", _TEXT))
_REPLAYS = _schema(
    ("source", _TEXT), ("share", _NUMBER), ("told", _WHOLE), ("missed", _NUMBER), ("dearer", _NUMBER),
    ("steps", _WHOLE),
)  # fmt: skip


@dataclass(frozen=True)
class Calibration(Job):
    """Each finding stands in `calibration`, with the reason where it proposes nothing; the others are published."""

    id: ClassVar[str] = "SJ-06"
    name: ClassVar[str] = "calibration"
    line: ClassVar[str] = "proposals for cost coefficients, latency model, publication threshold and intervals"
    reads: ClassVar[tuple[str, ...]] = ("measurements", "status", "events", "counters", "broker")
    writes: ClassVar[dict[str, Table]] = {
        "calibration": Table(CALIBRATION, ("source", "kind", "subject")),
        "proposals": Table(PROPOSALS, ("source", "kind", "subject"), Publish.EVENTS),
    }
    every_s: ClassVar[float] = 3600.0

    profile: str = parameter("default", "whose coefficients are compared with what was experienced")
    window_s: float = parameter(10.0, "deliveries and measurements of such a time are taken together")
    origins: str = parameter("", "nodes of publishers that no broker log names: PATTERN = NODE; … (names and topics)")
    types: str = parameter("", "types of routers for the latency model: TYPE = PATTERN PATTERN; …")
    capacity: float = parameter(50_000.0, "events a second of a router, by which its load is told")
    step_s: float = parameter(1.0, "steps in which thresholds are tried")
    most_steps: int = parameter(2_000, "steps that are tried, the newest")
    missed: float = parameter(0.01, "share of ways that may stay dearer than need be because a cost was not told")
    delay_s: float = parameter(5.0, "how much later a change of a link may be noticed")
    least: int = parameter(30, "windows, steps or rounds that are evidence at least")

    def __post_init__(self) -> None:
        _pairs("origins", self.origins)
        _pairs("types", self.types)
        profile = PROFILES.get(self.profile)
        for wrong, said in (
            (not isinstance(profile, Profile), f"profile = {self.profile!r}: give one of {', '.join(PROFILES)}"),
            (not self.window_s > 0 or not self.step_s > 0, "window_s and step_s must be above 0"),
            (not self.capacity > 0, "capacity must be above 0"),
            (self.least < 3 or self.most_steps < self.least, "least must be 3 or more, most_steps as much at least"),
        ):
            if wrong:
                raise ConfigError(f"job calibration: {said}")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        measured = _measured(inputs["measurements"])
        found = self._by_deliveries(inputs, measured)
        found = found.unionByName(self._thresholds(measured)).unionByName(self._intervals(measured))
        found = found.localCheckpoint(eager=False)  # proposals come from it, too
        return {"calibration": found, "proposals": _proposals(found)}

    # --- deliveries

    def _by_deliveries(self, inputs: Frames, measured: DataFrame) -> DataFrame:
        """Findings on costs and on the latency model."""
        length = round(self.window_s * 1e9)
        keys = ["source", "window_ns"]
        arcs = measured.withColumn("window_ns", _begin(length)).groupBy(*keys, "node", "peer", "link").agg(
            *[F.avg(name).alias(name) for name in ("cost", "latency_ms", "jitter", "loss")]
        )  # fmt: skip
        loads = _events_per_ms(inputs["counters"], length)
        known = arcs.withColumn("events_per_ms", F.lit(None).cast("double")).unionByName(
            loads, allowMissingColumns=True
        )
        deliveries = (
            self._delivered(inputs)
            .withColumn("window_ns", F.col("created_ns") - F.pmod(F.col("created_ns"), F.lit(length)))
            .groupBy(*keys, "origin", "destination")
            .agg(F.median("took_ms").alias("median_ms"), F.count("*").alias("count"))
        )
        return (
            deliveries.groupBy("source")
            .cogroup(known.groupBy("source"))
            .applyInPandas(self._fitted(), from_arrow_schema(CALIBRATION))
        )

    def _delivered(self, inputs: Frames) -> DataFrame:
        """How long values and events took from the node of their publisher to that of the archive."""
        broker = inputs["broker"].where(F.col("action").isin("publish", "condense")).withColumn(
            "told", F.from_json("detail", _DETAIL)
        )  # fmt: skip
        number = F.col("told.variable_id")
        edges = broker.where(number > 0).groupBy("source", number.alias("variable")).agg(
            F.max_by("told.edge", "created_ns").alias("edge")
        )  # fmt: skip
        status = inputs["status"].where(~F.col("extrapolated")).join(F.broadcast(edges), ["source", "variable"], "left")
        parts = [
            status.select("source", F.coalesce("edge", self._origin("name")).alias("origin"),
                          F.col("node").alias("destination"), "name", "created_ns", "received_ns"),
            inputs["events"].select("source", self._origin("topic").alias("origin"),
                                    F.col("node").alias("destination"), F.col("topic").alias("name"), "created_ns",
                                    "received_ns"),
        ]  # fmt: skip
        took = (F.col("received_ns") - F.col("created_ns")) / 1e6
        return (
            parts[0].unionByName(parts[1])
            .where(F.col("origin").isNotNull() & (F.col("origin") != F.col("destination")))
            .dropDuplicates(["source", "name", "created_ns"])
            .withColumn("took_ms", took)
            .where((F.col("took_ms") >= 0) & (F.col("took_ms") < 60_000))
        )  # fmt: skip

    def _origin(self, column: str) -> Column:
        """The node of a publisher by the patterns of `origins`."""
        found = F.lit(None).cast("string")
        for pattern, node in reversed(_pairs("origins", self.origins)):
            found = F.when(F.col(column).rlike(_expression(pattern)), F.lit(node)).otherwise(found)
        return found

    def _fitted(self) -> Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]:
        profile, least, capacity = PROFILES[self.profile], self.least, self.capacity
        types = [(kind, patterns.split()) for kind, patterns in _pairs("types", self.types)]
        assert isinstance(profile, Profile)

        def fitted(deliveries: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
            taken = trips(_deliveries(deliveries), _links(known))
            loads = known[known["events_per_ms"].notna()]
            per_ms = {(int(window), str(node)): float(load) for window, node, load in zip(
                loads["window_ns"], loads["node"], loads["events_per_ms"], strict=True)}  # fmt: skip
            found = [coefficients(taken, profile, least)]
            for kind, mine in _by_type(taken, types):
                found.append(latency_model(mine, per_ms, kind, capacity, least))
            source = (deliveries if len(deliveries) else known)["source"].iloc[0]
            return _framed(str(source), found)

        return fitted

    # --- thresholds and intervals

    def _thresholds(self, measured: DataFrame) -> DataFrame:
        """The publication threshold, each one tried on its own."""
        length, most, least, missed = round(self.step_s * 1e9), self.most_steps, self.least, self.missed
        keys = ["source", "window_ns", "node", "peer", "link"]
        steps = measured.withColumn("window_ns", _begin(length)).groupBy(*keys).agg(
            F.max_by("cost", "created_ns").alias("cost")
        )  # fmt: skip
        shares = F.explode(F.array(*[F.lit(each) for each in THRESHOLDS]))

        def replays(frame: pd.DataFrame) -> pd.DataFrame:
            ends, costs = _series(frame, most)
            one = tried(ends, costs, float(frame["share"].iloc[0]))
            row = {"source": frame["source"].iloc[0], "share": one.share, "told": one.told, "missed": one.missed,
                   "dearer": one.dearer, "steps": len(costs)}  # fmt: skip
            return pd.DataFrame([row], columns=_REPLAYS.names)

        def best(frame: pd.DataFrame) -> pd.DataFrame:
            ordered = frame.sort_values("share")
            listed = [Replay(float(row.share), int(row.told), float(row.missed), float(row.dearer))
                      for row in ordered.itertuples()]  # fmt: skip
            return _framed(str(frame["source"].iloc[0]), [threshold(listed, int(frame["steps"].max()), least, missed)])

        replayed = steps.withColumn("share", shares).groupBy("source", "share").applyInPandas(
            replays, from_arrow_schema(_REPLAYS)
        )  # fmt: skip
        return replayed.groupBy("source").applyInPandas(best, from_arrow_schema(CALIBRATION))

    def _intervals(self, measured: DataFrame) -> DataFrame:
        """The interval of each link by how it behaved, and by whether it is one of the nearest or farthest of all."""
        settings, least, delay_s = Settings(profile=self.profile), self.least, self.delay_s
        means = measured.groupBy("source", "node", "link").agg(F.avg("latency_ms").alias("mean_ms"))
        share = settings.extreme_share
        edges = means.groupBy("source").agg(
            F.percentile("mean_ms", F.lit(share)).alias("low"), F.percentile("mean_ms", F.lit(1 - share)).alias("high"),
            F.count("*").alias("links"),
        )  # fmt: skip
        extreme = (F.col("links") >= EXTREMES_MINIMUM) & (F.col("low") < F.col("high")) & (
            (F.col("mean_ms") <= F.col("low")) | (F.col("mean_ms") >= F.col("high"))
        )  # fmt: skip
        joined = measured.join(
            means.join(edges, "source").select("source", "node", "link", extreme.alias("extreme")),
            ["source", "node", "link"],
        )

        def proposed(frame: pd.DataFrame) -> pd.DataFrame:
            ordered = frame.sort_values("created_ns")
            subject = f"{frame['node'].iloc[0]}/{frame['link'].iloc[0]}"
            found = interval(subject, ordered["created_ns"], ordered["cost"], bool(frame["extreme"].iloc[0]), settings,
                             least, delay_s)  # fmt: skip
            return _framed(str(frame["source"].iloc[0]), [found])

        return joined.groupBy("source", "node", "link").applyInPandas(proposed, from_arrow_schema(CALIBRATION))


def _measured(measurements: DataFrame) -> DataFrame:
    """Rounds with a cost, each once, not from the future."""
    plain = [F.nanvl(name, F.lit(None).cast("double")).alias(name) for name in ("cost", "latency_ms", "jitter", "loss")]
    return (
        measurements.where((F.col("peer") != "") & (F.col("created_ns") <= F.col("received_ns") + 1_000_000_000))
        .select("source", "node", "peer", "link", "created_ns", *plain)
        .where((F.col("cost") >= 0) & (F.col("cost") < 1e300))
        .dropDuplicates(["source", "node", "link", "created_ns"])
    )


def _events_per_ms(counters: DataFrame, length_ns: int) -> DataFrame:
    """Values and events a millisecond into each node."""
    return (
        counters.where(F.col("name").isin(*EVENTS) & F.col("labels").contains('direction="in"'))
        .withColumn("window_ns", _begin(length_ns))
        .groupBy("source", "window_ns", "node", "name", "labels")
        .agg(
            (F.max("value") - F.min("value")).alias("more"),
            ((F.max("created_ns") - F.min("created_ns")) / 1e6).alias("passed_ms"),
        )
        .where(F.col("passed_ms") > 0)
        .groupBy("source", "window_ns", "node")
        .agg(F.sum(F.col("more") / F.col("passed_ms")).alias("events_per_ms"))
    )


def _begin(length_ns: int) -> Column:
    return F.col("created_ns") - F.pmod(F.col("created_ns"), F.lit(length_ns))


def _pairs(what: str, listed: str) -> list[tuple[str, str]]:
    """`A = B; C = D` as pairs; ConfigError says which is none."""
    found = []
    for part in listed.split(";"):
        if part.strip():
            left, equals, right = (each.strip() for each in part.partition("="))
            if not equals or not left or not right:
                example = "pmu* = a" if what == "origins" else "core = c*"
                raise ConfigError(f"job calibration: {what}: {part.strip()!r}: write it like {example!r}")
            found.append((left, right))
    return found


def _expression(pattern: str) -> str:
    """A pattern with `*` as Java reads expressions."""
    return "^" + ".*".join(re.escape(part) for part in pattern.split("*")) + "$"


def _deliveries(frame: pd.DataFrame) -> list[Delivery]:
    return [Delivery(int(row.window_ns), str(row.origin), str(row.destination), float(row.median_ms), int(row.count_))
            for row in frame.rename(columns={"count": "count_"}).itertuples()]  # fmt: skip


def _links(frame: pd.DataFrame) -> list[Link]:
    arcs = frame[frame["peer"].notna()]
    return [Link(int(row.window_ns), str(row.node), str(row.peer), float(row.cost), _number(row.latency_ms),
                 _number(row.jitter), _number(row.loss)) for row in arcs.itertuples()]  # fmt: skip


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _by_type(taken: list[Trip], types: list[tuple[str, list[str]]]) -> Iterable[tuple[str, list[Trip]]]:
    """Trips over routers of one type, for each type; all of them where no types are given."""
    if not types:
        return [(ALL, taken)]
    return [
        (kind, [trip for trip in taken if all(any(fnmatchcase(name, each) for each in patterns) for name in trip.way)])
        for kind, patterns in types
    ]


def _series(frame: pd.DataFrame, most: int) -> tuple[list[tuple[str, str]], np.ndarray[Any, Any]]:
    """The ends of each arc and its cost at each step, the last one known where none was measured."""
    cheapest = frame.groupby(["window_ns", "node", "peer"])["cost"].min()
    wide = cheapest.unstack(["node", "peer"]).sort_index().ffill().tail(most)
    ends = [(str(node), str(peer)) for node, peer in wide.columns]
    return ends, wide.to_numpy(dtype=np.float64)


def _framed(source: str, found: list[Finding]) -> pd.DataFrame:
    return pd.DataFrame([{"source": source, **each.row()} for each in found], columns=CALIBRATION.names)


def _proposals(found: DataFrame) -> DataFrame:
    """Findings that propose something, as events on pipeline/proposals/KIND."""

    def told(source: str, row: dict[str, Any]) -> str:
        parts = {name: json.loads(row[name]) for name in ("current", "value", "evidence", "effect")}
        return text({"source": source, "kind": row["kind"], "subject": row["subject"], "samples": row["samples"],
                     **parts})  # fmt: skip

    def events(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            rows = [
                {"source": row["source"], "kind": row["kind"], "subject": row["subject"],
                 "topic": f"pipeline/proposals/{row['kind']}", "body": told(row["source"], row)}
                for row in frame.to_dict("records")
            ]  # fmt: skip
            yield pd.DataFrame(rows, columns=PROPOSALS.names)

    return found.where("proposed").mapInPandas(events, from_arrow_schema(PROPOSALS))
