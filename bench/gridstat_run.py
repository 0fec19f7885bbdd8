"""What the experiments of `chappe bench gridstat` share: streams over a mesh, observed and accounted for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.gridstat_source import Table
from bench.mesh import Mesh, topology
from bench.report import Options, Report
from bench.streams import Latencies, Sink, Stream, latencies

REFERENCE_NS = 50_000_000  # the reference variable of every experiment
LOAD_NS = 1_000_000  # each load variable


@dataclass(frozen=True)
class Times:
    """Of each measured case."""

    warm_s: float
    measured_s: float

    @property
    def whole_s(self) -> float:
        return self.warm_s + self.measured_s

    def part(self, rounds: int) -> Times:
        """Of one of that many rounds."""
        return Times(self.warm_s / rounds, self.measured_s / rounds)


@dataclass(frozen=True)
class Run:
    """What one case gave, over its measured part."""

    latencies: tuple[list[Latencies], ...]  # by stream, by sink
    cores: dict[str, float]  # by router
    lost: int
    reordered: int
    delivered_per_s: float


@dataclass
class Bench:
    """One run of the benchmark."""

    options: Options
    report: Report
    times: Times
    tables: list[Table] = field(default_factory=list)


def observe(mesh: Mesh | None, streams: Sequence[Stream], times: Times, names: Sequence[str] = ()) -> Run:
    """Let all streams run and account for every event."""
    for stream in streams:
        stream.start()
    time.sleep(times.warm_s)
    before = [stream.reading() for stream in streams]
    cpu = {name: mesh.cpu_s(name) for name in names} if mesh else {}
    time.sleep(times.measured_s)
    after = [stream.reading() for stream in streams]
    span = after[0].at - before[0].at
    cores = {name: (mesh.cpu_s(name) - cpu[name]) / span for name in names} if mesh else {}
    lost = reordered = 0
    for stream in streams:
        account = stream.account()
        lost += account.lost
        reordered += account.reordered + account.wrong
    delivered = sum(
        sum(late.received) - sum(early.received) for early, late in zip(before, after, strict=True)
    )  # fmt: skip
    noted = tuple(latencies(early, late) for early, late in zip(before, after, strict=True))
    return Run(noted, cores, lost, reordered, delivered / span)


def load(mesh: Mesh, source: str, sinks: Sequence[Sink], rate: float, times: Times, nominal: bool = False) -> Stream:
    """That many events a second of load variables, each every millisecond."""
    topics = max(1, round(rate * LOAD_NS / 1e9))
    return Stream(
        mesh.port(source), sinks, topics=topics, period_ns=LOAD_NS, nominal=nominal, seconds=times.whole_s + 5
    )


def reference(mesh: Mesh, source: str, sinks: Sequence[str], nominal: bool = False) -> Stream:
    """The reference variable: 20 events a second; `nominal` stamps differ even if the generator was held up."""
    places = [Sink(mesh.port(name)) for name in sinks]
    return Stream(mesh.port(source), places, topics=1, period_ns=REFERENCE_NS, nominal=nominal)


def chain(*routers: str, inner: Sequence[str] = ()) -> Mesh:
    """Routers in a row, in one cloud."""
    return Mesh(topology({"cloud": routers}, list(itertools.pairwise(routers)), inner=inner))


def show(report: Report, name: str, one: Latencies, outcome: Run | None) -> None:
    for label, value in (("mean", one.mean_us), ("deviation", one.sd_us), ("p99", one.p99_us), ("most", one.max_us)):
        report.show(f"{name}: {label}", value, "us")
    if outcome is not None:
        report.show(f"{name}: delivered", outcome.delivered_per_s, "events/s")
        for router, cores in outcome.cores.items():
            report.show(f"{name}: {router}", cores * 100, "% of a core")
