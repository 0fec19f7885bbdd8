"""`chappe bench status`: 100,000 variables through one router."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench import charts, peers, status_rule
from bench.against import Compared, Measure, Sample
from bench.engine_load import steady_allocations
from bench.load import Figures, Row, Session, measure
from bench.peers import chappe as node
from bench.peers import nats, relay
from bench.peers.common import Peer, running
from bench.registry import StatusOptions
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.errors import ChappeError

VARIABLES, QUICK_VARIABLES = 100_000, 2_000
PORTS = 2
WINDOW = 65_536
STEADY = 1_000_000  # events a second of the second latency row
EASED = 1_000_000.0  # events a second
OURS, THEIRS, RELAY = "chappe", "nats-server", "relay"


@dataclass(frozen=True)
class Cell:
    """A system, free or on one core."""

    system: str
    pinned: bool = False

    def __str__(self) -> str:
        return f"{self.system}{' on one core' if self.pinned else ''}"


def run(options: Options, own: StatusOptions) -> Report:
    """Rate, rule, allocations and latency of status events with that table layout."""
    layout = own.layout
    report = Report(f"status-{layout}")
    if peers.named(OURS).find() is None:
        raise ChappeError("the Chappe node is not built: run `make test` or `pip install .` first")
    variables = QUICK_VARIABLES if options.quick else VARIABLES
    ceiling = Ceiling()
    router = node.with_layout(layout)
    report.versions[OURS] = router.version()
    rates = _rates(options, report, ceiling, router, variables)
    ours = _best(rates, OURS)
    report.compare(
        f"{variables:,} variables to {PORTS} ports: delivered, of nats-server's 24-byte messages",
        ratio(ours, _best(rates, THEIRS)), "times", ">=", 4,
    )  # fmt: skip
    _check_rule(options, report, router, variables)
    report.compare(
        "allocator calls in the engine for each event",
        steady_allocations(layout, variables, max(variables, 100_000)), "calls", "==", 0,
    )  # fmt: skip
    # Half of what the same router carried unpinned, as it runs in that row; its best variant would be another load.
    carried = median([one.delivered_per_s for one in rates.get(Cell(OURS), [])])
    _latency(options, report, ceiling, router, variables, carried / PORTS / 2)
    for cell, series in rates.items():
        report.show(f"{cell}: delivered", median([one.delivered_per_s for one in series]), "events/s")
        report.show(f"{cell}: spread", spread([one.delivered_per_s for one in series]) * 100, "%")
        report.show(f"{cell}: broker CPU", median([one.cpu_ns for one in series]), "ns an event")
    bars = {
        str(cell): (median([one.delivered_per_s for one in series]), spread([one.delivered_per_s for one in series]))
        for cell, series in rates.items()
    }
    title = f"Status events of {variables:,} variables, {layout} table"
    report.charts.append(charts.bars(options.charts / f"status-{layout}.png", title, "events/s", {"delivered": bars}))
    return report


def compared(options: Options, own: StatusOptions) -> Compared:
    """Rate and CPU of a router at full load, latency of what it forwards at a rate that it carries easily."""
    variables = QUICK_VARIABLES if options.quick else VARIABLES
    base = Row("", size=24, topics=variables, window=WINDOW, protocol="status", warm_s=0.2,
               measured_s=0.3 if options.quick else 0.8)  # fmt: skip
    full, eased = f"{variables:,} variables to {PORTS} ports", f"{variables:,} variables at {EASED:,.0f} events/s"
    rows = {full: replace(base, name=full, subscribers=PORTS), eased: replace(base, name=eased, rate=EASED)}

    @contextlib.contextmanager
    def side(tree: Path | None) -> Iterator[Measure]:
        router = replace(node.with_layout(own.layout), tree=tree)

        def measured(cell: str) -> Sample:
            with running(router, pinned=True) as broker:
                figures = measure(broker, rows[cell])
            lost = figures.lost + figures.dropped + figures.reordered + figures.wrong
            by_cpu = {"events a CPU second": ratio(1e9, figures.cpu_ns)}
            if cell == full:
                return Sample({"delivered": figures.delivered_per_s, **by_cpu}, lost)
            return Sample({"1 / p50": ratio(1, figures.p50_us), "1 / p99": ratio(1, figures.p99_us), **by_cpu}, lost)

        yield measured

    return Compared(list(rows), side)


def _best(rates: dict[Cell, list[Figures]], system: str) -> float:
    """The median of the better variant."""
    medians = [median([one.delivered_per_s for one in runs]) for cell, runs in rates.items() if cell.system == system]
    return max(medians, default=float("nan"))


def _rates(
    options: Options, report: Report, ceiling: Ceiling, router: Peer, variables: int
) -> dict[Cell, list[Figures]]:
    """Interleaved intervals on sessions that are set up once: 100,000 registrations take longer than a round."""
    row = Row("every event", size=24, topics=variables, subscribers=PORTS, window=WINDOW, warm_s=0.2,
              measured_s=0.3 if options.quick else 1.0)  # fmt: skip
    systems = [(OURS, router, "status")]
    if nats.PEER.find() is not None:
        systems.append((THEIRS, nats.PEER, "nats"))
        report.versions[THEIRS] = nats.PEER.version()
    else:
        report.note(f"{THEIRS} is missing: {nats.PEER.install}")
    rounds: Rounds[Cell, Figures] = Rounds(report, options.console, ceiling)
    with contextlib.ExitStack() as stack:
        sessions = {}
        for name, peer, protocol in systems:
            for pinned in (False,) if options.quick else (False, True):
                broker = stack.enter_context(running(peer, pinned=pinned))
                session = Session(broker, replace(row, protocol=protocol))
                sessions[Cell(name, pinned)] = stack.enter_context(session)
        rounds.run(options.repeats, list(sessions), lambda cell: sessions[cell].interval(), "every event")
        for cell, session in sessions.items():
            total = session.account()
            if cell.system == OURS:
                name = f"{cell}: events lost or out of order in {total.delivered:,}"
                report.compare(name, total.lost + total.reordered + total.wrong + total.dropped, "events", "==", 0)
            elif not total.whole:
                report.note(f"{cell}: lost {total.lost}, reordered {total.reordered}: its rate is not to be trusted")
    return rounds.values


def _check_rule(options: Options, report: Report, router: Peer, variables: int) -> None:
    with running(router) as broker:
        outcome = status_rule.check(broker, variables, rounds=6 if options.quick else 12)
    judged = f"in {outcome.judged:,} decisions on {status_rule.PORTS} ports"
    report.compare(f"events forwarded against the rule, {judged}", outcome.wrongly_forwarded, "events", "==", 0)
    report.compare(f"events dropped against the rule, {judged}", outcome.wrongly_dropped, "events", "==", 0)
    report.show("events forwarded by the rule", outcome.forwarded, "events")


def _latency(options: Options, report: Report, ceiling: Ceiling, router: Peer, variables: int, half: float) -> None:
    """One port at half load and at a rate where wake-ups count for more, beside a relay that only copies."""
    for title, rate in (("half load", half), (f"{STEADY:,} events/s", float(STEADY))):
        row = Row(title, size=24, topics=variables, window=WINDOW, rate=rate, measured_s=0.4 if options.quick else 1.0)
        values = _paced(options, report, ceiling, router, row)
        p99 = {name: median([one.p99_us for one in series]) for name, series in values.items()}
        report.compare(f"p99 at {title}, of a bare relay's", ratio(p99[OURS], p99[RELAY]), "times", "<=", 1.5)
        report.show(title, rate, "events/s")
        for name, series in values.items():
            report.show(f"{name}: p50 at {title}", median([one.p50_us for one in series]), "us")
            report.show(f"{name}: p99 at {title}", p99[name], "us")


def _paced(options: Options, report: Report, ceiling: Ceiling, router: Peer, row: Row) -> dict[str, list[Figures]]:
    """Intervals of the router and of a relay in turn, at the rate of the row."""
    rounds: Rounds[str, Figures] = Rounds(report, options.console, ceiling)
    with contextlib.ExitStack() as stack:
        runs = {}
        for name, peer, protocol in ((OURS, router, "status"), (RELAY, relay.PEER, "relay")):
            broker = stack.enter_context(running(peer))
            runs[name] = stack.enter_context(Session(broker, replace(row, protocol=protocol)))
        rounds.run(options.repeats, list(runs), lambda name: runs[name].interval(), row.name)
    return {name: rounds.values.get(name, []) for name in runs}
