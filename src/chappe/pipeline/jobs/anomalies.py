"""Anomalies: peers whose state stands alone, and values that nobody who may publish them has sent (SJ-10)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from chappe.errors import ConfigError
from chappe.pipeline import forgery
from chappe.pipeline.density import Rule
from chappe.pipeline.job import Frames, Publish, StreamJob, Table, parameter
from chappe.pipeline.spaces import EXAMPLE, RULES, SAMPLES, Space, analyse, body, level, spaces, states

SECOND_NS = 1_000_000_000
KINDS = ("off_schedule", "far_future", "unknown_id", "withdrawn_id")
AUTO, YES, NO = "auto", "yes", "no"
SAID, KNOWN, PASSING = "said", "known", "passing"  # a variable has a value, or an id; or only time went on

_STATE_OF = [("source", pa.string()), ("space", pa.string()), ("window_ns", pa.int64()), ("window_s", pa.float64())]
_POSITION = [("dimensions", pa.list_(pa.string())), ("position", pa.list_(pa.float64()))]
_EVENT = [("topic", pa.string()), ("body", pa.string())]


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])


CENTROIDS = _schema(
    *_STATE_OF, ("cluster", pa.int64()), ("centroid", pa.int64()), *_POSITION, ("states", pa.int64()),
    ("radius", pa.float64()), ("region", pa.int64()), ("peers", pa.int64()),
)  # fmt: skip
OUTLIERS = _schema(
    *_STATE_OF, ("peer", pa.string()), ("created_ns", pa.int64()), *_POSITION, ("states", pa.int64()),
    ("near", pa.int64()), ("needed", pa.int64()), ("expected", pa.float64()), ("region", pa.int64()),
    ("region_states", pa.int64()), ("region_expected", pa.float64()), *_EVENT,
)  # fmt: skip
FORGERIES = _schema(
    ("source", pa.string()), ("kind", pa.string()), ("dataset", pa.string()), ("subject", pa.string()),
    ("variable", pa.int64()), ("window_ns", pa.int64()), ("count", pa.int64()), ("of", pa.int64()),
    ("first_ns", pa.int64()), ("last_ns", pa.int64()), ("received_ns", pa.int64()), ("reason", pa.string()), *_EVENT,
)  # fmt: skip
_MET = pa.schema([pa.field("logged", pa.bool_()), pa.field("known", pa.binary()), pa.field("suspects", pa.string())])
_DETAIL = "variable_id bigint, rate_num bigint, rate_den bigint, paths array<struct<variable_id:bigint>>"
_IMPOSSIBLE = "name string, topic string, variable bigint, created_ns bigint"
_RATE = "struct<rate_num:bigint,rate_den:bigint>"
_TAKEN_BACK = ("unpublish", "displace")


@dataclass(frozen=True)
class Anomalies(StreamJob):
    """States are compared within a window of at least two periods, stamps of a variable within one of its own."""

    id: ClassVar[str] = "SJ-10"
    name: ClassVar[str] = "anomalies"
    line: ClassVar[str] = "peers whose state stands alone, centroids of the others, forged values; published as events"
    reads: ClassVar[tuple[str, ...]] = ("measurements", "counters", "status", "events", "broker", "quarantine")
    writes: ClassVar[dict[str, Table]] = {
        "centroids": Table(CENTROIDS, ("source", "space", "window_ns", "centroid")),
        "outliers": Table(OUTLIERS, ("source", "space", "window_ns", "peer"), Publish.EVENTS),
        "forgeries": Table(
            FORGERIES, ("source", "kind", "dataset", "subject", "variable", "window_ns"), Publish.EVENTS
        ),
    }

    spaces: str = parameter(EXAMPLE, "which values are a state: NAME = FEED: VALUE LOW HIGH [log], …; …")
    period_s: float = parameter(10.0, "how often a peer tells its state at least")
    periods: int = parameter(2, "of a window; 2 or more, since peers do not tell at the same time")
    reach: float = parameter(10.0, "states no farther apart are similar, of 256 in each dimension")
    noise: float = parameter(0.05, "share of states that may lie anywhere")
    doubt: float = parameter(0.01, "how often chance alone may look like a cluster")
    least: int = parameter(3, "peers of a cluster at least")
    rule: str = parameter("cells", "cells, or regions: the rule of the source as it stands")
    ahead_s: float = parameter(1.0, "a stamp further ahead of its arrival is from the future")
    schedule_s: float = parameter(60.0, "how long stamps are looked at together")
    unknown_ids: str = parameter(AUTO, "report ids that the broker log does not know: yes, no, auto where there is one")
    late_s: float = parameter(30.0, "how long a stream waits for what comes late")

    def __post_init__(self) -> None:
        self._spaces()
        try:
            self._rule()
        except ValueError as error:
            raise ConfigError(f"job anomalies: {error}") from None
        for wrong, text in (
            (self.periods < 2, f"periods = {self.periods}: a window has 2 or more"),
            (not self.period_s > 0 or not self.schedule_s > 0, "period_s and schedule_s must be above 0"),
            (self.ahead_s < 0 or self.late_s < 0, "ahead_s and late_s must be 0 or more"),
            (self.rule not in RULES, f"rule = {self.rule!r}: give one of {', '.join(RULES)}"),
            (self.unknown_ids not in (AUTO, YES, NO), f"unknown_ids = {self.unknown_ids!r}: give yes, no or auto"),
        ):
            if wrong:
                raise ConfigError(f"job anomalies: {text}")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        """All windows there were."""
        samples = self._samples(inputs).withColumn("window_ns", _begin("created_ns", self._window_ns))
        grouped = samples.groupBy("source", "space", "window_ns")
        tables = {
            name: grouped.applyInPandas(self._judged(name), from_arrow_schema(self.writes[name].schema))
            for name in ("centroids", "outliers")
        }
        stamped = self._stamped(inputs).withColumn("window_ns", _begin("received_ns", round(self.schedule_s * 1e9)))
        by_window = stamped.groupBy("source", "dataset", "subject", "variable", "window_ns").agg(
            F.collect_set(_pair()).alias("stamps")
        )
        rates = known_ids(inputs["broker"]).groupBy("source", "variable").agg(F.max("rate").alias("rate"))
        forged = by_window.join(rates, ["source", "variable"], "left").mapInArrow(
            partial(_forged, round(self.ahead_s * 1e9)), from_arrow_schema(FORGERIES)
        )
        if self.unknown_ids != NO:
            forged = forged.unionByName(self._strangers(inputs))
        return {**tables, "forgeries": forged}

    def stream(self, inputs: Frames) -> Frames:
        """Windows as they close."""
        wait = f"{round(self.late_s * 1000)} milliseconds"
        samples = self._samples(inputs).withColumn("created", _timestamp("created_ns")).withWatermark("created", wait)
        window = F.window("created", f"{self._window_ns // 1000} microseconds")
        together = (
            samples.groupBy("source", "space", window.alias("span"))
            .agg(F.collect_list(F.struct(*SAMPLES)).alias("samples"))
            .select("source", "space", (F.unix_micros("span.start") * 1000).alias("window_ns"), "samples")
        )
        tables = {
            name: together.mapInArrow(partial(_each_window, self._judged(name)), from_arrow_schema(table.schema))
            for name, table in self.writes.items()
            if name != "forgeries"
        }
        stamped = self._stamped(inputs).withColumn("arrived", _timestamp("received_ns")).withWatermark("arrived", wait)
        span = F.window("arrived", f"{round(self.schedule_s * 1e6)} microseconds")
        by_window = (
            stamped.groupBy("source", "dataset", "subject", "variable", span.alias("span"))
            .agg(F.collect_set(_pair()).alias("stamps"))
            .withColumn("window_ns", F.unix_micros("span.start") * 1000)
            .withColumn("rate", F.lit(None).cast(_RATE))
            .drop("span")
        )
        forged = by_window.mapInArrow(partial(_forged, round(self.ahead_s * 1e9)), from_arrow_schema(FORGERIES))
        if self.unknown_ids != NO:
            forged = forged.unionByName(self._newcomers(inputs, wait))
        return {**tables, "forgeries": forged}

    # --- states

    def _spaces(self) -> dict[str, Space]:
        return {each.name: each for each in spaces(self.spaces)}

    def _rule(self) -> Rule:
        return Rule(self.reach, self.noise, self.doubt, self.least)

    @property
    def _window_ns(self) -> int:
        return self.periods * round(self.period_s * 1e9)

    def _judged(self, table: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
        known, rule, by, window_ns, periods = self._spaces(), self._rule(), self.rule, self._window_ns, self.periods

        def judged(frame: pd.DataFrame) -> pd.DataFrame:  # Spark wants its types, which a partial does not show
            return _judge(table, known, rule, by, window_ns, periods, frame)

        return judged

    def _samples(self, inputs: Frames) -> DataFrame:
        """One row for each value of a state: source, space and the columns of `spaces.SAMPLES`."""
        found: DataFrame | None = None
        for space in self._spaces().values():
            feed = inputs[space.feed]
            part = _SAMPLES_OF[space.feed](feed, space).select(
                "source", F.lit(space.name).alias("space"), *SAMPLES, F.col("received_ns")
            )
            found = part if found is None else found.unionByName(part)
        if found is None:
            raise ConfigError(f"job anomalies: spaces is empty; give one like {EXAMPLE!r}")
        # a stamp from the future would be a window of its own, and would end the wait of a stream for all others
        ahead = F.lit(round(self.ahead_s * 1e9))
        sane = (F.col("created_ns") >= 0) & (F.col("created_ns") <= F.col("received_ns") + ahead)
        return found.where(sane & F.col("value").isNotNull() & F.col("peer").isNotNull()).drop("received_ns")

    # --- forgeries

    def _stamped(self, inputs: Frames) -> DataFrame:
        """Stamps of variables and of topics."""
        status = inputs["status"].where(~F.col("extrapolated")).select(
            "source", F.lit("status").alias("dataset"), F.col("name").alias("subject"), "variable", "created_ns",
            "received_ns",
        )  # fmt: skip
        return status.unionByName(self._stamped_else(inputs))

    def _stamped_else(self, inputs: Frames) -> DataFrame:
        """The same without the variables of the clean table."""
        events = inputs["events"].where(F.col("created_ns").isNotNull()).select(
            "source", F.lit("events").alias("dataset"), F.col("topic").alias("subject"),
            F.lit(0).cast("bigint").alias("variable"), "created_ns", "received_ns",
        )  # fmt: skip
        # ingest puts what is far ahead into quarantine, for all jobs but this one
        impossible = inputs["quarantine"].where(F.col("dataset").isin("status", "events")).withColumn(
            "told", F.from_json("row", _IMPOSSIBLE)
        )  # fmt: skip
        ahead = F.lit(round(self.ahead_s * 1e9))
        future = impossible.where(F.col("told.created_ns") > F.col("received_ns") + ahead).select(
            F.coalesce("source", F.lit("")).alias("source"), "dataset",
            F.coalesce("told.name", "told.topic", F.lit("")).alias("subject"),
            F.coalesce("told.variable", F.lit(0)).cast("bigint").alias("variable"),
            F.col("told.created_ns").alias("created_ns"), "received_ns",
        )  # fmt: skip
        return events.unionByName(future)

    def _strangers(self, inputs: Frames) -> DataFrame:
        """Variables that no broker gave an id, or took it back from."""
        ids = known_ids(inputs["broker"]).groupBy("source", "variable").agg(
            F.max(F.when(~F.col("gone"), F.col("since_ns"))).alias("given_ns"),
            F.max(F.when(F.col("gone"), F.col("since_ns"))).alias("taken_ns"),
        )  # fmt: skip
        late = round(self.late_s * 1e9)
        said = inputs["status"].where(~F.col("extrapolated"))
        if self.unknown_ids == AUTO:
            said = said.join(inputs["broker"].select("source").distinct(), "source", "left_semi")
        unknown = F.col("given_ns").isNull() & F.col("taken_ns").isNull()
        withdrawn = (F.col("taken_ns") >= F.coalesce("given_ns", F.lit(0))) & (
            F.col("received_ns") > F.col("taken_ns") + late
        )
        judged = (
            said.join(F.broadcast(ids), ["source", "variable"], "left")
            .withColumn("kind", F.when(unknown, "unknown_id").when(withdrawn, "withdrawn_id"))
            .where(F.col("kind").isNotNull())
            .withColumn("window_ns", _begin("received_ns", round(self.schedule_s * 1e9)))
            .groupBy("source", "kind", F.col("name").alias("subject"), "variable", "window_ns")
            .agg(
                F.count("*").alias("count"), F.min("created_ns").alias("first_ns"),
                F.max("created_ns").alias("last_ns"), F.max("received_ns").alias("received_ns"),
            )
        )  # fmt: skip
        return judged.withColumns({"dataset": F.lit("status"), "of": F.col("count")}).mapInPandas(
            _told, from_arrow_schema(FORGERIES)
        )

    def _newcomers(self, inputs: Frames, wait: str) -> DataFrame:
        """Variables that the broker log still does not know when its word must have arrived; each is told once."""
        said = inputs["status"].where(~F.col("extrapolated")).select(
            "source", "variable", F.lit(SAID).alias("word"), "name", "created_ns", "received_ns"
        )  # fmt: skip
        known = known_ids(inputs["broker"]).where(~F.col("gone")).select(
            "source", "variable", F.lit(KNOWN).alias("word"), F.lit("").alias("name"),
            F.col("since_ns").alias("created_ns"), "received_ns",
        )  # fmt: skip
        # A query waits for the slowest of its watermarks: without rows that tell the time, an archive of events alone
        # would hold this one at 1970, and with it every window of `_stamped`.
        passing = self._stamped_else(inputs).select(
            "source", F.lit(0).cast("bigint").alias("variable"), F.lit(PASSING).alias("word"), F.lit("").alias("name"),
            "created_ns", "received_ns",
        )  # fmt: skip
        always, window_ns = self.unknown_ids == YES, round(self.schedule_s * 1e9)
        return (
            said.unionByName(known)
            .unionByName(passing)
            .withColumn("arrived", _timestamp("received_ns"))
            .withWatermark("arrived", wait)
            .dropDuplicates(["source", "variable", "word"])  # so that little is left, and one state can hold it
            .groupBy("source")
            .applyInPandasWithState(
                partial(_met, always, window_ns), from_arrow_schema(FORGERIES), from_arrow_schema(_MET), "append",
                GroupStateTimeout.EventTimeTimeout,
            )
        )  # fmt: skip


def known_ids(broker: DataFrame) -> DataFrame:
    """Ids that brokers spoke of: source, variable, whether it was taken back, since when, and its rate if told."""
    detail = F.from_json("detail", _DETAIL)
    several = F.transform(F.coalesce(F.col("told.paths"), F.array()), lambda path: path["variable_id"])
    rate = F.when(F.col("told.rate_den") > 0, F.struct("told.rate_num", "told.rate_den"))
    return (
        broker.where(~F.col("action").endswith("_refused"))
        .withColumn("told", detail)
        .select(
            "source", F.col("action").isin(*_TAKEN_BACK).alias("gone"), F.col("created_ns").alias("since_ns"),
            "received_ns", rate.alias("rate"),
            F.explode(F.concat(F.array("told.variable_id"), several)).alias("variable"),
        )
        .where(F.col("variable") > 0)
    )  # fmt: skip


def _timestamp(column: str) -> Column:
    return F.timestamp_micros(F.call_function("div", F.col(column), F.lit(1000)))


def _begin(column: str, length_ns: int) -> Column:
    """The start of the window that a time is in."""
    return F.col(column) - F.pmod(F.col(column), F.lit(length_ns))


def _pair() -> Column:
    return F.struct("created_ns", "received_ns")


# --- states of each feed


def _measured(rows: DataFrame, space: Space) -> DataFrame:
    """Links, by the end that measured them."""
    values = [F.struct(F.lit(name).alias("attribute"), F.col(name).cast("double").alias("value"))
              for name in space.names]  # fmt: skip
    peer = F.concat_ws("/", "node", "link")
    return rows.select(
        "source", peer.alias("peer"), F.lit("").alias("labels"), "created_ns", "received_ns",
        F.explode(F.array(*values)).alias("each"),
    ).select("source", "peer", "labels", "created_ns", "received_ns", "each.*")  # fmt: skip


def _counted(rows: DataFrame, space: Space) -> DataFrame:
    """Nodes; counters that only grow count by their rate, those with different labels together."""
    return rows.where(F.col("name").isin(*space.names)).select(
        "source", F.col("node").alias("peer"), F.col("name").alias("attribute"), "labels", "created_ns",
        "received_ns", "value",
    )  # fmt: skip


def _published(rows: DataFrame, space: Space) -> DataFrame:
    """Publishers, by the first level of their variables' names."""
    return (
        rows.where(~F.col("extrapolated"))
        .withColumn("attribute", F.expr("substring(name, instr(name, '/') + 1)"))
        .where(F.col("attribute").isin(*space.names))
        .select(
            "source", F.substring_index("name", "/", 1).alias("peer"), "attribute", F.lit("").alias("labels"),
            "created_ns", "received_ns", F.coalesce("value", F.col("whole").cast("double")).alias("value"),
        )
    )  # fmt: skip


