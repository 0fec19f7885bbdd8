"""Spaces of states: which values of a peer are its state, how they are scaled, and what a window of them shows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from chappe.errors import ConfigError
from chappe.pipeline import curve, density, regions
from chappe.pipeline.curve import Arcs
from chappe.pipeline.density import ALONE, BITS, EXTENT, Floats, Numbers, Rule

FEEDS = ("measurements", "counters", "status")
MEASURED = ("latency_ms", "deviation_ms", "jitter_ms", "jitter", "loss", "bandwidth", "cost", "outliers", "window")
RULES = ("cells", "regions")
EXAMPLE = "links = measurements: latency_ms 0.01 1000 log, jitter 0 2"
SAMPLES = ("peer", "attribute", "labels", "created_ns", "value")
TOTAL = "_total"  # a counter that only grows: its rate is the state
MOST_DIMENSIONS = curve.MOST_BITS // BITS

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_NOT_IN_TOPIC = re.compile(r"[+#\s\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One value of a state, from `low` to `high`; what lies outside is at the border."""

    name: str
    low: float
    high: float
    log: bool = False

    def scaled(self, values: ArrayLike) -> Floats:
        """From 0 to the extent of a space."""
        low, high, given = self._measured(self.low), self._measured(self.high), self._measured(values)
        share = (given - low) / (high - low)
        return np.clip(share * EXTENT, 0.0, np.nextafter(EXTENT, 0.0))

    def value(self, scaled: ArrayLike) -> Floats:
        """The value at a place."""
        low, high = self._measured(self.low), self._measured(self.high)
        plain = low + np.asarray(scaled, dtype=np.float64) / EXTENT * (high - low)
        return np.exp(plain) if self.log else plain

    def _measured(self, values: ArrayLike) -> Floats:
        given = np.asarray(values, dtype=np.float64)
        return np.log(np.maximum(given, self.low)) if self.log else given


@dataclass(frozen=True, slots=True)
class Space:
    """States of peers: links for measurements, nodes for counters, publishers for status."""

    name: str
    feed: str
    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.dimensions]


def spaces(text: str) -> list[Space]:
    """Spaces from `NAME = FEED: VALUE LOW HIGH [log], …; …`; ConfigError says what is wrong with which."""
    found = [_space(part.strip()) for part in text.split(";") if part.strip()]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"space {name!r}: is there twice")
    return found


def _space(text: str) -> Space:
    head, equals, rest = text.partition("=")
    feed, colon, listed = rest.partition(":")
    name, feed = head.strip(), feed.strip()
    if not equals or not colon or not _NAME.fullmatch(name):
        raise ConfigError(f"space {text!r}: write NAME = FEED: VALUE LOW HIGH, …, like {EXAMPLE!r}")
    if feed not in FEEDS:
        raise ConfigError(f"space {name!r}: no feed {feed!r}; give one of {', '.join(FEEDS)}")
    dimensions = tuple(_dimension(name, part.strip()) for part in listed.split(","))
    if len(dimensions) > MOST_DIMENSIONS:
        raise ConfigError(f"space {name!r}: has {len(dimensions)} dimensions, the most is {MOST_DIMENSIONS}")
    for dimension in dimensions:
        if feed == "measurements" and dimension.name not in MEASURED:
            raise ConfigError(f"space {name!r}: measurements have no {dimension.name!r} but {', '.join(MEASURED)}")
        if [each.name for each in dimensions].count(dimension.name) > 1:
            raise ConfigError(f"space {name!r}: {dimension.name!r} is there twice")
    return Space(name, feed, dimensions)


def _dimension(space: str, text: str) -> Dimension:
    words = text.split()
    try:
        name, low, high = words[0], float(words[1]), float(words[2])
    except (IndexError, ValueError):
        raise ConfigError(f"space {space!r}: {text!r}: write VALUE LOW HIGH, like 'latency_ms 0 100'") from None
    if words[3:] not in ([], ["log"]):
        raise ConfigError(f"space {space!r}: {text!r}: after LOW and HIGH only 'log' may follow")
    log = len(words) == 4
    if not (np.isfinite(low) and np.isfinite(high) and low < high) or (log and low <= 0):
        bound = "above 0 and " if log else ""
        raise ConfigError(f"space {space!r}: {text!r}: LOW must be {bound}below HIGH")
    return Dimension(name, low, high, log)


