"""A simulated mesh that one node in a hundred leaves each second: what it delivers, what its maps say once quiet."""

from __future__ import annotations

import gc
import math
import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from bench import charts
from bench.progress import followed, spans
from bench.registry import ChurnOptions
from bench.report import Options, Report
from chappe.errors import ConfigError
from chappe.events.member_settings import MemberSettings
from chappe.measure.readings import Settings as MeasureSettings
from chappe.sim.agreement import Convergence, State, disagreements, state_of
from chappe.sim.churn import Churn
from chappe.sim.client import Client
from chappe.sim.connection import Timing
from chappe.sim.ledger import Ledger, Sums
from chappe.sim.network import Network
from chappe.sim.plan import build, grown, meshed, thinned, units
from chappe.wire.patterns import Pattern, matches

SHARE = 0.01  # of the nodes leave each second
AWAY_S = 5.0  # until they come back, on average
FAN_OUT = 10  # nodes of a cluster, clusters of a unit, and so on
GATEWAYS = 4  # links between two neighbouring units, at most
NEIGHBOURS = 4  # links of a node inside its cluster, at least
EVENTS_PER_S = 0.01  # published by each node
SUBSCRIBERS = 5  # of each topic
SETTLE_S = 5.0  # convergence is over by then: what is due is judged
WARM_S = 10.0
SECONDS = 600.0  # of churn
SMALLER_S = 10.0  # of churn in the smaller meshes beside it, which show what a node keeps
SMALLER = (100, 20, 10, 5, 2)  # how many times
QUIET_S = 120.0  # maps must agree after that at the latest
PROBES_S = 10.0  # base interval of measurement: the latencies here never change, and probes would be most of the work
APART_KM = 400.0  # neighbours are about so far from each other
JITTER_MS = 0.02
GRAIN_MS = 2.0  # arrivals and timers are put off to whole multiples of it; a link takes 2 ms or so


@dataclass(slots=True)
class Outcome:
    """What one run showed."""

    nodes: int
    depth: int
    virtual_s: float = 0.0
    wall_s: float = 0.0
    happened: int = 0
    control: int = 0
    left: int = 0
    sums: Sums = field(default_factory=Sums)
    changes_s: list[tuple[float, str, float]] = field(default_factory=list)
    given_up: int = 0
    quiet_s: float = math.nan  # from the last change until all maps agreed
    wrong_maps: int = 0
    kept: list[State] = field(default_factory=list)  # by each node
    faults: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def entries(self) -> float:
        """What a node keeps, on average: advertisements, links, ways and patterns."""
        return float(np.mean([state.entries for state in self.kept]))

    @property
    def kilobytes(self) -> float:
        return float(np.mean([state.bytes for state in self.kept])) / 1e3


def run(options: Options, own: ChurnOptions) -> Report:
    """The mesh of that size under churn, smaller ones beside it for the growth of what a node keeps."""
    nodes, seconds = own.nodes, own.seconds
    if not 10 <= nodes <= 100_000:
        raise ConfigError(f"--nodes {nodes}: 10 to 100,000 can be simulated")
    chosen = secrets.randbelow(1 << 32) if own.seed is None else own.seed
    report = Report("churn")
    how = f"--nodes {nodes}{' --quick' if options.quick else ''}{f' --seconds {seconds:g}' if seconds else ''}"
    options.console.print(
        f"seed {chosen}: `chappe bench churn {how} --seed {chosen}` replays this run", highlight=False
    )
    seconds = seconds or (30.0 if options.quick else SECONDS)
    size = min(nodes, 100) if options.quick else nodes
    outcomes = [
        simulate(count, chosen, seconds if count == size else min(seconds, SMALLER_S), options.console)
        for count in followed(options.console, "churn", sizes(size), "{} nodes".format)
    ]
    _judge(report, outcomes, chosen)
    report.charts = [
        _growth_chart(options, outcomes),
        _convergence_chart(options, outcomes[-1]),
    ]
    return report


