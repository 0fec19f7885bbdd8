"""`chappe bench clusters`: outliers among states of peers, found by density, on the source's six set-ups.

Each peer tells its state five times; 95 % of the states lie around three points or along a line, the others anywhere.
The source prints only how many outliers lie near a centroid; here the ones that were missed count, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from bench import charts
from bench.progress import followed
from bench.registry import Own
from bench.report import Options, Report
from chappe.pipeline import density, regions
from chappe.pipeline.curve import Arcs
from chappe.pipeline.density import ALONE, BITS, EXTENT, Floats, Mask, Numbers, Rule

REACH = 10.0
EVENTS = 5  # of each peer
NOISE = 0.05
WIDTHS = (10.0, 20.0, 30.0)  # states lie up to so far from their point or line in each direction
PLACES = ((64.0, 64.0), (192.0, 96.0), (104.0, 192.0))
LINE = ((32.0, 48.0), (224.0, 208.0))
FOUND, FALSE = 0.95, 0.02
SEEDS_A_ROUND = 4

# Table 5.1 of the source: outliers within reach of a centroid, as a share of all states, mean over widths.
PRINTED = {
    ("points", 100): 0.009, ("points", 500): 0.008, ("points", 1000): 0.013,
    ("lines", 100): 0.004, ("lines", 500): 0.016, ("lines", 1000): 0.035,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class States:
    """One window of states, and which of them were put anywhere."""

    where: Floats
    peer: Numbers
    injected: Mask

    @property
    def far(self) -> Mask:
        """Injected ones farther than the reach from every regular one: those that can be told from them."""
        apart: Floats = cKDTree(self.where[~self.injected]).query(self.where)[0]
        return self.injected & (apart > REACH)


@dataclass
class Tally:
    """Counts over all windows of one set-up."""

    states: int = 0
    far: int = 0
    found: int = 0
    injected: int = 0
    found_injected: int = 0
    false: int = 0
    near: int = 0  # outliers within reach of a centroid: what the source calls false
    centroids: int = 0
    notices: int = 0
    windows: int = 0

    def add(self, states: States, alone: Mask, centroids: Floats, notices: int) -> None:
        far = states.far
        self.states += len(states.where)
        self.far += int(far.sum())
        self.found += int((far & alone).sum())
        self.injected += int(states.injected.sum())
        self.found_injected += int((states.injected & alone).sum())
        self.false += int((alone & ~states.injected).sum())
        if len(centroids) and alone.any():
            self.near += int((cKDTree(centroids).query(states.where[alone])[0] <= REACH).sum())
        self.centroids += len(centroids)
        self.notices += notices
        self.windows += 1

    @property
    def found_share(self) -> float:
        return self.found / self.far if self.far else float("nan")

    @property
    def false_share(self) -> float:
        return self.false / self.states


def states(shape: str, peers: int, width: float, random: np.random.Generator) -> States:
    """A window of states around points or along a line."""
    count = peers * EVENTS
    if shape == "points":
        middle = np.array(PLACES)[random.integers(0, len(PLACES), count)]
    else:
        along = random.random((count, 1))
        middle = (1 - along) * np.array(LINE[0]) + along * np.array(LINE[1])
    regular = middle + random.uniform(-width, width, (count, 2))
    injected = random.random(count) < NOISE
    where = np.where(injected[:, None], random.random((count, 2)) * EXTENT, regular)
    return States(np.clip(where, 0, np.nextafter(EXTENT, 0)), np.repeat(np.arange(peers), EVENTS), injected)


def run(options: Options, own: Own) -> Report:
    """Judge every set-up by our rule and by the source's."""
    report = Report("clusters")
    seeds = 1 if options.quick else SEEDS_A_ROUND * options.rounds
    panels = {}
    for (shape, peers), printed in followed(options.console, "clusters", list(PRINTED.items()), lambda case: case[0]):
        ours, theirs = Tally(), Tally()
        for number, (each, arcs) in enumerate(_windows(shape, peers, seeds)):
            verdict = density.judge(each.where, each.peer, Rule(reach=REACH))
            alone = verdict.cluster == ALONE
            centroids = density.centroids(each.where, verdict.cluster, REACH).where
            ours.add(each, alone, centroids, 0)
            literal = regions.by_regions(each.where, arcs, regions.Thresholds(reach=REACH, notices="axis"))
            theirs.add(each, literal.alone, literal.centroids, literal.notices)
            if number == seeds:  # the first of the middle width
                panels[f"{peers} peers, {shape}"] = _panel(each, alone, centroids)
                _among_owners(report, f"{shape}, {peers} peers", each, arcs, alone)
        _tell(report, f"{shape}, {peers} peers", ours, theirs, printed)
    report.note(
        f"{seeds} windows of each width ({', '.join(f'{w:g}' for w in WIDTHS)} of {EXTENT:g}), {EVENTS} states a peer, "
        f"{NOISE:.0%} anywhere, reach {REACH:g}; the source's rule: theta 1, at least 2 points, notices by axis"
    )
    report.note(
        "false: regular states called outliers, of all states; the source counts outliers within reach of a centroid"
    )
    report.charts.append(charts.planes(options.charts / "clusters.png", "Outliers by density", panels))
    return report


