"""`chappe bench demand`: in a mesh without brokers variables go where they are wanted, and round what fails."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bench.measuring_mesh import MeasuringMesh, Pair
from bench.progress import steps
from bench.registry import DemandOptions
from bench.report import Options, Report
from chappe import connect
from chappe.client._status import StatusEvent
from chappe.client.client import Client
from chappe.errors import TimeoutExpired

VARIABLES, RATE = 1_000, 30
INTERVALS = (1, 10, 60)  # one of so many values: 30, 3 and 0.5 a second
WATCHED = 300  # variables of one watcher
PHASE_S = 4.0
PHASES = 12
DIAMOND_VARIABLES = 100
GAP_S = 0.5
READY_S = 30.0


def mesh_of(links: Mapping[Pair, float | None]) -> MeasuringMesh:
    """Nodes of a mesh that notice at once when a neighbour is gone; with a number a link can be cut."""
    return MeasuringMesh(links, "[mesh]\n", peer="heartbeat_s = 0.1\n")


class Publisher:
    """Variables of one client, all at one rate, each round with the stamp that is due then."""

    def __init__(self, client: Client, variables: int) -> None:
        self._client = client
        self._variables = variables
        self._running: asyncio.Task[None] | None = None
        self._stop = False
        self.rounds: list[int] = []  # that were published

    async def begin(self) -> None:
        """Register, and publish until `end`."""
        names = [f"v{number}" for number in range(self._variables)]
        self._group = await self._client.register_many("bench", names, rate=RATE)
        self._running = asyncio.create_task(self._publish())

    async def end(self) -> None:
        """The last round is out."""
        self._stop = True
        assert self._running is not None
        await self._running
        await self._client.flush()

    async def _publish(self) -> None:
        values = np.zeros(self._variables)
        number = time.time_ns() * RATE // 1_000_000_000 + 1
        while not self._stop:
            due_ns = -(-number * 1_000_000_000 // RATE)
            await asyncio.sleep(max(0.0, (due_ns - time.time_ns()) / 1e9))
            self._group.publish_array(values, due_ns)
            self.rounds.append(number)
            number += 1


@dataclass(slots=True)
class Watcher:
    """One client that watches some variables at one interval for some time."""

    node: str
    every: int
    variables: frozenset[int]
    client: Client | None = None
    first_s: list[float] = field(default_factory=list)  # of each: from the answer to all until its first value
    asked_s: list[float] = field(default_factory=list)  # and from the request
    since: int = 0  # the round from which on its demand counts
    until: int = 1 << 62


def run(options: Options, own: DemandOptions) -> Report:
    """A chain whose watchers come and go, and a diamond of which parts fail."""
    if own.sim:
        from bench import demand_sim  # the simulator is not for the other one

        return demand_sim.run(options, own)
    report = Report("demand")
    with steps(options.console, "demand", 2) as step:
        step("a chain, watchers come and go")
        asyncio.run(_chain(options, report, random.Random(own.seed or 0)))
        step("a diamond, a link and a node fail")
        asyncio.run(_diamond(options, report))
    return report


async def _chain(options: Options, report: Report, rng: random.Random) -> None:
    phases = 3 if options.quick else PHASES
    watchers: list[Watcher] = []
    async with (
        mesh_of({("a", "b"): None, ("b", "c"): None}) as nodes,
        connect(nodes.url("a"), name="publisher") as client,
    ):
        async with connect(nodes.url("b"), name="look-b") as at_b, connect(nodes.url("c"), name="look-c") as at_c:
            publisher = Publisher(client, VARIABLES)
            await publisher.begin()
            await _found(nodes, "c")
            before = await _crossed(at_b, "a"), await _crossed(at_c, "b")
            began = publisher.rounds[-1]
            for phase in range(phases):
                for watcher in [each for each in watchers if each.client is not None and rng.random() < 0.4]:
                    assert watcher.client is not None
                    await watcher.client.close()
                    watcher.client, watcher.until = None, publisher.rounds[-1]
                for every in INTERVALS:
                    node = rng.choice("bc")
                    chosen = frozenset(rng.sample(range(VARIABLES), WATCHED))
                    watcher = Watcher(node, every, chosen)
                    watchers.append(watcher)
                    await _watch(watcher, nodes.url(node), f"w{phase}-{every}", publisher)
                await asyncio.sleep(PHASE_S)
            await publisher.end()
            ended = publisher.rounds[-1]
            await asyncio.sleep(0.5)
            after = await _crossed(at_b, "a"), await _crossed(at_c, "b")
        for watcher in watchers:
            if watcher.client is not None:
                await watcher.client.close()
    rounds = [number for number in publisher.rounds if began < number <= ended]
    for title, nodes_behind, crossed in (
        ("a to b", "bc", after[0] - before[0]), ("b to c", "c", after[1] - before[1])
    ):  # fmt: skip
        behind = [watcher for watcher in watchers if watcher.node in nodes_behind]
        wanted = _union(rounds, behind)
        report.show(f"{title}: values wanted behind the link", wanted, "values")
        report.show(f"{title}: of all that were published", crossed / (len(rounds) * VARIABLES), "share")
        report.compare(f"{title}: carried, of what the minimal intervals say", crossed / wanted, "times", "<=", 1.02)
        report.compare(f"{title}: carried at least", crossed / wanted, "times", ">=", 0.98)
    for every in INTERVALS:
        firsts = [first for watcher in watchers if watcher.every == every for first in watcher.first_s]
        report.compare(
            f"first value of {len(firsts):,} watches at {RATE / every:g}/s, of their interval: longest",
            max(firsts) * RATE / every, "times", "<=", 1.0,
        )  # fmt: skip
        asked = [one for watcher in watchers if watcher.every == every for one in watcher.asked_s]
        report.show(f"{WATCHED} watches at {RATE / every:g}/s, from request to first value: longest", max(asked), "s")


async def _watch(watcher: Watcher, url: str, name: str, publisher: Publisher) -> None:
    """Watch its variables; the time from each answer to the first value."""
    client = watcher.client = await connect(url, name=name)
    watcher.since = publisher.rounds[-1]
    began = time.perf_counter()
    names = [("bench", f"v{number}") for number in sorted(watcher.variables)]
    stream = await client.watch_many(names, interval=watcher.every / RATE, wait_s=10.0)
    answered = time.perf_counter()
    deadline = answered + 10.0
    waiting = set(stream.watches)
    while waiting and time.perf_counter() < deadline:
        now = time.perf_counter()
        for watch in [each for each in waiting if each.updates]:
            waiting.discard(watch)
            watcher.first_s.append(now - answered)
            watcher.asked_s.append(now - began)
        await asyncio.sleep(0.002)
    watcher.first_s += [10.0] * len(waiting)


def _union(rounds: Iterable[int], watchers: Sequence[Watcher]) -> int:
    """How many values of these rounds are wanted by any of the watchers."""
    total = 0
    for number in rounds:
        wanted: set[int] = set()
        for watcher in watchers:
            if watcher.since < number <= watcher.until and number % watcher.every == 0:
                wanted |= watcher.variables
        total += len(wanted)
    return total


async def _crossed(client: Client, neighbour: str) -> int:
    """How many values came to the node of a client over its link to a neighbour."""
    return next(int(row["status_in"]) for row in await client.list("links") if row["name"] == neighbour)


async def _found(nodes: MeasuringMesh, name: str) -> None:
    """A node has found the first variable."""
    async with connect(nodes.url(name), name="first") as client:
        deadline = time.monotonic() + READY_S
        watch = await client.watch("bench", "v0", wait_s=READY_S)
        while not watch.updates:
            if time.monotonic() > deadline:
                raise TimeoutExpired(f"no value came to {name} within {READY_S:g} s")
            await asyncio.sleep(0.01)
    await asyncio.sleep(1.0)


async def _diamond(options: Options, report: Report) -> None:
    links = dict.fromkeys((("a", "b"), ("b", "d"), ("a", "c"), ("c", "d")), 0.0)
    kills = 1 if options.quick else options.rounds
    cuts: list[float] = []
    gaps: list[float] = []
    repeated = 0
    for number in range(2 * kills):
        async with mesh_of(links) as nodes, connect(nodes.url("a"), name="publisher") as client:
            publisher = Publisher(client, DIAMOND_VARIABLES)
            await publisher.begin()
            await _found(nodes, "d")
            async with connect(nodes.url("d"), name="watcher") as reader:
                names = [("bench", f"v{each}") for each in range(DIAMOND_VARIABLES)]
                taken: list[StatusEvent] = []
                stream = await reader.watch_many(names, wait_s=10.0)
                for watch in stream.watches:
                    watch.tap(taken.append)
                await asyncio.sleep(2.0)
                rows = {row["name"]: int(row["status_in"]) for row in await reader.list("links")}
                transit = max("bc", key=lambda name: rows.get(name, 0))
                if number % 2:
                    nodes.kill(transit)
                else:
                    nodes.relays[transit, "d"].cut()
                await asyncio.sleep(3.0)
                await publisher.end()
                of_each: dict[int, list[StatusEvent]] = {}
                for event in taken:
                    of_each.setdefault(event.variable_id, []).append(event)
                pairs = (pair for events in of_each.values() for pair in itertools.pairwise(events))
                longest_ns = max(later.received - earlier.received for earlier, later in pairs)
                (gaps if number % 2 else cuts).append(longest_ns / 1e9)
                repeated += len(taken) - len({(event.variable_id, event.created) for event in taken})
    report.compare("a transit node killed: longest gap of any variable", max(gaps), "s", "<=", GAP_S)
    report.compare("a link cut: longest gap of any variable", max(cuts), "s", "<=", GAP_S)
    report.compare("values repeated to watchers", repeated, "values", "==", 0)
