"""`chappe bench NAME --against COMMIT`: this tree beside another commit, in interleaved pairs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from bench import commits
from bench.report import Options, Report
from bench.rounds import Ceiling, Rounds, ratio

PAIRS = 20
LEAST = 0.97  # a 95 % interval that lies wholly below it is a loss


@dataclass(frozen=True)
class Sample:
    """What one tree did in one cell: figures of which more is better, and messages lost, dropped or out of order."""

    figures: Mapping[str, float]
    lost: int = 0


Measure = Callable[[str], Sample]


@dataclass(frozen=True)
class Compared:
    """What a bench compares: its cells, and how a source tree (None: this one) is measured in one of them."""

    cells: Sequence[str]
    side: Callable[[Path | None], contextlib.AbstractContextManager[Measure]]


@dataclass(frozen=True)
class Pair:
    """What both trees did within seconds of each other."""

    ours: Sample
    theirs: Sample


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
        if len(logs) < 2:
            return cls(math.nan, math.nan, math.nan)
        centre = float(logs.mean())
        half = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)))
        return cls(math.exp(centre), math.exp(centre - half), math.exp(centre + half))


def run(options: Options, bench: str, commit: str, compared: Compared) -> Report:
    """The figures of this tree as ratios of those of `commit`; higher is better in each."""
    report = Report(f"{bench}-against")
    options.console.print(f"building {commit}; a minute or two the first time", highlight=False)
    tree = commits.build(commit, commits.trees())
    report.versions |= {"this tree": commits.here(), "against": tree.sha[:12]}
    for name in commits.generators_differ(tree):
        report.note(f"the load generator differs, too ({name}): part of a difference may be its own")
    if options.quick:
        report.note("two pairs show that it runs: their intervals exclude nothing")
    rounds: Rounds[str, Pair] = Rounds(report, options.console, Ceiling())
    turns: dict[str, int] = {}
    with compared.side(None) as ours, compared.side(tree.folder) as theirs:

        def measured(cell: str) -> Pair:
            turns[cell] = turns.get(cell, 0) + 1
            if turns[cell] % 2:
                first = ours(cell)
                return Pair(first, theirs(cell))
            first = theirs(cell)
            return Pair(ours(cell), first)

        rounds.run(2 if options.quick else max(PAIRS, options.rounds), compared.cells, measured, "pairs")
    summarise(report, compared.cells, rounds.values)
    return report


def summarise(report: Report, cells: Sequence[str], values: Mapping[str, Sequence[Pair]]) -> None:
    """The upper end of each interval against what counts as a loss; ratio and lower end are shown."""
    for cell in cells:
        pairs = values.get(cell, ())
        if not pairs:  # nothing is known: a target that is missed
            _judge(report, cell, [])
        for figure in pairs[0].ours.figures if pairs else ():
            ratios = [ratio(pair.ours.figures[figure], pair.theirs.figures[figure]) for pair in pairs]
            _judge(report, f"{cell}: {figure}", ratios)
    lost = sum(pair.ours.lost for pairs in values.values() for pair in pairs)
    report.compare("messages lost, dropped or out of order in this tree", lost, "messages", "==", 0)


def _judge(report: Report, name: str, ratios: Sequence[float]) -> None:
    known = [each for each in ratios if 0 < each < math.inf]
    if len(known) < len(ratios):
        report.note(f"{name}: {len(ratios) - len(known)} of {len(ratios)} pairs had no figure, and are left out")
    interval = Interval.of(known)
    report.show(f"{name}, of the other commit's", interval.ratio, f"times, {len(known)} pairs")
    report.show(f"{name}: 95 % interval from", interval.low, "times")
    report.compare(f"{name}: 95 % interval up to", interval.high, "times", ">=", LEAST)
