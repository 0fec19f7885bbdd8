"""Variables in a simulated mesh that nodes leave and come back to: who gets values, and what links carry of them."""

from __future__ import annotations

import gc
import random
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import charts
from bench.churn import AWAY_S, SETTLE_S, SHARE, WARM_S, collected_by_hand, mesh
from bench.progress import followed, spans
from bench.registry import DemandOptions
from bench.report import Options, Report
from chappe.core.directory import Entry
from chappe.sim.churn import Churn
from chappe.sim.client import Client
from chappe.sim.network import Network
from chappe.sim.node import Node
from chappe.wire.base import Failed, Message
from chappe.wire.control import Register, Registered, Watch, Watching

SECOND = 1_000_000_000
NODES, VARIABLES, WATCHES = 300, 10_000, 30_000
SECONDS = 300.0  # of churn
EVERY = (1, 2, 4)  # seconds from one value to the next that a watch wants; each variable has one a second
WAIT_NS = 60 * SECOND
ENOUGH = 200  # values that a link must have carried to be judged alone
SMALLER = (10, 3)  # how many times smaller the meshes beside it are

RECORD = np.dtype([("created", ">i8"), ("id", ">u4"), ("blocks", "u1"), ("spare", "V3"), ("value", ">i8")])


class Publisher:
    """One client with many variables; it registers them again when its node is back."""

    def __init__(self, node: Node, variables: int) -> None:
        self.node = node
        self._names = [f"v{number}" for number in range(variables)]
        self._ids: list[int] = []
        self.client = node.client(f"p-{node.name}")
        self.client.on_attach = self._register
        self.client.on_answer = self._answered
        self._register(self.client)

    def _register(self, client: Client) -> None:
        self._ids = []
        for name in self._names:
            client.request(Register, publisher=client.name, variable=name, type="int", rate_num=1, rate_den=SECOND)

    def _answered(self, client: Client, message: Message) -> None:
        if isinstance(message, Registered):
            self._ids.append(message.variable_id)

    def publish(self, created_ns: int) -> None:
        """A value of each variable."""
        if self.client.attached and self._ids:
            records = np.zeros(len(self._ids), RECORD)
            records["created"], records["id"] = created_ns, self._ids
            self.client.publish_records(records.tobytes())


@dataclass(slots=True)
class Watches:
    """All watches of the mesh, by number."""

    at: NDArray[np.int64]  # node of the watcher
    source: NDArray[np.int64]  # node of the publisher
    every: NDArray[np.int64]
    last_s: NDArray[np.float64]  # when the last value came
    since_s: NDArray[np.float64]  # since when both ends run and are connected


class Watcher:
    """The client of one node that watches; it asks again when its node is back, and for what was not there."""

    def __init__(self, network: Network, node: Node, watches: Watches, wanted: dict[tuple[str, str], int]) -> None:
        self._network = network
        self._watches = watches
        self._wanted = wanted
        self._asked: dict[int, int] = {}  # request -> watch
        self._numbers: dict[int, int] = {}  # variable id -> watch
        self.client = node.client("watcher")
        self.client.on_attach = self._watch_all
        self.client.on_answer = self._answered
        self.client.on_records = self._take
        self._watch_all(self.client)

    def _watch_all(self, client: Client) -> None:
        self._asked.clear()
        self._numbers.clear()
        for name in self._wanted:
            self._ask(name)

    def _ask(self, name: tuple[str, str]) -> None:
        watch = self._wanted[name]
        interval_ns = int(self._watches.every[watch]) * SECOND
        number = self.client.request(
            Watch, publisher=name[0], variable=name[1], interval_ns=interval_ns, wait_ns=WAIT_NS
        )
        self._asked[number] = watch

    def _answered(self, client: Client, message: Message) -> None:
        if isinstance(message, Watching):
            self._numbers[message.variable_id] = self._asked.pop(message.id)
        elif isinstance(message, Failed) and message.id in self._asked:
            watch = self._asked.pop(message.id)
            name = next(name for name, number in self._wanted.items() if number == watch)
            self._network.clock.after(1.0, self._again, name, client.port)
        client.answers.clear()

    def _again(self, name: tuple[str, str], port: int) -> None:
        if self.client.port == port:
            self._ask(name)

    def _take(self, payload: bytes) -> None:
        now_s, last_s = self._network.clock.seconds, self._watches.last_s
        for variable_id in np.frombuffer(payload, RECORD)["id"].tolist():
            watch = self._numbers.get(variable_id)
            if watch is not None:
                last_s[watch] = now_s


@dataclass(slots=True)
class Outcome:
    """What one run showed."""

    nodes: int
    left: int = 0
    late: int = 0  # seconds in which a watch was without values for too long, all together
    longest_s: float = 0.0  # without a value, beyond the interval, while both ends were connected
    values: int = 0  # carried by links
    wanted: int = 0  # of these by the intervals behind each link
    worst: float = 0.0  # of one link, of what was wanted behind it
    missing: int = 0  # watches without values at the end, though their ends are connected
    kept: list[int] = field(default_factory=list)  # by node: variables, and what it looks for
    notes: list[str] = field(default_factory=list)


