"""Alerts: which rule, which link, since when, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chappe.pipeline.report.page import sentence, table
from chappe.pipeline.report.plot import Axis, Plot, axis
from chappe.pipeline.report.stored import Scope, Stored
from chappe.pipeline.report.ticks import SECOND_NS, moment

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("rule", "state", "link", "node", "peer", "severity", "stamp_ns", "since_ns", "text")
LANES, ROWS = 14, 40
COLOURS = {"critical": "var(--bad)", "warning": "var(--c5)", "info": "var(--c1)"}


def read(stored: Stored, scope: Scope) -> pd.DataFrame:
    """All changes of alerts in the time of the report."""
    return stored.read("alerts", "alerts", COLUMNS, scope.within("stamp_ns"))


def alerts(stored: Stored, scope: Scope) -> str:
    """When which link was in an alert, and the newest changes in words."""
    found = read(stored, scope).sort_values("stamp_ns")
    spans = spans_of(found, scope.to_ns)
    peers = {(row.link, row.node): row.peer for row in found.itertuples()}
    named = [
        (f"{rule} · {node} → {peers[link, node]}", severity, start_ns, end_ns)
        for rule, link, node, severity, start_ns, end_ns in spans
    ]
    lanes = list(dict.fromkeys(lane for lane, *_ in reversed(named)))[:LANES]
    plot = Plot(
        axis([[scope.from_ns, scope.to_ns]], "", "time"), Axis(-0.7, len(lanes) - 0.3), "Alerts over time",
        height=60 + 22 * len(lanes), scaled=False,
    )  # fmt: skip
    for lane, severity, start_ns, end_ns in named:
        if lane in lanes:
            colour = COLOURS.get(severity, COLOURS["warning"])
            told = f"{lane}: {moment(start_ns)}, {(end_ns - start_ns) / SECOND_NS:,.1f} s"
            plot.span(start_ns, end_ns, lanes.index(lane), colour, severity, told)
    for number, lane in enumerate(lanes):
        plot.label(number, lane)
    rows = [
        (moment(row.stamp_ns), row.severity, row.rule, f"{row.node} → {row.peer}", row.state, row.text)
        for row in found.tail(ROWS).iloc[::-1].itertuples()
    ]
    raised = int((found["state"] == "raised").sum())
    said = f"{raised:,} alerts were raised on {found['link'].nunique():,} links."
    more = f" The newest {ROWS} changes are listed." if len(found) > ROWS else ""
    return sentence(said + more) + plot.svg() + table(["time", "severity", "rule", "link", "", "why"], rows)


def spans_of(found: pd.DataFrame, end_ns: int) -> list[tuple[str, str, str, str, int, int]]:
    """(rule, link, node, severity, from, to) of each alert; one that is not over lasts until the end."""
    open_: dict[tuple[str, str, str], tuple[str, int]] = {}
    spans = []
    for row in found.itertuples():
        key = (row.rule, row.link, row.node)
        if row.state == "raised":
            open_[key] = (row.severity, int(row.stamp_ns))
        else:
            severity, start = open_.pop(key, (row.severity, int(row.since_ns)))
            spans.append((*key, severity, start, int(row.stamp_ns)))
    spans += [(*key, severity, start, max(end_ns, start)) for key, (severity, start) in open_.items()]
    return sorted(spans, key=lambda span: span[4])
