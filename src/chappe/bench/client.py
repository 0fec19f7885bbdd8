"""`chappe bench client`: what one Python process publishes and consumes a second, beside nats-py."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass

from chappe.bench import charts, peers
from chappe.bench.load import Row, Session
from chappe.bench.peers.common import Running, environment, running
from chappe.bench.report import Options, Report
from chappe.bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.errors import ChappeError

CALLS = {"nats-py": 200_000, "events": 2_000_000, "event batches": 5_000_000, "values": 2_000_000}
CONSUMERS = (
    "nats-py:message",
    *(f"{kind}:{form}" for kind in ("events", "status") for form in ("message", "batch", "arrow")),
)
VARIABLES = 1_000


@dataclass(frozen=True)
class Cell:
    """Publishing or consuming, in one form."""

    verb: str  # publish or consume
    form: str

    def __str__(self) -> str:
        return f"{self.verb} {self.form.replace(':', ' by ')}"


def run(options: Options) -> Report:
    """All forms, interleaved."""
    report = Report("client")
    brokers_wanted = {"nats-server": "nats-py", "chappe": "chappe"}
    for name in brokers_wanted:
        if peers.named(name).find() is None:
            raise ChappeError(f"{name} is missing: {peers.named(name).install}")
        report.versions[name] = peers.named(name).version()
    rounds: Rounds[Cell, float] = Rounds(report, options.console, Ceiling())
    cells = [Cell("publish", form) for form in CALLS] + [Cell("consume", form) for form in CONSUMERS]
    with contextlib.ExitStack() as stack:
        brokers = {name: stack.enter_context(running(peers.named(name))) for name in brokers_wanted}

        def measured(cell: Cell) -> float:
            broker = brokers["nats-server" if cell.form.startswith("nats-py") else "chappe"]
            if cell.verb == "publish":
                return calls(broker, cell.form, CALLS[cell.form] // (10 if options.quick else 1))
            return consumed(broker, cell.form, 0.4 if options.quick else 1.0)

        rounds.run(options.repeats, cells, measured, "rounds")
    summarise(report, rounds.values)
    groups = {
        verb: {cell.form: (median(runs), spread(runs)) for cell, runs in rounds.values.items() if cell.verb == verb}
        for verb in ("publish", "consume")
    }
    path = options.charts / "client.png"
    report.charts.append(charts.bars(path, "One Python process", "messages/s", groups))
    return report


def calls(broker: Running, form: str, count: int) -> float:
    """Publish calls a second, the final flush included."""
    done = subprocess.run(
        [sys.executable, "-m", "chappe.bench.clients.calls", form, str(broker.port), str(count)],
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(),
    )
    said = json.loads(done.stdout or b'{"error": "the process ended without a result"}')
    if "error" in said:
        raise ChappeError(f"{said['error']} {done.stderr.decode(errors='replace')[-300:]}")
    return float(said["count"] / said["spent_s"])


def consumed(broker: Running, form: str, measured_s: float) -> float:
    """Messages a second that a Python process takes; the load generator publishes as fast as it is followed."""
    status = form.startswith("status")
    row = Row(
        form, size=24 if status else 64, topics=VARIABLES if status else 1, protocol="status" if status else None,
        window=65_536 if status else 16_384, measured_s=measured_s,
    )  # fmt: skip
    with Session(broker, row, consumer=form) as session:
        figures = session.interval()
        total = session.account()
    if total.reordered:
        raise ChappeError(f"{form}: {total.reordered} messages were not the ones expected")
    return figures.delivered_per_s


def summarise(report: Report, values: dict[Cell, list[float]]) -> None:
    """The targets, then every figure."""

    def figure(verb: str, form: str) -> float:
        return median(values.get(Cell(verb, form), []))

    report.compare(
        "publish calls, of nats-py's",
        ratio(figure("publish", "events"), figure("publish", "nats-py")),
        "times",
        ">=",
        10,
    )
    report.compare(
        "async for, of nats-py's", ratio(figure("consume", "events:message"), figure("consume", "nats-py:message")),
        "times", ">=", 10,
    )  # fmt: skip
    report.compare(
        "status events as Arrow, of our own async for",
        ratio(figure("consume", "status:arrow"), figure("consume", "status:message")), "times", ">=", 5,
    )  # fmt: skip
    for cell, runs in values.items():
        report.show(str(cell), median(runs), "messages/s")
        report.show(f"{cell}: spread", spread(runs) * 100, "%")
