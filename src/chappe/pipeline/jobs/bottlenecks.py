"""Bottlenecks and what-if: which links carry the load, which are missed, which could go (SJ-05)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chappe.errors import ConfigError
from chappe.pipeline import network
from chappe.pipeline.job import Frames, Job, Table, parameter
from chappe.pipeline.network import Floats, Network, Ways

BYTES = "chappe_port_bytes_total"

_TEXT, _WHOLE, _NUMBER, _TRUTH = pa.string(), pa.int64(), pa.float64(), pa.bool_()
_SNAPSHOT = [pa.field("source", _TEXT, nullable=False), pa.field("window_ns", _WHOLE, nullable=False)]


def _schema(*columns: tuple[str, pa.DataType] | tuple[str, pa.DataType, bool], snapshot: bool = True) -> pa.Schema:
    fields = [pa.field(each[0], each[1], nullable=len(each) == 3 and each[2]) for each in columns]
    return pa.schema([*(_SNAPSHOT if snapshot else _SNAPSHOT[:1]), *fields])


EDGE_LOAD = _schema(
    ("node", _TEXT), ("peer", _TEXT), ("cost", _NUMBER), ("load", _NUMBER), ("pairs", _WHOLE),
    ("carried_bytes_s", _NUMBER, True), ("utilisation", _NUMBER, True), ("bridge", _TRUTH), ("slow", _TRUTH),
    ("bottleneck", _TRUTH),
)  # fmt: skip
BOTTLENECKS = _schema(
    ("kind", _TEXT), ("node", _TEXT), ("peer", _TEXT), ("snapshots", _WHOLE), ("share", _NUMBER),
    ("mean_load", _NUMBER), ("most_load", _NUMBER), ("mean_cost", _NUMBER, True), ("most_utilisation", _NUMBER, True),
    ("reasons", pa.list_(_TEXT)), snapshot=False,
)  # fmt: skip
SCENARIOS = _schema(
    ("action", _TEXT), ("node", _TEXT), ("peer", _TEXT), ("now_ms", _NUMBER), ("estimate_ms", _NUMBER, True),
    ("mean_ms", _NUMBER), ("gain_ms", _NUMBER), ("cuts", _TRUTH), ("spare", _TRUTH),
)  # fmt: skip
WHAT_IF = _schema(
    ("action", _TEXT), ("node", _TEXT), ("peer", _TEXT), ("snapshots", _WHOLE), ("of", _WHOLE), ("gain_ms", _NUMBER),
    ("gain_share", _NUMBER), ("estimate_ms", _NUMBER, True), ("advice", _TEXT), snapshot=False,
)  # fmt: skip
ALTERNATES = _schema(
    ("node", _TEXT), ("peer", _TEXT), ("way", pa.list_(_TEXT)), ("cost", _NUMBER), ("alternate", pa.list_(_TEXT)),
    ("alternate_cost", _NUMBER, True), ("price", _NUMBER, True),
)  # fmt: skip


@dataclass(frozen=True)
class Bottlenecks(Job):
    """A snapshot is the mean of what was measured in a window; snapshots and scenarios are computed side by side."""

    id: ClassVar[str] = "SJ-05"
    name: ClassVar[str] = "bottlenecks"
    line: ClassVar[str] = "edge load over snapshots, weak points, links to add or remove, alternates and their price"
    reads: ClassVar[tuple[str, ...]] = ("measurements", "counters")
    writes: ClassVar[dict[str, Table]] = {
        "edge_load": Table(EDGE_LOAD, ("source", "window_ns", "node", "peer")),
        "bottlenecks": Table(BOTTLENECKS, ("source", "kind", "node", "peer")),
        "what_if": Table(WHAT_IF, ("source", "action", "node", "peer")),
        "alternates": Table(ALTERNATES, ("source", "window_ns", "node", "peer")),
    }
    every_s: ClassVar[float] = 300.0

    window_s: float = parameter(60.0, "length of a snapshot")
    load: float = parameter(0.3, "a link that carries this share of all traffic is a bottleneck")
    slow: float = parameter(2.0, "so is a loaded one that costs so many times the median")
    utilisation: float = parameter(0.7, "or one whose measured bandwidth is used to this share")
    candidates: int = parameter(200, "links to add that are tried in each snapshot")
    direct: float = parameter(0.5, "where a new link's cost lies between the least possible (0) and today's way (1)")
    chunks: int = parameter(4, "parts into which the scenarios of a snapshot are divided")
    pairs: int = parameter(50, "most loaded links of a snapshot whose alternates are found")
    least_gain: float = parameter(0.01, "share of the mean cost that a link to add must save to be proposed")

    def __post_init__(self) -> None:
        for wrong, text in (
            (not self.window_s > 0, "window_s must be above 0"),
            (not 0 <= self.direct <= 1, f"direct = {self.direct}: must be from 0 to 1"),
            (min(self.candidates, self.chunks, self.pairs) < 1, "candidates, chunks and pairs must be 1 or more"),
        ):
            if wrong:
                raise ConfigError(f"job bottlenecks: {text}")

    def run(self, inputs: Frames, now_ns: int) -> Frames:
        arcs = self._arcs(inputs).localCheckpoint(eager=False)  # all tables come from it
        by_snapshot = arcs.groupBy("source", "window_ns")
        places = by_snapshot.applyInPandas(self._places(), from_arrow_schema(_PLACES))
        parts = arcs.withColumn("chunk", F.explode(F.sequence(F.lit(0), F.lit(self.chunks - 1))))
        scenarios = parts.groupBy("source", "window_ns", "chunk").applyInPandas(
            self._scenarios(), from_arrow_schema(SCENARIOS)
        )
        ways = by_snapshot.applyInPandas(self._alternates(), from_arrow_schema(ALTERNATES))
        return {
            "edge_load": places.where("kind = 'link'").select(*EDGE_LOAD.names),
            "bottlenecks": _over_snapshots(places),
            "what_if": self._over_time(scenarios),
            "alternates": ways,
        }

    # --- the network of each window

    def _arcs(self, inputs: Frames) -> DataFrame:
        """What was measured of each arc in each snapshot, and what went through each port (`cost` is empty there)."""
        length = round(self.window_s * 1e9)
        measured = (
            inputs["measurements"]
            .where(F.col("cost").isNotNull() & ~F.isnan("cost") & (F.col("cost") >= 0) & (F.col("cost") < 1e300))
            .where((F.col("peer") != "") & (F.col("created_ns") <= F.col("received_ns") + length))
            .repartition("source", "node", "link")  # which serves both of the following
            .dropDuplicates(["source", "node", "link", "created_ns"])
            .groupBy("source", _begin(length).alias("window_ns"), "node", "peer", "link")
            .agg(
                F.avg("cost").alias("cost"),
                F.avg(F.nanvl("bandwidth", F.lit(None).cast("double"))).alias("bandwidth"),
            )
            .drop("link")
        )  # fmt: skip
        return measured.unionByName(_rates(inputs["counters"], length), allowMissingColumns=True)

    def _places(self) -> Callable[[pd.DataFrame], pd.DataFrame]:
        most, slow, used = self.load, self.slow, self.utilisation

        def places(frame: pd.DataFrame) -> pd.DataFrame:
            """Links and nodes of a snapshot."""
            of, found, wanted = _snapshot(frame)
            load, pairs = network.loads(found, wanted)
            articulations, bridges = network.weak_points(of)
            carried, bandwidth = _carried(frame), _bandwidth(frame)
            median = float(np.median([min(of.cost[a, b], of.cost[b, a]) for a, b in of.links])) if of.links else 0.0
            rows: list[dict[str, Any]] = []
            for a, b in of.links:
                cost, both = float(min(of.cost[a, b], of.cost[b, a])), float(load[a, b] + load[b, a])
                ends = [(of.names[a], of.names[b]), (of.names[b], of.names[a])]
                went = [carried[each] for each in ends if each in carried]
                shares = [carried[each] / bandwidth[each] for each in ends if each in carried and each in bandwidth]
                share = max(shares, default=None)
                is_slow = both > 0 and cost > median and cost >= slow * median
                rows.append({
                    "kind": "link", "node": of.names[a], "peer": of.names[b], "cost": cost, "load": both,
                    "pairs": int(pairs[a, b] + pairs[b, a]), "carried_bytes_s": sum(went) if went else None,
                    "utilisation": share, "bridge": (a, b) in bridges, "slow": is_slow, "articulation": False,
                    "bottleneck": both >= most or is_slow or (share is not None and share >= used),
                })  # fmt: skip
            for at, name in enumerate(of.names):
                through = float(load[:, at].sum() - wanted[:, at].sum())  # of traffic between others
                rows.append({
                    "kind": "node", "node": name, "peer": "", "cost": None, "load": max(through, 0.0), "pairs": 0,
                    "bridge": False, "slow": False, "bottleneck": False, "articulation": at in articulations,
                })  # fmt: skip
            return _framed(frame, rows, _PLACES)

        return places

    def _scenarios(self) -> Callable[[pd.DataFrame], pd.DataFrame]:
        most, direct, chunks = self.candidates, self.direct, self.chunks

        def scenarios(frame: pd.DataFrame) -> pd.DataFrame:
            of, found, wanted = _snapshot(frame)
            mean = network.total(found, wanted)
            mine = int(frame["chunk"].iloc[0])
            tried = network.candidates(of, found, most, direct)[mine::chunks]
            rows: list[dict[str, Any]] = [
                {
                    "action": "add", "node": of.names[each.a], "peer": of.names[each.b], "now_ms": each.now,
                    "estimate_ms": each.estimate, "mean_ms": mean, "gain_ms": each.gain, "cuts": False, "spare": False,
                }
                for each in network.gains(found, wanted, tried)
            ]  # fmt: skip
            weak = len(network.weak_points(of)[1])
            for a, b in of.links[mine::chunks]:
                dearer, cut = network.loss(of, found, wanted, (a, b))
                spare = len(network.weak_points(of.without(a, b))[1]) > weak  # another link hangs on it
                rows.append({
                    "action": "remove", "node": of.names[a], "peer": of.names[b],
                    "now_ms": float(min(of.cost[a, b], of.cost[b, a])), "estimate_ms": None, "mean_ms": mean,
                    "gain_ms": -max(dearer, 0.0), "cuts": cut, "spare": spare,
                })  # fmt: skip
            return _framed(frame, rows, SCENARIOS)

        return scenarios

    def _alternates(self) -> Callable[[pd.DataFrame], pd.DataFrame]:
        most = self.pairs

        def found(frame: pd.DataFrame) -> pd.DataFrame:
            of, ways, wanted = _snapshot(frame)
            load, _ = network.loads(ways, wanted)
            loaded = sorted(of.links, key=lambda pair: (-(load[pair] + load[pair[::-1]]), pair))[:most]
            rows = [
                {
                    "node": of.names[a], "peer": of.names[b], "way": list(each.way), "cost": each.cost,
                    "alternate": list(each.second), "alternate_cost": each.second_cost if each.second else None,
                    "price": each.second_cost - each.cost if each.second else None,
                }
                for a, b, each in network.alternates(of, loaded)
            ]  # fmt: skip
            return _framed(frame, rows, ALTERNATES)

        return found

    def _over_time(self, scenarios: DataFrame) -> DataFrame:
        """Links to add and to remove over all snapshots; one that was not tried in a snapshot saves nothing there.

        A link that is there in one snapshot is none to add because it was not measured in another.
        """
        of_link = Window.partitionBy("source", "node", "peer")
        together = (
            scenarios.withColumn("of", F.size(F.collect_set("window_ns").over(Window.partitionBy("source"))))
            .withColumn("there", F.max(F.col("action") == "remove").over(of_link))
            .where(~F.col("there") | (F.col("action") == "remove"))
            .groupBy("source", "action", "node", "peer")
            .agg(
                F.count("*").alias("snapshots"), F.sum("gain_ms").alias("gained"), F.avg("mean_ms").alias("mean_ms"),
                F.avg("estimate_ms").alias("estimate_ms"), F.max("cuts").alias("cuts"), F.max("spare").alias("spare"),
                F.max("of").cast("bigint").alias("of"),
            )
            .withColumn("gain_ms", F.col("gained") / F.col("of"))
            .withColumn("gain_share", F.when(F.col("mean_ms") > 0, F.col("gain_ms") / F.col("mean_ms")).otherwise(0.0))
        )  # fmt: skip
        nothing = F.lit(-1e-6)  # rounding of sums
        advice = (
            F.when((F.col("action") == "add") & (F.col("gain_share") >= self.least_gain), "add")
            .when(F.col("action") == "add", "not worth it")
            .when(F.col("cuts"), "keep: others cannot be reached without it")
            .when(F.col("gain_ms") < nothing, "keep: ways become dearer without it")
            .when(F.col("spare"), "keep: the only way around another link")
            .otherwise("remove")
        )
        return together.withColumn("advice", advice).select(*WHAT_IF.names)


_PLACES = _schema(
    ("kind", _TEXT), *[(field.name, field.type, field.name in ("cost", "carried_bytes_s", "utilisation"))
                       for field in EDGE_LOAD if field.name not in ("source", "window_ns")], ("articulation", _TRUTH),
)  # fmt: skip


def _begin(length_ns: int) -> Column:
    return F.col("created_ns") - F.pmod(F.col("created_ns"), F.lit(length_ns))


def _rates(counters: DataFrame, length_ns: int) -> DataFrame:
    """Bytes a second through each port in each window, by the first and the last count in it."""
    return (
        counters.where(F.col("name") == BYTES)
        .withColumn("window_ns", _begin(length_ns))
        .groupBy("source", "window_ns", "node", "labels")
        .agg(
            F.max("value").alias("most"), F.min("value").alias("least"),
            F.max("created_ns").alias("last_ns"), F.min("created_ns").alias("first_ns"),
        )
        .where(F.col("last_ns") > F.col("first_ns"))
        .select(
            "source", "window_ns", "node", ((F.col("most") - F.col("least")) * 1e9
            / (F.col("last_ns") - F.col("first_ns"))).alias("rate"),
            *[_label(name).alias(as_name) for name, as_name in (("role", "role"), ("direction", "direction"),
                                                                ("link", "peer"))],
        )
    )  # fmt: skip


def _label(name: str) -> Column:
    return F.regexp_extract("labels", rf'(?:^|,){name}="((?:[^"\\]|\\.)*)"', 1)


def _snapshot(frame: pd.DataFrame) -> tuple[Network, Ways, Floats]:
    """The network of a window, its ways, and what is wanted of them."""
    arcs = frame[frame["cost"].notna()]
    of = Network.of(zip(arcs["node"], arcs["peer"], arcs["cost"], strict=True))
    clients = frame[frame["role"] == "client"]
    sent, received = (
        clients[clients["direction"] == way].groupby("node")["rate"].sum().to_dict() for way in ("in", "out")
    )
    return of, network.ways(of), network.demand(of.names, sent, received)


def _carried(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Bytes a second out of each node towards each other."""
    out = frame[(frame["role"] == "node") & (frame["direction"] == "out")]
    return {(str(a), str(b)): float(rate) for (a, b), rate in out.groupby(["node", "peer"])["rate"].sum().items()}


