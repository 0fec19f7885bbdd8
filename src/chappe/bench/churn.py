"""A simulated mesh that one node in a hundred leaves each second: what it delivers, what its maps say once quiet."""

from __future__ import annotations

import math
import random
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console

from chappe.bench import charts
from chappe.bench.report import Options, Report
from chappe.errors import ConfigError
from chappe.events.member import MemberSettings
from chappe.measure.readings import Settings as MeasureSettings
from chappe.netmap.settings import Settings as MapSettings
from chappe.sim.agreement import Convergence, disagreements, state_size
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
EVENTS_PER_S = 0.05  # published by each node
SUBSCRIBERS = 5  # of each topic
SETTLE_S = 5.0  # convergence is over by then: what is due is judged
WARM_S = 10.0
SECONDS = 600.0  # of churn
SMALLER_S = 60.0  # of churn in the smaller meshes beside it
QUIET_S = 120.0  # maps must agree after that at the latest
PROBES_S = 10.0  # base interval of measurement
COMPUTED_S = 1.0  # a map is computed so often at most, unless an event asks for a way
APART_KM = 400.0  # neighbours are about so far from each other
JITTER_MS = 0.02
GRAIN_MS = 0.5  # arrivals are put off to whole multiples of it


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
    adverts: float = 0.0  # kept by a node, on average
    links: float = 0.0  # in the map of a node, on average
    faults: int = 0
    notes: list[str] = field(default_factory=list)


def run(options: Options, nodes: int = 1000, seed: int | None = None, seconds: float = 0.0) -> Report:
    """The mesh of that size under churn, smaller ones beside it for the growth of what a node keeps."""
    if not 10 <= nodes <= 100_000:
        raise ConfigError(f"--nodes {nodes}: 10 to 100,000 can be simulated")
    chosen = secrets.randbelow(1 << 32) if seed is None else seed
    report = Report("churn")
    how = f"--nodes {nodes}{' --quick' if options.quick else ''}{f' --seconds {seconds:g}' if seconds else ''}"
    options.console.print(
        f"seed {chosen}: `chappe bench churn {how} --seed {chosen}` replays this run", highlight=False
    )
    seconds = seconds or (30.0 if options.quick else SECONDS)
    size = min(nodes, 100) if options.quick else nodes
    outcomes = [
        simulate(count, chosen, seconds if count == size else min(seconds, SMALLER_S), options.console)
        for count in sizes(size)
    ]
    _judge(report, outcomes, chosen)
    report.charts = [
        _growth_chart(options, outcomes),
        _convergence_chart(options, outcomes[-1]),
    ]
    return report


def sizes(nodes: int) -> list[int]:
    """The size asked for, and smaller ones of which each has a level of units less."""
    fan_out = nodes ** (1 / depth_of(nodes))
    return sorted({nodes, *(round(fan_out**level) for level in range(1, depth_of(nodes)))})


def depth_of(nodes: int) -> int:
    """Levels of things: nodes in a cluster are one."""
    return max(1, round(math.log(nodes, FAN_OUT)))


def simulate(nodes: int, seed: int, seconds: float, console: Console) -> Outcome:
    """Warm up, churn, wait until quiet, compare all maps."""
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
    for second in range(round(seconds)):
        network.run(1.0)
        ledger.close()
        if second % 60 == 59:
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
    kept = np.array([state_size(node) for node in network.running()])
    outcome.adverts, outcome.links = (float(mean) for mean in kept.mean(axis=0))
    outcome.notes += [f"due and not delivered: {missing}" for missing in ledger.missing[:5]]
    if network.balance():
        outcome.notes.append(f"{network.balance()} bytes are unaccounted for")
    outcome.wall_s = time.perf_counter() - began
    return outcome


def mesh(nodes: int, seed: int) -> Network:
    """A grown mesh in units of ten, with a few gateways between neighbouring units."""
    settings = MemberSettings(
        costs=False,
        measure=MeasureSettings(base_ns=round(PROBES_S * 1e9)),
        map=MapSettings(recompute_ns=round(COMPUTED_S * 1e9), settle_ns=round(1.2 * COMPUTED_S * 1e9)),
    )
    network = Network(seed, settings=settings, timing=Timing(grain_ms=GRAIN_MS))
    plan = grown(nodes, network.streams.of("plan"), width_km=APART_KM * math.sqrt(nodes), dense=True)
    depth = depth_of(nodes)
    places = units(plan, round(nodes ** (1 / depth)), depth - 1)
    plan = meshed(thinned(plan, places, GATEWAYS), places, NEIGHBOURS)
    build(network, plan, places, jitter_ms=JITTER_MS)
    return network


