"""Cases b1 and b2: the experiment of the source, many paths against the direct connection."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.cells.hosts import Hosts, Pair, between
from bench.cells.sites import CLOSED, RATES, SITES, CellSites, Lines, maximum_flow
from bench.charts import series
from bench.report import Options, Report

SOURCE, SINK = "Site1.Host1", "Site3.Host1"
MESSAGES, SIZE = 10_000, 25_000
DIRECT_S = 20.0
SHARE = 0.8
SETTLE_S = 20.0  # until lines have been measured


def run(options: Options, report: Report) -> None:
    """B1 with the links of the source and with all; B2; and as many plain TCP streams as the flow used paths."""
    lines = between(SITES, RATES)
    messages = MESSAGES // 10 if options.quick else MESSAGES
    seconds = DIRECT_S / 4 if options.quick else DIRECT_S
    used, rate = 1, 0.0
    for neighbours, title in ((2, "the source's links"), (len(SITES) - 1, "all links")):
        with CellSites(lines, CLOSED, section=f"update_s = 1.0\nneighbours = {neighbours}\n") as sites:
            sites.start(*SITES)
            progress, sent, links = _flow(sites, "--messages", str(messages))
        linked = {pair: line for pair, line in lines.items() if pair in links}
        rate = sent["bytes"] / sent["seconds"]
        paths = [row for row in sent["routes"] if row["acked_bytes"] > 0.01 * sent["bytes"]]
        used = max(used, len(paths))
        report.show(f"b1, {title}: maximum flow of their rates", maximum_flow(linked, SOURCE, SINK) / 1e6, "MB/s")
        report.show(f"b1, {title}: paths that carried more than a hundredth", len(paths), "paths")
        report.show(f"b1, {title}: {messages:,} messages of {SIZE:,} bytes", rate / 1e6, "MB/s")
        share = rate / maximum_flow(linked, SOURCE, SINK)
        report.compare(f"b1, {title}: of their maximum flow", share, "times", ">=", SHARE)
        for row in sorted(paths, key=lambda row: -row["acked_bytes"])[:8]:
            report.show(f"b1, {title}: {' > '.join(row['hops'])}", row["acked_bytes"] / sent["bytes"], "of the bytes")
        report.charts.append(_chart(options, neighbours, progress))
    report.compare(
        "b1: of the maximum flow of all rates", rate / maximum_flow(lines, SOURCE, SINK), "times", ">=", SHARE
    )  # fmt: skip
    with CellSites(lines, CLOSED) as sites:
        sites.start(SINK, SOURCE)
        _, direct, _ = _flow(sites, "--seconds", str(seconds))
    report.show("b2: the same two cells alone", direct["bytes"] / direct["seconds"] / 1e6, "MB/s")
    with Hosts(lines, CLOSED) as hosts:
        plain = {streams: _streams(hosts, streams, seconds) for streams in (1, max(2, used))}
    for streams, carried in plain.items():
        report.show(f"plain TCP, {streams} stream{'s' * (streams > 1)} on the direct line", carried / 1e6, "MB/s")
    report.show("b1, of as many plain streams on the direct line", rate / plain[max(plain)], "times")


def _chart(options: Options, neighbours: int, progress: list[dict[str, Any]]) -> Path:
    over_time = [
        (b["seconds"], (b["bytes"] - a["bytes"]) / max(b["seconds"] - a["seconds"], 1e-3) / 1e6)
        for a, b in itertools.pairwise(progress[::4])
    ]
    path = options.charts / f"cells-b1-{neighbours}.png"
    return series(path, f"b1: confirmed, {neighbours} neighbours on each side", "seconds", {"MB/s": over_time})


def _flow(sites: CellSites, *arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any], set[Pair]]:
    """What was confirmed over time, what the sender said at its end, and the links that there were.

    Every cell has the name of its host: by their names cells find their neighbours.
    """
    with ExitStack() as stack:
        others = [name for name in sites.nodes if name != SOURCE]
        receivers = [stack.enter_context(sites.program(name, "receive", sites.url(name), name)) for name in others]
        for receiver in receivers:
            receiver.ready()
        sender = sites.program(SOURCE, "send", sites.url(SOURCE), SOURCE, SINK, "--settle", str(SETTLE_S), *arguments)
        with sender:
            done = sender.done(within_s=400)
            return [line for line in sender.said() if "messages" in line], done, asyncio.run(sites.links())


def _streams(hosts: Hosts, streams: int, seconds: float) -> float:
    with hosts.inside(SINK):
        sink = Lines("bench.cells.endpoint", "drain", hosts.address(SINK), "7500")
    with sink:
        sink.ready()
        arguments = ("--streams", str(streams), "--seconds", str(seconds))
        with hosts.inside(SOURCE):
            pouring = Lines("bench.cells.endpoint", "pour", hosts.address(SINK), "7500", *arguments)
        with pouring:
            done = pouring.done(within_s=seconds + 120)
    return float(done["bytes"]) / float(done["seconds"])
