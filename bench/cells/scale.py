"""Case scale: simulated cells of which one in a hundred leaves each second; what arrives, what a cell keeps."""

from __future__ import annotations

import gc
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from bench import charts
from bench.cells.scale_clients import Ends, Ledger
from bench.cells.scale_plan import START_S, UPDATE_S, Plan
from bench.cells.scale_trace import Trace
from bench.churn import collected_by_hand
from bench.progress import followed, spans
from bench.registry import CellsOptions
from bench.report import Options, Report
from chappe.cells.machine import Cells
from chappe.sim.churn import Churn

QUICK = 60
SHARE = 0.01  # of the cells leave each second
AWAY_S = 5.0  # on average
SECONDS, QUICK_SECONDS, SMALLER_SECONDS = 60, 15, 10  # of churn
SMALLER = (20, 10, 4)  # times smaller are the networks beside it
KNOWN_S = 60.0  # all names are known everywhere within this time after the start
UNICASTS_PER_S = 0.02  # of each cell
MULTICASTS_PER_S = 1.0  # of all
JUDGED_MULTICASTS = 20
SETTLED_NS = 5_000_000_000  # an end of a unicast has run for so long
QUIET_S = 30.0  # after churn, for what is under way
MINUTES = 30.0
SECOND_S = 15.0  # of CPU for a virtual second


@dataclass(slots=True)
class Outcome:
    """What one run showed."""

    cells: int
    known_s: float = float("nan")
    start_cpu_s: float = 0.0
    churn_cpu_s: float = 0.0  # of each virtual second
    left: int = 0
    due: int = 0
    missing: int = 0
    doubled: int = 0
    median_ms: float = 0.0
    hops: float = 0.0
    mains: float = 0.0
    churn_reached: float = 0.0  # share of those that a multicast during churn is for
    unreached: int = 0
    repeated: int = 0
    violations: int = 0
    excess: int = 0
    messages: float = 0.0  # of a cell in a virtual second of churn
    most_names: int = 0
    bound: int = 0
    kept: dict[str, float] = field(default_factory=dict)  # by a cell, on average
    notes: list[str] = field(default_factory=list)


