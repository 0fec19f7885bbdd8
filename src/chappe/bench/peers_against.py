"""`chappe bench peers --against COMMIT`: this tree beside another commit, in interleaved pairs of fresh nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from chappe.bench import commits
from chappe.bench.load import Figures, Row, measure, ping_pong
from chappe.bench.peers import chappe
from chappe.bench.peers.common import Peer, running
from chappe.bench.peers_bench import PING, THROUGHPUT
from chappe.bench.report import Options, Report
from chappe.bench.rounds import Ceiling, Rounds

PAIRS = 20
LEAST = 0.97  # a 95 % interval that lies wholly below it is a loss
ROWS = (*THROUGHPUT, PING)


@dataclass(frozen=True)
class Pair:
    """What both trees did within seconds of each other."""

    ours: Figures
    theirs: Figures


@dataclass(frozen=True)
class Interval:
    """A ratio with its 95 % confidence interval, from the logarithms of the ratios of pairs (Student's t)."""

    ratio: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Interval:
        """NaN where fewer than two pairs were measured: then nothing is known, and a target is missed."""
        logs = np.log(np.asarray(ratios, float))
        logs = logs[np.isfinite(logs)]
        if len(logs) < 2:
            return cls(math.nan, math.nan, math.nan)
        centre = float(logs.mean())
        half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
        return cls(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def run(options: Options, commit: str) -> Report:
    """Rates, latencies and CPU of this tree as ratios of those of `commit`; higher is better in each."""
    report = Report("peers-against")
    options.console.print(f"building {commit}; a minute or two the first time", highlight=False)
    tree = commits.build(commit, options.charts / "trees")
    ours, theirs = chappe.PEER, replace(chappe.PEER, name=f"chappe at {tree.sha[:12]}", source=tree.source)
    report.versions |= {"this tree": commits.here(), "against": tree.sha[:12]}
    for name in commits.generators_differ(tree):
        report.note(f"the load generator differs, too ({name}): part of a difference may be its own")
    rounds: Rounds[str, Pair] = Rounds(report, options.console, Ceiling())
    turns: dict[str, int] = {}

    def measured(name: str) -> Pair:
        turns[name] = turns.get(name, 0) + 1
        order = (ours, theirs) if turns[name] % 2 else (theirs, ours)
        found = {peer.name: _figures(peer, name, options, report) for peer in order}
        return Pair(found[ours.name], found[theirs.name])

    if options.quick:
        report.note("two pairs show that it runs: their intervals exclude nothing")
    rounds.run(2 if options.quick else max(PAIRS, options.rounds), [row.name for row in ROWS], measured, "pairs")
    summarise(report, rounds.values)
    return report


def _figures(peer: Peer, name: str, options: Options, report: Report) -> Figures:
    """A node of its own for each measurement: where its memory lies is chance, and chance is to be averaged."""
    row: Row = next(row for row in ROWS if row.name == name)
    row = replace(row, warm_s=0.2, measured_s=0.2 if options.quick else 0.6, rounds=1000 if options.quick else 4000)
    with running(peer, pinned=True) as node:
        if row.name == PING.name:
            return ping_pong(node, row)
        figures = measure(node, row)
    if not figures.whole:
        report.note(
            f"{peer.name}, {name}: lost {figures.lost}, reordered {figures.reordered}, dropped {figures.dropped}"
        )
    return figures


def summarise(report: Report, values: dict[str, list[Pair]]) -> None:
    """The upper end of each interval against what counts as a loss; ratio and lower end are shown."""
    for name, pairs in values.items():
        if name == PING.name:
            _judge(report, f"{name}: 1 / p50", [pair.theirs.p50_us / pair.ours.p50_us for pair in pairs])
        else:
            _judge(
                report,
                f"{name}: delivered",
                [pair.ours.delivered_per_s / pair.theirs.delivered_per_s for pair in pairs],
            )
        _judge(report, f"{name}: messages a CPU second", [pair.theirs.cpu_ns / pair.ours.cpu_ns for pair in pairs])
    lost = sum(pair.ours.lost + pair.ours.dropped + pair.ours.reordered for pairs in values.values() for pair in pairs)
    report.compare("messages lost, dropped or out of order in this tree", lost, "messages", "==", 0)


def _judge(report: Report, name: str, ratios: Sequence[float]) -> None:
    interval = Interval.of(ratios)
    report.show(f"{name}, of the other commit's", interval.ratio, f"times, {len(ratios)} pairs")
    report.show(f"{name}: 95 % interval from", interval.low, "times")
    report.compare(f"{name}: 95 % interval up to", interval.high, "times", ">=", LEAST)
