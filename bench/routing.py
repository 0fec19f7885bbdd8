"""Delivered latencies beside those of an all-knowing shortest path, on real topologies whose latencies change."""

from __future__ import annotations

import math
import multiprocessing
import os
import secrets
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from bench import charts
from bench.progress import followed
from bench.registry import RoutingOptions
from bench.report import Options, Report
from chappe.errors import ConfigError
from chappe.events.member_settings import MemberSettings
from chappe.sim.client import Arrival, Client
from chappe.sim.clock import Streams
from chappe.sim.latencies import Latencies, read, walk
from chappe.sim.network import Network
from chappe.sim.plan import Plan, build, topology

TOPOLOGIES = (
    "sndlib/abilene", "sndlib/atlanta", "sndlib/cost266", "sndlib/france", "sndlib/geant", "sndlib/germany50",
    "sndlib/india35", "sndlib/janos-us", "sndlib/janos-us-ca", "sndlib/newyork", "sndlib/nobel-eu",
    "sndlib/nobel-germany", "sndlib/nobel-us", "sndlib/norway", "sndlib/polska", "topozoo/AttMpls",
    "topozoo/BtNorthAmerica", "topozoo/Geant2012", "topozoo/Internetmci", "topozoo/Uunet",
)  # fmt: skip
QUICK = ("sndlib/nobel-us", "topozoo/Internetmci")
SECONDS = 180.0
WARM_S = 15.0
PAIRS = 30  # publisher and subscriber each
EVENTS_PER_S = 1.0  # of each pair
JITTER_MS = 0.05
TARGET = 1.05


@dataclass(frozen=True)
class Subject:
    """A network under test: where its latencies go, and what is measured on it."""

    plan: Plan
    latencies: Latencies
    seconds: float


@dataclass(frozen=True)
class Found:
    """What one way of routing gave: latency of each event over that of the best way at its sending."""

    ratios: NDArray[np.float64]
    lost: int

    @property
    def median(self) -> float:
        return float(np.median(self.ratios)) if len(self.ratios) else math.nan

    @property
    def mean(self) -> float:
        return float(self.ratios.mean()) if len(self.ratios) else math.nan

    @property
    def worst(self) -> float:
        """What one event in twenty is above."""
        return float(np.quantile(self.ratios, 0.95)) if len(self.ratios) else math.nan