def run(options: Options, own: CellsOptions, report: Report) -> None:
    """The network of that size, and smaller ones for the growth of what a cell keeps."""
    seed = secrets.randbits(32) if own.seed is None else own.seed
    cells = min(own.cells, QUICK) if options.quick else own.cells
    how = f"--cells {own.cells}{' --quick' if options.quick else ''}"
    report.note(f"scale: seed {seed}: `chappe bench cells --case scale {how} --seed {seed}` replays this run")
    sizes = sorted({cells, *(cells // part for part in SMALLER if cells // part >= 10)})
    seconds = QUICK_SECONDS if options.quick else SECONDS
    outcomes = [
        simulate(size, seed, seconds if size == cells else SMALLER_SECONDS, options)
        for size in followed(options.console, "scale", sizes, "{} cells".format)
    ]
    _judge(report, outcomes)
    kept: dict[str, list[tuple[float, float]]] = {
        what: [(one.cells, one.kept[what]) for one in outcomes] for what in outcomes[0].kept
    }
    path = options.charts / "cells-scale-state.png"
    report.charts.append(charts.curves(path, "What a cell keeps", "cells", "entries", kept))
    lines = {
        "links that a parcel passes": [(one.cells, one.hops) for one in outcomes],
        "main cells that decide": [(one.cells, one.mains) for one in outcomes],
    }
    path = options.charts / "cells-scale-hops.png"
    report.charts.append(charts.curves(path, "The way of a parcel", "cells", "on average", lines))


def simulate(cells: int, seed: int, seconds: int, options: Options) -> Outcome:
    """Start, wait until names are known, churn with messages, wait, multicast, look."""
    with collected_by_hand():
        return _Run(cells, seed, options).outcome(seconds)


class _Run:
    """One network with its clients."""

    def __init__(self, cells: int, seed: int, options: Options) -> None:
        self._options = options
        self._plan = Plan(cells, seed)
        self._network = network = self._plan.network
        self._ledger = Ledger()
        self._rng = network.streams.of("load")
        self._ends = [
            Ends(network.nodes[place.cell], place.names, self._ledger, network.streams.of("flows", place.cell))
            for place in self._plan.places
        ]
        self._trace = Trace(network, {place.cell: place.names for place in self._plan.places})
        self._outcome = Outcome(cells)
        self._loading = False

    def outcome(self, seconds: int) -> Outcome:
        outcome, network = self._outcome, self._network
        self._start()
        self._loading = True
        self._moments(UNICASTS_PER_S * len(self._ends), self._unicast)
        self._moments(MULTICASTS_PER_S, self._multicast)
        churn = Churn(network, SHARE, AWAY_S)
        churn.start()
        before, began = self._messages(), time.process_time()
        with spans(self._options.console, f"{outcome.cells} cells", seconds) as progress:
            for second in range(seconds):
                progress(second, "virtual seconds")
                network.run(1.0)
                if second % 10 == 9:
                    gc.collect()
                    self._say(f"{second + 1} s of churn, {(time.process_time() - began) / (second + 1):.1f} CPU s each")
        outcome.churn_cpu_s = (time.process_time() - began) / seconds
        outcome.messages = (self._messages() - before) / seconds / outcome.cells
        churn.stop()
        self._loading = False
        outcome.left = churn.left
        while churn.away:
            network.run(1.0)
        network.run(QUIET_S)
        self._unicasts()
        self._multicasts()
        self._look()
        return outcome

    def _start(self) -> None:
        outcome, network = self._outcome, self._network
        began = time.process_time()
        self._plan.begin()
        network.run(START_S)
        while network.clock.seconds < START_S + KNOWN_S and not self._known():
            network.run(1.0)
        if self._known():
            outcome.known_s = network.clock.seconds
        network.run(5 * UPDATE_S)
        outcome.start_cpu_s = time.process_time() - began
        self._say(f"names are known after {outcome.known_s:.0f} s, {outcome.start_cpu_s:.0f} CPU s")

    def _say(self, text: str) -> None:
        self._options.console.print(f"{self._outcome.cells} cells: {text}", highlight=False)

    # --- load

    def _moments(self, rate: float, happen: Callable[[], None]) -> None:
        def now() -> None:
            if self._loading:
                happen()
                self._moments(rate, happen)

        self._network.clock.after(self._rng.expovariate(rate), now)

    def _settled(self) -> list[Ends]:
        clock = self._network.clock
        return [ends for ends in self._ends if ends.node.running and ends.node.since_ns < clock.now_ns - SETTLED_NS]

    def _unicast(self) -> None:
        settled = self._settled()
        if len(settled) > 1:
            source, target = self._rng.sample(settled, 2)
            source.send(target, self._rng.choice(target.names))

    def _multicast(self) -> None:
        settled = self._settled()
        if settled:
            source = self._rng.choice(settled)
            parts = self._rng.choice(self._rng.choice(self._ends).names).split(".")
            prefix = ".".join(parts[: self._rng.randint(1, 3)]) + "."
            source.cast(prefix, self._under(prefix, settled, source))

    def _under(self, prefix: str, among: list[Ends], source: Ends) -> Iterator[str]:
        for ends in among:
            if ends is not source and any(name.startswith(prefix) for name in ends.names):
                yield ends.node.name

    # --- what came of it

    def _unicasts(self) -> None:
        outcome, took = self._outcome, []
        for unicast in self._ledger.unicasts.values():
            outcome.doubled += unicast.arrived > 1
            if unicast.arrived:
                took.append(unicast.took_ns / 1e6)
            if not unicast.due:
                continue
            outcome.due += 1
            if not unicast.arrived:
                outcome.missing += 1
                source, target = unicast.source.node.name, unicast.target.node.name
                why = unicast.failure or "no error"
                outcome.notes.append(
                    f"missing: from {source} to {target}, sent at {unicast.sent_ns / 1e9:.1f} s: {why}"
                )
        outcome.median_ms = float(np.median(took)) if took else float("nan")
        outcome.hops, outcome.mains = self._trace.hops, self._trace.mains

    def _multicasts(self) -> None:
        """Those of before are shown, those from now on are judged."""
        outcome, before = self._outcome, list(self._ledger.multicasts.values())
        wanted = sum(len(one.wanted) for one in before)
        reached = sum(len(one.wanted & one.got.keys()) for one in before)
        outcome.churn_reached = reached / max(1, wanted)
        for _ in range(JUDGED_MULTICASTS):
            self._multicast()
            self._network.run(0.25)
        self._network.run(5.0)
        for one in list(self._ledger.multicasts.values())[len(before) :]:
            missing = one.wanted - one.got.keys()
            outcome.unreached += len(missing)
            if missing:
                outcome.notes.append(f"{one.prefix}* did not reach {', '.join(sorted(missing)[:5])}")
        outcome.repeated = sum(count > 1 for one in self._ledger.multicasts.values() for count in one.got.values())

    # --- what is kept

    def _machines(self) -> list[Cells]:
        found = [node.core.cells for node in self._network.running()]
        return [cells for cells in found if cells is not None]

    def _messages(self) -> int:
        return sum(node.counts.control_in for node in self._network.nodes.values())

    def _known(self) -> bool:
        names = sum(len(ends.names) for ends in self._ends)
        return all(len(cells.trie) + len(cells.names) == names for cells in self._machines())

    def _look(self) -> None:
        outcome, machines = self._outcome, self._machines()
        outcome.violations = len(self._trace.violations)
        outcome.notes += self._trace.violations[:3]
        outcome.excess = sum(cells.counts.excess for cells in machines)
        outcome.most_names = max(len(cells.trie) for cells in machines)
        outcome.bound = int(machines[0].settings.slack * machines[0].settings.names)
        looks: dict[str, Callable[[Cells], int]] = {
            "names of others": lambda cells: len(cells.trie),
            "links": lambda cells: len(cells.neighbours),
            "cells within the radius": lambda cells: len(cells.neighbourhood.hops),
            "what neighbours advertise": lambda cells: sum(len(each.advert) for each in cells.neighbours.values()),
        }
        outcome.kept = {what: float(np.mean([look(cells) for cells in machines])) for what, look in looks.items()}
        if self._network.balance():
            outcome.notes.append(f"{self._network.balance()} bytes are unaccounted for")


def _judge(report: Report, outcomes: list[Outcome]) -> None:
    largest = outcomes[-1]
    report.show("scale: cells", largest.cells, "")
    report.show("scale: cells that left", largest.left, "")
    report.show("scale: all names known everywhere after", largest.known_s, "s")
    report.show("scale: unicasts, median", largest.median_ms, "ms")
    report.show("scale: of the cells under a prefix reached during churn", largest.churn_reached, "share")
    report.show("scale: control messages to a cell during churn", largest.messages, "/s")
    report.show("scale: until the churn begins", largest.start_cpu_s, "CPU s")
    for outcome in outcomes:
        for what, value in outcome.kept.items():
            report.show(f"scale: {outcome.cells} cells: {what}", value, "")
        report.show(f"scale: {outcome.cells} cells: links that a parcel passes", outcome.hops, "")
        report.show(f"scale: {outcome.cells} cells: main cells that decide about it", outcome.mains, "")
        report.show(f"scale: {outcome.cells} cells: a virtual second of churn", outcome.churn_cpu_s, "CPU s")
        for text in outcome.notes[:10]:
            report.note(f"scale: {outcome.cells} cells: {text}")
    report.compare("scale: unicasts between ends that lived throughout", largest.due, "", ">=", 10)
    report.compare("scale: of these missing", sum(one.missing for one in outcomes), "", "==", 0)
    report.compare("scale: unicasts that arrived twice", sum(one.doubled for one in outcomes), "", "==", 0)
    report.compare("scale: live cells that a multicast did not reach once quiet",
                   sum(one.unreached for one in outcomes), "", "==", 0)  # fmt: skip
    report.compare("scale: multicasts that came twice to a client", sum(one.repeated for one in outcomes), "", "==", 0)
    report.compare("scale: main cells that were not strictly nearer", sum(one.violations for one in outcomes), "",
                   "==", 0)  # fmt: skip
    report.compare("scale: names that a cell keeps, of slack times T",
                   max(one.most_names / one.bound for one in outcomes), "times", "<=", 1)  # fmt: skip
    report.compare("scale: a virtual second of churn", largest.churn_cpu_s, "CPU s", "<=", SECOND_S)
    whole = largest.start_cpu_s + largest.churn_cpu_s * SECONDS
    report.compare("scale: start and a minute of churn", whole / 60, "CPU min", "<=", MINUTES)