def states(samples: pd.DataFrame, space: Space, period_ns: int) -> pd.DataFrame:
    """The state of each peer in each period: the last of each value, where all are known.

    `samples` has the columns SAMPLES. Values of the same peer and time with different labels are added up.
    """
    rows = samples[samples["attribute"].isin(space.names)]
    rows = rows[np.isfinite(rows["value"].to_numpy(dtype=np.float64, na_value=np.nan))]
    rows = rows.drop_duplicates(["peer", "attribute", "labels", "created_ns"]).sort_values("created_ns", kind="stable")
    grows = rows["attribute"].str.endswith(TOTAL)
    if grows.any():
        rows = pd.concat([rows[~grows], _rates(rows[grows])]).sort_values("created_ns", kind="stable")
    summed = rows.groupby(["peer", "attribute", "created_ns"], sort=False, as_index=False)["value"].sum()
    summed = summed.assign(slot=summed["created_ns"] // period_ns).sort_values("created_ns", kind="stable")
    last = summed.groupby(["peer", "slot", "attribute"], as_index=False).last()
    if last.empty:
        return pd.DataFrame(columns=["peer", "created_ns", *space.names])
    values = last.pivot(index=["peer", "slot"], columns="attribute", values="value")
    stamps = last.groupby(["peer", "slot"])["created_ns"].max().rename("created_ns")
    whole = values.reindex(columns=space.names).dropna().join(stamps).reset_index()
    return whole[["peer", "created_ns", *space.names]].sort_values(["peer", "created_ns"], ignore_index=True)


def _rates(rows: pd.DataFrame) -> pd.DataFrame:
    """Counters as rates a second; one that began anew says nothing about the time in between."""
    by = rows.groupby(["peer", "attribute", "labels"], sort=False)
    more, passed = by["value"].diff(), by["created_ns"].diff()
    known = (more >= 0) & (passed > 0)
    return rows[known].assign(value=more[known] / (passed[known] / 1e9))


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a window of one space shows, as rows."""

    centroids: list[dict[str, Any]]
    outliers: list[dict[str, Any]]


def analyse(found: pd.DataFrame, space: Space, rule: Rule, by: str = "cells") -> Analysis:
    """Centroids and outliers among states (of `states`), by our rule or by the source's (`regions`)."""
    if found.empty:
        return Analysis([], [])
    where = np.stack([each.scaled(found[each.name]) for each in space.dimensions], axis=1)
    peer, names = pd.factorize(found["peer"])
    arcs = Arcs.equal(min(len(names), 1 << BITS), 1 << BITS * len(space.dimensions))
    region = arcs.owner(curve.indices(regions.cell(where), BITS))
    verdict = density.judge(where, peer, rule)
    cluster = verdict.cluster
    if by == "regions":
        literal = regions.by_regions(where, arcs, regions.Thresholds(reach=rule.reach, least=rule.least))
        cluster = np.where(literal.alone, ALONE, _nearest(where, literal.centroids))
    centroids = density.centroids(where, cluster, rule.reach)
    places = _original(centroids.where, space)
    own = Arcs.owner(arcs, curve.indices(regions.cell(centroids.where), BITS)) if len(places) else region[:0]
    listed = [
        {"cluster": int(number), "position": place, "states": int(weight), "radius": float(radius), "region": int(at)}
        for number, place, weight, radius, at in zip(
            centroids.cluster, places, centroids.weight, centroids.radius, own, strict=True
        )
    ]
    return Analysis(listed, _outliers(found, where, cluster, verdict, region, arcs, space))


def _outliers(
    found: pd.DataFrame, where: Floats, cluster: Numbers, verdict: density.Verdict, region: Numbers, arcs: Arcs,
    space: Space,
) -> list[dict[str, Any]]:  # fmt: skip
    """One row for each peer with states that stand alone: the last of them."""
    alone = np.flatnonzero(cluster == ALONE)
    if not len(alone):
        return []
    rows = found.iloc[alone].assign(at=alone)
    last = rows.sort_values("created_ns", kind="stable").groupby("peer", sort=True)["at"].agg(["last", "size"])
    inside = np.bincount(region, minlength=len(arcs))
    listed = []
    for name, at, count in zip(last.index, last["last"], last["size"], strict=True):
        owner = int(region[at])
        listed.append({
            "peer": str(name), "created_ns": int(found["created_ns"].iloc[at]), "states": int(count),
            "position": [float(found[each].iloc[at]) for each in space.names], "near": int(verdict.near[at]),
            "needed": verdict.needed, "expected": verdict.expected, "region": owner,
            "region_states": int(inside[owner]), "region_expected": float(len(where) * arcs.shares[owner]),
        })  # fmt: skip
    return listed


def _nearest(where: Floats, centroids: Floats) -> Numbers:
    """The cluster of each point by the nearest centroid; centroids within reach of none are one cluster each."""
    if not len(centroids):
        return np.full(len(where), ALONE, dtype=np.int64)
    return np.array([int(np.argmin(((centroids - each) ** 2).sum(axis=1))) for each in where], dtype=np.int64)


def _original(where: Floats, space: Space) -> list[list[float]]:
    return [
        [float(each.value(at)) for each, at in zip(space.dimensions, place, strict=True)] for place in where.tolist()
    ]


def level(text: str) -> str:
    """A text as levels of a topic: what no topic may contain is `_` there."""
    return "/".join(_NOT_IN_TOPIC.sub("_", part) or "_" for part in text.split("/"))


def body(row: dict[str, Any], **more: Any) -> str:
    """A row as the JSON body of an event; keys in order, so that the same row is the same text."""
    return json.dumps({**more, **row}, sort_keys=True, allow_nan=False)