def sizes(nodes: int) -> list[int]:
    """The size asked for, and smaller ones down to one in which everybody knows everybody."""
    return sorted({nodes, *(nodes // part for part in SMALLER if nodes // part >= FAN_OUT)})


def depth_of(nodes: int) -> int:
    """Levels of things, with ten of each in the next: nodes in a cluster are one."""
    return max(1, math.ceil(math.log(nodes, FAN_OUT) - 1e-9))


def outermost(nodes: int) -> int:
    """Units at the top, so that each holds what a full one holds."""
    full = math.prod([FAN_OUT] * (depth_of(nodes) - 1))
    return max(2, round(nodes / full))


@contextmanager
def collected_by_hand() -> Iterator[None]:
    """Garbage is collected when asked for: looking through a thousand nodes after each few objects takes most time."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def simulate(nodes: int, seed: int, seconds: float, console: Console) -> Outcome:
    """Warm up, churn, wait until quiet, compare all maps."""
    with collected_by_hand():
        return _simulate(nodes, seed, seconds, console)


def _simulate(nodes: int, seed: int, seconds: float, console: Console) -> Outcome:
    began = time.perf_counter()
    network = mesh(nodes, seed)
    outcome = Outcome(nodes, depth_of(nodes))
    ledger = Ledger(network, _matches, SETTLE_S)
    convergence = Convergence(network)
    network.grow()
    network.run(WARM_S)
    _clients(network, ledger)
    network.run(SETTLE_S)
    churn = Churn(network, SHARE, AWAY_S)
    churn.start()
    with spans(console, f"{nodes} nodes", seconds) as progress:
        for second in range(round(seconds)):
            progress(second, "virtual seconds")
            network.run(1.0)
            ledger.close()
            if second % 60 == 59:
                gc.collect()
                console.print(
                    f"{nodes} nodes, {second + 1} virtual seconds in {time.perf_counter() - began:.0f} s: "
                    f"{churn.left} left, {ledger.sums.met} of {ledger.sums.due} due events delivered, "
                    f"{ledger.sums.repeats} repeats",
                    highlight=False,
                )
    churn.stop()
    while churn.away:
        network.run(0.5)
        ledger.close()
    _quiet(network, ledger, outcome)
    ledger.close()
    outcome.virtual_s = network.clock.seconds
    outcome.happened = network.clock.happened
    outcome.control = sum(node.counts.control_in for node in network.nodes.values())
    outcome.faults = sum(node.counts.faults + node.counts.full for node in network.nodes.values())
    outcome.left = churn.left
    outcome.sums = ledger.sums
    outcome.changes_s, outcome.given_up = convergence.times_s, len(convergence.given_up)
    outcome.kept = [state_of(node) for node in network.running()]
    outcome.notes += [f"due and not delivered: {missing}" for missing in ledger.missing[:5]]
    if network.balance():
        outcome.notes.append(f"{network.balance()} bytes are unaccounted for")
    outcome.wall_s = time.perf_counter() - began
    return outcome


def mesh(nodes: int, seed: int) -> Network:
    """A grown mesh in units of ten, with a few gateways between neighbouring units."""
    settings = MemberSettings(costs=False, measure=MeasureSettings(base_ns=round(PROBES_S * 1e9)))
    network = Network(seed, settings=settings, timing=Timing(grain_ms=GRAIN_MS))
    plan = grown(nodes, network.streams.of("plan"), width_km=APART_KM * math.sqrt(nodes), dense=True)
    places = units(plan, FAN_OUT, depth_of(nodes) - 1, outermost(nodes))
    plan = meshed(thinned(plan, places, GATEWAYS), places, NEIGHBOURS)
    build(network, plan, places, jitter_ms=JITTER_MS)
    return network


def _clients(network: Network, ledger: Ledger, rate: float = EVENTS_PER_S) -> None:
    """A publisher and a subscriber at each node; each publishes to one topic, at random moments."""
    rng = network.streams.of("clients")
    topics = [f"site/{number}/load" for number in range(max(1, len(network.nodes) // SUBSCRIBERS))]
    for node in network.nodes.values():
        subscriber = node.client("subscriber")
        subscriber.subscribe(rng.choice(topics))
        ledger.subscriber(subscriber)
        publisher = node.client("publisher")
        pause = network.streams.of("publisher", node.name)
        network.clock.after(rng.uniform(0, 1 / rate), _publish, ledger, publisher, rng.choice(topics), pause, rate)


def _publish(ledger: Ledger, publisher: Client, topic: str, pause: random.Random, rate: float) -> None:
    ledger.publish(publisher, topic)
    publisher.node.clock.after(pause.expovariate(rate), _publish, ledger, publisher, topic, pause, rate)


def _matches(pattern: str, topic: str) -> bool:
    return pattern == topic or matches(Pattern("s", pattern), "s", topic.encode())


def _quiet(network: Network, ledger: Ledger, outcome: Outcome) -> None:
    """Until all maps agree, or for two minutes."""
    since = network.clock.seconds
    while any(disagreements(network)) and network.clock.seconds - since < QUIET_S:
        network.run(0.5)
        ledger.close()
    wrong = list(disagreements(network))
    outcome.wrong_maps = len(wrong)
    outcome.notes += [f"map: {each}" for each in wrong[:3]]
    if not wrong:
        outcome.quiet_s = network.clock.seconds - since
        network.run(2 * SETTLE_S)


def _judge(report: Report, outcomes: list[Outcome], seed: int) -> None:
    largest = outcomes[-1]
    sums = largest.sums
    report.note(f"seed {seed}")
    report.show("nodes", largest.nodes, "")
    report.show("virtual time", largest.virtual_s, "s")
    report.show("run", largest.wall_s, "s")
    report.show("nodes that left", largest.left, "")
    report.show("events published", sums.published, "")
    report.show("events forwarded", sums.forwards, "")
    report.show("control messages", largest.control, "")
    report.show("control messages simulated", largest.control / largest.wall_s, "/s")
    report.show("sent on again: somebody on the way had lost a neighbour", sums.rerouted, "")
    report.show("sent on again: a unit had fallen apart", sums.parted, "")
    report.show("delivered though not due", sums.extra, "")
    report.show("delivered again, though not due: the node was started anew or cut off", sums.again, "")
    report.show("delivered out of order", sums.disorder, "")
    report.show("due, delivered after they were judged", sums.late, "")
    if largest.changes_s:
        times = np.array([took for _, _, took in largest.changes_s])
        report.show("convergence, median", float(np.median(times)), "s")
        report.show("convergence, 99 %", float(np.quantile(times, 0.99)), "s")
        report.show("convergence, longest", float(times.max()), "s")
    report.show("changes that were never known everywhere", largest.given_up, "")
    report.show("maps agreed after the last change", largest.quiet_s, "s")
    for outcome in outcomes:
        report.show(f"{outcome.nodes} nodes: advertisements, links, ways and patterns of a node", outcome.entries, "")
        report.show(f"{outcome.nodes} nodes: advertisements of a node", outcome.kilobytes, "kB")
        for text in outcome.notes:
            report.note(f"{outcome.nodes} nodes: {text}")
    report.compare("events due", sums.due, "", ">=", 100)
    report.compare("due and not delivered", sums.due - sums.met, "", "==", 0)
    report.compare("delivered twice", sum(outcome.sums.repeats for outcome in outcomes), "", "==", 0)
    report.compare("forwarded twice by one node", sum(outcome.sums.twice for outcome in outcomes), "", "==", 0)
    report.compare("maps that disagree once quiet", sum(outcome.wrong_maps for outcome in outcomes), "", "==", 0)
    report.compare("bad frames and full queues", sum(outcome.faults for outcome in outcomes), "", "==", 0)
    levels = [outcome for outcome in outcomes if outcome.depth > 1]
    if len(levels) > 1:
        logarithm, found = (
            _exponent([(o.nodes, value(o)) for o in levels]) for value in (lambda o: math.log(o.nodes), _entries)
        )
        report.show(f"exponent of a logarithm from {levels[0].nodes} to {largest.nodes}", logarithm, "")
        report.show("exponent of what a node keeps", found, "")
    ends = {outcome.nodes: outcome for outcome in outcomes}
    small, middle = (ends.get(largest.nodes // part) for part in (100, 10))
    if small is not None and middle is not None:
        text = f"state that {largest.nodes} instead of {middle.nodes} nodes add to a node, over what {middle.nodes} did"
        report.compare(text, _growth(small, middle, largest), "times", "<=", 1.25)
    report.compare("run", largest.wall_s / 60, "min", "<=", 30)


def _growth(small: Outcome, middle: Outcome, large: Outcome) -> float:
    """What ten times the nodes add to the state of a node, over what ten times the nodes added before.

    1 is a logarithm: each level of units costs the same. 10 would be growth with the number of nodes.
    """
    return (large.entries - middle.entries) / max(middle.entries - small.entries, 1.0)


def _entries(outcome: Outcome) -> float:
    return outcome.entries


def _exponent(points: list[tuple[int, float]]) -> float:
    """Of the power of the number of nodes that fits best; 0: no growth, 1: as the number of nodes."""
    sizes_of, values = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(sizes_of, values, 1)[0])


def _growth_chart(options: Options, outcomes: list[Outcome]) -> Path:
    base = outcomes[0]
    lines = {
        "kept by a node": [(o.nodes, o.entries) for o in outcomes],
        "logarithm": [(o.nodes, base.entries * math.log(o.nodes) / math.log(base.nodes)) for o in outcomes],
        "number of nodes": [(o.nodes, base.entries * o.nodes / base.nodes) for o in outcomes],
    }
    return charts.curves(options.charts / "churn-state.png", "What a node keeps of the mesh", "nodes", "entries", lines)


def _convergence_chart(options: Options, outcome: Outcome) -> Path:
    lines = {
        label: _distribution([took for _, what, took in outcome.changes_s if what == kind])
        for label, kind in (("a node left", "crash"), ("a node came", "restart"))
    }
    title = f"Time until a cluster knows of a change, {outcome.nodes} nodes"
    return charts.curves(options.charts / "churn-convergence.png", title, "seconds", "share that took longer", lines)


def _distribution(times_s: list[float]) -> list[tuple[float, float]]:
    ordered = sorted(times_s)
    return [(took, 1 - at / len(ordered)) for at, took in enumerate(ordered)]
