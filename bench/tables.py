"""`chappe bench tables`: the source's tables of measuring and routing, from our own nodes (MR-121, MR-122, MR-123)."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from bench import charts, tables_real, tables_sim
from bench.namespaces import Namespaces
from bench.progress import steps
from bench.registry import Own
from bench.report import Options, Report
from bench.tables_real import Figures
from bench.tables_routes import UNIT_MS, judge
from bench.tables_source import INTERVALS_MS, PLACES, RISING, TABLE_1, TABLES_3_TO_5, TABLES_6_TO_8
from chappe.errors import ChappeError

DELAYS_MS = (0.5, 20.0, 90.0)
FLAT = 5.0  # % that a cost may differ from the plateau
FLOOR_MS = (
    0.5  # on sockets, where the delay itself is no more than what a machine adds: below it nothing counts as change
)
QUICK_MS = 2000  # the longest interval of a quick run
QUICK_ROUNDS = 6
QUICK_LINKS = 100


def run(options: Options, own: Own) -> Report:
    """Tables 3 to 8 through the network map and in the simulator, then table 1 on sockets and in the simulator."""
    report = Report("tables")
    intervals = tuple(ms for ms in INTERVALS_MS if not options.quick or ms <= QUICK_MS)
    simulated = (intervals[0], 1000) if options.quick else intervals
    with steps(options.console, "tables", 5 + len(simulated)) as step:
        step("routes, assigned costs")
        _routes(report, "assigned costs", simulated=False)
        step("routes, simulated")
        _routes(report, "measured in the simulator", simulated=True)
        step("cost against interval, on sockets")
        found = _on_sockets(report, options, intervals)
        links = QUICK_LINKS if options.quick else tables_sim.LINKS
        modelled = {}
        runs = tables_sim.costs(DELAYS_MS, simulated, links)
        for interval_ms in simulated:
            step(f"cost against interval, simulated, {interval_ms} ms")
            modelled[interval_ms] = next(runs)
        _judge_simulated(report, modelled, links)
        report.charts = [_chart(options, places, figures) for places, figures in found.items()]
    report.note(
        "the source's mesh lost its plateau: of cost 93 at 1 s and more it measured 4000+ at 50 ms (Korea), "
        "of 23 it measured 900+ (San Diego), of 1 it measured 300+ (the same room)"
    )
    return report


def _routes(report: Report, how: str, simulated: bool) -> None:
    entries = judge(TABLES_3_TO_5, simulated, UNIT_MS if simulated else 1.0)
    ways = [found for table in TABLES_6_TO_8 for found in judge([table], simulated)]
    usual = judge(TABLES_3_TO_5, simulated, UNIT_MS if simulated else 1.0, usual=True)
    report.compare(f"tables 3 to 5, {how}: entries as printed", _right(entries), "of 24", "==", 24)
    report.compare(f"tables 3 to 5, {how}, with hysteresis: entries as printed", _right(usual), "of 24", "==", 24)
    report.compare(f"tables 6 to 8, {how}: ways as corrected", _right(ways), f"of {len(ways)}", "==", len(ways))
    kept = [found for table in TABLES_6_TO_8 for found in judge([table], simulated, usual=True)]
    report.show(f"tables 6 to 8, {how}, with hysteresis: ways as corrected", _right(kept), f"of {len(kept)}")
    for text, right in (*entries, *usual, *ways):
        if not right:
            report.note(f"{how}: {text}")
    for text, right in kept:
        if not right:
            report.note(f"{how}, hysteresis keeps a way that is less than 5 % longer: {text}")


def _right(found: Iterable[tuple[str, bool]]) -> int:
    return sum(right for _, right in found)


def _on_sockets(report: Report, options: Options, intervals: tuple[int, ...]) -> dict[str, Figures]:
    """Table 1 by real nodes: by place, on loopback and, where that is possible, between network namespaces."""
    rounds = QUICK_ROUNDS if options.quick else tables_real.ROUNDS
    jobs = {"loopback": tables_real.on_loopback}
    obstacle = Namespaces.obstacle()
    if obstacle:
        report.note(f"not between network namespaces: {obstacle}")
    else:
        jobs["namespaces"] = tables_real.in_namespaces
    found: dict[str, Figures] = {}
    # A quick run does both at once; else each has the machine for itself.
    with ThreadPoolExecutor(len(jobs) if options.quick else 1) as pool:
        running = {name: pool.submit(job, DELAYS_MS, intervals, rounds) for name, job in jobs.items()}
        for name, job in running.items():
            try:
                found[name] = job.result()
            except ChappeError as error:
                report.note(f"{name}: {error}")
                report.compare(f"{name}: cost against interval", float("nan"), "", "<=", FLAT)
    ways = {"loopback": "TCP through a relay on loopback", "namespaces": "TLS between two namespaces, TUN relay"}
    for name, figures in found.items():
        report.note(f"{name}: {ways[name]}, all intervals at the same time, each by a node of its own")
        _judge_real(report, name, figures)
    return found


def _judge_real(report: Report, name: str, figures: Figures) -> None:
    for (delay_ms, interval_ms), figure in sorted(figures.items()):
        theirs = printed(delay_ms, int(interval_ms))
        report.show(
            f"{name}, {delay_ms:g} ms, every {interval_ms:g} ms: cost (source {theirs})",
            figure.cost,
            f"{figure.rounds} rounds",
        )
    for delay_ms in DELAYS_MS:
        costs = [figure.cost for (delay, _), figure in figures.items() if delay == delay_ms]
        latencies = [figure.latency_ms for (delay, _), figure in figures.items() if delay == delay_ms]
        label = f"{name}, {delay_ms:g} ms"
        if delay_ms > 10 * FLOOR_MS:
            report.compare(f"{label}: cost off its plateau at most", _off(costs), "%", "<=", FLAT)
        else:
            off_ms = max(abs(value - median(latencies)) for value in latencies)
            report.compare(f"{label}: latency off its plateau at most", off_ms, "ms", "<=", FLOOR_MS)


def _judge_simulated(report: Report, modelled: dict[int, tables_sim.Costs], links: int) -> None:
    for delay_ms in DELAYS_MS:
        for interval_ms, costs in modelled.items():
            report.show(f"simulated, {delay_ms:g} ms, every {interval_ms} ms: cost, median", costs[delay_ms][0], "")
        label = f"simulated, {links:,} links a node, {delay_ms:g} ms"
        medians = [costs[delay_ms][0] for costs in modelled.values()]
        report.compare(f"{label}: cost off its plateau at most", _off(medians), "%", "<=", FLAT)


def printed(delay_ms: float, interval_ms: int) -> str:
    """The source's figure, with a + where it kept rising."""
    cost = TABLE_1[delay_ms][INTERVALS_MS.index(interval_ms)]
    return f"{cost:g}{'+' if cost >= RISING else ''}"


def _off(values: list[float]) -> float:
    """The largest distance from the median, in % of it."""
    middle = median(values)
    return 100 * max(abs(value - middle) for value in values) / middle


def _chart(options: Options, name: str, figures: Figures) -> Path:
    lines: dict[str, list[tuple[float, float]]] = {}
    for delay_ms in DELAYS_MS:
        mine = {interval: figure.cost for (delay, interval), figure in sorted(figures.items()) if delay == delay_ms}
        lines[f"{delay_ms:g} ms"] = list(mine.items())
        theirs = dict(zip(INTERVALS_MS, TABLE_1[delay_ms], strict=True))
        lines[f"source, {PLACES[delay_ms]}"] = [(interval, theirs[int(interval)]) for interval in mine]
    title = f"Measured cost against interval, {name}"
    return charts.curves(options.charts / f"tables-{name}.png", title, "interval (ms)", "cost", lines)
