"""`chappe bench client`: what one Python process publishes and consumes a second, beside nats-py."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bench import charts, commits, peers
from bench.against import Compared, Measure, Sample
from bench.load import Row, Session
from bench.peers.common import Running, environment, running
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.errors import ChappeError

CALLS = {"nats-py": 200_000, "events": 2_000_000, "event batches": 5_000_000, "values": 2_000_000}
CONSUMERS = (
    "nats-py:message",
    "nats-py:callback",
    *(f"{kind}:{form}" for kind in ("events", "status") for form in ("message", "batch", "arrow")),
)
VARIABLES = 1_000
IN_FLIGHT_BYTES = 5 << 20  # the same for every form: 65,536 messages of 64 B, 131,072 values


@dataclass(frozen=True)
class Rate:
    """Messages a second, and the cores that the processes used: below one, a process was not the limit."""

    per_s: float
    cores: float = 1.0  # of the process that is measured
    node_cores: float = 0.0
    generator_cores: float = 0.0

    def cpu_ns(self, cores: float) -> float:
        """What that much CPU comes to for each message."""
        return cores / self.per_s * 1e9 if self.per_s else float("nan")


@dataclass(frozen=True)
class Cell:
    """Publishing or consuming, in one form."""

    verb: str  # publish or consume
    form: str

    def __str__(self) -> str:
        return f"{self.verb} {self.form.replace(':', ' by ')}"


def run(options: Options, own: Own) -> Report:
    """All forms, interleaved."""
    report = Report("client")
    brokers_wanted = {"nats-server": "nats-py", "chappe": "chappe"}
    for name in brokers_wanted:
        if peers.named(name).find() is None:
            raise ChappeError(f"{name} is missing: {peers.named(name).install}")
        report.versions[name] = peers.named(name).version()
    rounds: Rounds[Cell, Rate] = Rounds(report, options.console, Ceiling())
    cells = _cells()
    with contextlib.ExitStack() as stack:
        brokers = {name: stack.enter_context(running(peers.named(name))) for name in brokers_wanted}

        def measured(cell: Cell) -> Rate:
            broker = brokers["nats-server" if cell.form.startswith("nats-py") else "chappe"]
            if cell.verb == "publish":
                return Rate(calls(broker, cell.form, CALLS[cell.form] // (10 if options.quick else 1)))
            return consumed(broker, cell.form, 0.4 if options.quick else 1.0)

        rounds.run(options.repeats, cells, measured, "rounds")
    summarise(report, rounds.values)
    groups = {
        verb: {
            cell.form: (median([one.per_s for one in runs]), spread([one.per_s for one in runs]))
            for cell, runs in rounds.values.items()
            if cell.verb == verb
        }
        for verb in ("publish", "consume")
    }
    path = options.charts / "client.png"
    report.charts.append(charts.bars(path, "One Python process", "messages/s", groups))
    return report


def compared(options: Options, own: Own) -> Compared:
    """Every form of ours: client, node and load generator of a tree, on one node for all of them."""
    cells = {str(cell): cell for cell in _cells() if not cell.form.startswith("nats-py")}

    @contextlib.contextmanager
    def side(tree: Path | None) -> Iterator[Measure]:
        with running(replace(peers.named("chappe"), tree=tree)) as node:

            def measured(name: str) -> Sample:
                cell = cells[name]
                if cell.verb == "publish":
                    return Sample({"calls": calls(node, cell.form, CALLS[cell.form] // (20 if options.quick else 4))})
                rate = consumed(node, cell.form, 0.3 if options.quick else 0.5)
                return Sample({"messages": rate.per_s, "messages a CPU second": ratio(rate.per_s, rate.cores)})

            yield measured

    return Compared(list(cells), side)


def _cells() -> list[Cell]:
    return [Cell("publish", form) for form in CALLS] + [Cell("consume", form) for form in CONSUMERS]


def calls(broker: Running, form: str, count: int) -> float:
    """Publish calls a second, the final flush included."""
    tree = broker.peer.tree
    done = subprocess.run(
        [sys.executable, "-m", commits.module("bench.clients.calls", tree), form, str(broker.port), str(count)],
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(tree),
    )
    said = json.loads(done.stdout or b'{"error": "the process ended without a result"}')
    if "error" in said:
        raise ChappeError(f"{said['error']} {done.stderr.decode(errors='replace')[-300:]}")
    return float(said["count"] / said["spent_s"])


def consumed(broker: Running, form: str, measured_s: float) -> Rate:
    """Messages a second that a Python process takes; the load generator publishes as fast as it is followed."""
    status = form.startswith("status")
    size = 24 if status else 64
    row = Row(
        form, size=size, topics=VARIABLES if status else 1, protocol="status" if status else None,
        window=IN_FLIGHT_BYTES // (size + 16), measured_s=measured_s,
    )  # fmt: skip
    with Session(broker, row, consumer=form) as session:
        figures = session.interval()
        total = session.account()
    if not total.whole:
        raise ChappeError(f"{form}: {total.lost} messages lost, {total.reordered} not the ones expected")
    return Rate(figures.delivered_per_s, figures.subscriber_cores, figures.broker_cores, figures.publisher_cores)


def summarise(report: Report, values: dict[Cell, list[Rate]]) -> None:
    """The targets, then every figure."""

    def figure(verb: str, form: str) -> float:
        return median([one.per_s for one in values.get(Cell(verb, form), [])])

    calls_ratio = ratio(figure("publish", "events"), figure("publish", "nats-py"))
    report.compare("publish calls, of nats-py's", calls_ratio, "times", ">=", 10)
    theirs = [figure("consume", f"nats-py:{form}") for form in ("message", "callback")]
    quicker = max((rate for rate in theirs if rate == rate), default=float("nan"))
    ours = figure("consume", "events:message")
    report.compare("async for, of nats-py's quicker form", ratio(ours, quicker), "times", ">=", 10)
    report.show("async for, of nats-py's async for", ratio(ours, theirs[0]), "times")
    arrow = ratio(figure("consume", "status:arrow"), figure("consume", "status:message"))
    report.compare("status events as Arrow, of our own async for", arrow, "times", ">=", 5)
    report.show("the same for each CPU second of the consumer", _by_core(values), "times")
    for cell, runs in values.items():
        series = [one.per_s for one in runs]
        report.show(str(cell), median(series), "messages/s")
        report.show(f"{cell}: spread", spread(series) * 100, "%")
        if cell.verb == "consume":
            report.show(f"{cell}: consumer", median([one.cores for one in runs]), "cores")
            report.show(f"{cell}: consumer CPU", median([one.cpu_ns(one.cores) for one in runs]), "ns a message")
            report.show(f"{cell}: node CPU", median([one.cpu_ns(one.node_cores) for one in runs]), "ns a message")
            generator = median([one.cpu_ns(one.generator_cores) for one in runs])
            report.show(f"{cell}: load generator CPU", generator, "ns a message")


def _by_core(values: dict[Cell, list[Rate]]) -> float:
    """Arrow over `async for` by the consumer's own CPU: what the rates would show were nothing else the limit."""
    arrow, single = (
        median([one.per_s / one.cores for one in values.get(Cell("consume", f"status:{form}"), []) if one.cores])
        for form in ("arrow", "message")
    )
    return ratio(arrow, single)
