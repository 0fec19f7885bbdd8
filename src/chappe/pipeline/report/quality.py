"""Promises and how they were kept: latency percentiles by hour, and the SLA table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.pipeline.report.page import heading, sentence, table
from chappe.pipeline.report.plot import SERIES, Plot, axis
from chappe.pipeline.report.stored import Scope, Stored
from chappe.pipeline.report.ticks import number_text

if TYPE_CHECKING:
    import pandas as pd

PERCENTILES = {"latency_p50_ms": "half", "latency_p95_ms": "95 %", "latency_p99_ms": "99 %", "latency_max_ms": "all"}
ROWS = 60  # of the SLA table; broken promises come first


def percentiles(stored: Stored, scope: Scope) -> str:
    """Latency of subscriptions by hour: what half, most, nearly all and all of the values took."""
    found = stored.read("compliance", "compliance", ["hour_ns", *PERCENTILES, "bound_ms"], scope.within("hour_ns"))
    known = found.dropna(subset=list(PERCENTILES))
    if known.empty:
        return sentence("No archive hears the values of a subscription at its edge: their latencies are not known.")
    hours = known.groupby("hour_ns")
    lines = {name: hours[name].max() if name == "latency_max_ms" else hours[name].median() for name in PERCENTILES}
    bounds = hours["bound_ms"].min().dropna()
    plot = Plot(
        axis([list(known["hour_ns"])], "", "time"),
        axis([*(list(line) for line in lines.values()), list(bounds)], "ms", "log"),
        "Latency percentiles of subscriptions by hour",
    )
    for (name, line), colour in zip(lines.items(), SERIES, strict=False):
        _drawn(plot, line, colour, f"{PERCENTILES[name]} of the values")
    if len(bounds):
        plot.line(list(bounds.index), list(bounds), "var(--bad)", "least bound promised", dashed=True)
    return plot.svg()


def sla(stored: Stored, _: Scope) -> str:
    """Each promise to each subscription, broken ones first."""
    names = ["entity", "subject", "mode", "promise", "promised", "measured", "unit", "share", "kept", "evidence"]
    found = stored.read("sla", "compliance", names)
    told = found["kept"].map({True: 2, False: 0}).fillna(1)  # broken, not known, kept
    ordered = found.assign(order=told).sort_values(["order", "share", "entity", "subject"])
    kept, broken = int((told == 2).sum()), int((told == 0).sum())
    unknown = len(found) - kept - broken
    rows = [
        (
            row.entity, row.subject, str(row.mode), row.promise, f"{number_text(row.promised)} {row.unit}",
            "not known" if row.measured != row.measured else f"{number_text(row.measured)} {row.unit}",
            None if row.share != row.share else f"{row.share:.3%}",
            bool(row.kept) if row.kept in (True, False) else "no evidence", row.evidence,
        )
        for row in ordered.head(ROWS).itertuples()
    ]  # fmt: skip
    said = f"{kept:,} promises kept, {broken:,} missed, {unknown:,} without evidence."
    more = f" The first {ROWS:,} of {len(found):,} are listed." if len(found) > ROWS else ""
    columns = ["subscriber", "variable", "mode", "promise", "promised", "measured", "share", "", "evidence"]
    return sentence(said + more) + table(columns, rows)


def lossy(stored: Stored, scope: Scope) -> str:
    """Channels that lost values, from the counters of both ends."""
    names = ["from_node", "to_node", "hour_ns", "sent", "received", "dropped", "loss"]
    found = stored.read("segments", "compliance", names, scope.within("hour_ns"))
    sums = found.groupby(["from_node", "to_node"], as_index=False)[["sent", "received", "dropped"]].sum()
    sums = sums.assign(worst=found.groupby(["from_node", "to_node"])["loss"].max().to_numpy())
    worst = sums.sort_values("worst", ascending=False).head(12)
    rows = [
        (f"{row.from_node} → {row.to_node}", int(row.sent), int(row.received), int(row.dropped),
         None if row.worst != row.worst else float(row.worst * 100))
        for row in worst.itertuples()
    ]  # fmt: skip
    return heading("Channels that lose most") + table(
        ["channel", "sent", "received", "dropped", "worst hour, % lost"], rows
    )


def _drawn(plot: Plot, line: pd.Series, colour: str, label: str) -> None:
    if len(line) == 1:  # a line needs two
        plot.points(list(line.index), list(line), colour, label)
    else:
        plot.line(list(line.index), list(line), colour, label)