def _bandwidth(frame: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Bytes a second that there are, over all links of a pair."""
    known = frame[frame["bandwidth"] > 0]
    return {
        (str(a), str(b)): float(most) for (a, b), most in known.groupby(["node", "peer"])["bandwidth"].sum().items()
    }


def _framed(frame: pd.DataFrame, rows: list[dict[str, Any]], schema: pa.Schema) -> pd.DataFrame:
    at = {"source": frame["source"].iloc[0], "window_ns": int(frame["window_ns"].iloc[0])}
    made = pd.DataFrame([{**at, **row} for row in rows], columns=schema.names)
    for field in schema:  # a column of nothing but None must still be one of numbers
        if field.type == _NUMBER:
            made[field.name] = made[field.name].astype("float64")
    return made


def _over_snapshots(places: DataFrame) -> DataFrame:
    """Links that were a bottleneck or a bridge in some snapshot, and nodes that were articulations."""
    why = [(name, F.max(name)) for name in ("bottleneck", "bridge", "slow", "articulation")]
    reasons = F.array_compact(F.array(*[F.when(each, F.lit(name)) for name, each in why]))
    bad = F.when(F.col("bottleneck") | F.col("articulation"), 1.0).otherwise(0.0)
    return (
        places.groupBy("source", "kind", "node", "peer")
        .agg(
            F.count("*").alias("snapshots"), F.avg(bad).alias("share"), F.avg("load").alias("mean_load"),
            F.max("load").alias("most_load"), F.avg("cost").alias("mean_cost"),
            F.max("utilisation").alias("most_utilisation"), reasons.alias("reasons"),
        )
        .where(F.size("reasons") > 0)
        .select(*BOTTLENECKS.names)
    )  # fmt: skip
