"""`chappe bench bandwidth`: estimates against links of known rate, on sockets and simulated (MR-136)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from bench import charts, shaped
from bench.bandwidth_runs import MBIT, WITHIN, Line, Run, in_namespaces, on_sockets, simulated
from bench.namespaces import Namespaces
from bench.progress import steps
from bench.registry import Own
from bench.report import Options, Report

RATES_MBIT = (1.0, 10.0, 100.0, 1000.0)
DELAYS_MS = (5.0, 20.0, 100.0)
SECONDS = 60.0
SHARE = 2.0  # % of the capacity
HEADROOM = 2.0  # a relay must be able to carry so many times what it shapes
QUICK = (Line(10.0, 5.0), Line(100.0, 20.0))
QUICK_S = 10.0
PACKETS_S = 45.0  # in namespaces


def run(options: Options, own: Own) -> Report:
    """The whole grid in virtual time, then between real nodes what relays can carry."""
    report = Report("bandwidth")
    grid = [Line(mbit, delay_ms) for mbit in RATES_MBIT for delay_ms in DELAYS_MS]
    limit = shaped.limit()
    report.show("the relay itself carries", limit * 8 / 1e6, "Mbit/s")
    groups = [list(QUICK)] if options.quick else _groups(grid, limit)
    obstacle = "it is a quick run" if options.quick else Namespaces.obstacle()
    packets = [] if obstacle else _groups([line for line in grid if line.mbit <= 100], limit, alone=100)
    seconds = QUICK_S if options.quick else SECONDS
    modelled, real, far = [], [], []
    with steps(options.console, "bandwidth", len(grid) + len(groups) + len(packets)) as step:
        for line in grid:
            step(f"simulated, {line}")
            modelled.append(simulated(line, SECONDS))
        for lines in groups:
            step(f"on sockets, {lines[0]}{' and more' if len(lines) > 1 else ''}")
            real += on_sockets(lines, seconds)
        for lines in packets:
            step(f"in namespaces, {lines[0]}{' and more' if len(lines) > 1 else ''}")
            far += in_namespaces(lines, PACKETS_S)
    _judge(report, "simulated", modelled, SECONDS)
    _judge(report, "on sockets", real, seconds)
    report.note(
        "on sockets: TCP through a relay on loopback with a rate, a queue of one bandwidth-delay product, a delay"
    )
    left = [line for line in grid if line not in [run.line for run in real]]
    if left and not options.quick:
        report.note(f"on sockets not measured, the relay is too slow: {'; '.join(map(str, left))}")
    if obstacle:
        report.note(f"not between network namespaces: {obstacle}")
    else:
        _judge(report, "in namespaces", far, PACKETS_S)
        report.note(
            "in namespaces: TLS between two of them; their relay loses what finds a queue full; "
            "1000 Mbit/s is not tried there; headers of packets count against the estimate"
        )
    runs = {"simulated": modelled, "sockets": real, "namespaces": far}
    report.charts = [_chart(options, where, found) for where, found in runs.items() if found]
    return report


def _groups(grid: list[Line], limit: float, alone: float = 1000) -> list[list[Line]]:
    """What is measured at the same time: slow lines together, the fastest each alone, none that no relay carries."""
    possible = [line for line in grid if line.rate * HEADROOM <= limit]
    rates = sorted({line.mbit for line in possible if 10 < line.mbit < alone})
    slow = [[line for line in possible if line.mbit <= 10]]
    return [*slow, *([line for line in possible if line.mbit == mbit] for mbit in rates)] + [
        [line] for line in possible if line.mbit >= alone
    ]


def _show(report: Report, where: str, run: Run) -> None:
    name = f"{where}, {run.line}"
    report.show(f"{name}: estimate", run.points[-1][1] / MBIT if run.points else float("nan"), "Mbit/s")
    report.show(f"{name}: right after", _finite(run.converged_s), "s")
    report.show(f"{name}: trains", 100 * run.trains, "% of capacity")
    report.show(f"{name}: all that was sent", 100 * run.share, "% of capacity")


def _judge(report: Report, where: str, runs: list[Run], seconds: float) -> None:
    for run in runs:
        _show(report, where, run)
    worst = {
        "error": max(runs, key=lambda run: _last(run.error)),
        "converged": max(runs, key=lambda run: run.converged_s),
        "share": max(runs, key=lambda run: run.trains),
    }
    run = worst["error"]
    report.compare(f"{where}, worst error ({run.line})", 100 * run.error, "%", "<=", 100 * WITHIN)
    run = worst["converged"]
    report.compare(f"{where}, longest until right ({run.line})", _finite(run.converged_s), "s", "<", SECONDS)
    run = worst["share"]
    report.compare(f"{where}, trains, most of the capacity ({run.line})", 100 * run.trains, "%", "<", SHARE)
    report.show(f"{where}: lines measured for {seconds:g} s each", len(runs), "")


def _finite(value: float) -> float:
    """What never happened has no figure."""
    return value if value < float("inf") else float("nan")


def _last(error: float) -> float:
    """No estimate at all is the worst."""
    return error if error == error else float("inf")


def _chart(options: Options, where: str, runs: list[Run]) -> Path:
    end_s = max(run.points[-1][0] for run in runs if run.points)
    lines = {f"{1 + off:g}": [(1.0, 1 + off), (end_s, 1 + off)] for off in (WITHIN, -WITHIN)}
    for run in runs:
        known = [(max(at, 0.1), estimate / run.line.rate) for at, estimate in run.points if estimate == estimate]
        new = [point for before, point in pairwise(known) if point[1] != before[1]]
        lines[str(run.line)] = [*known[:1], *new, *known[-1:]]
    path = options.charts / f"bandwidth-{where}.png"
    return charts.curves(path, f"Estimate over the true rate, {where}", "seconds", "times", lines)