def run(options: Options, own: DemandOptions) -> Report:
    """The whole mesh, and smaller ones that show what a node keeps."""
    report = Report("demand-sim")
    seed = secrets.randbits(32) if own.seed is None else own.seed
    report.note(f"seed {seed}: `chappe bench demand --sim --seed {seed}` replays this run")
    size = 30 if options.quick else own.nodes
    seconds = 10.0 if options.quick else SECONDS
    sizes = [size // part for part in SMALLER] if not options.quick else []
    outcomes = [
        simulate(nodes, seed, seconds if nodes == size else 10.0, options)
        for nodes in followed(options.console, "demand --sim", [*sizes, size])
    ]
    _judge(report, outcomes)
    if len(outcomes) > 1:
        lines = {"variables and searches": [(one.nodes, float(np.mean(one.kept))) for one in outcomes]}
        path = options.charts / "demand-state.png"
        title = "What a node keeps of variables, 100 watches at each"
        report.charts.append(charts.curves(Path(path), title, "nodes", "entries", lines))
    return report


def simulate(nodes: int, seed: int, seconds: float, options: Options) -> Outcome:
    """Grow, watch, churn, and look at every second."""
    with collected_by_hand():
        return _simulate(nodes, seed, seconds, options)


def _simulate(nodes: int, seed: int, seconds: float, options: Options) -> Outcome:
    network = mesh(nodes, seed)
    outcome = Outcome(nodes)
    network.grow()
    network.run(WARM_S)
    rng = network.streams.of("demand")
    publishers, watches = _clients(network, rng)
    _every_second(network, lambda: _publish(network, publishers))
    network.run(WARM_S + SETTLE_S)
    look = Look(network, watches, outcome)
    _every_second(network, look.publishing)
    churn = Churn(network, SHARE, AWAY_S)
    churn.start()
    with spans(options.console, f"{nodes} nodes", seconds) as progress:
        for second in range(round(seconds)):
            progress(second, "virtual seconds")
            network.run(1.0)
            look.second()
            if second % 60 == 59:
                gc.collect()
                options.console.print(
                    f"{nodes} nodes, {second + 1} virtual seconds: {churn.left} left, "
                    f"{outcome.values:,} values carried, {outcome.late} seconds too late",
                    highlight=False,
                )
    churn.stop()
    while churn.away:
        network.run(1.0)
        look.second()
    for _ in range(15):
        network.run(1.0)
        look.second()
    look.finish()
    outcome.left = churn.left
    outcome.kept = [_kept(node) for node in network.running()]
    return outcome


def _clients(network: Network, rng: random.Random) -> tuple[list[Publisher], Watches]:
    """A publisher and a watcher at each node."""
    names = sorted(network.nodes)
    each, watched = max(1, VARIABLES * len(names) // NODES // len(names)), WATCHES // NODES
    publishers = [Publisher(network.nodes[name], each) for name in names]
    total = watched * len(names)
    now_s = network.clock.seconds
    watches = Watches(
        np.repeat(np.arange(len(names)), watched), np.zeros(total, np.int64), np.zeros(total, np.int64),
        np.full(total, now_s), np.full(total, now_s),
    )  # fmt: skip
    for at, name in enumerate(names):
        wanted: dict[tuple[str, str], int] = {}
        while len(wanted) < watched:
            source = rng.randrange(len(names))
            key = f"p-{names[source]}", f"v{rng.randrange(each)}"
            if key not in wanted:
                watch = wanted[key] = at * watched + len(wanted)
                watches.source[watch], watches.every[watch] = source, rng.choice(EVERY)
        Watcher(network, network.nodes[name], watches, wanted)
    return publishers, watches


def _every_second(network: Network, call: Callable[[], None]) -> None:
    clock = network.clock

    def again() -> None:
        call()
        clock.at(clock.now_ns + SECOND, again)

    clock.at(clock.now_ns + SECOND - clock.wall_ns % SECOND, again)


def _publish(network: Network, publishers: list[Publisher]) -> None:
    for publisher in publishers:
        publisher.publish(network.clock.wall_ns)


class Look:
    """What is seen once a second, between two rounds of values."""

    def __init__(self, network: Network, watches: Watches, outcome: Outcome) -> None:
        self._network = network
        self._watches = watches
        self._outcome = outcome
        self._names = sorted(network.nodes)
        self._places = {name: at for at, name in enumerate(self._names)}
        self._before: dict[tuple[str, str], tuple[int, int]] = {}  # by link: life of the node, values out
        self._carried: Counter[tuple[str, str]] = Counter()
        self._wanted: Counter[tuple[str, str]] = Counter()
        self._peers: dict[str, dict[int, str]] = {}  # by node: its neighbours by their ports
        # Half way between two rounds: what was published has arrived.
        network.run((SECOND - network.clock.wall_ns % SECOND + SECOND // 2) % SECOND / 1e9)
        self._count()
        self._carried.clear()

    def publishing(self) -> None:
        """A round is published now: who wants it is what counts, routes of half a second ago may be gone."""
        self._wanted.update(self._union())

    def second(self) -> None:
        """A second is over, with one round in it."""
        self._count()
        watches, now_s = self._watches, self._network.clock.seconds
        parts = self._parts()
        there = parts[watches.at] * (parts[watches.at] == parts[watches.source])
        watches.since_s[there == 0] = now_s
        beyond_s = now_s - np.maximum(watches.last_s, watches.since_s) - watches.every
        self._outcome.longest_s = max(self._outcome.longest_s, float(beyond_s.max()))
        self._outcome.late += int((beyond_s > SETTLE_S + 1.0).sum())

    def finish(self) -> None:
        """Nothing has left for a while."""
        watches, outcome = self._watches, self._outcome
        silent = self._network.clock.seconds - watches.last_s > watches.every + 1.0
        outcome.missing = int(silent.sum())
        outcome.values, outcome.wanted = sum(self._carried.values()), sum(self._wanted.values())
        for link, carried in self._carried.items():
            if carried >= ENOUGH:
                outcome.worst = max(outcome.worst, carried / max(1, self._wanted[link]))
        for number in np.flatnonzero(silent)[:5].tolist():
            at, source = self._names[watches.at[number]], self._names[watches.source[number]]
            outcome.notes.append(f"without values at the end: a watch at {at} of a variable at {source}")

    def _parts(self) -> NDArray[np.int64]:
        """For each node a number that it shares with those it can reach, 0 if it does not run."""
        network, parts = self._network, np.zeros(len(self._names), np.int64)
        near: dict[str, list[str]] = {}
        for (a, b), link in network.links.items():
            if link.connected:
                near.setdefault(a, []).append(b)
                near.setdefault(b, []).append(a)
        number = 0
        for name in self._names:
            if parts[self._places[name]] or not network.nodes[name].running:
                continue
            number += 1
            ahead = [name]
            while ahead:
                place = self._places[here := ahead.pop()]
                if not parts[place] and network.nodes[here].running:
                    parts[place] = number
                    ahead += near.get(here, ())
        return parts

    def _count(self) -> None:
        """What links have carried since the last time."""
        for node in self._network.running():
            life = node.counts.lives
            for peer, port in node.ports.items():
                out = node.engine.port_counters(port)["status_out"]
                before = self._before.get((node.name, peer), (life, 0))
                self._carried[node.name, peer] += out - (before[1] if before[0] == life else 0)
                self._before[node.name, peer] = life, out
        self._outcome.values = sum(self._carried.values())

    def _union(self) -> Counter[tuple[str, str]]:
        """By link, how many variables of this round are wanted by a watcher behind it."""
        number = self._network.clock.wall_ns // SECOND
        found: Counter[tuple[str, str]] = Counter()
        self._peers = {node.name: {port: name for name, port in node.ports.items()} for node in self._network.running()}
        for node in self._network.running():
            for entry in node.core.variables.directory.walk():
                if entry.owner >= 0:
                    self._behind(node, entry, number, found, set())
        return found

    def _behind(self, node: Node, entry: Entry, number: int, found: Counter[tuple[str, str]], seen: set[str]) -> bool:
        """Whether a watcher at a node or behind it wants that round of a variable; counts it for each link to one."""
        seen.add(node.name)
        demand = entry.demand
        if demand is None:
            return False
        ports, wanted = self._peers[node.name], False
        for port, terms in demand.served.items():
            if port not in ports:
                wanted = wanted or any(number % max(1, term.interval_ns // SECOND) == 0 for term in terms)
                continue
            other = self._network.nodes[ports[port]]
            if other.name in seen or not other.running:
                continue
            next_entry = other.core.variables.directory.numbered(entry.variable.variable_id)
            if next_entry is not None and self._behind(other, next_entry, number, found, seen):
                found[node.name, other.name] += 1
                wanted = True
        return wanted


def _kept(node: Node) -> int:
    """Variables that a node knows, and what it looks for."""
    assert node.member is not None
    return len(node.core.variables.directory) + node.member.discovery.size


def _judge(report: Report, outcomes: list[Outcome]) -> None:
    largest = outcomes[-1]
    report.show("nodes", largest.nodes, "")
    report.show("nodes that left", largest.left, "")
    report.show("values carried by links", largest.values, "values")
    report.show("longest without a value beyond the interval, ends connected", largest.longest_s, "s")
    report.show("worst link with enough values: carried, of what was wanted behind it", largest.worst, "times")
    for outcome in outcomes:
        report.show(
            f"{outcome.nodes} nodes: variables and searches that a node keeps", float(np.mean(outcome.kept)), ""
        )
        for text in outcome.notes:
            report.note(f"{outcome.nodes} nodes: {text}")
    report.compare(
        "seconds that a watch was without values beyond interval and convergence", largest.late, "s", "==", 0
    )
    report.compare("watches without values at the end", largest.missing, "watches", "==", 0)
    report.compare("carried by all links, of what was wanted behind each", largest.values / max(1, largest.wanted),
                   "times", "<=", 1.05)  # fmt: skip
    report.compare("of the worst link", largest.worst, "times", "<=", 1.05)
