"""`chappe bench slow`: a subscriber that stops reading, and what it costs everybody else."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from typing import Any

from bench import peers
from bench.load import Figures, Row, Session
from bench.peers.common import Running, running
from bench.protocols import chappe as protocol
from bench.protocols.common import Link
from bench.registry import Own
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, median, ratio, spread
from chappe.errors import ChappeError
from chappe.wire import control

READERS = 4
PAIRS = 20  # small effects need pairs, not rounds
QUEUE_MIB = 4  # of each class of a client, by default
ROOM_MIB = 3 * QUEUE_MIB  # its queue, and what the allocator keeps around it
STOPPED = "stopped"


def run(options: Options, own: Own) -> Report:
    """Pairs of intervals, with and without a connection that subscribed and never reads."""
    report = Report("slow")
    if peers.named("chappe").find() is None:
        raise ChappeError("the Chappe node is not built: run `make test` or `pip install .` first")
    report.versions["chappe"] = peers.named("chappe").version()
    pairs = 3 if options.quick else PAIRS
    row = Row("64 B, 1 -> 4", subscribers=READERS, warm_s=0.2, measured_s=0.3 if options.quick else 0.5)
    rounds: Rounds[str, Figures] = Rounds(report, options.console, Ceiling())
    grown: list[float] = []
    drops: list[int] = []
    with running(peers.named("chappe")) as node, Session(node, row) as session:
        session.interval()

        def measured(cell: str) -> Figures:
            if cell == "all read":
                return session.interval()
            before = node.rss_bytes()
            with stopped_subscriber(node):
                figures = session.interval()
                grown.append((node.rss_bytes() - before) / 2**20)
                drops.append(dropped(node, STOPPED))
            return figures

        rounds.run(pairs, ["all read", "one stopped"], measured, "pairs")
        others = dropped(node, "bench")
        total = session.account()
    _summarise(report, rounds.values)
    report.compare("memory a stopped subscriber costs the node, largest", max(grown), "MiB", "<=", ROOM_MIB)
    report.compare("drops on the counters of the stopped subscriber, fewest", min(drops), "events", ">=", 1)
    report.compare("drops on the counters of the others", others, "events", "==", 0)
    report.compare("messages the others lost or got out of order", total.lost + total.reordered, "messages", "==", 0)
    return report


def _summarise(report: Report, values: dict[str, list[Figures]]) -> None:
    rates = {cell: [one.delivered_per_s for one in runs] for cell, runs in values.items()}
    costs = {cell: [one.cpu_ns for one in runs] for cell, runs in values.items()}
    pairs = list(zip(rates.get("all read", []), rates.get("one stopped", []), strict=False))
    lost = [1 - ratio(stopped, read) for read, stopped in pairs]
    report.compare("rate the others lose, median of pairs", median(lost) * 100, "%", "<", 5)
    if len(lost) > 2:
        report.show("95 % confidence of its mean, plus or minus", 196 * statistics.stdev(lost) / len(lost) ** 0.5, "%")
    for cell in rates:
        report.show(f"{cell}: delivered to the {READERS} readers", median(rates[cell]), "messages/s")
        report.show(f"{cell}: spread", spread(rates[cell]) * 100, "%")
        report.show(f"{cell}: node CPU", median(costs[cell]), "ns a message of a reader")


@contextlib.contextmanager
def stopped_subscriber(node: Running) -> Iterator[Link]:
    """A connection that subscribed and does not read."""
    link = protocol.connect(("127.0.0.1", node.port), None, name=STOPPED)
    try:
        protocol.subscribe(link, 1)
        yield link
    finally:
        link.sock.close()


def dropped(node: Running, name: str) -> int:
    """Events that the node dropped for clients of that name because their queue was full."""
    link = protocol.connect(("127.0.0.1", node.port), None, name="asks")
    try:
        listing = protocol.ask(link, [control.List(id=1, what="clients", limit=100)])[0]
        assert isinstance(listing, control.Listing)
        rows: list[dict[str, Any]] = [row for row in listing.rows if row["name"] == name]
        return sum(int(row["drop_queue_full"]) for row in rows)
    finally:
        link.sock.close()