_SAMPLES_OF: dict[str, Callable[[DataFrame, Space], DataFrame]] = {
    "measurements": _measured, "counters": _counted, "status": _published,
}  # fmt: skip


def _judge(
    table: str, known: dict[str, Space], rule: Rule, by: str, window_ns: int, periods: int, frame: pd.DataFrame
) -> pd.DataFrame:
    """The rows of a table for one window of one space of one source."""
    source, name, begin = str(frame["source"].iloc[0]), str(frame["space"].iloc[0]), int(frame["window_ns"].iloc[0])
    space = known[name]
    found = states(frame[list(SAMPLES)], space, window_ns // periods)
    analysis = analyse(found, space, rule, by)
    where = {"source": source, "space": name, "window_ns": begin, "window_s": window_ns / SECOND_NS}
    rows: list[dict[str, Any]] = []
    if table == "centroids":
        peers = int(found["peer"].nunique())
        for number, each in enumerate(analysis.centroids):
            rows.append({**where, "centroid": number, "dimensions": space.names, "peers": peers, **each})
        return pd.DataFrame(rows, columns=CENTROIDS.names)
    for each in analysis.outliers:
        row = {**where, "dimensions": space.names, **each}
        topic = f"pipeline/anomalies/{level(name)}/{level(each['peer'])}"
        rows.append({**row, "topic": topic, "body": body(row, kind="outlier")})
    return pd.DataFrame(rows, columns=OUTLIERS.names)


def _each_window(
    judged: Callable[[pd.DataFrame], pd.DataFrame], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The same for windows with their samples in a column."""
    for batch in batches:
        for row in range(batch.num_rows):
            samples = pa.RecordBatch.from_struct_array(batch.column("samples")[row].values).to_pandas()
            for name in ("source", "space", "window_ns"):
                samples[name] = batch.column(name)[row].as_py()
            found = judged(samples)
            schema = CENTROIDS if "centroid" in found.columns else OUTLIERS
            yield pa.RecordBatch.from_pandas(found, schema=schema, preserve_index=False)


# --- forgeries of each variable


def _forged(ahead_ns: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stamps off their schedule and from the future, of the variables of each batch."""
    for batch in batches:
        rows: list[dict[str, Any]] = []
        for row in range(batch.num_rows):
            stamps = batch.column("stamps")[row].values
            created, received = (stamps.field(at).to_numpy(zero_copy_only=False) for at in (0, 1))
            at = {name: batch.column(name)[row].as_py()
                  for name in ("source", "dataset", "subject", "variable", "window_ns", "rate")}  # fmt: skip
            rows += _forgeries(at, created, received, ahead_ns)
        yield pa.RecordBatch.from_pylist(rows, schema=FORGERIES)


def _forgeries(
    at: dict[str, Any], created: np.ndarray[Any, Any], received: np.ndarray[Any, Any], ahead_ns: int
) -> Iterator[dict[str, Any]]:
    order = np.lexsort((received, created))
    created, first = np.unique(created[order], return_index=True)  # copies by other paths arrive later
    received = received[order][first]
    rate = at.pop("rate")
    future = forgery.far_future(created, received, ahead_ns)
    if future.any():
        most = float((created - received)[future].max()) / 1e9
        yield _row(at, "far_future", created, received, future, f"stamped up to {most:.3f} s ahead of its arrival")
    if at["dataset"] != "status":
        return
    honest, arrived = created[~future], received[~future]
    told = (int(rate["rate_num"]), int(rate["rate_den"])) if rate else forgery.rate_of(honest)
    kept = forgery.schedule(honest, *told) if told and told[0] > 0 else None
    if kept is None:
        return
    off = forgery.off_schedule(honest, kept)
    if off.any():
        every = kept.den / kept.num / 1e6
        yield _row(at, "off_schedule", honest, arrived, off, f"not on its grid of one value every {every:.6g} ms")


def _row(
    at: dict[str, Any], kind: str, created: np.ndarray[Any, Any], received: np.ndarray[Any, Any],
    which: np.ndarray[Any, Any], reason: str,
) -> dict[str, Any]:  # fmt: skip
    return _event({
        **at, "kind": kind, "count": int(which.sum()), "of": len(created), "first_ns": int(created[which].min()),
        "last_ns": int(created[which].max()), "received_ns": int(received[which].max()), "reason": reason,
    })  # fmt: skip


def _event(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the event that it is published as."""
    return {**row, "topic": f"pipeline/forgeries/{row['kind']}/{level(row['subject'])}", "body": body(row)}


_REASONS = {
    "unknown_id": "no broker gave this id to a variable",
    "withdrawn_id": "its broker took this id back before the value arrived",
}


def _told(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Ids that are not known, as forgeries."""
    for frame in frames:
        rows = [_event({str(k): v for k, v in row.items()} | {"reason": _REASONS[row["kind"]]})
                for row in frame.to_dict("records")]  # fmt: skip
        yield pd.DataFrame(rows, columns=FORGERIES.names)


def _met(
    always: bool, window_ns: int, key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """The variables of one archive: each that no broker spoke of in time is told, once a broker was heard at all."""
    logged, packed, listed = state.get if state.exists else (always, b"", "{}")
    known = set(np.frombuffer(bytes(packed), dtype=np.int64).tolist())
    suspects: dict[str, list[Any]] = json.loads(listed)
    for frame in frames:
        if frame.empty:  # it is time, and nothing new was said
            continue
        told = frame[frame["word"] == KNOWN]
        logged = bool(logged or len(told))
        known |= set(told["variable"].astype("int64").tolist())
        for row in frame[frame["word"] == SAID].itertuples():
            suspects.setdefault(str(row.variable), [row.name, int(row.created_ns), int(row.received_ns)])
    suspects = {number: seen for number, seen in suspects.items() if int(number) not in known}
    reached_ms = state.getCurrentWatermarkMs()
    over = {number: seen for number, seen in suspects.items() if logged and seen[2] // 1_000_000 < reached_ms}
    rows = [
        _event({
            "source": key[0], "kind": "unknown_id", "dataset": "status", "subject": name, "variable": int(number),
            "window_ns": received - received % window_ns, "count": 1, "of": 1, "first_ns": created,
            "last_ns": created, "received_ns": received, "reason": _REASONS["unknown_id"],
        })
        for number, (name, created, received) in over.items()
    ]  # fmt: skip
    yield pd.DataFrame(rows, columns=FORGERIES.names)
    known |= {int(number) for number in over}  # enough was said about them
    left = {number: seen for number, seen in suspects.items() if number not in over}
    state.update((logged, np.array(sorted(known), dtype=np.int64).tobytes(), json.dumps(left)))
    if logged and left:
        due = min(seen[2] for seen in left.values()) // 1_000_000 + 1
        state.setTimeoutTimestamp(max(due, reached_ms) + 1)
