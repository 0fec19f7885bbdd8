"""`chappe bench peers --clients python`: a publisher process, a node, a subscriber process, each one's own client."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata

from bench import charts, clients
from bench.peers.common import running
from bench.processes import Answering
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.links.ports import free_ports

OURS, NATS, ZENOH, DIRECT = "chappe", "nats-py", "eclipse-zenoh", "eclipse-zenoh, no node"
PING_ROUNDS = 2_000


@dataclass(frozen=True)
class Cell:
    """One client in one of the two rows."""

    client: str
    row: str  # stream or ping

    def __str__(self) -> str:
        return f"{self.client}, {'64 B, 1 -> 1' if self.row == 'stream' else 'ping-pong'}"


def process(client: str, role: str, port: int, count: int) -> Answering:
    """One side of a client bench."""
    return Answering(f"{client}, {role}", "bench.clients.worker", client, role, str(port), str(count), quiet=True)


def stream(client: str, port: int, count: int) -> float:
    """Messages a second, from the first publish to the last arrival; all of them arrived in order."""
    with process(client, "subscribe", port, count) as subscriber:
        subscriber.answer()
        with process(client, "publish", port, count) as publisher:
            began_ns: int = publisher.answer()["began_ns"]
            ended_ns: int = subscriber.answer()["ended_ns"]
    return count / (ended_ns - began_ns) * 1e9


def ping(client: str, port: int, rounds: int) -> float:
    """Median round trip between two processes in us, the first tenth left out."""
    with process(client, "pong", port, rounds) as answerer:
        answerer.answer()
        with process(client, "ping", port, rounds) as asker:
            times_ns: list[int] = asker.answer()["times_ns"]
    return median(times_ns[rounds // 10 :]) / 1000


def run(options: Options, only: Sequence[str]) -> Report:
    """All clients found, interleaved."""
    report = Report("peers-python")
    absent = clients.missing()
    names = [name for name in clients.MODULES if name not in absent and (not only or name in (*only, OURS))]
    for name, line in absent.items():
        report.note(f"{name} is missing: {line}")
    rounds: Rounds[Cell, float] = Rounds(report, options.console, Ceiling())
    with contextlib.ExitStack() as stack:
        ports = {}
        for name in list(names):
            module = clients.client(name)
            if module.BROKER is not None and module.BROKER.find() is None:
                report.note(f"{name} needs {module.BROKER.name}: {module.BROKER.install}")
                names.remove(name)
                continue
            report.versions[name] = _version(module.PACKAGE)
            if module.BROKER is not None:
                report.versions[module.BROKER.name] = module.BROKER.version()
                ports[name] = stack.enter_context(running(module.BROKER)).port

        def measured(cell: Cell) -> float:
            port = ports.get(cell.client) or free_ports(2)[0]
            if cell.row == "ping":
                return ping(cell.client, port, PING_ROUNDS // 4 if options.quick else PING_ROUNDS)
            count = clients.client(cell.client).COUNT
            return stream(cell.client, port, count // 10 if options.quick else count)

        cells = [Cell(name, row) for name in names for row in ("stream", "ping")]
        rounds.run(options.repeats, cells, measured, "rounds")
    summarise(report, rounds.values)
    groups = {
        "64 B, messages/s": {name: _best(rounds.values, name, "stream") for name in names},
        "ping-pong p50, us": {name: _best(rounds.values, name, "ping") for name in names},
    }
    report.charts.append(charts.bars(options.charts / "peers-python.png", "From Python to Python", "", groups))
    return report


def _best(values: dict[Cell, list[float]], client: str, row: str) -> tuple[float, float]:
    series = values.get(Cell(client, row), [])
    return median(series), spread(series)


def summarise(report: Report, values: dict[Cell, list[float]]) -> None:
    """The targets, then every figure."""

    def figure(client: str, row: str) -> float:
        return _best(values, client, row)[0]

    ours = figure(OURS, "stream")
    report.compare("64 B: delivered, of nats-py's", ratio(ours, figure(NATS, "stream")), "times", ">=", 10)
    zenoh = max(
        (figure(name, "stream") for name in (ZENOH, DIRECT) if Cell(name, "stream") in values), default=float("nan")
    )
    report.compare("64 B: delivered, of eclipse-zenoh's (better form)", ratio(ours, zenoh), "times", ">=", 3)
    # Without a node between there is one hop less: that form is shown and not ranked.
    others = [cell.client for cell in values if cell.row == "ping" and cell.client not in (OURS, DIRECT)]
    quickest = min((figure(name, "ping") for name in others), default=float("nan"))
    report.compare("ping-pong p50, of the best other's", ratio(figure(OURS, "ping"), quickest), "times", "<=", 1.0)
    for cell in values:
        report.show(str(cell), median(values[cell]), "messages/s" if cell.row == "stream" else "us p50")
        report.show(f"{cell}: spread", spread(values[cell]) * 100, "%")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "source tree"