def _windows(shape: str, peers: int, seeds: int) -> Iterator[tuple[States, Arcs]]:
    size = 1 << 2 * BITS
    for width in WIDTHS:
        for seed in range(seeds):
            random = np.random.default_rng([seed, peers, int(width), len(shape)])
            each = states(shape, peers, width, random)
            yield each, Arcs.at(random.choice(size, peers, replace=False), size)


def _tell(report: Report, name: str, ours: Tally, theirs: Tally, printed: float) -> None:
    report.compare(f"{name}: found of {ours.far:,} far outliers", 100 * ours.found_share, "%", ">=", 100 * FOUND)
    report.compare(f"{name}: false outliers", 100 * ours.false_share, "%", "<=", 100 * FALSE)
    report.show(f"{name}: near a centroid, as the source counts", 100 * ours.near / ours.states, "%")
    report.show(f"{name}: near a centroid, printed in the source", 100 * printed, "%")
    report.show(f"{name}: near a centroid, the source's rule here", 100 * theirs.near / theirs.states, "%")
    report.show(f"{name}: far outliers found by the source's rule", 100 * theirs.found_share, "%")
    report.show(f"{name}: false outliers by the source's rule", 100 * theirs.false_share, "%")
    report.show(f"{name}: found of all injected, those among regular ones included", 100 * _share(ours), "%")
    report.show(f"{name}: found of all injected by the source's rule", 100 * _share(theirs), "%")
    report.show(f"{name}: states a centroid", ours.states / max(ours.centroids, 1), "")
    report.show(f"{name}: states a centroid by the source's rule", theirs.states / max(theirs.centroids, 1), "")


def _share(tally: Tally) -> float:
    return tally.found_injected / max(tally.injected, 1)


def _among_owners(report: Report, name: str, each: States, arcs: Arcs, alone: Mask) -> None:
    """The same by owners of regions who only send notices: what they send, and that they find the same."""
    edge = density.side(REACH, 2)
    total = int(density.cells(each.where, each.peer, np.ones(len(each.where)), edge).peers.nnz)
    among = regions.exchanged(each.where, each.peer, arcs, Rule(reach=REACH), total)
    report.compare(f"{name}: verdicts that differ among owners", float((among.alone != alone).sum()), "states", "==", 0)
    report.show(f"{name}: notices a peer and window", among.notices / len(arcs), "")


def _panel(each: States, alone: Mask, centroids: Floats) -> dict[str, list[list[float]]]:
    return {
        "state": each.where[~alone].tolist(),
        "outlier": each.where[alone & each.injected].tolist(),
        "false outlier": each.where[alone & ~each.injected].tolist(),
        "missed": each.where[each.far & ~alone].tolist(),
        "centroid": centroids.tolist(),
    }