def _clients(network: Network, ledger: Ledger) -> None:
    """A publisher and a subscriber at each node; each publishes to one topic, at random moments."""
    rng = network.streams.of("clients")
    topics = [f"site/{number}/load" for number in range(max(1, len(network.nodes) // SUBSCRIBERS))]
    for node in network.nodes.values():
        subscriber = node.client("subscriber")
        subscriber.subscribe(rng.choice(topics))
        ledger.subscriber(subscriber)
        publisher = node.client("publisher")
        pause = network.streams.of("publisher", node.name)
        network.clock.after(rng.uniform(0, 1 / EVENTS_PER_S), _publish, ledger, publisher, rng.choice(topics), pause)


def _publish(ledger: Ledger, publisher: Client, topic: str, pause: random.Random) -> None:
    ledger.publish(publisher, topic)
    publisher.node.clock.after(pause.expovariate(EVENTS_PER_S), _publish, ledger, publisher, topic, pause)


def _matches(pattern: str, topic: str) -> bool:
    return pattern == topic or matches(Pattern("s", pattern), "s", topic.encode())


def _quiet(network: Network, ledger: Ledger, outcome: Outcome) -> None:
    """Until all maps agree, or for two minutes."""
    since = network.clock.seconds
    wrong = disagreements(network)
    while wrong and network.clock.seconds - since < QUIET_S:
        network.run(0.5)
        ledger.close()
        wrong = disagreements(network)
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
    report.show("sent on again: somebody on the way had lost a neighbour", sums.rescued, "")
    report.show("sent on again: a unit had fallen apart", sums.parted, "")
    report.show("delivered though not due", sums.extra, "")
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
        report.show(f"{outcome.nodes} nodes: advertisements kept by a node", outcome.adverts, "")
        report.show(f"{outcome.nodes} nodes: links in the map of a node", outcome.links, "")
        for text in outcome.notes:
            report.note(f"{outcome.nodes} nodes: {text}")
    report.compare("events due", sums.due, "", ">=", 100)
    report.compare("due and not delivered", sums.due - sums.met, "", "==", 0)
    report.compare("delivered twice", sum(outcome.sums.repeats for outcome in outcomes), "", "==", 0)
    report.compare("forwarded twice by one node", sum(outcome.sums.twice for outcome in outcomes), "", "==", 0)
    report.compare("maps that disagree once quiet", sum(outcome.wrong_maps for outcome in outcomes), "", "==", 0)
    report.compare("bad frames and full queues", sum(outcome.faults for outcome in outcomes), "", "==", 0)
    if len(outcomes) > 2:
        text = (
            f"state that a node keeps for {outcomes[-1].nodes} instead of {outcomes[-2].nodes} nodes, over that before"
        )
        report.compare(text, _growth(outcomes), "times", "<=", 1.25)
    report.compare("run", largest.wall_s / 60, "min", "<=", 30)


def _growth(outcomes: list[Outcome]) -> float:
    """What ten times the nodes add to the state of a node, over what ten times the nodes added before.

    1 is a logarithm: each level of units costs the same. 10 would be growth with the number of nodes.
    """
    small, middle, large = (outcome.adverts + outcome.links for outcome in outcomes[-3:])
    return (large - middle) / max(middle - small, 1.0)


def _growth_chart(options: Options, outcomes: list[Outcome]) -> Path:
    base = outcomes[0]
    lines = {
        "advertisements": [(o.nodes, o.adverts) for o in outcomes],
        "links in the map": [(o.nodes, o.links) for o in outcomes],
        "logarithm": [(o.nodes, base.adverts * math.log(o.nodes) / math.log(base.nodes)) for o in outcomes],
        "nodes": [(o.nodes, base.adverts * o.nodes / base.nodes) for o in outcomes],
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
