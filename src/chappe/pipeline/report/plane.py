"""Anomalies in the plane: where the states of peers gather, who stands alone, and values that were forged."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from chappe.pipeline.report.page import heading, sentence, table
from chappe.pipeline.report.plot import Axis, Plot, axis
from chappe.pipeline.report.stored import Lacking, Scope, Stored
from chappe.pipeline.report.ticks import moment, number_text

if TYPE_CHECKING:
    import pandas as pd

SPACES, POINTS, ROWS = 4, 600, 30
_WIDE = 100  # an axis over more than so many times its least value is logarithmic


def anomalies(stored: Stored, scope: Scope) -> str:
    """A plot for each space of states, by its first two dimensions."""
    names = ["space", "window_ns", "dimensions", "position", "states"]
    within = scope.within("window_ns")
    centroids = _or_none(stored, "centroids", [*names, "radius", "peers"], within)
    outliers = _or_none(stored, "outliers", [*names, "peer", "created_ns", "near", "needed"], within)
    found = [each for each in (centroids, outliers) if each is not None]
    if not found:
        raise Lacking("There are no tables centroids and outliers yet: chappe pipeline run anomalies")
    spaces = list(dict.fromkeys(name for each in found for name in each["space"]))[:SPACES]
    drawn = "".join(_space(name, _of(centroids, name), _of(outliers, name)) for name in spaces)
    return drawn + (_listed(outliers) if outliers is not None else sentence("No peer stood alone."))


def forgeries(stored: Stored, scope: Scope) -> str:
    """Values whose stamps or ids cannot be right."""
    names = ["kind", "dataset", "subject", "window_ns", "count", "of", "reason"]
    found = stored.read("forgeries", "anomalies", names, scope.within("window_ns"))
    worst = found.sort_values("count", ascending=False).head(ROWS)
    rows = [
        (moment(row.window_ns), row.kind.replace("_", " "), row.subject, int(row.count), int(row.of), row.reason)
        for row in worst.itertuples(name="Forgery")
    ]
    columns = ["window", "kind", "subject", "values", "of", "why"]
    return heading("Values that cannot be right") + table(columns, rows)


def _or_none(stored: Stored, name: str, columns: list[str], where: object) -> pd.DataFrame | None:
    try:
        return stored.read(name, "anomalies", columns, where)
    except Lacking:
        return None


def _of(rows: pd.DataFrame | None, space: str) -> pd.DataFrame | None:
    if rows is None:
        return None
    return rows[rows["space"] == space].sort_values("window_ns").tail(POINTS)


def _space(name: str, centroids: pd.DataFrame | None, outliers: pd.DataFrame | None) -> str:
    known = [each for each in (centroids, outliers) if each is not None and len(each)]
    dimensions = list(known[0]["dimensions"].iloc[0])
    places = [np.array(each["position"].tolist(), float).reshape(len(each), -1) for each in known]
    flat = len(dimensions) == 1  # one value: against time
    across = np.concatenate([_times(each) if flat else place[:, 0] for each, place in zip(known, places, strict=True)])
    up = np.concatenate([place[:, 0 if flat else 1] for place in places])
    plot = Plot(
        axis([across], "", "time") if flat else _spread(across, dimensions[0]),
        _spread(up, dimensions[0] if flat else dimensions[1]),
        f"States of {name}: centroids and outliers",
    )
    for rows, place in zip(known, places, strict=True):
        xs, ys = (_times(rows), place[:, 0]) if flat else (place[:, 0], place[:, 1])
        if "peer" in rows.columns:
            told = [f"{row.peer}: {_values(row)}; {row.near} near it, {row.needed} needed" for row in rows.itertuples()]
            plot.points(xs, ys, "var(--bad)", "stands alone", told, 4)
        else:
            told = [f"{_values(row)}: {row.states} states of {row.peers} peers" for row in rows.itertuples()]
            for size in sorted({_radius(row.states) for row in rows.itertuples()}):
                chosen = [at for at, row in enumerate(rows.itertuples()) if _radius(row.states) == size]
                plot.points(
                    xs[chosen], ys[chosen], "var(--c1)", "where states gather", [told[at] for at in chosen], size
                )
    more = f" ({len(dimensions)} dimensions, the first two are drawn)" if len(dimensions) > 2 else ""
    return heading(f"{name}{more}") + plot.svg()


def _listed(outliers: pd.DataFrame) -> str:
    newest = outliers.sort_values("created_ns", ascending=False).head(ROWS)
    rows = [
        (moment(row.created_ns), row.space, row.peer, _values(row), int(row.near), int(row.needed))
        for row in newest.itertuples()
    ]
    return table(["time", "space", "peer", "state", "near it", "needed"], rows)


def _spread(values: np.ndarray, label: str) -> Axis:
    positive = values[values > 0]
    wide = len(positive) == len(values) and len(values) > 0 and positive.max() > _WIDE * positive.min()
    return axis([values], label, "log" if wide else "number")


def _times(rows: pd.DataFrame) -> np.ndarray:
    return np.asarray(rows["window_ns"], float)


def _values(row: Any) -> str:
    pairs = zip(row.dimensions, row.position, strict=True)
    return ", ".join(f"{name} {number_text(float(value))}" for name, value in pairs)


def _radius(states: float) -> float:
    return min(14.0, 3.0 + round(math.log2(max(states, 1.0))))
