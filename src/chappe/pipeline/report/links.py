"""Links over time: what was expected and what is forecast, percentiles over all links, hours of the week."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.dataset as ds

from chappe.pipeline.report import alerted
from chappe.pipeline.report.page import heading, sentence, table
from chappe.pipeline.report.pictures import heat
from chappe.pipeline.report.plot import SERIES, Axis, Plot, axis
from chappe.pipeline.report.stored import Lacking, Scope, Stored
from chappe.pipeline.report.ticks import SECOND_NS, moment

if TYPE_CHECKING:
    import pandas as pd

HOUR_NS = 3_600_000_000_000
MONDAY_NS = 4 * 24 * HOUR_NS  # the first Monday after 1970 began
EACH_NS = 2 * HOUR_NS  # of so long every measurement is drawn,
FINE_NS = 36 * HOUR_NS  # of so long minutes, of more hours
_VALUES = ("link", "node", "peer", "latency_ms", "deviation_ms", "cost")
_STEPS_OF_TIME = 200
_STEPS = (1, 2, 4, 8, 16, 24)
_END = ["link", "node"]  # both ends of a link measure it


def history(stored: Stored, scope: Scope) -> str:
    """The links with alerts, and then the dearest: each in a plot of its own."""
    found = _series(stored, scope)
    changes = _optional(stored, "alerts", "alerts", alerted.COLUMNS, scope.within("stamp_ns"))
    chosen = _chosen(found, changes, scope.links)
    drawn = [_history(stored, scope, found, changes, link, node) for link, node in chosen]
    ends = len(found.groupby(_END))
    said = f"{len(chosen)} of {ends:,} ends of links: those with alerts first, then the dearest."
    return sentence(said) + "".join(drawn) + _errors(stored)


def percentiles(stored: Stored, scope: Scope) -> str:
    """What the links of the network measured together: half of them are below the first line, and so on."""
    found = _series(stored, scope).dropna(subset=["latency_ms"])
    step = max(SECOND_NS, (scope.to_ns - scope.from_ns) // _STEPS_OF_TIME)
    by_time = found.groupby(found["start_ns"] // step * step)["latency_ms"]
    lines = {"half of the links": 0.5, "90 %": 0.9, "99 %": 0.99, "all": 1.0}
    values = {label: by_time.quantile(share) for label, share in lines.items()}
    plot = Plot(
        axis([[scope.from_ns, scope.to_ns]], "", "time"),
        axis([line.to_numpy() for line in values.values()], "ms", "log"),
        "Percentiles of the latency of all links over time",
    )
    for (label, line), colour in zip(values.items(), SERIES, strict=False):
        _line(plot, line.index.to_numpy(), line.to_numpy(), colour, label)
    _marked(plot, scope)
    return heading("Measured on links") + plot.svg()


def week(stored: Stored, scope: Scope) -> str:
    """The mean latency of all links by hour of the week, each link against its own mean: no link outweighs others."""
    found = _statistics(stored, Scope(0, scope.to_ns), "hour").dropna(subset=["latency_ms"])
    usual = found.groupby(_END)["latency_ms"].transform("mean")
    share = (found["latency_ms"] / usual.where(usual > 0)).rename("share")
    hour = ((found["start_ns"] - MONDAY_NS) // HOUR_NS % 168).astype(int)
    means = share.groupby(hour).mean()
    values = np.full(168, np.nan)
    values[means.index.to_numpy(int)] = means.to_numpy(float)
    said = f"Latency of {found.groupby(_END).ngroups:,} ends of links as a share of each one's own mean."
    return sentence(said) + heat(values.reshape(7, 24), "Latency by hour of the week", "of the mean")


def _series(stored: Stored, scope: Scope) -> pd.DataFrame:
    """Latency and cost of links over time: every measurement of some hours, minutes of some days, else hours."""
    span = scope.to_ns - scope.from_ns
    if span <= EACH_NS and stored.exists("measurements"):
        columns = ("created_ns", *_VALUES)
        found = stored.read("measurements", "ingest", columns, scope.within("created_ns"))
        return found.rename(columns={"created_ns": "start_ns"})
    return _statistics(stored, scope, "minute" if span <= FINE_NS else "hour")


def _statistics(stored: Stored, scope: Scope, period: str) -> pd.DataFrame:
    where = scope.within("start_ns") & (ds.field("period") == period)
    return stored.read("link_statistics", "links", ("start_ns", *_VALUES), where)


def _marked(plot: Plot, scope: Scope) -> None:
    for at_ns, text in scope.marks:
        if plot.across.low <= at_ns <= plot.across.high:
            plot.moments([at_ns], "var(--ink)", text, [f"{text}: {moment(at_ns)}"])


def _optional(
    stored: Stored, name: str, job: str, columns: tuple[str, ...], where: ds.Expression | None
) -> pd.DataFrame | None:
    try:
        return stored.read(name, job, columns, where)
    except Lacking:
        return None


def _chosen(found: pd.DataFrame, changes: pd.DataFrame | None, count: int) -> list[tuple[str, str]]:
    costs = found.groupby(_END)["cost"].max().sort_values(ascending=False)
    told = [] if changes is None else list(dict.fromkeys(zip(changes["link"], changes["node"], strict=True)))
    known = [end for end in told if end in costs.index]
    return list(dict.fromkeys([*known, *costs.index]))[:count]


def _history(
    stored: Stored, scope: Scope, found: pd.DataFrame, changes: pd.DataFrame | None, link: str, node: str
) -> str:
    rows = found[(found["link"] == link) & (found["node"] == node)].sort_values("start_ns")
    own = (ds.field("link") == link) & (ds.field("node") == node)
    baseline = _optional(stored, "baselines", "forecast", ("hour", "latency_ms", "spread_ms"), own)
    ahead = _optional(stored, "forecasts", "forecast", ("start_ns", "latency_ms", "low_ms", "high_ms"), own)
    at, latency, off = (rows[name].to_numpy(float) for name in ("start_ns", "latency_ms", "deviation_ms"))
    off = np.nan_to_num(off)
    up, across = [latency + off, latency - off], [at]
    expected = _expected(baseline, scope) if baseline is not None else np.empty((0, 4))
    later = ahead.sort_values("start_ns").to_numpy(float) if ahead is not None else np.empty((0, 4))
    for part in (expected, later):
        across.append(part[:, 0])
        up += [part[:, 2], part[:, 3]]
    peer = rows["peer"].iloc[0]
    plot = Plot(
        axis(across, "", "time"), _from_zero(axis(up, "ms", zero=True)), f"Latency of the link {link} seen by {node}"
    )
    plot.band(expected[:, 0], expected[:, 2], expected[:, 3], SERIES[2], "usual at this hour of the week")
    plot.line(expected[:, 0], expected[:, 1], SERIES[2], "baseline", dashed=True)
    plot.band(at, latency - off, latency + off, SERIES[0])
    _line(plot, at, latency, SERIES[0], "mean latency ± deviation")
    plot.band(later[:, 0], later[:, 2], later[:, 3], SERIES[3], "forecast band")
    plot.line(later[:, 0], later[:, 1], SERIES[3], "forecast", dashed=True)
    for state, colour in (("raised", "var(--bad)"), ("cleared", "var(--good)")):
        times, told = _moments(changes, link, node, state)
        plot.moments(times, colour, f"alert {state}", told)
    _marked(plot, scope)
    return heading(f"{node} → {peer}") + plot.svg()


def _errors(stored: Stored) -> str:
    """How far off forecasts were, beside the simplest ones."""
    names = ("step", "judged", "error_ms", "naive_ms", "seasonal_ms")
    found = _optional(stored, "forecast_errors", "forecast", names, None)
    if found is None:
        return sentence("There are no forecasts yet: chappe pipeline run forecast")
    means = found.groupby("step", as_index=False)[["judged", "error_ms", "naive_ms", "seasonal_ms"]].mean()
    rows = [
        (int(row.step), float(row.error_ms), float(row.naive_ms), float(row.seasonal_ms),
         float(100 * (1 - row.error_ms / row.naive_ms)) if row.naive_ms else None)
        for row in means[means["step"].isin(_STEPS)].itertuples()
    ]  # fmt: skip
    columns = ["intervals ahead", "off by, ms", "last value, ms", "a day before, ms", "better than the last, %"]
    return heading("Mean error of forecasts over all links") + table(columns, rows)


def _moments(changes: pd.DataFrame | None, link: str, node: str, state: str) -> tuple[list[float], list[str]]:
    if changes is None:
        return [], []
    chosen = changes[(changes["link"] == link) & (changes["node"] == node) & (changes["state"] == state)]
    return list(chosen["stamp_ns"]), [f"{row.rule} {state}: {moment(row.stamp_ns)}" for row in chosen.itertuples()]


def _expected(baseline: pd.DataFrame, scope: Scope) -> np.ndarray:
    """Time, value, low and high of the baseline in every hour of the report."""
    by_hour = {
        int(hour): (usual, usual - spread, usual + spread) for hour, usual, spread in baseline.to_numpy(float).tolist()
    }
    return np.array(list(_hours(by_hour, scope)), float).reshape(-1, 4)


def _hours(by_hour: dict[int, tuple[float, float, float]], scope: Scope) -> Iterator[tuple[float, ...]]:
    first, last = scope.from_ns // HOUR_NS, scope.to_ns // HOUR_NS + 1
    for hour in range(int(first), int(last) + 1):
        known = by_hour.get(int((hour * HOUR_NS - MONDAY_NS) // HOUR_NS % 168))
        if known is not None:
            yield (float(hour * HOUR_NS), *known)


def _from_zero(given: Axis) -> Axis:
    """No latency is below zero, even where a band reaches there."""
    return Axis(0.0, given.high, given.label, given.kind)


def _line(plot: Plot, xs: np.ndarray, ys: np.ndarray, colour: str, label: str) -> None:
    """A line, or dots where there are too few points for one."""
    if len(xs) < 3:
        plot.points(xs, ys, colour, label)
    else:
        plot.line(xs, ys, colour, label)
