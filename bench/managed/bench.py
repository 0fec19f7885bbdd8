"""The figures of a managed run against their bars."""

from __future__ import annotations

import gc
import logging
import secrets
from pathlib import Path

import numpy as np
import structlog

from bench import charts
from bench.managed.course import Course, Outcome
from bench.progress import spans
from bench.registry import ManagedOptions
from bench.report import Options, Report
from chappe.errors import ConfigError

SECONDS = 600.0
QUICK_S = 80.0


def run(options: Options, own: ManagedOptions) -> Report:
    """A tree of brokers over that many simulated routers, under failures."""
    if not 20 <= own.nodes <= 5_000:
        raise ConfigError(f"--nodes {own.nodes}: 20 to 5,000 can be simulated")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seed = secrets.randbelow(1 << 32) if own.seed is None else own.seed
    seconds = own.seconds or (QUICK_S if options.quick else SECONDS)
    how = f"--nodes {own.nodes}{' --quick' if options.quick else ''}"
    how += f" --seconds {own.seconds:g}" if own.seconds else ""
    options.console.print(f"seed {seed}: `chappe bench managed {how} --seed {seed}` replays this run", highlight=False)
    gc.collect()
    gc.disable()  # a thousand routers are looked through again and again otherwise
    try:
        with spans(options.console, f"{own.nodes} routers", seconds) as say:
            outcome = Course(own.nodes, seed, seconds, say).run()
    finally:
        gc.unfreeze()
        gc.enable()
    report = Report("managed")
    _judge(report, outcome, seed)
    if outcome.outages_s:
        report.charts = [_chart(options.charts, outcome)]
    return report


def _judge(report: Report, outcome: Outcome, seed: int) -> None:
    report.note(f"seed {seed}")
    report.show("routers", outcome.nodes, "")
    report.show("virtual time", outcome.virtual_s, "s")
    report.show("CPU time", outcome.cpu_s, "s")
    report.show("time spent in brokers", outcome.broker_s, "s")
    report.show("CPU time until all subscriptions were answered", outcome.admission_s, "s")
    report.show("messages between brokers and routers", outcome.messages, "")
    report.show("events delivered", outcome.arrivals, "")
    report.show("channels that failed", outcome.channels_failed, "")
    report.show("routers that failed", outcome.routers_failed, "")
    report.show("subscriptions asked for", outcome.wanted, "")
    report.show("subscriptions granted", outcome.granted, "")
    for code, count in sorted(outcome.refusals.items()):
        report.show(f"subscriptions refused: {code}", count, "")
    report.show("paths in the largest table", outcome.table, "")
    report.show("fullest channel, by tables", 100 * outcome.fullest, "% of its capacity")
    report.show("busiest channel, by events in 40 s", 100 * outcome.busiest, "% of its capacity")
    report.show("streams interrupted for longer than their interval", outcome.holes, "times")
    if outcome.outages_s:
        for share in (0.5, 0.9, 0.99, 1.0):
            report.show(f"time to restore, {share:.0%}", float(np.quantile(outcome.outages_s, share)), "s")
    for text in outcome.mode_answers:
        report.note(text)
    report.show("events that waited for a channel or subscriber to come back", outcome.held, "")
    for texts in (outcome.late, outcome.broken, outcome.not_restored, outcome.measured_over, outcome.failures):
        for text in texts[:3]:
            report.note(text)
    report.compare("subscriptions granted", outcome.granted, "", ">=", 0.5 * outcome.wanted)
    report.compare("events beyond their latency though a path was whole", len(outcome.late), "", "==", 0)
    report.compare("streams interrupted though a path was whole", len(outcome.broken), "", "==", 0)
    report.compare("subscriptions neither restored nor refused with a reason",
                   len(outcome.not_restored) + outcome.unexplained, "", "==", 0)  # fmt: skip
    report.compare("channels beyond their capacity, by tables", len(outcome.overloads), "", "==", 0)
    report.compare("channels beyond their capacity, by events", len(outcome.measured_over), "", "==", 0)
    report.compare("granted paths that are not disjoint", outcome.shared, "", "==", 0)
    report.compare("mode changes answered", len(outcome.mode_answers), "", "==", 2)
    report.compare("broker fail-overs", float(outcome.failed_over), "", "==", 1)
    report.compare("entries left in tables after removal", outcome.entries_left, "", "==", 0)
    report.compare("items left in stores after removal", outcome.items_left, "", "==", 0)
    report.compare("defects and refused connections", len(outcome.failures), "", "==", 0)
    report.compare("CPU time", outcome.cpu_s / 60, "min", "<=", 30)


def _chart(folder: Path, outcome: Outcome) -> Path:
    ordered = sorted(max(each, 0.01) for each in outcome.outages_s)
    points = [(took, 1 - at / len(ordered)) for at, took in enumerate(ordered)]
    title = f"How long streams were interrupted, {outcome.nodes} routers"
    return charts.curves(folder / "managed-outages.png", title, "seconds", "share that took longer",
                         {"both paths failed": points})  # fmt: skip
