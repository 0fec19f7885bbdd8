"""`chappe bench bandwidth`: estimates against links of known rate, on sockets and simulated (MR-136)."""

from __future__ import annotations

from pathlib import Path

from chappe.bench import charts, shaped
from chappe.bench.bandwidth_runs import MBIT, WITHIN, Line, Run, on_sockets, simulated
from chappe.bench.report import Options, Report
from chappe.bench.steps import steps

RATES_MBIT = (1.0, 10.0, 100.0, 1000.0)
DELAYS_MS = (5.0, 20.0, 100.0)
SECONDS = 60.0
SHARE = 2.0  # % of the capacity
HEADROOM = 2.0  # a relay must be able to carry so many times what it shapes
QUICK = (Line(10.0, 5.0), Line(100.0, 20.0))
QUICK_S = 12.0


def run(options: Options) -> Report:
    """The whole grid in virtual time, then between real nodes what the relay can carry."""
    report = Report("bandwidth")
    grid = [Line(mbit, delay_ms) for mbit in RATES_MBIT for delay_ms in DELAYS_MS]
    limit = shaped.limit()
    report.show("the relay itself carries", limit * 8 / 1e6, "Mbit/s")
    groups = _groups(grid, limit) if not options.quick else [list(QUICK)]
    seconds = QUICK_S if options.quick else SECONDS
    modelled, real = [], []
    with steps(options.console, "bandwidth", len(grid) + len(groups)) as step:
        for line in grid:
            step(f"simulated, {line}")
            modelled.append(simulated(line, SECONDS))
        for lines in groups:
            step(f"on sockets, {lines[0]}{' and more' if len(lines) > 1 else ''}")
            real += on_sockets(lines, seconds)
    for run in modelled:
        _show(report, "simulated", run)
    for run in real:
        _show(report, "on sockets", run)
    left = [line for line in grid if line not in [run.line for run in real]]
    if left and not options.quick:
        report.note(f"on sockets not measured, the relay is too slow: {'; '.join(map(str, left))}")
    report.note(
        f"on sockets: two nodes through a relay with that rate, a queue of one bandwidth-delay product and the delay; "
        f"{seconds:g} s each; a fifth counts as right"
    )
    _judge(report, "simulated", modelled, SECONDS)
    _judge(report, "on sockets", real, seconds)
    report.charts = [_chart(options, where, runs) for where, runs in (("simulated", modelled), ("sockets", real))]
    return report


def _groups(grid: list[Line], limit: float) -> list[list[Line]]:
    """What is measured at the same time: slow lines together, the fastest each alone."""
    fast = [line for line in grid if line.mbit > 100 and line.rate * HEADROOM <= limit]
    groups = [[line for line in grid if line.mbit < 100], [line for line in grid if line.mbit == 100]]
    return [*groups, *([line] for line in fast)]


def _show(report: Report, where: str, run: Run) -> None:
    name = f"{where}, {run.line}"
    report.show(f"{name}: estimate", run.points[-1][1] / MBIT if run.points else float("nan"), "Mbit/s")
    report.show(f"{name}: right after", _finite(run.converged_s), "s")
    report.show(f"{name}: trains", 100 * run.trains, "% of capacity")


def _judge(report: Report, where: str, runs: list[Run], seconds: float) -> None:
    worst = {
        "error": max(runs, key=lambda run: _last(run.error)),
        "converged": max(runs, key=lambda run: run.converged_s),
        "share": max(runs, key=lambda run: run.share),
    }
    run = worst["error"]
    report.compare(f"{where}, worst error ({run.line})", 100 * run.error, "%", "<=", 100 * WITHIN)
    run = worst["converged"]
    report.compare(f"{where}, longest until right ({run.line})", _finite(run.converged_s), "s", "<", SECONDS)
    run = worst["share"]
    report.compare(f"{where}, most of the capacity used ({run.line})", 100 * run.share, "%", "<", SHARE)
    report.show(f"{where}: lines measured for {seconds:g} s each", len(runs), "")


def _finite(value: float) -> float:
    """What never happened has no figure."""
    return value if value < float("inf") else float("nan")


def _last(error: float) -> float:
    """No estimate at all is the worst."""
    return error if error == error else float("inf")


def _chart(options: Options, where: str, runs: list[Run]) -> Path:
    lines = {
        str(run.line): [(max(at, 0.1), estimate / run.line.rate) for at, estimate in run.points if estimate == estimate]
        for run in runs
    }
    path = options.charts / f"bandwidth-{where}.png"
    return charts.curves(path, f"Estimate over the true rate, {where}", "seconds", "times", lines)