def run(options: Options, own: RoutingOptions) -> Report:
    """Each topology twice from the same seed: routing on what is measured, and by the number of hops."""
    chosen = secrets.randbelow(1 << 32) if own.seed is None else own.seed
    report = Report("routing")
    report.note(f"seed {chosen}: --seed {chosen} replays this run")
    began = time.perf_counter()
    table: dict[str, tuple[Found, Found]] = {}
    names = tuple(name.strip() for name in own.topologies.split(",") if name.strip())
    subjects = _subjects(options, names, own.trace, chosen)
    workers = min(len(subjects), len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = {
            name: [pool.submit(measure, subject, chosen, performance) for performance in (True, False)]
            for name, subject in subjects.items()
        }
        for name, subject in followed(options.console, "routing", list(subjects.items()), lambda case: case[0]):
            measured, static = (run.result() for run in runs[name])
            table[name] = (measured, static)
            options.console.print(
                f"{name}: {len(subject.plan.nodes)} nodes, {measured.mean:.3f} times the ideal on average "
                f"(5 % above {measured.worst:.2f}), by hops {static.mean:.3f} (5 % above {static.worst:.2f})",
                highlight=False,
            )
    _judge(report, table, time.perf_counter() - began)
    report.charts = [_chart(options, table)]
    return report


def _subjects(options: Options, topologies: tuple[str, ...], trace: Path | None, seed: int) -> dict[str, Subject]:
    seconds = 60.0 if options.quick else SECONDS
    streams = Streams(seed)
    latencies = None if trace is None else read(trace)
    if latencies is not None:
        seconds = max(seconds if len(latencies.times_s) == 1 else 0.0, float(latencies.times_s[-1]))
        if seconds <= 2 * WARM_S:
            raise ConfigError(f"{trace}: it ends after {seconds:g} s, at least {2 * WARM_S:g} are needed")
        if not topologies:
            return {str(trace): Subject(latencies.plan(str(trace)), latencies, seconds)}
    plans = [topology(key) for key in topologies or (QUICK if options.quick else TOPOLOGIES)]
    if latencies is not None:
        for plan in plans:
            _fits(plan, latencies, str(trace))
        return {plan.name: Subject(plan, latencies, seconds) for plan in plans}
    return {plan.name: Subject(plan, walk(plan, seconds, streams.of("walk", plan.name)), seconds) for plan in plans}


def _fits(plan: Plan, latencies: Latencies, trace: str) -> None:
    links = {frozenset(link[:2]) for link in plan.links}
    for a, b in latencies.links:
        if frozenset((a, b)) not in links:
            raise ConfigError(
                f"{trace}: {a}-{b} is no link of {plan.name}; give one topology that has these links, or none"
            )


def measure(subject: Subject, seed: int, performance: bool) -> Found:
    """Run a network with events between random pairs, and compare each arrival with the best that was possible."""
    settings = MemberSettings(costs=False)
    settings = replace(settings, map=replace(settings.map, performance=performance))
    network = Network(seed, settings=settings)
    build(network, subject.plan, jitter_ms=JITTER_MS)
    network.start()
    subject.latencies.play(network)
    start_ns = network.clock.now_ns
    best = ideals(subject)
    pairs = _pairs(subject.plan, network.streams)
    index = {name: at for at, name in enumerate(subject.plan.nodes)}
    sent: dict[tuple[bytes, int], tuple[int, int, int]] = {}
    ratios: list[float] = []

    def arrived(client: Client, arrival: Arrival) -> None:
        found = sent.pop((arrival.issuer, arrival.sequence), None)
        if found is not None:
            sent_ns, a, b = found
            row = int(np.searchsorted(subject.latencies.times_s, (sent_ns - start_ns) / 1e9, side="right")) - 1
            ratios.append((arrival.when_ns - sent_ns) / 1e6 / float(best[max(row, 0), a, b]))

    def publish(number: int, publisher: Client, a: int, b: int) -> None:
        sent[publisher.issuer, publisher.published + 1] = (network.clock.now_ns, a, b)
        publisher.publish(f"pair/{number}")
        if (network.clock.now_ns - start_ns) / 1e9 < subject.seconds - 2:
            network.clock.after(1 / EVENTS_PER_S, publish, number, publisher, a, b)

    for number, (a, b) in enumerate(pairs):
        subscriber = network.nodes[b].client(f"to {number}")
        subscriber.subscribe(f"pair/{number}")
        subscriber.on_arrival = arrived
        publisher = network.nodes[a].client(f"from {number}")
        network.clock.after(WARM_S + number / PAIRS, publish, number, publisher, index[a], index[b])
    network.run(subject.seconds)
    return Found(np.array(ratios), len(sent))


def ideals(subject: Subject) -> NDArray[np.float64]:
    """Least mean latency between any two nodes at each time, in ms."""
    plan = subject.plan
    index = {name: at for at, name in enumerate(plan.nodes)}
    rows = [index[a] for a, _, _ in plan.links]
    columns = [index[b] for _, b, _ in plan.links]
    size = len(plan.nodes)
    found = np.empty((len(subject.latencies.times_s), size, size))
    for at, ms in enumerate(subject.latencies.over(plan)):
        weights = np.maximum(ms + JITTER_MS, 1e-9)
        found[at] = dijkstra(csr_array((weights, (rows, columns)), shape=(size, size)), directed=False)
    return found


def _pairs(plan: Plan, streams: Streams) -> list[tuple[str, str]]:
    rng = streams.of("pairs", plan.name)
    return [tuple(rng.sample(plan.nodes, 2)) for _ in range(PAIRS)]  # type: ignore[misc]


def _judge(report: Report, table: dict[str, tuple[Found, Found]], wall_s: float) -> None:
    for name, (measured, static) in table.items():
        report.show(f"{name}: delivered over ideal, median", measured.median, "times")
        report.show(f"{name}: by hops, median", static.median, "times")
    everything = np.concatenate([measured.ratios for measured, _ in table.values()])
    hops = np.concatenate([static.ratios for _, static in table.values()])
    report.show("topologies", len(table), "")
    report.show("events", len(everything), "")
    report.show("run", wall_s, "s")
    report.show("delivered over ideal, mean", float(everything.mean()), "times")
    report.show("delivered over ideal, one in twenty above", float(np.quantile(everything, 0.95)), "times")
    worst = max(measured.median for measured, _ in table.values())
    report.show("delivered over ideal, median of the worst topology", worst, "times")
    report.show("by hops, median", float(np.median(hops)), "times")
    report.show("by hops, mean", float(hops.mean()), "times")
    report.show("by hops, one in twenty above", float(np.quantile(hops, 0.95)), "times")
    report.compare("delivered over ideal, median of all events", float(np.median(everything)), "times", "<=", TARGET)
    report.compare("events that did not arrive", sum(measured.lost for measured, _ in table.values()), "", "==", 0)


def _chart(options: Options, table: dict[str, tuple[Found, Found]]) -> Path:
    """Share of events whose latency is above a multiple of the ideal."""
    lines = {
        label: _distribution(np.concatenate([found[at].ratios for found in table.values()]))
        for at, label in enumerate(("routed on what was measured", "routed by hops"))
    }
    title = f"Delivered latency over that of an all-knowing shortest path, {len(table)} topologies"
    return charts.curves(options.charts / "routing.png", title, "times the ideal", "share of events above", lines)


def _distribution(ratios: NDArray[np.float64]) -> list[tuple[float, float]]:
    shares = [*np.linspace(0.99, 0.1, 40), *np.geomspace(0.1, 0.001, 20)]
    return [(float(np.quantile(ratios, 1 - share)), float(share)) for share in shares]
